/* SPDX-License-Identifier: Apache-2.0
 * A topology from JSON. Classes are derived again from the tree, unless they were stated. */
#include "comm/topology/draft.h"

#include "api/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first failure is kept; later calls do nothing and give what they were given. */
typedef struct parser {
    tx_draft draft;
    const char *what; /* "devices[3]", for messages */
    char name[64];
    tx_status status;
} parser;

static const char *text_of(parser *p, const tx_json *object, const char *key)
{
    const char *value = "";
    if (!p->status && (p->status = tx_json_get_string(object, key, &value)))
        tx_fail_in(p->status, "%s", p->what);
    return value;
}

static const char *kept_text(parser *p, const tx_json *object, const char *key)
{
    const char *text = tx_draft_text(&p->draft, text_of(p, object, key));
    if (!p->status)
        p->status = p->draft.status;
    return text;
}

/* -1 for null. */
static int64_t long_of(parser *p, const tx_json *object, const char *key, int64_t max)
{
    int64_t value = -1;
    if (!p->status && tx_json_has(object, key) && (p->status = tx_json_get_int(object, key, 0, max, &value)))
        tx_fail_in(p->status, "%s", p->what);
    return value;
}

static int32_t int_of(parser *p, const tx_json *object, const char *key, int32_t max)
{
    return (int32_t)long_of(p, object, key, max);
}

/* 0 for null. */
static double size_of(parser *p, const tx_json *object, const char *key)
{
    double value = 0;
    if (!p->status && tx_json_has(object, key) && (p->status = tx_json_get_number(object, key, 0, 1e18, &value)))
        tx_fail_in(p->status, "%s", p->what);
    return value;
}

static bool bool_of(parser *p, const tx_json *object, const char *key)
{
    bool value = false;
    if (!p->status && (p->status = tx_json_get_bool(object, key, &value)))
        tx_fail_in(p->status, "%s", p->what);
    return value;
}

/* The place of the word under `key` among `words`. */
static int32_t word_of(parser *p, const tx_json *object, const char *key, const char *const *words, int32_t count)
{
    const char *word = text_of(p, object, key);
    for (int32_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    if (!p->status)
        p->status = tx_fail(TX_FORMAT, "%s: %s: \"%s\" is not among the known words", p->what, key, word);
    return 0;
}

#define KEY(name, key) key,
#define CELL(name, cell, legend) cell,
#define METHOD(name, key, text) key,
static const char
    *const node_words[] = {TX_TOPO_NODE_MAP(KEY)},
           *const device_words[] = {TX_TOPO_DEVICE_MAP(KEY)}, *const source_words[] = {TX_TOPO_SOURCE_MAP(KEY)},
           *const confidence_words[] = {TX_TOPO_CONFIDENCE_MAP(KEY)}, *const origin_words[] = {TX_TOPO_ORIGIN_MAP(KEY)},
           *const class_words[] = {TX_TOPO_CLASS_MAP(CELL)}, *const link_words[] = {TX_TOPO_LINK_MAP(CELL)},
           *const p2p_words[] = {TX_TOPO_P2P_MAP(CELL)}, *const copy_words[] = {TX_TOPO_COPY_MAP(KEY)},
           *const method_words[] = {TX_TOPO_METHOD_MAP(METHOD)};
#define WORD(p, object, key, words) word_of(p, object, key, words, (int32_t)(sizeof(words) / sizeof *(words)))

/* The array under `key`; each element is handed to `read`. */
static void each(parser *p, const tx_json *root, const char *key, void (*read)(parser *, const tx_json *, int32_t))
{
    tx_json *array = NULL;
    if (p->status || (p->status = tx_json_get(root, key, TX_JSON_ARRAY, &array)))
        return;
    for (size_t i = 0; i < tx_json_size(array) && !p->status; i++) {
        const tx_json *element = tx_json_at(array, i);
        snprintf(p->name, sizeof p->name, "%s[%zu]", key, i);
        p->what = p->name;
        if (tx_json_type_of(element) != TX_JSON_OBJECT)
            p->status = tx_fail(TX_FORMAT, "%s: is no object", p->what);
        else
            read(p, element, (int32_t)i);
        if (!p->status)
            p->status = p->draft.status;
    }
}

static void read_node(parser *p, const tx_json *o, int32_t place)
{
    tx_topo_node_kind kind = (tx_topo_node_kind)WORD(p, o, "kind", node_words);
    int32_t parent = place == 0 ? -1 : int_of(p, o, "parent", place - 1);
    if (!p->status && (place == 0) != (kind == TX_TOPO_MACHINE))
        p->status = tx_fail(TX_FORMAT, "%s: the first node, and no other, is the machine", p->what);
    if (!p->status && place > 0 && parent < 0)
        p->status = tx_fail(TX_FORMAT, "%s: has no parent", p->what);
    int32_t index = p->status ? -1 : tx_draft_node(&p->draft, kind, parent);
    if (index < 0)
        return;
    tx_topo_node node = p->draft.t->nodes[index];
    node.name = kept_text(p, o, "name");
    node.bus = kept_text(p, o, "bus_id");
    node.vendor_id = int_of(p, o, "vendor_id", 0xFFFF);
    node.device_id = int_of(p, o, "device_id", 0xFFFF);
    node.pci_class = int_of(p, o, "pci_class", 0xFFFF);
    node.link.speed = size_of(p, o, "link_speed");
    node.link.speed_max = size_of(p, o, "link_speed_max");
    node.link.width = int_of(p, o, "link_width", 1024);
    node.link.width_max = int_of(p, o, "link_width_max", 1024);
    node.link.width = node.link.width < 0 ? 0 : node.link.width;
    node.link.width_max = node.link.width_max < 0 ? 0 : node.link.width_max;
    node.link.rate = size_of(p, o, "link_rate");
    node.link.source = (tx_topo_source)WORD(p, o, "link_source", source_words);
    node.iommu_group = int_of(p, o, "iommu_group", INT32_MAX);
    node.cpus = kept_text(p, o, "cpus");
    node.nodes = kept_text(p, o, "numa_nodes");
    p->draft.t->nodes[index] = node;
}

static void read_device(parser *p, const tx_json *o, int32_t place)
{
    (void)place;
    tx_topo_device_kind kind = (tx_topo_device_kind)WORD(p, o, "kind", device_words);
    int32_t node = int_of(p, o, "node", p->draft.t->node_count - 1);
    int32_t index = p->status ? -1 : tx_draft_device(&p->draft, kind, node < 0 ? 0 : node);
    if (index < 0)
        return;
    tx_topo_device d = p->draft.t->devices[index];
    int64_t memory = long_of(p, o, "memory", INT64_MAX);
    d.number = int_of(p, o, "number", 999999);
    d.partition = int_of(p, o, "partition", TX_TOPO_DEVICES_MAX);
    d.bus = kept_text(p, o, "bus_id");
    d.vendor_id = int_of(p, o, "vendor_id", 0xFFFF);
    d.device_id = int_of(p, o, "device_id", 0xFFFF);
    d.vendor = kept_text(p, o, "vendor");
    d.name = kept_text(p, o, "name");
    d.system = kept_text(p, o, "system_name");
    d.memory = memory < 0 ? 0 : memory;
    d.opencl = kept_text(p, o, "opencl");
    d.engine = kept_text(p, o, "tx_device");
    d.source = (tx_topo_source)WORD(p, o, "source", source_words);
    d.place = (tx_topo_source)WORD(p, o, "place_source", source_words);
    d.confidence = (tx_topo_confidence)WORD(p, o, "place_confidence", confidence_words);
    d.cpus = kept_text(p, o, "cpu_affinity");
    d.nodes = kept_text(p, o, "numa_affinity");
    d.gpu_numa = int_of(p, o, "gpu_numa", INT32_MAX);
    d.note = int_of(p, o, "note", p->draft.t->note_count - 1);
    unsigned platform = 0, device = 0;
    if (sscanf(d.opencl, "%3u:%3u", &platform, &device) == 2) {
        d.platform = (int32_t)platform;
        d.device = (int32_t)device;
    }
    if (d.number < 0)
        d.number = 0;
    p->draft.t->devices[index] = d;
}

static void read_numa(parser *p, const tx_json *o, int32_t place)
{
    (void)place;
    int32_t number = int_of(p, o, "number", INT32_MAX), index = p->status ? -1 : tx_draft_numa(&p->draft, number);
    if (index < 0)
        return;
    tx_topo_numa numa = {.number = number, .cpus = kept_text(p, o, "cpus")};
    int64_t memory = long_of(p, o, "memory", INT64_MAX);
    int32_t node = int_of(p, o, "node", p->draft.t->node_count - 1);
    numa.memory = memory < 0 ? 0 : memory;
    numa.node = node < 0 ? 0 : node;
    numa.device = int_of(p, o, "device", p->draft.t->device_count - 1);
    p->draft.t->numa[index] = numa;
}

static void read_cpu(parser *p, const tx_json *o, int32_t place)
{
    (void)place;
    int32_t number = int_of(p, o, "number", INT32_MAX), index = p->status ? -1 : tx_draft_cpu(&p->draft, number);
    if (index < 0)
        return;
    tx_topo_cpu cpu = {.number = number,
                       .core = int_of(p, o, "core", INT32_MAX),
                       .package = int_of(p, o, "package", INT32_MAX),
                       .numa = int_of(p, o, "numa", INT32_MAX)};
    p->draft.t->cpus[index] = cpu;
}

static void read_note(parser *p, const tx_json *o, int32_t place)
{
    (void)place;
    bool warning = bool_of(p, o, "warning");
    tx_draft_note(&p->draft, warning, "%s", text_of(p, o, "text"));
}

static void read_p2p(parser *p, const tx_json *pair, const char *key, int32_t a, int32_t b)
{
    tx_json *o = NULL;
    if (p->status || !tx_json_has(pair, key) || (p->status = tx_json_get(pair, key, TX_JSON_OBJECT, &o)))
        return;
#define X(name, letter, word) \
    tx_draft_p2p_add(&p->draft, a, b, TX_TOPO_ACCESS_##name, (tx_topo_p2p)WORD(p, o, word, p2p_words));
    TX_TOPO_ACCESS_MAP(X)
#undef X
}

static void read_pair(parser *p, const tx_json *o, int32_t place)
{
    (void)place;
    int32_t last = p->draft.t->device_count - 1, a = int_of(p, o, "a", last), b = int_of(p, o, "b", last);
    if (!p->status && (a < 0 || b < 0 || a == b))
        p->status = tx_fail(TX_FORMAT, "%s: names no two devices", p->what);
    tx_draft_link link = {.a = a, .b = b, .kind = (tx_topo_link_kind)WORD(p, o, "link", link_words)};
    tx_topo_class class_ = (tx_topo_class)WORD(p, o, "class", class_words);
    int32_t note = int_of(p, o, "note", p->draft.t->note_count - 1), links = int_of(p, o, "links", 999999);
    link.links = links < 0 ? 0 : links;
    link.indirect = bool_of(p, o, "link_indirect");
    link.rate = size_of(p, o, "link_rate");
    link.source = (tx_topo_source)WORD(p, o, "link_source", source_words);
    link.confidence = (tx_topo_confidence)WORD(p, o, "link_confidence", confidence_words);
    link.note = note;
    if (p->status)
        return;
    if (link.kind != TX_TOPO_NO_LINK)
        tx_draft_link_add(&p->draft, &link);
    tx_topo_source source = (tx_topo_source)WORD(p, o, "class_source", source_words);
    if (source == TX_TOPO_FROM_MATRIX || source == TX_TOPO_FROM_NVML) {
        tx_draft_class_add(&p->draft, &(tx_draft_class){a, b, class_, source, note});
        tx_draft_class_add(&p->draft, &(tx_draft_class){b, a, class_, source, note});
    }
    read_p2p(p, o, "p2p", a, b);
    read_p2p(p, o, "p2p_back", b, a);
}

static void read_copy(parser *p, const tx_json *o, int32_t place)
{
    int32_t last = p->draft.t->device_count - 1;
    tx_topo_copy copy = {.kind = (tx_topo_copy_kind)WORD(p, o, "kind", copy_words),
                         .method = (tx_topo_method)WORD(p, o, "method", method_words)};
    copy.from = int_of(p, o, "from", last);
    copy.to = int_of(p, o, "to", last);
    copy.numa = int_of(p, o, "numa", INT32_MAX);
    copy.bytes = long_of(p, o, "bytes", INT64_MAX);
    copy.runs = int_of(p, o, "runs", INT32_MAX);
    copy.bandwidth = size_of(p, o, "bandwidth");
    copy.latency = size_of(p, o, "latency");
    copy.failure = kept_text(p, o, "failure");
    bool from = copy.kind == TX_TOPO_COPY_FROM_DEVICE || copy.kind == TX_TOPO_COPY_BETWEEN;
    bool to = copy.kind == TX_TOPO_COPY_TO_DEVICE || copy.kind == TX_TOPO_COPY_BETWEEN;
    if (!p->status && (from != (copy.from >= 0) || to != (copy.to >= 0) || (from && copy.from == copy.to)))
        p->status = tx_fail(TX_FORMAT, "%s: from and to are not those of its kind", p->what);
    if (p->status)
        return;
    p->draft.t->copies[place] = copy;
    p->draft.t->copy_count = place + 1;
}

/* Absent in what was written before anything could be measured. */
static void read_measured(parser *p, const tx_json *root)
{
    tx_json *o = NULL, *copies = NULL;
    p->what = "measured";
    if (p->status || !tx_json_has(root, "measured"))
        return;
    if ((p->status = tx_json_get(root, "measured", TX_JSON_OBJECT, &o)) ||
        (p->status = tx_json_get(o, "copies", TX_JSON_ARRAY, &copies)))
        return;
    int32_t planned = int_of(p, o, "planned", INT32_MAX);
    size_t count = tx_json_size(copies);
    if (!p->status && (planned < 0 || count > (size_t)planned))
        p->status = tx_fail(TX_FORMAT, "measured: more copies than planned");
    if (!p->status && !(p->draft.t->copies = calloc(count + 1, sizeof *p->draft.t->copies)))
        p->status = tx_fail(TX_MEMORY, "topology: out of memory");
    if (p->status)
        return;
    p->draft.t->copies_planned = planned;
    each(p, o, "copies", read_copy);
}

static void read_root(parser *p, const tx_json *root)
{
    int64_t version = 0;
    p->what = "topology";
    if ((p->status = tx_json_get_int(root, "version", 1, 1, &version)))
        return;
    p->draft.t->origin = (tx_topo_origin)WORD(p, root, "origin", origin_words);
    p->draft.t->file = kept_text(p, root, "file");
    p->draft.t->host = kept_text(p, root, "host");
    each(p, root, "notes", read_note);
    each(p, root, "nodes", read_node);
    if (!p->status && p->draft.t->node_count == 0)
        p->status = tx_fail(TX_FORMAT, "nodes: there is none");
    each(p, root, "devices", read_device);
    each(p, root, "numa", read_numa);
    each(p, root, "cpus", read_cpu);
    each(p, root, "pairs", read_pair);
    read_measured(p, root);
}

tx_status tx_topology_parse(const char *text, size_t size, const char *where, tx_topology **topology)
{
    tx_json *root = NULL;
    parser p = {.what = ""};
    tx_status status = tx_json_parse(text, size, where, &root);
    if (status)
        return status;
    if (tx_json_type_of(root) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "%s: is no object", where);
    if (!status)
        status = tx_draft_begin(TX_TOPO_ORIGIN_LIVE, "", &p.draft);
    if (status) {
        tx_json_free(root);
        return status;
    }
    read_root(&p, root);
    tx_json_free(root);
    if (!p.status)
        return tx_draft_finish(&p.draft, topology);
    status = tx_fail_in(p.status == TX_NOT_FOUND ? TX_FORMAT : p.status, "%s", where); /* a key is missing */
    tx_draft_discard(&p.draft);
    return status;
}
