/* SPDX-License-Identifier: Apache-2.0
 * Information from NVIDIA's management library: visible GPUs, NVLinks, peer-to-peer access, and classes. The library
 * is loaded at run time if it exists. The declarations follow its documented, stable interface. */
#include "comm/topology/library.h"
#include "comm/topology/sources.h"

#define LINKS_MAX 18
#define VENDOR_NVIDIA 0x10de

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2, REMOTE_UNKNOWN = 255 };

typedef struct nvml_device *nvml_handle;

typedef struct nvml_pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} nvml_pci;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

/* clang-format off */
#define FUNCTIONS(F) \
    F(init, "nvmlInit_v2", (void)) \
    F(shutdown, "nvmlShutdown", (void)) \
    F(count, "nvmlDeviceGetCount_v2", (unsigned *)) \
    F(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvml_handle *)) \
    F(pci, "nvmlDeviceGetPciInfo_v3", (nvml_handle, nvml_pci *)) \
    F(name, "nvmlDeviceGetName", (nvml_handle, char *, unsigned)) \
    F(memory, "nvmlDeviceGetMemoryInfo", (nvml_handle, nvml_memory *)) \
    F(link_state, "nvmlDeviceGetNvLinkState", (nvml_handle, unsigned, int *)) \
    F(link_version, "nvmlDeviceGetNvLinkVersion", (nvml_handle, unsigned, unsigned *)) \
    F(link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (nvml_handle, unsigned, nvml_pci *)) \
    F(link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (nvml_handle, unsigned, int *)) \
    F(p2p, "nvmlDeviceGetP2PStatus", (nvml_handle, nvml_handle, int, int *)) \
    F(ancestor, "nvmlDeviceGetTopologyCommonAncestor", (nvml_handle, nvml_handle, int *))
/* clang-format on */

typedef struct nvml {
    FUNCTIONS(TX_TOPO_POINTER)
} nvml;

/* A GPU that the library lists, and the remote ends of its links. */
typedef struct gpu {
    nvml_handle handle;
    int32_t device;            /* index in the draft */
    int32_t switched;          /* links to switches */
    bool assumed;              /* some of these links are assumed to lead to a switch */
    int32_t failed;            /* error that ended the list of links; 0 if none */
    double rate;               /* of one link */
    int32_t remote[LINKS_MAX]; /* devices at the remote ends of direct links */
    int32_t remotes;
} gpu;

typedef struct session {
    nvml api;
    tx_draft *draft;
    gpu gpus[TX_TOPO_DEVICES_MAX];
    int32_t count;
} session;

/* ---- Devices --------------------------------------------------------------------------------- */

/* Returns the draft's device of a listed GPU. If the tree has no such function, adds a device without a location. */
static int32_t find_device(session *s, const nvml_pci *pci)
{
    int32_t device = tx_draft_device_at(s->draft, tx_draft_find_bus(s->draft, pci->id), 0);
    if (device >= 0 || (device = tx_draft_device(s->draft, TX_TOPO_GPU, 0)) < 0)
        return device;
    tx_topo_device *d = &s->draft->t->devices[device];
    d->bus = tx_draft_bus(s->draft, (uint64_t)pci->domain << 16 | (pci->bus & 0xFF) << 8 | (pci->device & 0x1F) << 3);
    d->vendor_id = VENDOR_NVIDIA;
    d->device_id = (int32_t)(pci->device_id >> 16);
    d->guessed = true;
    d->place = TX_TOPO_FROM_NVML;
    d->note = tx_draft_note(s->draft, true, "NVML lists %s, which the PCI tree does not show; SYS is a guess", d->bus);
    return device;
}

static void describe(session *s, unsigned index, const gpu *g)
{
    char name[96] = "";
    nvml_memory memory = {0};
    tx_topo_device *d = &s->draft->t->devices[g->device];
    d->source = TX_TOPO_FROM_NVML;
    d->vendor = "NVIDIA";
    if (s->api.name && s->api.name(g->handle, name, sizeof name - 1) == SUCCESS && *name)
        d->name = tx_draft_text(s->draft, name);
    if (s->api.memory && s->api.memory(g->handle, &memory) == SUCCESS && memory.total < INT64_MAX)
        d->memory = (int64_t)memory.total;
    if (!*d->system)
        d->system = tx_draft_format(s->draft, "nvml%u", index);
}

/* In a container, the PCI tree also shows GPUs that the container may not use. */
static void drop_invisible(session *s)
{
    int32_t dropped = 0;
    for (int32_t i = 0; i < s->draft->t->device_count; i++) {
        tx_topo_device *d = &s->draft->t->devices[i];
        if (d->kind != TX_TOPO_GPU || d->vendor_id != VENDOR_NVIDIA || d->source != TX_TOPO_FROM_HWLOC || *d->opencl)
            continue;
        d->source = TX_DRAFT_UNSURE;
        dropped++;
    }
    if (dropped > 0)
        tx_draft_note(s->draft, false, "%d NVIDIA GPU%s in the PCI tree that the driver does not list %s left out",
                      dropped, dropped > 1 ? "s" : "", dropped > 1 ? "are" : "is");
}

static void list_gpus(session *s, unsigned count)
{
    for (unsigned i = 0; i < count && !s->draft->status; i++) {
        gpu *g = &s->gpus[s->count];
        nvml_pci pci = {0};
        int code = s->api.handle(i, &g->handle);
        if (code == SUCCESS)
            code = s->api.pci(g->handle, &pci);
        pci.id[sizeof pci.id - 1] = '\0';
        if (code == SUCCESS) {
            g->device = find_device(s, &pci);
            if (g->device < 0)
                return;
            describe(s, i, g);
            s->count++;
        } else
            tx_draft_note(s->draft, true, "NVML does not describe its GPU %u (error %d); its NVML data are missing", i,
                          code);
    }
}

/* ---- Links ----------------------------------------------------------------------------------- */

/* Rate in one direction in GB/s, by generation. */
static double link_rate(unsigned version)
{
    static const double rates[] = {0, 20, 25, 25, 25, 50};
    return version < sizeof rates / sizeof rates[0] ? rates[version] : 0;
}

/* Counts one link by the device at its remote end. If a virtual machine hides the device, the link is assumed to
 * lead to a switch. */
static void count_link(session *s, gpu *g, unsigned link)
{
    nvml_pci remote = {0};
    int type = REMOTE_UNKNOWN;
    unsigned version = 0;
    if (s->api.link_version && s->api.link_version(g->handle, link, &version) == SUCCESS)
        g->rate = link_rate(version);
    if (s->api.link_remote_type && s->api.link_remote_type(g->handle, link, &type) != SUCCESS)
        type = REMOTE_UNKNOWN;
    bool known = s->api.link_remote && s->api.link_remote(g->handle, link, &remote) == SUCCESS;
    remote.id[sizeof remote.id - 1] = '\0';
    int32_t device = known ? tx_draft_device_at(s->draft, tx_draft_find_bus(s->draft, remote.id), 0) : -1;
    for (int32_t i = 0; i < s->count && type != REMOTE_SWITCH; i++)
        if (device >= 0 && s->gpus[i].device == device) {
            g->remote[g->remotes++] = device;
            return;
        }
    if (type == REMOTE_SWITCH || type == REMOTE_UNKNOWN) {
        g->switched++;
        g->assumed = g->assumed || type == REMOTE_UNKNOWN;
    }
}

/* Returns the number of direct links from one GPU to another. */
static int32_t direct_links(const gpu *from, const gpu *to)
{
    int32_t count = 0;
    for (int32_t i = 0; i < from->remotes; i++)
        count += from->remote[i] == to->device;
    return count;
}

static void read_links(session *s, gpu *g)
{
    for (unsigned link = 0; link < LINKS_MAX && s->api.link_state; link++) {
        int on = 0, code = s->api.link_state(g->handle, link, &on);
        if (code != SUCCESS) {
            g->failed = code == INVALID_ARGUMENT || code == NOT_SUPPORTED ? 0 : code;
            return;
        }
        if (on)
            count_link(s, g, link);
    }
}

static void add_link(session *s, int32_t a, int32_t b)
{
    const gpu *ga = &s->gpus[a], *gb = &s->gpus[b], *failed = ga->failed ? ga : gb;
    const int32_t there = direct_links(ga, gb), back = direct_links(gb, ga);
    tx_topo_pair link = tx_draft_links(TX_TOPO_NVLINK, TX_TOPO_FROM_NVML);
    int32_t through = ga->switched < gb->switched ? ga->switched : gb->switched;
    link.links = there > back ? there : back;
    if (link.links == 0 && through > 0) {
        link.links = through;
        link.switched = true;
        if (ga->assumed || gb->assumed) {
            link.note = tx_draft_note(s->draft, true,
                                      "NVML does not report the remote end of some NVLinks (as in virtual "
                                      "machines); they are assumed to lead to an NVSwitch");
        }
    }
    link.link_rate = link.links * ga->rate;
    if (link.links == 0 && failed->failed) {
        link.link = TX_TOPO_LINK_UNKNOWN;
        link.note = tx_draft_note(s->draft, true, "NVML fails on the links of %s (error %d)",
                                  s->draft->t->devices[failed->device].bus, failed->failed);
    }
    if (link.links > 0 || link.link == TX_TOPO_LINK_UNKNOWN)
        tx_draft_state(s->draft, ga->device, gb->device, TX_DRAFT_LINKS, &link);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static void read_p2p(session *s, const gpu *a, const gpu *b)
{
    static const tx_topo_p2p meaning[] = {TX_TOPO_P2P_OK, TX_TOPO_P2P_CNS, TX_TOPO_P2P_GNS,    TX_TOPO_P2P_TNS,
                                          TX_TOPO_P2P_DR, TX_TOPO_P2P_NS,  TX_TOPO_P2P_UNASKED};
    tx_topo_pair says = {0};
    for (int access = 0; access < TX_TOPO_ACCESS_COUNT; access++) {
        int value = -1; /* the library numbers the kinds of access as tx_topo_access does */
        if (s->api.p2p(a->handle, b->handle, access, &value) == SUCCESS && value >= 0 &&
            value < (int)(sizeof meaning / sizeof meaning[0]))
            says.p2p[access] = meaning[value];
    }
    tx_draft_state(s->draft, a->device, b->device, TX_DRAFT_P2P, &says);
}

static void read_class(session *s, const gpu *a, const gpu *b)
{
    static const tx_topo_class levels[] = {TX_TOPO_LOC, TX_TOPO_PIX,  TX_TOPO_PXB,
                                           TX_TOPO_PHB, TX_TOPO_NODE, TX_TOPO_SYS};
    int level = -1;
    tx_topo_pair says = {.class_source = TX_TOPO_FROM_NVML, .note = -1};
    if (s->api.ancestor(a->handle, b->handle, &level) != SUCCESS || level < 0 || level > 50 || level % 10 != 0)
        return;
    says.class_ = levels[level / 10];
    tx_draft_state(s->draft, a->device, b->device, TX_DRAFT_CLASS, &says);
}

static void read_pairs(session *s)
{
    for (int32_t i = 0; i < s->count; i++)
        read_links(s, &s->gpus[i]);
    for (int32_t a = 0; a < s->count; a++)
        for (int32_t b = 0; b < s->count && !s->draft->status; b++) {
            if (a == b)
                continue;
            if (a < b)
                add_link(s, a, b);
            if (s->api.p2p)
                read_p2p(s, &s->gpus[a], &s->gpus[b]);
            if (s->api.ancestor)
                read_class(s, &s->gpus[a], &s->gpus[b]);
        }
}

/* Runs all queries between initialization and shutdown of the library. */
static void query_all(session *s)
{
    unsigned count = 0;
    int code = s->api.count(&count);
    if (code != SUCCESS || count > TX_TOPO_DEVICES_MAX) {
        tx_draft_note(s->draft, true, "NVML does not list its GPUs (error %d); NVLinks are not shown", code);
        return;
    }
    list_gpus(s, count);
    drop_invisible(s);
    read_pairs(s);
}

static int32_t nvidia_gpus(const tx_draft *draft)
{
    int32_t count = 0;
    for (int32_t i = 0; i < draft->t->device_count; i++)
        count += draft->t->devices[i].kind == TX_TOPO_GPU && draft->t->devices[i].vendor_id == VENDOR_NVIDIA;
    return count;
}

void tx_topo_nvml(tx_draft *draft)
{
    session s = {.draft = draft};
    void *library = tx_topo_library("libnvidia-ml.so.1");
    const char *problem = NULL;
    int code = SUCCESS;
    nvml *api = &s.api;
    if (library) {
        FUNCTIONS(TX_TOPO_LOAD)
    }
    if (!library)
        problem = "was not found";
    else if (!api->init || !api->count || !api->handle || !api->pci)
        problem = "lacks functions";
    else if ((code = api->init()) != SUCCESS)
        problem = "does not start";
    if (!problem) {
        query_all(&s);
        if (api->shutdown)
            api->shutdown();
    } else if (nvidia_gpus(draft) > 1)
        tx_draft_note(draft, true, "NVML: libnvidia-ml.so.1 %s (%d); NVLinks are not shown", problem, code);
    if (library)
        dlclose(library);
}
