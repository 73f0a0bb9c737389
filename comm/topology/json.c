/* SPDX-License-Identifier: Apache-2.0
 * A topology as JSON, as tools/topology/txtopo.schema.json describes it. A table of fields a struct serves both ways.
 * Classes are derived again from the tree, unless they were stated. */
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
    if (w->t->origin != TX_TOPO_ORIGIN_PASTED)
        put_path(w, o, a, b);
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
    writer w = {.t = topology};
    tx_json *root = tx_json_object();
    keep(&w, tx_json_set_int(root, "version", 1));
    put_fields(&w, root, root_fields, topology);
    put_list(&w, root, &lists[DEVICES]);
    put_pairs(&w, root);
    put_list(&w, root, &lists[NODES]);
    put_list(&w, root, &lists[NUMA]);
    put_list(&w, root, &lists[CPUS]);
    put_list(&w, root, &lists[NOTES]);
    char *text = w.status ? NULL : tx_json_text(root, TX_JSON_PRETTY);
    tx_json_free(root);
    return text;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

/* The first failure is kept in the draft; later calls do nothing. */
typedef struct parser {
    tx_draft draft;
    char what[64]; /* "devices[3]", for messages */
} parser;

static void keep_read(parser *p, tx_status status)
{
    if (!p->draft.status && status)
        p->draft.status = tx_fail_in(status, "%s", p->what);
}

static void refuse(parser *p, bool wrong, const char *why)
{
    if (!p->draft.status && wrong)
        p->draft.status = tx_fail(TX_FORMAT, "%s: %s", p->what, why);
}

/* The member `key` of that type; NULL where there is none, or after a failure. */
static tx_json *member(parser *p, const tx_json *o, const char *key, tx_json_type type)
{
    tx_json *value = NULL;
    if (!p->draft.status)
        keep_read(p, tx_json_get(o, key, type, &value));
    return p->draft.status ? NULL : value;
}

static int64_t most_of(const parser *p, int64_t most)
{
    const tx_topology *t = p->draft.t;
    switch (most) {
    case IN_DEVICES:
        return t->device_count - 1;
    case IN_NODES:
        return t->node_count - 1;
    case IN_NOTES:
        return t->note_count - 1;
    default:
        return most;
    }
}

/* What is null becomes `unknown`. */
static int64_t get_long(parser *p, const tx_json *object, const char *key, int64_t most, int64_t unknown)
{
    int64_t value = unknown;
    if (!p->draft.status && tx_json_has(object, key))
        keep_read(p, tx_json_get_int(object, key, 0, most_of(p, most), &value));
    return value;
}

static tx_status get_word(const tx_json *o, const field *f, int32_t *value)
{
    const char *word = "";
    tx_status status = tx_json_get_string(o, f->key, &word);
    for (int32_t i = 0; !status && i < f->most; i++)
        if (strcmp(f->words[i], word) == 0) {
            *value = i;
            return TX_OK;
        }
    return status ? status : tx_fail(TX_FORMAT, "%s: \"%s\" is not among the known words", f->key, word);
}

static void get_field(parser *p, const tx_json *o, const field *f, void *at)
{
    const char *text = "";
    switch (f->kind) {
    case TEXT:
        if (tx_json_has(o, f->key)) /* as with FLAG */
            keep_read(p, tx_json_get_string(o, f->key, &text));
        *(const char **)at = tx_draft_text(&p->draft, text);
        break;
    case WORD:
        keep_read(p, get_word(o, f, at));
        break;
    case FLAG:
        if (tx_json_has(o, f->key)) /* an older TX wrote fewer */
            keep_read(p, tx_json_get_bool(o, f->key, at));
        break;
    case LONG:
    case BYTES:
        *(int64_t *)at = get_long(p, o, f->key, f->most, f->kind == BYTES ? 0 : -1);
        break;
    case INT:
    case COUNT:
        *(int32_t *)at = (int32_t)get_long(p, o, f->key, f->most, f->kind == COUNT ? 0 : -1);
        break;
    case SIZE:
        if (tx_json_has(o, f->key))
            keep_read(p, tx_json_get_number(o, f->key, 0, 1e18, at));
        break;
    case LABEL: /* follows from the others */
        break;
    }
}

/* Into a struct that is zeroed. */
static void get_fields(parser *p, const tx_json *o, const field *fields, void *to)
{
    for (const field *f = fields; f->key && !p->draft.status; f++)
        if (f->most)
            get_field(p, o, f, (char *)to + f->offset);
}

/* The elements of an array that are objects, one after the other: NULL at the end and after a failure. */
static const tx_json *next_element(parser *p, const tx_json *array, const char *key, size_t *next)
{
    if (p->draft.status || *next == tx_json_size(array))
        return NULL;
    const tx_json *element = tx_json_at(array, *next);
    snprintf(p->what, sizeof p->what, "%s[%zu]", key, (*next)++);
    refuse(p, tx_json_type_of(element) != TX_JSON_OBJECT, "is no object");
    return p->draft.status ? NULL : element;
}

/* Whether an element fits what was read before. */
static void check(parser *p, int which, void *element)
{
    const int32_t before = p->draft.t->node_count - 1;
    if (which == NODES) {
        const tx_topo_node *node = element;
        refuse(p, (before == 0) != (node->kind == TX_TOPO_MACHINE), "the first node, and no other, is the machine");
        refuse(p, before > 0 && node->parent < 0, "has no parent");
        refuse(p, node->parent >= before, "its parent does not come before it");
    } else if (which == DEVICES) {
        tx_topo_device *d = element;
        refuse(p, p->draft.t->device_count > TX_TOPO_DEVICES_MAX, "more devices than TX takes");
        unsigned platform = 0, device = 0;
        const bool listed = sscanf(d->opencl, "%3u:%3u", &platform, &device) == 2;
        d->platform = listed ? (int32_t)platform : -1;
        d->device = listed ? (int32_t)device : -1;
        d->number = d->number < 0 ? 0 : d->number;
        d->node = d->node < 0 ? 0 : d->node;
    } else if (which == NUMA) {
        tx_topo_numa *numa = element;
        numa->node = numa->node < 0 ? 0 : numa->node;
    }
}

static void read_list(parser *p, const tx_json *o, int which)
{
    const list *l = &lists[which];
    char *t = (char *)p->draft.t;
    snprintf(p->what, sizeof p->what, "%s", l->key);
    const tx_json *array = member(p, o, l->key, TX_JSON_ARRAY), *element;
    for (size_t i = 0; (element = next_element(p, array, l->key, &i));) {
        void *made =
            tx_draft_append(&p->draft, (void **)(void *)(t + l->array), (int32_t *)(void *)(t + l->count), l->size);
        if (!made)
            return;
        get_fields(p, element, l->fields, made);
        if (!p->draft.status)
            check(p, which, made);
    }
}

static void read_p2p(parser *p, const tx_json *pair, const char *key, int32_t a, int32_t b)
{
    tx_topo_pair asked = {0};
    if (!tx_json_has(pair, key))
        return;
    const tx_json *o = member(p, pair, key, TX_JSON_OBJECT);
    if (o)
        get_fields(p, o, p2p_fields, &asked);
    if (!p->draft.status)
        tx_draft_state(&p->draft, a, b, TX_DRAFT_P2P, &asked);
}

static void read_pairs(parser *p, const tx_json *root)
{
    const tx_json *array = member(p, root, "pairs", TX_JSON_ARRAY), *o;
    for (size_t i = 0; (o = next_element(p, array, "pairs", &i));) {
        tx_topo_pair pair = {0};
        const int32_t a = (int32_t)get_long(p, o, "a", IN_DEVICES, -1),
                      b = (int32_t)get_long(p, o, "b", IN_DEVICES, -1);
        refuse(p, a < 0 || b < 0 || a == b, "names no two devices");
        get_fields(p, o, pair_fields, &pair);
        if (p->draft.status)
            return;
        const bool stated = pair.class_source == TX_TOPO_FROM_MATRIX || pair.class_source == TX_TOPO_FROM_NVML;
        const unsigned links = pair.link != TX_TOPO_NO_LINK ? TX_DRAFT_LINKS : 0;
        tx_draft_state(&p->draft, a, b, links | (stated ? TX_DRAFT_CLASS : 0), &pair);
        tx_draft_state(&p->draft, b, a, stated ? TX_DRAFT_CLASS : 0, &pair);
        read_p2p(p, o, "p2p", a, b);
        read_p2p(p, o, "p2p_back", b, a);
    }
}

static void read_root(parser *p, const tx_json *root)
{
    int64_t version = 0;
    keep_read(p, tx_json_get_int(root, "version", 1, 1, &version));
    get_fields(p, root, root_fields, p->draft.t);
    read_list(p, root, NOTES);
    read_list(p, root, NODES);
    refuse(p, p->draft.t->node_count == 0, "there is none");
    read_list(p, root, DEVICES);
    read_list(p, root, NUMA);
    read_list(p, root, CPUS);
    read_pairs(p, root);
}

tx_status tx_topology_parse(const char *text, size_t size, const char *where, tx_topology **topology)
{
    tx_json *root = NULL;
    parser p = {.what = "topology"};
    tx_status status = tx_json_parse(text, size, where, &root);
    if (status)
        return status;
    status = tx_draft_begin(TX_TOPO_ORIGIN_LIVE, &p.draft);
    if (!status) {
        refuse(&p, tx_json_type_of(root) != TX_JSON_OBJECT, "is no object");
        if (!p.draft.status)
            read_root(&p, root);
        if (p.draft.status) /* a key may be missing */
            p.draft.status = tx_fail_in(p.draft.status == TX_NOT_FOUND ? TX_FORMAT : p.draft.status, "%s", where);
        status = tx_draft_finish(&p.draft, topology);
    }
    tx_json_free(root);
    return status;
}
