/* SPDX-License-Identifier: Apache-2.0
 * A topology as JSON: the form that tools/topology/txtopo.schema.json describes, and the short one that is sent between
 * processes. A table of fields a struct serves both ways. Classes are derived again from the tree, unless they were
 * stated. */
#include "comm/topology/draft.h"
#include "comm/topology/json_fields.h"

#include "api/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing -------------------------------------------------------------------------------------- */

/* The first failure is kept; later calls do nothing. */
typedef struct writer {
    const tx_topology *t;
    bool complete;
    tx_status status;
} writer;

static void keep(writer *w, tx_status status)
{
    w->status = w->status ? w->status : status;
}

static tx_status put_long(tx_json *object, const char *key, int64_t value, int64_t least)
{
    return value < least ? tx_json_set_null(object, key) : tx_json_set_int(object, key, value);
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
    case LONG:
    case BYTES:
        return put_long(o, f->key, *(const int64_t *)at, f->kind == BYTES);
    case SIZE:
        break;
    }
    const double value = *(const double *)at;
    return value > 0 ? tx_json_set_number(o, f->key, value) : tx_json_set_null(o, f->key);
}

static void put_fields(writer *w, tx_json *o, const field *fields, int32_t count, const void *from)
{
    for (int32_t i = 0; i < count && !w->status; i++)
        w->status = put_field(o, &fields[i], (const char *)from + fields[i].offset);
}

/* The list of `count` structs of `size` bytes. */
static void put_list(writer *w, tx_json *o, const char *key, const void *structs, int32_t count, size_t size,
                     const field *fields, int32_t field_count)
{
    tx_json *array = tx_json_array();
    for (int32_t i = 0; i < count && !w->status; i++) {
        tx_json *one = tx_json_object();
        put_fields(w, one, fields, field_count, (const char *)structs + (size_t)i * size);
        keep(w, tx_json_append(array, one));
    }
    keep(w, tx_json_set(o, key, array));
}
#define PUT_LIST(w, o, key, structs, count, name) put_list(w, o, key, structs, count, sizeof *(structs), FIELDS(name))

static bool p2p_asked(const tx_topo_pair *pair)
{
    for (int i = 0; i < TX_TOPO_ACCESS_COUNT; i++)
        if (pair->p2p[i] != TX_TOPO_P2P_UNASKED)
            return true;
    return false;
}

static void put_path(writer *w, tx_json *o, int32_t a, int32_t b)
{
    int32_t *path = NULL, count = 0;
    tx_json *array = tx_json_array();
    keep(w, tx_topo_path(w->t, a, b, &path, &count));
    for (int32_t i = 0; i < count; i++)
        keep(w, tx_json_append_int(array, path[i]));
    free(path);
    keep(w, tx_json_set(o, "path", array));
}

static void put_p2p(writer *w, tx_json *o, const char *key, const tx_topo_pair *pair)
{
    tx_json *p2p = tx_json_object();
    put_fields(w, p2p, FIELDS(p2p), pair);
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
    put_fields(w, o, FIELDS(pair), pair);
    if (w->complete && w->t->origin != TX_TOPO_ORIGIN_PASTED)
        put_path(w, o, a, b);
    if (p2p_asked(pair) || p2p_asked(back)) {
        put_p2p(w, o, "p2p", pair);
        put_p2p(w, o, "p2p_back", back);
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

static void put_pairs(writer *w, tx_json *root)
{
    tx_json *array = tx_json_array();
    for (int32_t a = 0; a < w->t->device_count && !w->status; a++)
        for (int32_t b = a + 1; b < w->t->device_count && !w->status; b++)
            if (says_more(w, a, b))
                keep(w, tx_json_append(array, pair_json(w, a, b)));
    keep(w, tx_json_set(root, "pairs", array));
}

/* null where nothing was measured. */
static void put_measured(writer *w, tx_json *root)
{
    if (w->t->copies_planned == 0) {
        keep(w, tx_json_set_null(root, "measured"));
        return;
    }
    tx_json *o = tx_json_object();
    keep(w, tx_json_set_int(o, "planned", w->t->copies_planned));
    PUT_LIST(w, o, "copies", w->t->copies, w->t->copy_count, copy);
    keep(w, tx_json_set(root, "measured", o));
}

char *tx_topology_json(const tx_topology *topology, bool complete)
{
    const tx_topology *t = topology;
    writer w = {.t = t, .complete = complete};
    tx_json *root = tx_json_object();
    keep(&w, tx_json_set_int(root, "version", 1));
    put_fields(&w, root, FIELDS(root), t);
    PUT_LIST(&w, root, "devices", t->devices, t->device_count, device);
    put_pairs(&w, root);
    PUT_LIST(&w, root, "nodes", t->nodes, t->node_count, node);
    PUT_LIST(&w, root, "numa", t->numa, t->numa_count, numa);
    PUT_LIST(&w, root, "cpus", t->cpus, t->cpu_count, cpu);
    PUT_LIST(&w, root, "notes", t->notes, t->note_count, note);
    put_measured(&w, root);
    char *text = w.status ? NULL : tx_json_text(root, complete ? TX_JSON_PRETTY : TX_JSON_LINE);
    tx_json_free(root);
    return text;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

/* The first failure is kept; later calls do nothing and give what they were given. */
typedef struct parser {
    tx_draft draft;
    const char *what; /* "devices[3]", for messages */
    char name[64];
    tx_status status;
} parser;

static int64_t most_of(const parser *p, int64_t most)
{
    const tx_topology *t = p->draft.t;
    return most == IN_DEVICES ? t->device_count - 1
           : most == IN_NODES ? t->node_count - (t->node_count > 0)
           : most == IN_NOTES ? t->note_count - 1
                              : most;
}

/* What is null becomes `unknown`. */
static int64_t long_of(parser *p, const tx_json *object, const char *key, int64_t most, int64_t unknown)
{
    int64_t value = unknown;
    if (!p->status && tx_json_has(object, key) && (p->status = tx_json_get_int(object, key, 0, most, &value)))
        tx_fail_in(p->status, "%s", p->what);
    return value;
}

static tx_status word_of(const tx_json *o, const field *f, int32_t *value)
{
    const char *word = "";
    tx_status status = tx_json_get_string(o, f->key, &word);
    for (*value = 0; !status && *value < f->most; ++*value)
        if (strcmp(f->words[*value], word) == 0)
            return TX_OK;
    *value = 0;
    return status ? status : tx_fail(TX_FORMAT, "%s: \"%s\" is not among the known words", f->key, word);
}

static tx_status get_field(parser *p, const tx_json *o, const field *f, void *at)
{
    const char *text = "";
    tx_status status = TX_OK;
    if (f->kind == TEXT) {
        status = tx_json_get_string(o, f->key, &text);
        *(const char **)at = tx_draft_text(&p->draft, text);
    } else if (f->kind == WORD)
        status = word_of(o, f, at);
    else if (f->kind == FLAG)
        status = tx_json_get_bool(o, f->key, at);
    else if (f->kind == SIZE) {
        *(double *)at = 0;
        status = tx_json_has(o, f->key) ? tx_json_get_number(o, f->key, 0, 1e18, at) : TX_OK;
    } else if (f->kind == LONG || f->kind == BYTES)
        *(int64_t *)at = long_of(p, o, f->key, f->most, f->kind == BYTES ? 0 : -1);
    else
        *(int32_t *)at = (int32_t)long_of(p, o, f->key, most_of(p, f->most), f->kind == COUNT ? 0 : -1);
    return status ? tx_fail_in(status, "%s", p->what) : TX_OK;
}

static void get_fields(parser *p, const tx_json *o, const field *fields, int32_t count, void *to)
{
    for (int32_t i = 0; i < count && !p->status; i++) {
        const tx_status status = fields[i].most ? get_field(p, o, &fields[i], (char *)to + fields[i].offset) : TX_OK;
        p->status = p->status ? p->status : status ? status : p->draft.status;
    }
}

/* The array under `key`; each element is handed to `read`. */
static void each(parser *p, const tx_json *root, const char *key, void (*read)(parser *, const tx_json *))
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
            read(p, element);
        if (!p->status)
            p->status = p->draft.status;
    }
}

static void read_node(parser *p, const tx_json *o)
{
    tx_topo_node node = {0};
    const int32_t place = p->draft.t->node_count;
    get_fields(p, o, FIELDS(node), &node);
    if (!p->status && (place == 0) != (node.kind == TX_TOPO_MACHINE))
        p->status = tx_fail(TX_FORMAT, "%s: the first node, and no other, is the machine", p->what);
    if (!p->status && place > 0 && node.parent < 0)
        p->status = tx_fail(TX_FORMAT, "%s: has no parent", p->what);
    const int32_t index = p->status ? -1 : tx_draft_node(&p->draft, node.kind, node.parent);
    if (index >= 0)
        p->draft.t->nodes[index] = node;
}

static void read_device(parser *p, const tx_json *o)
{
    unsigned platform = 0, device = 0;
    const int32_t index = tx_draft_device(&p->draft, TX_TOPO_GPU, 0);
    if (index < 0)
        return;
    tx_topo_device *d = &p->draft.t->devices[index];
    get_fields(p, o, FIELDS(device), d);
    if (sscanf(d->opencl, "%3u:%3u", &platform, &device) == 2) {
        d->platform = (int32_t)platform;
        d->device = (int32_t)device;
    }
    d->number = d->number < 0 ? 0 : d->number;
    d->node = d->node < 0 ? 0 : d->node;
}

static void read_numa(parser *p, const tx_json *o)
{
    const int32_t index = tx_draft_numa(&p->draft, 0);
    if (index < 0)
        return;
    tx_topo_numa *numa = &p->draft.t->numa[index];
    get_fields(p, o, FIELDS(numa), numa);
    numa->node = numa->node < 0 ? 0 : numa->node;
}

static void read_cpu(parser *p, const tx_json *o)
{
    const int32_t index = tx_draft_cpu(&p->draft, 0);
    if (index >= 0)
        get_fields(p, o, FIELDS(cpu), &p->draft.t->cpus[index]);
}

static void read_note(parser *p, const tx_json *o)
{
    tx_topo_note note = {.text = ""};
    get_fields(p, o, FIELDS(note), &note);
    if (!p->status)
        tx_draft_note(&p->draft, note.warning, "%s", note.text);
}

static void read_p2p(parser *p, const tx_json *pair, const char *key, int32_t a, int32_t b)
{
    tx_json *o = NULL;
    tx_topo_pair asked = {0};
    if (p->status || !tx_json_has(pair, key) || (p->status = tx_json_get(pair, key, TX_JSON_OBJECT, &o)))
        return;
    get_fields(p, o, FIELDS(p2p), &asked);
    for (int access = 0; access < TX_TOPO_ACCESS_COUNT && !p->status; access++)
        tx_draft_p2p_add(&p->draft, a, b, (tx_topo_access)access, asked.p2p[access]);
}

static void read_pair(parser *p, const tx_json *o)
{
    tx_topo_pair pair = {0};
    const int32_t last = p->draft.t->device_count - 1, a = (int32_t)long_of(p, o, "a", last, -1),
                  b = (int32_t)long_of(p, o, "b", last, -1);
    if (!p->status && (a < 0 || b < 0 || a == b))
        p->status = tx_fail(TX_FORMAT, "%s: names no two devices", p->what);
    get_fields(p, o, FIELDS(pair), &pair);
    if (p->status)
        return;
    if (pair.link != TX_TOPO_NO_LINK)
        tx_draft_link_add(&p->draft, &(tx_draft_link){a, b, pair.link, pair.links, pair.indirect, pair.link_rate,
                                                      pair.link_source, pair.link_confidence, pair.note});
    if (pair.class_source == TX_TOPO_FROM_MATRIX || pair.class_source == TX_TOPO_FROM_NVML) {
        tx_draft_class_add(&p->draft, &(tx_draft_class){a, b, pair.class_, pair.class_source, pair.note});
        tx_draft_class_add(&p->draft, &(tx_draft_class){b, a, pair.class_, pair.class_source, pair.note});
    }
    read_p2p(p, o, "p2p", a, b);
    read_p2p(p, o, "p2p_back", b, a);
}

static void read_copy(parser *p, const tx_json *o)
{
    tx_topo_copy copy = {0};
    get_fields(p, o, FIELDS(copy), &copy);
    bool from = copy.kind == TX_TOPO_COPY_FROM_DEVICE || copy.kind == TX_TOPO_COPY_BETWEEN;
    bool to = copy.kind == TX_TOPO_COPY_TO_DEVICE || copy.kind == TX_TOPO_COPY_BETWEEN;
    if (!p->status && (from != (copy.from >= 0) || to != (copy.to >= 0) || (from && copy.from == copy.to)))
        p->status = tx_fail(TX_FORMAT, "%s: from and to are not those of its kind", p->what);
    if (p->status)
        return;
    p->draft.t->copies[p->draft.t->copy_count++] = copy;
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
    const int32_t planned = (int32_t)long_of(p, o, "planned", INT32_MAX, -1);
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
    get_fields(p, root, FIELDS(root), p->draft.t);
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
