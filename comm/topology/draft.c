/* SPDX-License-Identifier: Apache-2.0
 * The draft of a topology: its elements and its strings. Strings come from drivers and files. The strings in the
 * pool are safe to print on a terminal and to write as JSON. */
#include "comm/topology/draft.h"
#include "api/base/number.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Limit of elements; a file with more is rejected before it exhausts memory. */
#define ELEMENTS_MAX (1 << 20)

/* ---- Strings --------------------------------------------------------------------------------- */

typedef struct piece {
    struct piece *next;
    char text[];
} piece;

struct tx_topo_pool {
    piece *first;
};

static void free_pool(tx_topo_pool *pool)
{
    for (piece *p = pool ? pool->first : NULL; p;) {
        piece *next = p->next;
        free(p);
        p = next;
    }
    free(pool);
}

/* Returns the length in bytes of the UTF-8 character at `text`; 0 if it is invalid, not in its shortest form, or a
 * control character. */
static size_t character(const unsigned char *text)
{
    static const struct {
        unsigned char mask, mark; /* of the first byte */
        unsigned least;           /* the first character of this length that is not a control character */
    } forms[] = {{0x80, 0x00, 0x20}, {0xE0, 0xC0, 0xA0}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    for (size_t size = 1; size <= 4; size++) {
        unsigned code = text[0] & ~forms[size - 1].mask & 0xFFu;
        if ((text[0] & forms[size - 1].mask) != forms[size - 1].mark)
            continue;
        for (size_t k = 1; k < size; k++) {
            if ((text[k] & 0xC0) != 0x80)
                return 0;
            code = code << 6 | (text[k] & 0x3Fu);
        }
        const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
        return code < forms[size - 1].least || code == 0x7F || surrogate || code > 0x10FFFF ? 0 : size;
    }
    return 0;
}

const char *tx_topo_pool_text(tx_topo_pool *pool, const char *text)
{
    while (*text == ' ')
        text++;
    size_t size = strlen(text);
    while (size > 0 && text[size - 1] == ' ')
        size--;
    if (size == 0)
        return "";
    piece *p = malloc(sizeof *p + size + 1);
    if (!p)
        return NULL;
    for (size_t i = 0; i < size;) {
        size_t length = character((const unsigned char *)text + i);
        if (length == 0 || length > size - i) {
            p->text[i++] = '?';
            continue;
        }
        memcpy(p->text + i, text + i, length);
        i += length;
    }
    p->text[size] = '\0';
    p->next = pool->first;
    pool->first = p;
    return p->text;
}

/* ---- Draft ----------------------------------------------------------------------------------- */

tx_status tx_draft_begin(tx_topo_origin origin, tx_draft *draft)
{
    *draft = (tx_draft){0};
    draft->t = calloc(1, sizeof *draft->t);
    if (!draft->t || !(draft->t->pool = calloc(1, sizeof *draft->t->pool))) {
        free(draft->t);
        return tx_fail(TX_MEMORY, "topology: out of memory");
    }
    draft->t->origin = origin;
    draft->t->file = draft->t->host = "";
    return TX_OK;
}

void tx_draft_discard(tx_draft *draft)
{
    tx_topology_free(draft->t);
    free(draft->facts);
    *draft = (tx_draft){0};
}

void tx_topology_free(tx_topology *topology)
{
    if (!topology)
        return;
    free(topology->devices);
    free(topology->pairs);
    free(topology->nodes);
    free(topology->numa);
    free(topology->cpus);
    free(topology->notes);
    free_pool(topology->pool);
    free(topology);
}

const char *tx_draft_text(tx_draft *draft, const char *text)
{
    const char *copy = draft->status || !text ? "" : tx_topo_pool_text(draft->t->pool, text);
    if (!copy)
        draft->status = tx_fail(TX_MEMORY, "topology: out of memory");
    return copy ? copy : "";
}

const char *tx_draft_format(tx_draft *draft, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    return tx_draft_text(draft, text);
}

void *tx_draft_append(tx_draft *draft, void **array, int32_t *count, size_t size)
{
    if (!draft->status && *count >= ELEMENTS_MAX)
        draft->status = tx_fail(TX_FORMAT, "more than %d elements of one kind in a topology", ELEMENTS_MAX);
    if (draft->status)
        return NULL;
    if ((*count & (*count - 1)) == 0) { /* the capacity is a power of two, and the array is full */
        void *bigger = realloc(*array, (*count ? 2 * (size_t)*count : 1) * size);
        if (!bigger) {
            draft->status = tx_fail(TX_MEMORY, "topology: out of memory");
            return NULL;
        }
        *array = bigger;
    }
    return memset((char *)*array + (size_t)(*count)++ * size, 0, size);
}

int32_t tx_draft_node(tx_draft *draft, tx_topo_node_kind kind, int32_t parent)
{
    tx_topo_node *node = TX_DRAFT_APPEND(draft, draft->t->nodes, draft->t->node_count);
    if (!node)
        return -1;
    *node = (tx_topo_node){
        .kind = kind, .parent = parent, .name = "", .bus = "", .iommu_group = -1, .cpus = "", .nodes = ""};
    return draft->t->node_count - 1;
}

int32_t tx_draft_device(tx_draft *draft, tx_topo_device_kind kind, int32_t node)
{
    static const tx_topo_node nowhere = {.bus = ""};
    tx_topology *t = draft->t;
    if (!draft->status && t->device_count == TX_TOPO_DEVICES_MAX)
        draft->status = tx_fail(TX_FORMAT, "more than %d devices", TX_TOPO_DEVICES_MAX);
    tx_topo_device *device = TX_DRAFT_APPEND(draft, t->devices, t->device_count);
    if (!device)
        return -1;
    const tx_topo_node *place = node < 0 ? &nowhere : &t->nodes[node];
    *device = (tx_topo_device){.kind = kind,
                               .node = node,
                               .bus = place->bus,
                               .vendor_id = place->vendor_id,
                               .device_id = place->device_id,
                               .vendor = tx_topo_vendor(place->vendor_id),
                               .name = "",
                               .system = "",
                               .platform = -1,
                               .device = -1,
                               .opencl = "",
                               .engine = "",
                               .cpus = "",
                               .nodes = "",
                               .gpu_numa = -1,
                               .nic = -1,
                               .note = -1};
    return t->device_count - 1;
}

int32_t tx_draft_numa(tx_draft *draft, int32_t number)
{
    tx_topo_numa *numa = TX_DRAFT_APPEND(draft, draft->t->numa, draft->t->numa_count);
    if (!numa)
        return -1;
    *numa = (tx_topo_numa){.number = number, .cpus = "", .device = -1};
    return draft->t->numa_count - 1;
}

int32_t tx_draft_note(tx_draft *draft, bool warning, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    tx_topology *t = draft->t;
    const char *copy = tx_draft_text(draft, text); /* the pool may change the text, so the copy is compared */
    for (int32_t i = 0; i < t->note_count; i++)
        if (strcmp(t->notes[i].text, copy) == 0)
            return i;
    tx_topo_note *note = TX_DRAFT_APPEND(draft, t->notes, t->note_count);
    if (!note)
        return -1;
    *note = (tx_topo_note){.warning = warning, .text = copy};
    return t->note_count - 1;
}

void tx_draft_state(tx_draft *draft, int32_t a, int32_t b, unsigned about, const tx_topo_pair *says)
{
    tx_draft_fact *fact = a == b || !about ? NULL : TX_DRAFT_APPEND(draft, draft->facts, draft->fact_count);
    if (fact)
        *fact = (tx_draft_fact){a, b, about, *says};
}

void tx_draft_xgmi(tx_draft *draft, int32_t a, int32_t b, tx_topo_pair says, int64_t one, int64_t all, const char *note)
{
    if (!says.indirect && one > 0 && all >= one && all / one < 100) {
        says.links = (int32_t)(all / one);
        says.link_rate = (double)all / 1000;
    } else
        says.note = tx_draft_note(draft, false, "%s; XG has no number", note);
    tx_draft_state(draft, a, b, TX_DRAFT_LINKS, &says);
}

int32_t tx_draft_find_key(const tx_draft *draft, uint64_t key)
{
    uint64_t other = 0;
    for (int32_t i = 0; i < draft->t->node_count; i++)
        if (draft->t->nodes[i].kind == TX_TOPO_FUNCTION && tx_topo_bus_parse(draft->t->nodes[i].bus, &other) &&
            other == key)
            return i;
    return -1;
}

int32_t tx_draft_find_bus(const tx_draft *draft, const char *bus)
{
    uint64_t key = 0;
    return tx_topo_bus_parse(bus, &key) ? tx_draft_find_key(draft, key) : -1;
}

const char *tx_draft_bus(tx_draft *draft, uint64_t key)
{
    return tx_draft_format(draft, "%04x:%02x:%02x.%x", (unsigned)(key >> 16), (unsigned)(key >> 8 & 0xFF),
                           (unsigned)(key >> 3 & 0x1F), (unsigned)(key & 7));
}

int32_t tx_draft_device_at(const tx_draft *draft, int32_t node, int32_t partition)
{
    if (node < 0)
        return -1;
    for (int32_t i = 0; i < draft->t->device_count; i++) {
        const tx_topo_device *d = &draft->t->devices[i];
        if (d->kind == TX_TOPO_GPU && d->node == node && d->partition == partition)
            return i;
    }
    return -1;
}
