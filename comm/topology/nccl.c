/* SPDX-License-Identifier: Apache-2.0
 * NCCL's (and RCCL's) topology XML. It tells one element a PCIe switch and no host bridges: a switch becomes an
 * upstream port with a downstream port above each child, and each way into a CPU its own host bridge. */
#include "comm/topology/sources.h"

#include <expat.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEPTH_MAX 64
#define NUMA_MAX 4096

/* An end of NVLinks or XGMI links, kept until all devices are known. */
typedef struct target {
    int32_t device;
    tx_topo_link_kind kind;
    int32_t count;
    bool to_switch;
    char bus[32];
} target;

/* An open element. */
typedef struct level {
    enum { OTHER, SYSTEM, CPU, PCI, GPU, NIC } element;
    int32_t node;   /* of the tree: the place of a CPU, the bridge or function of PCI, that of its parent else */
    int32_t device; /* GPU: the draft's */
    bool is_switch;
    int32_t nic_count; /* PCI: NICs named so far */
} level;

typedef struct reader {
    XML_Parser parser;
    const XML_Char **attributes; /* of the element that opens: names and values in turn, NULL ends them */
    tx_draft *draft;
    level levels[DEPTH_MAX + 1]; /* [0] is outside */
    int32_t depth;
    target *targets;
    int32_t target_count;
    char host[32];     /* the first host's hash, where the file tells one */
    int32_t skipped;   /* the depth of an element that is left out with all in it; 0 none */
    int32_t bare;      /* functions whose kind nothing tells */
    bool bridges_told; /* the file names host bridges */
    tx_status status;
} reader;

static level *top(reader *r)
{
    return &r->levels[r->depth];
}

/* The element around the one that has just opened. */
static level *around(reader *r)
{
    return &r->levels[r->depth - 1];
}

/* The value of an attribute of the element that opens; "" where there is none. */
static const char *get(const reader *r, const char *attribute)
{
    for (const XML_Char **at = r->attributes; *at; at += 2)
        if (strcmp(at[0], attribute) == 0)
            return at[1];
    return "";
}

static int32_t number_of(const reader *r, const char *attribute, int base, int32_t most)
{
    const char *text = get(r, attribute);
    char *end = NULL;
    long value = strtol(text, &end, base);
    return end == text || value < 0 || value > most ? 0 : (int32_t)value;
}

/* ---- CPUs ------------------------------------------------------------------------------------------ */

/* A mask as a set; "" where it is none. */
static const char *mask_text(tx_draft *draft, const char *mask)
{
    char *set = NULL;
    const tx_status status = tx_topo_mask_parse(mask, &set);
    if (status == TX_MEMORY)
        draft->status = status;
    const char *copy = tx_draft_text(draft, set ? set : "");
    free(set);
    return copy;
}

/* What the first CPU is, all others are. NCCL takes the extended family of AMD's for its upper digit. */
static void read_model(reader *r)
{
    tx_topology *t = r->draft->t;
    const int32_t family = number_of(r, "familyid", 10, 0xFFF);
    if (*t->arch || *t->cpu_vendor)
        return;
    t->arch = tx_draft_text(r->draft, get(r, "arch"));
    t->cpu_vendor = tx_draft_text(r->draft, get(r, "vendor"));
    t->cpu_family = family > 0xF ? 0xF + (family >> 4) : family;
    t->cpu_model = number_of(r, "modelid", 10, 0xFFF);
}

static tx_status open_cpu(reader *r)
{
    const char *text = get(r, "numaid");
    char *end = NULL;
    if (around(r)->element != SYSTEM)
        return tx_fail(TX_FORMAT, "<cpu> is not within <system>");
    const char *host = get(r, "host_hash");
    if (!*r->host)
        snprintf(r->host, sizeof r->host, "%s", host);
    if (strncmp(r->host, host, sizeof r->host - 1) != 0) {
        tx_draft_note(r->draft, false, "NCCL's file tells several hosts: the first is shown");
        r->skipped = r->depth;
        return r->draft->status;
    }
    long numa = strtol(text, &end, 10);
    if (end == text || *end || numa < -1 || numa > NUMA_MAX)
        return tx_fail(TX_FORMAT, "numaid=\"%.40s\" is no number of a NUMA node", text);
    /* -1: the system does not say what is near. */
    int32_t node = numa < 0 ? 0 : tx_draft_node(r->draft, TX_TOPO_GROUP, 0);
    if (node < 0)
        return r->draft->status;
    tx_topo_node *place = &r->draft->t->nodes[node];
    const char *cpus = mask_text(r->draft, get(r, "affinity"));
    place->cpus = cpus;
    read_model(r);
    top(r)->element = CPU;
    top(r)->node = node;
    if (numa < 0)
        return r->draft->status;
    place->name = tx_draft_format(r->draft, "NUMA %ld", numa);
    place->nodes = tx_draft_format(r->draft, "%ld", numa);
    for (int32_t i = 0; i < r->draft->t->numa_count; i++)
        if (r->draft->t->numa[i].number == numa)
            return tx_fail(TX_FORMAT, "NUMA node %ld is listed twice", numa);
    int32_t index = tx_draft_numa(r->draft, (int32_t)numa);
    if (index >= 0) {
        r->draft->t->numa[index].cpus = cpus;
        r->draft->t->numa[index].node = node;
    }
    return r->draft->status;
}

/* ---- PCI --------------------------------------------------------------------------------------------- */

static int32_t gpus_at(const reader *r, int32_t node)
{
    int32_t count = 0;
    while (tx_draft_device_at(r->draft, node, count) >= 0)
        count++;
    return count;
}

/* The host bridge of a child of a CPU: its own, unless the file is txtopo's, which names them. */
static int32_t host_bridge(reader *r, int32_t cpu)
{
    const tx_topology *t = r->draft->t;
    const char *name = get(r, "host_bridge");
    r->bridges_told = r->bridges_told || *name;
    for (int32_t i = cpu + 1; i < t->node_count && *name; i++)
        if (t->nodes[i].kind == TX_TOPO_HOST_BRIDGE && t->nodes[i].parent == cpu && strcmp(t->nodes[i].bus, name) == 0)
            return i;
    const int32_t index = tx_draft_node(r->draft, TX_TOPO_HOST_BRIDGE, cpu);
    if (index >= 0)
        t->nodes[index].bus = tx_draft_text(r->draft, name);
    return index;
}

/* What a child of the open element hangs from: a host bridge, or a downstream port. */
static int32_t port_for_child(reader *r)
{
    const level *parent = around(r);
    if (parent->element == CPU)
        return host_bridge(r, parent->node);
    /* What has children is a switch, whatever its class says. */
    r->draft->t->nodes[parent->node].kind = TX_TOPO_BRIDGE;
    around(r)->is_switch = true;
    return tx_draft_node(r->draft, TX_TOPO_BRIDGE, parent->node);
}

static tx_status open_pci(reader *r)
{
    const level *parent = around(r);
    if (parent->element != CPU && parent->element != PCI)
        return tx_fail(TX_FORMAT, "<pci> is neither within <cpu> nor within <pci>");
    if (parent->element == PCI && (parent->nic_count > 0 || gpus_at(r, parent->node) > 0))
        return tx_fail(TX_FORMAT, "<pci> is within a device");
    int32_t port = port_for_child(r);
    if (port < 0)
        return r->draft->status;
    int32_t class_ = number_of(r, "class", 16, 0xFFFFFF);
    top(r)->element = PCI;
    top(r)->is_switch = class_ >> 8 == 0x0604;
    int32_t index = tx_draft_node(r->draft, top(r)->is_switch ? TX_TOPO_BRIDGE : TX_TOPO_FUNCTION, port);
    if (index < 0)
        return r->draft->status;
    top(r)->node = index;
    tx_topo_node *node = &r->draft->t->nodes[index];
    uint64_t key = 0;
    if (!tx_topo_bus_parse(get(r, "busid"), &key))
        return tx_fail(TX_FORMAT, "busid=\"%.40s\" is no PCI bus id", get(r, "busid"));
    node->bus = tx_draft_bus(r->draft, key);
    node->pci_class = class_ >> 8;
    node->vendor_id = number_of(r, "vendor", 16, 0xFFFF);
    node->device_id = number_of(r, "device", 16, 0xFFFF);
    node->link.speed = strtod(get(r, "link_speed"), NULL);
    if (!(node->link.speed > 0 && node->link.speed < 1024))
        node->link.speed = 0;
    node->link.width = number_of(r, "link_width", 10, 64);
    node->link.rate = tx_topo_pcie_rate(&node->link, false);
    node->link.source = node->link.rate > 0 ? TX_TOPO_FROM_NCCL : TX_TOPO_FROM_NOWHERE;
    return r->draft->status;
}

/* ---- Devices -------------------------------------------------------------------------------------------- */

/* A device of the function of `l`; -1 after a failure. */
static int32_t add_device(reader *r, const level *l, tx_topo_device_kind kind, const char *system, int32_t partition)
{
    int32_t index = tx_draft_device(r->draft, kind, l->node);
    if (index < 0)
        return -1;
    tx_topo_device *d = &r->draft->t->devices[index];
    d->partition = partition;
    d->source = d->place = TX_TOPO_FROM_NCCL;
    d->system = tx_draft_text(r->draft, *system || kind == TX_TOPO_GPU ? system : d->bus);
    return index;
}

static tx_status open_gpu(reader *r)
{
    level *pci = around(r);
    if (pci->element != PCI || pci->is_switch)
        return tx_fail(TX_FORMAT, "<gpu> is not within a <pci> that is a device");
    top(r)->element = GPU;
    top(r)->node = pci->node;
    top(r)->device = add_device(r, pci, TX_TOPO_GPU, "", gpus_at(r, pci->node));
    if (top(r)->device < 0)
        return r->draft->status;
    tx_topo_device *d = &r->draft->t->devices[top(r)->device];
    const char *library = d->vendor_id == 0x10de ? "nvml" : d->vendor_id == 0x1002 ? "rsmi" : "";
    d->name = tx_draft_text(r->draft, get(r, "gcn"));
    d->sm = number_of(r, "sm", 10, 999);
    if (*library && *get(r, "dev"))
        d->system = tx_draft_format(r->draft, "%s%" PRId32, library, number_of(r, "dev", 10, TX_TOPO_DEVICES_MAX));
    return r->draft->status;
}

/* A NIC a name: its ports are listed one by one. NICs that hang from a CPU without a PCI function are left out. */
static tx_status open_net(reader *r)
{
    const char *name = get(r, "name");
    level *nic = around(r), *pci = nic - 1;
    if (nic->element != NIC)
        return tx_fail(TX_FORMAT, "<net> is not within <nic>");
    if (pci->element != PCI || pci->is_switch) {
        tx_draft_note(r->draft, false, "NIC %s has no PCI function in the file: left out", name);
        return r->draft->status;
    }
    const char *kept = tx_draft_text(r->draft, name);
    for (int32_t i = 0; i < r->draft->t->device_count; i++)
        if (r->draft->t->devices[i].node == pci->node && strcmp(r->draft->t->devices[i].system, kept) == 0)
            return r->draft->status;
    add_device(r, pci, TX_TOPO_NIC, kept, pci->nic_count++);
    return r->draft->status;
}

static tx_status open_link(reader *r, tx_topo_link_kind kind)
{
    if (around(r)->element != GPU)
        return tx_fail(TX_FORMAT, "links are not within <gpu>");
    if (number_of(r, "count", 10, 999) == 0)
        return tx_fail(TX_FORMAT, "a link has no count");
    target *t = TX_DRAFT_APPEND(r->draft, r->targets, r->target_count);
    if (!t)
        return r->draft->status;
    *t = (target){.device = around(r)->device, .kind = kind, .count = number_of(r, "count", 10, 999)};
    snprintf(t->bus, sizeof t->bus, "%s", get(r, "target"));
    t->to_switch = number_of(r, "tclass", 16, 0xFFFFFF) >> 8 == 0x0680;
    return TX_OK;
}

/* Topology files that are handed to NCCL list functions by their class alone. */
static tx_status close_pci(reader *r, const level *pci)
{
    const tx_topo_node *node = &r->draft->t->nodes[pci->node];
    bool display = node->pci_class >> 8 == 0x03 || node->pci_class == 0x1200;
    if (pci->is_switch)
        return TX_OK;
    if (display && gpus_at(r, pci->node) == 0)
        add_device(r, pci, TX_TOPO_GPU, "", 0);
    else if ((node->pci_class == 0x0207 || node->pci_class == 0x0200) && pci->nic_count == 0)
        add_device(r, pci, TX_TOPO_NIC, "", 0);
    r->bare += node->pci_class == 0 && pci->nic_count == 0 && gpus_at(r, pci->node) == 0;
    return r->draft->status;
}

/* ---- Links -------------------------------------------------------------------------------------------------- */

static void add_link(reader *r, int32_t a, int32_t b, tx_topo_link_kind kind, int32_t count, tx_topo_confidence how)
{
    tx_topo_pair link = tx_draft_links(kind, TX_TOPO_FROM_NCCL);
    link.links = count;
    link.link_confidence = how;
    link.switched = how == TX_TOPO_DERIVED;
    if (count > 0)
        tx_draft_state(r->draft, a, b, TX_DRAFT_LINKS, &link);
}

/* Two GPUs on switches have as many links as the one with fewer. */
static void resolve_links(reader *r)
{
    int32_t through[TX_TOPO_DEVICES_MAX][TX_TOPO_LINK_COUNT] = {0};
    const int32_t n = r->draft->t->device_count;
    for (int32_t i = 0; i < r->target_count; i++) {
        const target *t = &r->targets[i];
        int32_t other = tx_draft_device_at(r->draft, tx_draft_find_bus(r->draft, t->bus), 0);
        int32_t *sum = &through[t->device][t->kind];
        if (other >= 0)
            add_link(r, t->device, other, t->kind, t->count, TX_TOPO_STATED);
        else if (t->to_switch)
            *sum = *sum > 999 ? *sum : *sum + t->count;
    }
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = a + 1; b < n; b++)
            for (tx_topo_link_kind kind = TX_TOPO_NVLINK; kind <= TX_TOPO_XGMI; kind++) {
                const int32_t mine = through[a][kind], theirs = through[b][kind];
                add_link(r, a, b, kind, mine < theirs ? mine : theirs, TX_TOPO_DERIVED);
            }
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

static tx_status open_element(reader *r, const char *name)
{
    *top(r) = (level){.element = OTHER, .node = around(r)->node, .device = -1};
    if (r->depth == 1) {
        if (strcmp(name, "system") != 0)
            return tx_fail(TX_FORMAT, "<%.40s> is not <system>", name);
        top(r)->element = SYSTEM;
        top(r)->node = tx_draft_node(r->draft, TX_TOPO_MACHINE, -1);
        return r->draft->status;
    }
    static const struct {
        const char *name;
        tx_status (*open)(reader *r);
    } elements[] = {{"cpu", open_cpu}, {"pci", open_pci}, {"gpu", open_gpu}, {"net", open_net}};
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (strcmp(name, elements[i].name) == 0)
            return elements[i].open(r);
    if (strcmp(name, "nvlink") == 0)
        return open_link(r, TX_TOPO_NVLINK);
    if (strcmp(name, "xgmi") == 0)
        return open_link(r, TX_TOPO_XGMI);
    if (strcmp(name, "nic") == 0)
        top(r)->element = NIC;
    return TX_OK;
}

/* The first failure ends the parsing, after which expat calls none of these. */
static void keep(reader *r, tx_status status)
{
    if (status)
        tx_fail_in(status, "line %lu", (unsigned long)XML_GetCurrentLineNumber(r->parser));
    r->status = status;
    if (status)
        XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL on_open(void *user, const XML_Char *name, const XML_Char **attributes)
{
    reader *r = user;
    r->attributes = attributes;
    if (r->depth == DEPTH_MAX) {
        keep(r, tx_fail(TX_FORMAT, "nested deeper than %d", DEPTH_MAX));
        return;
    }
    r->depth++;
    if (!r->skipped)
        keep(r, open_element(r, name));
}

static void XMLCALL on_close(void *user, const XML_Char *name)
{
    reader *r = user;
    (void)name;
    if (!r->status && !r->skipped && top(r)->element == PCI) /* an <element/> that failed is closed all the same */
        keep(r, close_pci(r, top(r)));
    if (r->depth == r->skipped)
        r->skipped = 0;
    r->depth--;
}

static void XMLCALL on_text(void *user, const XML_Char *text, int size)
{
    reader *r = user;
    for (int i = 0; i < size && !r->status; i++)
        if (!strchr(" \t\r\n", text[i]))
            keep(r, tx_fail(TX_FORMAT, "text between elements"));
}

/* The machine has the NUMA nodes of all CPUs. */
static void set_machine(tx_draft *draft)
{
    int32_t numbers[NUMA_MAX + 1], count = 0;
    const tx_topology *t = draft->t;
    for (int32_t last = -1, next = 0; next <= NUMA_MAX; last = next) {
        next = NUMA_MAX + 1;
        for (int32_t i = 0; i < t->numa_count; i++)
            if (t->numa[i].number > last && t->numa[i].number < next)
                next = t->numa[i].number;
        if (next <= NUMA_MAX)
            numbers[count++] = next;
    }
    char *text = tx_topo_set_text(numbers, count);
    t->nodes[0].nodes = tx_draft_text(draft, text ? text : "");
    draft->status = text ? draft->status : TX_MEMORY;
    free(text);
}

tx_status tx_topo_nccl_parse(const char *text, size_t size, tx_draft *draft)
{
    reader r = {.draft = draft, .parser = XML_ParserCreate(NULL)};
    if (!r.parser)
        return tx_fail(TX_MEMORY, "topology: out of memory");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_open, on_close);
    XML_SetCharacterDataHandler(r.parser, on_text);
    if (XML_Parse(r.parser, text, (int)size, true) != XML_STATUS_OK && !r.status)
        keep(&r, tx_fail(TX_FORMAT, "%s", XML_ErrorString(XML_GetErrorCode(r.parser))));
    XML_ParserFree(r.parser);
    if (!r.status && draft->t->device_count == 0 && r.bare > 0)
        r.status = tx_fail(TX_FORMAT, "tells the class of none of its PCI functions, so which are GPUs and NICs is not "
                                      "known; the file that NCCL_TOPO_DUMP_FILE names gets them");
    if (!r.status) {
        resolve_links(&r);
        set_machine(draft);
        if (!r.bridges_told)
            tx_draft_note(draft, false, "NCCL's file tells no host bridges: NODE may be PHB");
        if (r.bare > 0)
            tx_draft_note(draft, true, "The file does not tell the class of %d PCI functions: they are left out",
                          r.bare);
        r.status = draft->status;
    }
    free(r.targets);
    return r.status;
}
