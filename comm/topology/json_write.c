/* SPDX-License-Identifier: Apache-2.0
 * A topology as JSON: the form that tools/topology/txtopo.schema.json describes, and the short one that is sent between
 * processes. */
#include "comm/topology/topology.h"

#include "api/base/json.h"

#include <stdlib.h>
#include <string.h>

/* The first failure is kept; later calls do nothing. */
typedef struct writer {
    const tx_topology *t;
    bool complete;
    tx_status status;
} writer;

static void put_text(writer *w, tx_json *object, const char *key, const char *value)
{
    if (!w->status)
        w->status = tx_json_set_string(object, key, value);
}

/* null where the number is below 0, which means unknown everywhere. */
static void put_int(writer *w, tx_json *object, const char *key, int64_t value)
{
    if (!w->status)
        w->status = value < 0 ? tx_json_set_null(object, key) : tx_json_set_int(object, key, value);
}

/* null where the number is 0, for what cannot be 0. */
static void put_size(writer *w, tx_json *object, const char *key, double value)
{
    if (!w->status)
        w->status = value > 0 ? tx_json_set_number(object, key, value) : tx_json_set_null(object, key);
}

static void put_bool(writer *w, tx_json *object, const char *key, bool value)
{
    if (!w->status)
        w->status = tx_json_set_bool(object, key, value);
}

/* Takes `value` over. */
static void put(writer *w, tx_json *object, const char *key, tx_json *value)
{
    tx_status status = tx_json_set(object, key, value);
    if (!w->status)
        w->status = status;
}

static void append(writer *w, tx_json *array, tx_json *value)
{
    tx_status status = tx_json_append(array, value);
    if (!w->status)
        w->status = status;
}

static tx_json *device_json(writer *w, const tx_topo_device *d)
{
    tx_json *o = tx_json_object();
    put_text(w, o, "label", d->label);
    put_text(w, o, "kind", tx_topo_device_name(d->kind));
    put_int(w, o, "number", d->number);
    put_int(w, o, "node", d->node);
    put_int(w, o, "partition", d->partition);
    put_int(w, o, "partitions", d->partitions);
    put_text(w, o, "bus_id", d->bus);
    put_int(w, o, "vendor_id", d->vendor_id);
    put_int(w, o, "device_id", d->device_id);
    put_text(w, o, "vendor", d->vendor);
    put_text(w, o, "name", d->name);
    put_text(w, o, "system_name", d->system);
    put_int(w, o, "memory", d->memory > 0 ? d->memory : -1);
    put_text(w, o, "opencl", d->opencl);
    put_text(w, o, "tx_device", d->engine);
    put_text(w, o, "source", tx_topo_source_name(d->source));
    put_text(w, o, "place_source", tx_topo_source_name(d->place));
    put_text(w, o, "place_confidence", tx_topo_confidence_name(d->confidence));
    put_text(w, o, "cpu_affinity", d->cpus);
    put_text(w, o, "numa_affinity", d->nodes);
    put_int(w, o, "gpu_numa", d->gpu_numa);
    put_int(w, o, "nearest_nic", d->nic);
    put_int(w, o, "note", d->note);
    return o;
}

static tx_json *node_json(writer *w, const tx_topo_node *n)
{
    tx_json *o = tx_json_object();
    put_text(w, o, "kind", tx_topo_node_name(n->kind));
    put_int(w, o, "parent", n->parent);
    put_text(w, o, "name", n->name);
    put_text(w, o, "bus_id", n->bus);
    put_int(w, o, "vendor_id", n->vendor_id);
    put_int(w, o, "device_id", n->device_id);
    put_int(w, o, "pci_class", n->pci_class);
    put_size(w, o, "link_speed", n->link.speed);
    put_size(w, o, "link_speed_max", n->link.speed_max);
    put_int(w, o, "link_width", n->link.width > 0 ? n->link.width : -1);
    put_int(w, o, "link_width_max", n->link.width_max > 0 ? n->link.width_max : -1);
    put_size(w, o, "link_rate", n->link.rate);
    put_text(w, o, "link_source", tx_topo_source_name(n->link.source));
    put_int(w, o, "iommu_group", n->iommu_group);
    put_text(w, o, "cpus", n->cpus);
    put_text(w, o, "numa_nodes", n->nodes);
    return o;
}

static tx_json *p2p_json(writer *w, const tx_topo_pair *pair)
{
    tx_json *o = tx_json_object();
#define X(name, letter, key) put_text(w, o, key, tx_topo_p2p_name(pair->p2p[TX_TOPO_ACCESS_##name]));
    TX_TOPO_ACCESS_MAP(X)
#undef X
    return o;
}

static bool p2p_asked(const tx_topo_pair *pair)
{
    for (int i = 0; i < TX_TOPO_ACCESS_COUNT; i++)
        if (pair->p2p[i] != TX_TOPO_P2P_UNASKED)
            return true;
    return false;
}

static tx_json *path_json(writer *w, int32_t a, int32_t b)
{
    int32_t *path = NULL, count = 0;
    tx_json *array = tx_json_array();
    tx_status status = tx_topo_path(w->t, a, b, &path, &count);
    for (int32_t i = 0; i < count && !status; i++)
        status = tx_json_append_int(array, path[i]);
    free(path);
    if (!w->status)
        w->status = status;
    return array;
}

static tx_json *pair_json(writer *w, int32_t a, int32_t b)
{
    const tx_topo_pair *pair = tx_topo_pair_of(w->t, a, b), *back = tx_topo_pair_of(w->t, b, a);
    char cell[16];
    tx_json *o = tx_json_object();
    put_int(w, o, "a", a);
    put_int(w, o, "b", b);
    put_text(w, o, "cell", tx_topo_cell(w->t, a, b, true, cell));
    put_text(w, o, "class", tx_topo_class_name(pair->class_));
    put_text(w, o, "class_source", tx_topo_source_name(pair->class_source));
    put_text(w, o, "class_confidence", tx_topo_confidence_name(pair->class_confidence));
    put_text(w, o, "link", tx_topo_link_name(pair->link));
    put_int(w, o, "links", pair->links > 0 ? pair->links : -1);
    put_bool(w, o, "link_indirect", pair->indirect);
    put_size(w, o, "link_rate", pair->link_rate);
    put_text(w, o, "link_source", tx_topo_source_name(pair->link_source));
    put_text(w, o, "link_confidence", tx_topo_confidence_name(pair->link_confidence));
    put_int(w, o, "ancestor", pair->ancestor);
    put_int(w, o, "bridges_a", pair->bridges_a);
    put_int(w, o, "bridges_b", pair->bridges_b);
    put_int(w, o, "note", pair->note);
    if (w->complete && w->t->origin != TX_TOPO_ORIGIN_PASTED)
        put(w, o, "path", path_json(w, a, b));
    if (p2p_asked(pair) || p2p_asked(back)) {
        put(w, o, "p2p", p2p_json(w, pair));
        put(w, o, "p2p_back", p2p_json(w, back));
    }
    return o;
}

/* Whether a pair says more than follows from the tree. */
static bool says_more(const writer *w, int32_t a, int32_t b)
{
    const tx_topo_pair *pair = tx_topo_pair_of(w->t, a, b);
    return w->complete || w->t->origin == TX_TOPO_ORIGIN_PASTED || pair->class_source == TX_TOPO_FROM_NVML ||
           pair->link != TX_TOPO_NO_LINK || p2p_asked(pair) || p2p_asked(tx_topo_pair_of(w->t, b, a));
}

static tx_json *pairs_json(writer *w)
{
    tx_json *array = tx_json_array();
    for (int32_t a = 0; a < w->t->device_count && !w->status; a++)
        for (int32_t b = a + 1; b < w->t->device_count && !w->status; b++)
            if (says_more(w, a, b))
                append(w, array, pair_json(w, a, b));
    return array;
}

static tx_json *numa_json(writer *w, const tx_topo_numa *n)
{
    tx_json *o = tx_json_object();
    put_int(w, o, "number", n->number);
    put_text(w, o, "cpus", n->cpus);
    put_int(w, o, "memory", n->memory > 0 ? n->memory : -1);
    put_int(w, o, "node", n->node);
    put_int(w, o, "device", n->device);
    return o;
}

static tx_json *cpu_json(writer *w, const tx_topo_cpu *c)
{
    tx_json *o = tx_json_object();
    put_int(w, o, "number", c->number);
    put_int(w, o, "core", c->core);
    put_int(w, o, "package", c->package);
    put_int(w, o, "numa", c->numa);
    return o;
}

static tx_json *copy_json(writer *w, const tx_topo_copy *c)
{
    tx_json *o = tx_json_object();
    put_text(w, o, "kind", tx_topo_copy_name(c->kind));
    put_text(w, o, "method", tx_topo_method_name(c->method));
    put_int(w, o, "from", c->from);
    put_int(w, o, "to", c->to);
    put_int(w, o, "numa", c->numa);
    put_int(w, o, "bytes", c->bytes);
    put_int(w, o, "runs", c->runs);
    put_size(w, o, "bandwidth", c->bandwidth);
    put_size(w, o, "latency", c->latency);
    put_text(w, o, "failure", c->failure);
    return o;
}

/* null where nothing was measured. */
static void put_measured(writer *w, tx_json *root)
{
    if (w->t->copies_planned == 0) {
        if (!w->status)
            w->status = tx_json_set_null(root, "measured");
        return;
    }
    tx_json *o = tx_json_object(), *copies = tx_json_array();
    for (int32_t i = 0; i < w->t->copy_count; i++)
        append(w, copies, copy_json(w, &w->t->copies[i]));
    put_int(w, o, "planned", w->t->copies_planned);
    put(w, o, "copies", copies);
    put(w, root, "measured", o);
}

static tx_json *note_json(writer *w, const tx_topo_note *n)
{
    tx_json *o = tx_json_object();
    put_bool(w, o, "warning", n->warning);
    put_text(w, o, "text", n->text);
    return o;
}

static void put_all(writer *w, tx_json *root)
{
    const tx_topology *t = w->t;
    put_int(w, root, "version", 1);
    put_text(w, root, "origin", tx_topo_origin_name(t->origin));
    put_text(w, root, "file", t->file);
    put_text(w, root, "host", t->host);
    tx_json *devices = tx_json_array(), *nodes = tx_json_array(), *numa = tx_json_array(), *cpus = tx_json_array(),
            *notes = tx_json_array();
    for (int32_t i = 0; i < t->device_count; i++)
        append(w, devices, device_json(w, &t->devices[i]));
    for (int32_t i = 0; i < t->node_count; i++)
        append(w, nodes, node_json(w, &t->nodes[i]));
    for (int32_t i = 0; i < t->numa_count; i++)
        append(w, numa, numa_json(w, &t->numa[i]));
    for (int32_t i = 0; i < t->cpu_count; i++)
        append(w, cpus, cpu_json(w, &t->cpus[i]));
    for (int32_t i = 0; i < t->note_count; i++)
        append(w, notes, note_json(w, &t->notes[i]));
    put(w, root, "devices", devices);
    put(w, root, "pairs", pairs_json(w));
    put(w, root, "nodes", nodes);
    put(w, root, "numa", numa);
    put(w, root, "cpus", cpus);
    put(w, root, "notes", notes);
    put_measured(w, root);
}

char *tx_topology_json(const tx_topology *topology, bool complete)
{
    writer w = {.t = topology, .complete = complete};
    tx_json *root = tx_json_object();
    put_all(&w, root);
    char *text = w.status ? NULL : tx_json_text(root, complete ? TX_JSON_PRETTY : TX_JSON_LINE);
    tx_json_free(root);
    return text;
}
