/* SPDX-License-Identifier: Apache-2.0
 * What Intel's Level Zero tells: Xe Links. The loader is opened where it is there; declarations are those of its
 * documented system-management interface (zes_api). */
#include "comm/topology/library.h"
#include "comm/topology/sources.h"

#define PORTS_MAX 1024
#define HANDLES_MAX 256

enum { SUCCESS = 0, STRUCT_PCI = 0x2, STRUCT_PORT = 0x6, STRUCT_PORT_STATE = 0x19, HEALTHY = 1, DEGRADED = 2 };

typedef void *handle;

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
    int32_t generation, width;
    int64_t bandwidth;
    uint8_t counters[3];
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

/* clang-format off */
#define FUNCTIONS(F) \
    F(init, "zesInit", (uint32_t)) \
    F(drivers, "zesDriverGet", (uint32_t *, handle *)) \
    F(devices, "zesDeviceGet", (handle, uint32_t *, handle *)) \
    F(pci, "zesDevicePciGetProperties", (handle, pci_properties *)) \
    F(ports, "zesDeviceEnumFabricPorts", (handle, uint32_t *, handle *)) \
    F(properties, "zesFabricPortGetProperties", (handle, port_properties *)) \
    F(state, "zesFabricPortGetState", (handle, port_state *))
/* clang-format on */

typedef struct level_zero {
    FUNCTIONS(TX_TOPO_POINTER)
} level_zero;

typedef struct port {
    int32_t device; /* of the draft */
    port_id id, remote;
    port_speed speed;
} port;

typedef struct session {
    level_zero api;
    tx_draft *draft;
    port ports[PORTS_MAX];
    int32_t count;
} session;

static void read_port(session *s, handle h, int32_t node)
{
    port_properties properties = {.type = STRUCT_PORT};
    port_state state = {.type = STRUCT_PORT_STATE};
    if (s->count == PORTS_MAX || s->api.properties(h, &properties) != SUCCESS || s->api.state(h, &state) != SUCCESS ||
        (state.status != HEALTHY && state.status != DEGRADED))
        return;
    int32_t device = tx_draft_device_at(s->draft, node, properties.on_tile ? (int32_t)(properties.tile & 0xFF) : 0);
    if (device < 0)
        device = tx_draft_device_at(s->draft, node, 0);
    s->ports[s->count++] =
        (port){.device = device, .id = properties.id, .remote = state.remote, .speed = state.receive};
}

static void read_device(session *s, handle h)
{
    handle ports[HANDLES_MAX];
    uint32_t count = HANDLES_MAX;
    pci_properties pci = {.type = STRUCT_PCI};
    if (s->api.pci(h, &pci) != SUCCESS)
        return;
    const uint64_t key =
        (uint64_t)pci.domain << 16 | (pci.bus & 0xFF) << 8 | (pci.device & 0x1F) << 3 | (pci.function & 7);
    const int32_t node = tx_draft_find_key(s->draft, key), device = tx_draft_device_at(s->draft, node, 0);
    if (device < 0)
        return;
    s->draft->t->devices[device].source = TX_TOPO_FROM_LEVEL_ZERO;
    if (!s->api.ports || !s->api.properties || !s->api.state)
        return;
    int code = s->api.ports(h, &count, ports);
    if (code != SUCCESS)
        tx_draft_note(s->draft, false, "Level Zero does not list the fabric ports of %s (error 0x%x)",
                      s->draft->t->nodes[node].bus, (unsigned)code);
    for (uint32_t i = 0; code == SUCCESS && i < count && i < HANDLES_MAX; i++)
        read_port(s, ports[i], node);
}

static bool same_port(const port_id *a, const port_id *b)
{
    return a->fabric == b->fabric && a->attach == b->attach && a->number == b->number;
}

/* The device that a port leads to; -1 none that is listed. */
static int32_t other_end(const session *s, const port *p)
{
    for (int32_t i = 0; i < s->count; i++)
        if (same_port(&p->remote, &s->ports[i].id))
            return s->ports[i].device;
    return -1;
}

/* Lanes of all ports of one device that lead to another. */
static void add_links(session *s)
{
    for (int32_t i = 0; i < s->count; i++) {
        const int32_t a = s->ports[i].device, b = other_end(s, &s->ports[i]);
        tx_topo_pair link = tx_draft_links(TX_TOPO_XELINK, TX_TOPO_FROM_LEVEL_ZERO);
        for (int32_t k = 0; k < s->count && b >= 0; k++)
            if (s->ports[k].device == a && other_end(s, &s->ports[k]) == b) {
                link.links += s->ports[k].speed.lanes > 0 ? s->ports[k].speed.lanes : 0;
                link.link_rate += (double)s->ports[k].speed.bits * s->ports[k].speed.lanes / 8e9;
            }
        if (b >= 0 && link.link_rate >= 0)
            tx_draft_state(s->draft, a, b, TX_DRAFT_LINKS, &link);
    }
}

static void ask(session *s)
{
    handle drivers[16], devices[HANDLES_MAX];
    uint32_t driver_count = 16;
    if (s->api.drivers(&driver_count, drivers) != SUCCESS)
        return;
    for (uint32_t d = 0; d < driver_count && d < 16; d++) {
        uint32_t count = HANDLES_MAX;
        if (s->api.devices(drivers[d], &count, devices) != SUCCESS)
            continue;
        for (uint32_t i = 0; i < count && i < HANDLES_MAX && !s->draft->status; i++)
            read_device(s, devices[i]);
    }
    add_links(s);
}

void tx_topo_level_zero(tx_draft *draft)
{
    session s = {.draft = draft};
    void *library = tx_topo_library("libze_loader.so.1");
    if (!library)
        return;
    level_zero *api = &s.api;
    FUNCTIONS(TX_TOPO_LOAD)
    if (api->init && api->drivers && api->devices && api->pci) {
        int code = api->init(0);
        if (code == SUCCESS)
            ask(&s);
        else
            tx_draft_note(draft, false, "Level Zero does not start (error 0x%x): Xe Links are not shown",
                          (unsigned)code);
    }
    dlclose(library);
}
