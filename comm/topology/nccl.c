/* SPDX-License-Identifier: Apache-2.0
 * NCCL's (and RCCL's) topology XML. It tells one element a PCIe switch and no host bridges: a switch becomes an
 * upstream port with a downstream port above each child, and each way into a CPU its own host bridge. */
#include "comm/topology/sources.h"
#include "comm/topology/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CPUS_MAX 8192

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
    tx_xml xml;
    tx_draft *draft;
    level levels[TX_XML_DEPTH + 1]; /* [0] is outside */
    target *targets;
    int32_t target_count, target_room;
    tx_status status;
} reader;

static level *top(reader *r)
{
    return &r->levels[r->xml.depth];
}

/* The element around the one that has just opened. */
static level *around(reader *r)
{
    return &r->levels[r->xml.depth - 1];
}

/* ---- CPUs ------------------------------------------------------------------------------------------ */

/* A mask such as "0000ffff,ffff0000", lowest bits last, as a set; "" where it is none. */
static const char *mask_text(tx_draft *draft, const char *mask)
{
    int32_t numbers[CPUS_MAX], count = 0, bit = 0;
    for (size_t i = strlen(mask); i > 0 && bit < CPUS_MAX; i--) {
        char c = mask[i - 1], digit[2] = {c, '\0'}, *end = NULL;
        if (c == ',')
            continue;
        long value = strtol(digit, &end, 16);
        if (*end)
            return "";
        for (int k = 0; k < 4; k++, bit++)
            if (value >> k & 1)
                numbers[count++] = bit;
    }
    char *text = tx_topo_set_text(numbers, count);
    const char *copy = tx_draft_text(draft, text ? text : "");
    if (!text)
        draft->status = TX_MEMORY;
    free(text);
    return copy;
}

static tx_status open_cpu(reader *r)
{
    char text[4096], *end = NULL;
    if (around(r)->element != SYSTEM)
        return tx_xml_fail(&r->xml, "<cpu> is not within <system>");
    tx_xml_get(&r->xml, "numaid", text, sizeof text);
    long numa = strtol(text, &end, 10);
    if (end == text || *end || numa < -1 || numa > 4096)
        return tx_xml_fail(&r->xml, "numaid=\"%.40s\" is no number of a NUMA node", text);
    int32_t node = tx_draft_node(r->draft, TX_TOPO_GROUP, 0);
    if (node < 0)
        return r->draft->status;
    tx_topo_node *place = &r->draft->t->nodes[node];
    const char *cpus = mask_text(r->draft, tx_xml_get(&r->xml, "affinity", text, sizeof text));
    place->cpus = cpus;
    place->name = tx_draft_format(r->draft, "NUMA %ld", numa);
    top(r)->element = CPU;
    top(r)->node = node;
    if (numa < 0)
        return r->draft->status;
    place->nodes = tx_draft_format(r->draft, "%ld", numa);
    for (int32_t i = 0; i < r->draft->t->numa_count; i++)
        if (r->draft->t->numa[i].number == numa)
            return tx_xml_fail(&r->xml, "NUMA node %ld is listed twice", numa);
    int32_t index = tx_draft_numa(r->draft, (int32_t)numa);
    if (index >= 0) {
        r->draft->t->numa[index].cpus = cpus;
        r->draft->t->numa[index].node = node;
    }
    return r->draft->status;
}

/* ---- PCI --------------------------------------------------------------------------------------------- */

static int32_t number_of(const reader *r, const char *attribute, int base, int32_t most)
{
    char text[32], *end = NULL;
    tx_xml_get(&r->xml, attribute, text, sizeof text);
    long value = strtol(text, &end, base);
    return end == text || value < 0 || value > most ? 0 : (int32_t)value;
}

static int32_t gpus_at(const reader *r, int32_t node)
{
    int32_t count = 0;
    while (tx_draft_device_at(r->draft, node, count) >= 0)
        count++;
    return count;
}

/* What a child of the open element hangs from: a host bridge of its own, or a downstream port. */
static int32_t port_for_child(reader *r)
{
    const level *parent = around(r);
    if (parent->element == CPU)
        return tx_draft_node(r->draft, TX_TOPO_HOST_BRIDGE, parent->node);
    /* What has children is a switch, whatever its class says. */
    r->draft->t->nodes[parent->node].kind = TX_TOPO_BRIDGE;
    around(r)->is_switch = true;
    return tx_draft_node(r->draft, TX_TOPO_BRIDGE, parent->node);
}

static tx_status open_pci(reader *r)
{
    char text[64];
    const level *parent = around(r);
    if (parent->element != CPU && parent->element != PCI)
        return tx_xml_fail(&r->xml, "<pci> is neither within <cpu> nor within <pci>");
    if (parent->element == PCI && (parent->nic_count > 0 || gpus_at(r, parent->node) > 0))
        return tx_xml_fail(&r->xml, "<pci> is within a device");
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
    tx_xml_get(&r->xml, "busid", text, sizeof text);
    if (!tx_topo_bus_parse(text, &key))
        return tx_xml_fail(&r->xml, "busid=\"%.40s\" is no PCI bus id", text);
    node->bus = tx_draft_format(r->draft, "%04x:%02x:%02x.%x", (unsigned)(key >> 16), (unsigned)(key >> 8 & 0xFF),
                                (unsigned)(key >> 3 & 0x1F), (unsigned)(key & 7));
    node->pci_class = class_ >> 8;
    node->vendor_id = number_of(r, "vendor", 16, 0xFFFF);
    node->device_id = number_of(r, "device", 16, 0xFFFF);
    node->link.speed = strtod(tx_xml_get(&r->xml, "link_speed", text, sizeof text), NULL);
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
    d->vendor = tx_draft_text(r->draft, tx_topo_vendor(d->vendor_id));
    d->system = tx_draft_text(r->draft, *system || kind == TX_TOPO_GPU ? system : d->bus);
    return index;
}

static tx_status open_gpu(reader *r)
{
    char name[64];
    level *pci = around(r);
    if (pci->element != PCI || pci->is_switch)
        return tx_xml_fail(&r->xml, "<gpu> is not within a <pci> that is a device");
    top(r)->element = GPU;
    top(r)->node = pci->node;
    top(r)->device = add_device(r, pci, TX_TOPO_GPU, "", gpus_at(r, pci->node));
    if (top(r)->device < 0)
        return r->draft->status;
    r->draft->t->devices[top(r)->device].name = tx_draft_text(r->draft, tx_xml_get(&r->xml, "gcn", name, sizeof name));
    return r->draft->status;
}

/* A NIC a name: its ports are listed one by one. NICs that hang from a CPU without a PCI function are left out. */
static tx_status open_net(reader *r)
{
    char name[64];
    level *nic = around(r), *pci = nic - 1;
    if (nic->element != NIC)
        return tx_xml_fail(&r->xml, "<net> is not within <nic>");
    tx_xml_get(&r->xml, "name", name, sizeof name);
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
    char text[32];
    if (around(r)->element != GPU)
        return tx_xml_fail(&r->xml, "links are not within <gpu>");
    if (r->target_count == r->target_room) {
        int32_t room = r->target_room ? r->target_room * 2 : 64;
        target *more = realloc(r->targets, (size_t)room * sizeof *more);
        if (!more)
            return tx_fail(TX_MEMORY, "topology: out of memory");
        r->targets = more;
        r->target_room = room;
    }
    target *t = &r->targets[r->target_count];
    *t = (target){.device = around(r)->device, .kind = kind, .count = number_of(r, "count", 10, 999)};
    snprintf(t->bus, sizeof t->bus, "%s", tx_xml_get(&r->xml, "target", text, sizeof text));
    t->to_switch = number_of(r, "tclass", 16, 0xFFFFFF) >> 8 == 0x0680;
    if (t->count == 0)
        return tx_xml_fail(&r->xml, "a link has no count");
    r->target_count++;
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
    else if (node->pci_class == 0x0207 && pci->nic_count == 0)
        add_device(r, pci, TX_TOPO_NIC, "", 0);
    return r->draft->status;
}

/* ---- Links -------------------------------------------------------------------------------------------------- */

static void add_link(reader *r, int32_t a, int32_t b, tx_topo_link_kind kind, int32_t count, tx_topo_confidence how)
{
    tx_draft_link link = {
        .a = a, .b = b, .kind = kind, .links = count, .source = TX_TOPO_FROM_NCCL, .confidence = how, .note = -1};
    tx_draft_link_add(r->draft, &link);
}

/* Two GPUs on switches have as many links as the one with fewer. */
static void resolve_links(reader *r)
{
    enum { KINDS = 2 };
    static const tx_topo_link_kind kinds[KINDS] = {TX_TOPO_NVLINK, TX_TOPO_XGMI};
    int32_t n = r->draft->t->device_count;
    int32_t *through = calloc((size_t)n * KINDS + 1, sizeof *through);
    if (!through) {
        r->draft->status = tx_fail(TX_MEMORY, "topology: out of memory");
        return;
    }
    for (int32_t i = 0; i < r->target_count; i++) {
        const target *t = &r->targets[i];
        int32_t other = tx_draft_device_at(r->draft, tx_draft_find_bus(r->draft, t->bus), 0);
        int32_t *sum = &through[t->device * KINDS + (t->kind == TX_TOPO_XGMI)];
        if (other >= 0)
            add_link(r, t->device, other, t->kind, t->count, TX_TOPO_STATED);
        else if (t->to_switch)
            *sum = *sum > 999 ? *sum : *sum + t->count;
    }
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = a + 1; b < n; b++)
            for (int k = 0; k < KINDS; k++) {
                int32_t mine = through[a * KINDS + k], theirs = through[b * KINDS + k];
                if (mine > 0 && theirs > 0)
                    add_link(r, a, b, kinds[k], mine < theirs ? mine : theirs, TX_TOPO_DERIVED);
            }
    free(through);
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

static tx_status open_element(reader *r)
{
    const level *parent = around(r);
    *top(r) = (level){.element = OTHER, .node = parent->node, .device = -1};
    if (r->xml.depth == 1) {
        if (!tx_xml_is(&r->xml, "system") || r->draft->t->node_count > 0)
            return tx_xml_fail(&r->xml, "the file is more than one <system>");
        top(r)->element = SYSTEM;
        top(r)->node = tx_draft_node(r->draft, TX_TOPO_MACHINE, -1);
        return r->draft->status;
    }
    if (tx_xml_is(&r->xml, "cpu"))
        return open_cpu(r);
    if (tx_xml_is(&r->xml, "pci"))
        return open_pci(r);
    if (tx_xml_is(&r->xml, "gpu"))
        return open_gpu(r);
    if (tx_xml_is(&r->xml, "net"))
        return open_net(r);
    if (tx_xml_is(&r->xml, "nvlink"))
        return open_link(r, TX_TOPO_NVLINK);
    if (tx_xml_is(&r->xml, "xgmi"))
        return open_link(r, TX_TOPO_XGMI);
    if (tx_xml_is(&r->xml, "nic"))
        top(r)->element = NIC;
    return TX_OK;
}

static tx_status read_all(reader *r)
{
    tx_status status = TX_OK;
    do {
        status = tx_xml_next(&r->xml);
        if (!status && r->xml.event == TX_XML_OPEN)
            status = open_element(r);
        else if (!status && r->xml.event == TX_XML_CLOSE && r->levels[r->xml.depth + 1].element == PCI)
            status = close_pci(r, &r->levels[r->xml.depth + 1]);
    } while (!status && r->xml.event != TX_XML_END);
    if (!status && r->draft->t->node_count == 0)
        status = tx_fail(TX_FORMAT, "has no <system>");
    return status;
}

tx_status tx_topo_nccl_parse(const char *text, size_t size, tx_draft *draft)
{
    (void)size;
    reader r = {.draft = draft};
    tx_xml_begin(&r.xml, text);
    tx_status status = read_all(&r);
    if (!status) {
        resolve_links(&r);
        tx_draft_note(draft, false, "NCCL's file tells no host bridges: NODE may be PHB");
        status = draft->status;
    }
    free(r.targets);
    return status;
}
