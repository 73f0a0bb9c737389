/* SPDX-License-Identifier: Apache-2.0
 * A made-up libze_loader.so.1: a card with two tiles at 81:00.0, whose second tile has two ports of eight lanes that
 * lead to the card at 82:00.0, and a port that is down. */
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct port_id {
    uint32_t fabric, attach;
    uint8_t number;
} port_id;

typedef struct port_speed {
    int64_t bits;
    int32_t lanes;
} port_speed;

typedef struct pci_properties {
    int32_t type;
    void *next;
    uint32_t domain, bus, device, function;
} pci_properties;

typedef struct port_properties {
    int32_t type;
    void *next;
    char model[256];
    uint8_t on_tile;
    uint32_t tile;
    port_id id;
    port_speed receive, send;
} port_properties;

typedef struct port_state {
    int32_t type;
    const void *next;
    int32_t status;
    uint32_t issues, failures;
    port_id remote;
    port_speed receive, send;
} port_state;

static char driver, cards[2], ports[2][3];

EXPORT int zesInit(uint32_t flags)
{
    return (int)flags;
}

static int give(uint32_t *count, void **handles, char *first, uint32_t have)
{
    for (uint32_t i = 0; i < have && i < *count && handles; i++)
        handles[i] = first + i;
    *count = have;
    return 0;
}

EXPORT int zesDriverGet(uint32_t *count, void **handles)
{
    return give(count, handles, &driver, 1);
}

EXPORT int zesDeviceGet(void *handle, uint32_t *count, void **handles)
{
    return handle == &driver ? give(count, handles, cards, 2) : 1;
}

EXPORT int zesDevicePciGetProperties(void *handle, pci_properties *pci)
{
    if (pci->type != 0x2)
        return 1;
    pci->domain = pci->device = pci->function = 0;
    pci->bus = handle == &cards[0] ? 0x81 : 0x82;
    return 0;
}

EXPORT int zesDeviceEnumFabricPorts(void *handle, uint32_t *count, void **handles)
{
    return give(count, handles, ports[handle == &cards[0] ? 0 : 1], 3);
}

static int card_of(void *handle)
{
    return (char *)handle >= ports[1];
}

static uint8_t number_of(void *handle)
{
    return (uint8_t)((char *)handle - ports[card_of(handle)]);
}

EXPORT int zesFabricPortGetProperties(void *handle, port_properties *p)
{
    int card = card_of(handle);
    if (p->type != 0x6)
        return 1;
    p->on_tile = card == 0;
    p->tile = 1;
    p->id = (port_id){10u + (uint32_t)card, 1, number_of(handle)};
    return 0;
}

EXPORT int zesFabricPortGetState(void *handle, port_state *s)
{
    int card = card_of(handle);
    if (s->type != 0x19)
        return 1;
    s->status = number_of(handle) == 2 ? 3 : 1;
    s->remote = (port_id){10u + (uint32_t)!card, 1, number_of(handle)};
    s->receive = (port_speed){53125000000, 8};
    return 0;
}
