/* SPDX-License-Identifier: Apache-2.0
 * Converts a topology to JSON as described by tools/topology/txtopo.schema.json. Each struct has a table of fields. */
#include "comm/topology/tx_topology.h"

#include "api/base/needs.h"
#include "tx_json.h"

#include <stddef.h>
#include <stdlib.h>

/* ---- Fields ---------------------------------------------------------------------------------- */

typedef enum field_kind {
    TEXT,  /* const char * */
    LABEL, /* char [] */
    WORD,  /* an enum */
    FLAG,  /* bool */
    INT,   /* int32_t; negative values become null */
    COUNT, /* int32_t; 0 becomes null */
    BYTES, /* int64_t; 0 becomes null */
    SIZE   /* double; 0 becomes null */
} field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    const char *const *words; /* names of a WORD */
} field;

/* The fields of each struct, in the order in which they are written. */
/* clang-format off */
#define T(key, member) {key, TEXT, offsetof(OWNER, member), NULL}
#define W(key, member, name) {key, WORD, offsetof(OWNER, member), tx_topo_##name##_names}
#define END {0}
#define N(key, kind, member) {key, kind, offsetof(OWNER, member), NULL}
#define OWNER tx_topo_device
static const field device_fields[] = {
    N("label", LABEL, label), W("kind", kind, device), N("number", INT, number), N("node", INT, node),
    N("partition", INT, partition), N("partitions", INT, partitions), T("bus_id", bus),
    N("vendor_id", INT, vendor_id), N("device_id", INT, device_id), T("vendor", vendor), T("name", name),
    T("system_name", system), N("memory", BYTES, memory),
    T("opencl", opencl), T("tx_device", engine),
    W("source", source, source), W("place_source", place, source), N("place_guessed", FLAG, guessed),
    T("cpu_affinity", cpus), T("numa_affinity", nodes), N("gpu_numa", INT, gpu_numa),
    N("nearest_nic", INT, nic), N("note", INT, note), END};
#undef OWNER
#define OWNER tx_topo_node
static const field node_fields[] = {
    W("kind", kind, node), N("parent", INT, parent), T("name", name), T("bus_id", bus),
    N("vendor_id", INT, vendor_id), N("device_id", INT, device_id),
    N("link_speed", SIZE, link.speed), N("link_speed_max", SIZE, link.speed_max),
    N("link_width", COUNT, link.width), N("link_width_max", COUNT, link.width_max),
    N("link_rate", SIZE, link.rate), W("link_source", link.source, source),
    N("iommu_group", INT, iommu_group), T("cpus", cpus), T("numa_nodes", nodes), END};
#undef OWNER
#define OWNER tx_topo_pair
static const field pair_fields[] = {
    W("class", class_, class), W("class_source", class_source, source),
    W("link", link, link), N("links", COUNT, links), N("link_indirect", FLAG, indirect),
    N("link_switched", FLAG, switched),
    N("link_rate", SIZE, link_rate), W("link_source", link_source, source),
    N("ancestor", INT, ancestor), N("bridges_a", INT, bridges_a),
    N("bridges_b", INT, bridges_b), N("note", INT, note), END};
#define X(name, letter, key) W(key, p2p[TX_TOPO_ACCESS_##name], p2p),
static const field p2p_fields[] = {TX_TOPO_ACCESS_MAP(X) END};
#undef X
#undef OWNER
#define OWNER tx_topo_numa
static const field numa_fields[] = {
    N("number", INT, number), T("cpus", cpus), N("memory", BYTES, memory),
    N("node", INT, node), N("device", INT, device), END};
#undef OWNER
#define OWNER tx_topo_cpu
static const field cpu_fields[] = {
    N("number", INT, number), N("core", INT, core), N("package", INT, package),
    N("numa", INT, numa), END};
#undef OWNER
#define OWNER tx_topo_note
static const field note_fields[] = {N("warning", FLAG, warning), T("text", text), END};
#undef OWNER
#define OWNER tx_topology
static const field root_fields[] = {W("origin", origin, origin), T("file", file), T("host", host), END};
#undef OWNER

/* The arrays of structs in a topology: offset of the pointer, offset of the count, and size of an element. */
typedef struct list {
    const char *key;
    const field *fields;
    size_t array, count, size;
} list;

#define LIST(key, name, array, count) \
    {key, name##_fields, offsetof(tx_topology, array), offsetof(tx_topology, count), \
     sizeof *((tx_topology *)NULL)->array}
static const list devices = LIST("devices", device, devices, device_count);
static const list lists[] = {LIST("nodes", node, nodes, node_count), LIST("numa", numa, numa, numa_count),
    LIST("cpus", cpu, cpus, cpu_count), LIST("notes", note, notes, note_count)};
/* clang-format on */

/* ---- Writing --------------------------------------------------------------------------------- */

/* Stores the first failure; later calls do nothing. */
typedef struct writer {
    const tx_topology *t;
    tx_status status;
} writer;

static void keep(writer *w, tx_status status)
{
    w->status = w->status ? w->status : status;
}

static tx_status put_long(tx_json *object, const char *key, int64_t value, int64_t min)
{
    return value < min ? tx_json_set_null(object, key) : tx_json_set_int(object, key, value);
}

static tx_status put_field(tx_json *o, const field *f, const void *at)
{
    switch (f->kind) {
    case TEXT:
        return tx_json_set_string(o, f->key, *(const char *const *)at);
    case LABEL:
        return tx_json_set_string(o, f->key, at);
    case WORD:
        return tx_json_set_string(o, f->key, f->words[*(const int32_t *)at]);
    case FLAG:
        return tx_json_set_bool(o, f->key, *(const bool *)at);
    case INT:
    case COUNT:
        return put_long(o, f->key, *(const int32_t *)at, f->kind == COUNT);
    case BYTES:
        return put_long(o, f->key, *(const int64_t *)at, 1);
    case SIZE:
        break;
    }
    const double value = *(const double *)at;
    return value > 0 ? tx_json_set_number(o, f->key, value) : tx_json_set_null(o, f->key);
}

static void put_fields(writer *w, tx_json *o, const field *fields, const void *from)
{
    for (const field *f = fields; f->key && !w->status; f++)
        w->status = put_field(o, f, (const char *)from + f->offset);
}

static void put_list(writer *w, tx_json *o, const list *l)
{
    const char *elements = *(const char *const *)(const void *)((const char *)w->t + l->array);
    const int32_t count = *(const int32_t *)(const void *)((const char *)w->t + l->count);
    tx_json *array = tx_json_array();
    for (int32_t i = 0; i < count && !w->status; i++) {
        tx_json *one = tx_json_object();
        put_fields(w, one, l->fields, elements + (size_t)i * l->size);
        keep(w, tx_json_append(array, one));
    }
    keep(w, tx_json_set(o, l->key, array));
}

static bool p2p_asked(const tx_topo_pair *pair)
{
    for (int i = 0; i < TX_TOPO_ACCESS_COUNT; i++)
        if (pair->p2p[i] != TX_TOPO_P2P_UNASKED)
            return true;
    return false;
}

static void put_p2p(writer *w, tx_json *o, const char *key, const tx_topo_pair *pair)
{
    tx_json *p2p = tx_json_object();
    put_fields(w, p2p, p2p_fields, pair);
    keep(w, tx_json_set(o, key, p2p));
}

static tx_json *pair_json(writer *w, int32_t a, int32_t b)
{
    const tx_topo_pair *pair = tx_topo_pair_of(w->t, a, b), *back = tx_topo_pair_of(w->t, b, a);
    char cell[16];
    tx_json *o = tx_json_object();
    keep(w, tx_json_set_int(o, "a", a));
    keep(w, tx_json_set_int(o, "b", b));
    keep(w, tx_json_set_string(o, "cell", tx_topo_cell(w->t, a, b, true, cell)));
    put_fields(w, o, pair_fields, pair);
    if (p2p_asked(pair) || p2p_asked(back)) {
        put_p2p(w, o, "p2p", pair);
        put_p2p(w, o, "p2p_back", back);
    }
    return o;
}

static void put_pairs(writer *w, tx_json *root)
{
    tx_json *array = tx_json_array();
    for (int32_t a = 0; a < w->t->device_count && !w->status; a++)
        for (int32_t b = a + 1; b < w->t->device_count && !w->status; b++)
            keep(w, tx_json_append(array, pair_json(w, a, b)));
    keep(w, tx_json_set(root, "pairs", array));
}

char *tx_topology_json(const tx_topology *topology)
{
    TX_NEEDS(topology, NULL);
    writer w = {.t = topology};
    tx_json *root = tx_json_object();
    keep(&w, tx_json_set_int(root, "version", 1));
    put_fields(&w, root, root_fields, topology);
    put_list(&w, root, &devices);
    put_pairs(&w, root);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        put_list(&w, root, &lists[i]);
    char *text = w.status ? NULL : tx_json_text(root, TX_JSON_PRETTY);
    tx_json_free(root);
    return text;
}
