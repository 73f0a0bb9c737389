/* SPDX-License-Identifier: Apache-2.0
 * Information from AMD's ROCm SMI: XGMI links, peer-to-peer access, memory. The library is loaded at run time if it
 * exists. The declarations follow its documented interface. */
#include "comm/topology/library.h"
#include "comm/topology/sources.h"

enum { SUCCESS = 0, LINK_XGMI = 2, MEMORY_VRAM = 0, ONE_HOP = 15 };

/* clang-format off */
#define FUNCTIONS(F) \
    F(init, "rsmi_init", (uint64_t)) \
    F(shut_down, "rsmi_shut_down", (void)) \
    F(count, "rsmi_num_monitor_devices", (uint32_t *)) \
    F(pci, "rsmi_dev_pci_id_get", (uint32_t, uint64_t *)) \
    F(link_type, "rsmi_topo_get_link_type", (uint32_t, uint32_t, uint64_t *, int *)) \
    F(weight, "rsmi_topo_get_link_weight", (uint32_t, uint32_t, uint64_t *)) \
    F(bandwidth, "rsmi_minmax_bandwidth_get", (uint32_t, uint32_t, uint64_t *, uint64_t *)) \
    F(memory, "rsmi_dev_memory_total_get", (uint32_t, int, uint64_t *)) \
    F(accessible, "rsmi_is_P2P_accessible", (uint32_t, uint32_t, bool *))
/* clang-format on */

typedef struct rsmi {
    FUNCTIONS(TX_TOPO_POINTER)
} rsmi;

typedef struct session {
    rsmi api;
    tx_draft *draft;
    int32_t devices[TX_TOPO_DEVICES_MAX]; /* index in the draft by the library's index; -1 if there is none */
    uint32_t count;
} session;

/* Extracts domain, bus, device and function from the library's id, which has other fields between them. */
static uint64_t key_of(uint64_t id)
{
    return (id >> 32) << 16 | (id & 0xFFFF);
}

/* The library's k-th device at an address is the k-th partition of that function. If the tree lists fewer
 * partitions, a device is added. */
static int32_t find_device(session *s, uint32_t index, uint64_t id)
{
    uint64_t other = 0;
    int32_t partition = 0;
    for (uint32_t i = 0; i < index; i++)
        partition += s->api.pci(i, &other) == SUCCESS && key_of(other) == key_of(id);
    int32_t node = tx_draft_find_key(s->draft, key_of(id)), device = tx_draft_device_at(s->draft, node, partition);
    int32_t whole = tx_draft_device_at(s->draft, node, 0);
    if (device >= 0 || whole < 0 || (device = tx_draft_device(s->draft, TX_TOPO_GPU, node)) < 0)
        return device;
    tx_topo_device *d = &s->draft->t->devices[device];
    d->partition = partition;
    d->name = s->draft->t->devices[whole].name;
    d->place = TX_TOPO_FROM_RSMI;
    return device;
}

static void list_devices(session *s)
{
    for (uint32_t i = 0; i < s->count && !s->draft->status; i++) {
        uint64_t id = 0, memory = 0;
        int code = s->api.pci(i, &id);
        s->devices[i] = code == SUCCESS ? find_device(s, i, id) : -1;
        if (code != SUCCESS)
            tx_draft_note(s->draft, true, "ROCm SMI does not report the address of its GPU %u (error %d)", i, code);
        if (s->devices[i] < 0)
            continue;
        tx_topo_device *d = &s->draft->t->devices[s->devices[i]];
        d->source = TX_TOPO_FROM_RSMI;
        if (!*d->system)
            d->system = tx_draft_format(s->draft, "rsmi%u", i);
        if (s->api.memory && s->api.memory(i, MEMORY_VRAM, &memory) == SUCCESS && memory < INT64_MAX)
            d->memory = (int64_t)memory;
    }
}

static void read_link(session *s, uint32_t a, uint32_t b)
{
    uint64_t hops = 0, weight = 0, one = 0, all = 0;
    int type = 0, code = s->api.link_type(a, b, &hops, &type);
    tx_topo_pair link = tx_draft_links(TX_TOPO_XGMI, TX_TOPO_FROM_RSMI);
    if (code == SUCCESS && type != LINK_XGMI)
        return;
    if (code != SUCCESS) {
        link.link = TX_TOPO_LINK_UNKNOWN;
        link.note = tx_draft_note(s->draft, true, "ROCm SMI fails on the link between its GPUs %u and %u (error %d)", a,
                                  b, code);
        tx_draft_state(s->draft, s->devices[a], s->devices[b], TX_DRAFT_LINKS, &link);
        return;
    }
    if (s->api.weight && s->api.weight(a, b, &weight) == SUCCESS)
        link.indirect = weight > ONE_HOP;
    if (!s->api.bandwidth || s->api.bandwidth(a, b, &one, &all) != SUCCESS)
        one = 0;
    tx_draft_xgmi(s->draft, s->devices[a], s->devices[b], link, (int64_t)one, (int64_t)all,
                  "ROCm SMI does not report how many XGMI links there are between some GPUs");
}

static void read_pairs(session *s)
{
    for (uint32_t a = 0; a < s->count; a++)
        for (uint32_t b = 0; b < s->count && !s->draft->status; b++) {
            bool reachable = false;
            if (a == b || s->devices[a] < 0 || s->devices[b] < 0)
                continue;
            if (a < b && s->api.link_type)
                read_link(s, a, b);
            if (!s->api.accessible || s->api.accessible(a, b, &reachable) != SUCCESS)
                continue;
            tx_topo_pair access = {0};
            access.p2p[TX_TOPO_ACCESS_READ] = access.p2p[TX_TOPO_ACCESS_WRITE] =
                reachable ? TX_TOPO_P2P_OK : TX_TOPO_P2P_NS;
            tx_draft_state(s->draft, s->devices[a], s->devices[b], TX_DRAFT_P2P, &access);
        }
}

static void query_all(session *s)
{
    int code = s->api.count(&s->count);
    if (code != SUCCESS || s->count > TX_TOPO_DEVICES_MAX) {
        tx_draft_note(s->draft, true, "ROCm SMI does not list its GPUs (error %d)", code);
        return;
    }
    list_devices(s);
    if (!s->draft->status)
        read_pairs(s);
}

void tx_topo_rsmi(tx_draft *draft)
{
    session s = {.draft = draft};
    void *library = tx_topo_library("librocm_smi64.so.1");
    if (!library)
        library = tx_topo_library("librocm_smi64.so");
    if (!library)
        return; /* sysfs has already provided the XGMI links */
    rsmi *api = &s.api;
    FUNCTIONS(TX_TOPO_LOAD)
    if (api->init && api->count && api->pci) {
        int code = api->init(0);
        if (code == SUCCESS) {
            query_all(&s);
            if (api->shut_down)
                api->shut_down();
        } else
            tx_draft_note(draft, true, "ROCm SMI does not start (error %d)", code);
    }
    dlclose(library);
}
