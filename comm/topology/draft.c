/* SPDX-License-Identifier: Apache-2.0
 * What collectors and readers add to a topology in the making. */
#include "comm/topology/draft.h"

#include "comm/topology/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No machine has as many; a file that does is refused instead of filling the memory. */
#define ELEMENTS_MAX (1 << 20)

tx_status tx_draft_begin(tx_topo_origin origin, const char *file, tx_draft *draft)
{
    *draft = (tx_draft){0};
    draft->t = calloc(1, sizeof *draft->t);
    if (!draft->t || !(draft->t->pool = tx_topo_pool_create())) {
        free(draft->t);
        return tx_fail(TX_MEMORY, "topology: out of memory");
    }
    draft->t->origin = origin;
    draft->t->host = "";
    draft->t->file = tx_draft_text(draft, file);
    return draft->status;
}

void tx_draft_discard(tx_draft *draft)
{
    tx_topology_free(draft->t);
    free(draft->links);
    free(draft->p2p);
    free(draft->classes);
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
    free(topology->copies);
    tx_topo_pool_free(topology->pool);
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
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tx_draft_text(draft, text);
}

/* Room for one more element of `size` bytes; NULL after a failure. The element is zeroed. */
static void *append(tx_draft *draft, void **array, int32_t *count, int32_t *room, size_t size)
{
    if (draft->status)
        return NULL;
    if (*count >= ELEMENTS_MAX) {
        draft->status = tx_fail(TX_FORMAT, "more than %d elements of one kind in a topology", ELEMENTS_MAX);
        return NULL;
    }
    if (*count == *room) {
        int32_t more = *room ? *room * 2 : 16;
        void *bigger = realloc(*array, (size_t)more * size);
        if (!bigger) {
            draft->status = tx_fail(TX_MEMORY, "topology: out of memory");
            return NULL;
        }
        *array = bigger;
        *room = more;
    }
    return memset((char *)*array + (size_t)(*count)++ * size, 0, size);
}

#define APPEND(draft, array, count, room) append(draft, (void **)&(array), &(count), &(room), sizeof *(array))

int32_t tx_draft_node(tx_draft *draft, tx_topo_node_kind kind, int32_t parent)
{
    tx_topology *t = draft->t;
    tx_topo_node *node = APPEND(draft, t->nodes, t->node_count, draft->node_room);
    if (!node)
        return -1;
    *node = (tx_topo_node){
        .kind = kind, .parent = parent, .name = "", .bus = "", .iommu_group = -1, .cpus = "", .nodes = ""};
    return t->node_count - 1;
}

int32_t tx_draft_device(tx_draft *draft, tx_topo_device_kind kind, int32_t node)
{
    tx_topology *t = draft->t;
    if (!draft->status && t->device_count == TX_TOPO_DEVICES_MAX)
        draft->status = tx_fail(TX_FORMAT, "more than %d devices", TX_TOPO_DEVICES_MAX);
    tx_topo_device *device = APPEND(draft, t->devices, t->device_count, draft->device_room);
    if (!device)
        return -1;
    const char *bus = node >= 0 ? t->nodes[node].bus : "";
    *device = (tx_topo_device){.kind = kind,
                               .node = node,
                               .bus = bus,
                               .vendor_id = node >= 0 ? t->nodes[node].vendor_id : 0,
                               .device_id = node >= 0 ? t->nodes[node].device_id : 0,
                               .vendor = "",
                               .name = "",
                               .system = "",
                               .platform = -1,
                               .device = -1,
                               .opencl = "",
                               .engine = "",
                               .confidence = TX_TOPO_STATED,
                               .cpus = "",
                               .nodes = "",
                               .gpu_numa = -1,
                               .nic = -1,
                               .note = -1};
    return t->device_count - 1;
}

int32_t tx_draft_numa(tx_draft *draft, int32_t number)
{
    tx_topology *t = draft->t;
    tx_topo_numa *numa = APPEND(draft, t->numa, t->numa_count, draft->numa_room);
    if (!numa)
        return -1;
    *numa = (tx_topo_numa){.number = number, .cpus = "", .device = -1};
    return t->numa_count - 1;
}

int32_t tx_draft_cpu(tx_draft *draft, int32_t number)
{
    tx_topology *t = draft->t;
    tx_topo_cpu *cpu = APPEND(draft, t->cpus, t->cpu_count, draft->cpu_room);
    if (!cpu)
        return -1;
    *cpu = (tx_topo_cpu){.number = number, .numa = -1};
    return t->cpu_count - 1;
}

int32_t tx_draft_note(tx_draft *draft, bool warning, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tx_topology *t = draft->t;
    const char *copy =
        tx_draft_text(draft, text); /* which may read otherwise: it is what the others are held against */
    for (int32_t i = 0; i < t->note_count; i++)
        if (strcmp(t->notes[i].text, copy) == 0)
            return i;
    tx_topo_note *note = APPEND(draft, t->notes, t->note_count, draft->note_room);
    if (!note)
        return -1;
    *note = (tx_topo_note){.warning = warning, .text = copy};
    return t->note_count - 1;
}

void tx_draft_link_add(tx_draft *draft, const tx_draft_link *link)
{
    tx_draft_link *place = link->a == link->b ? NULL : APPEND(draft, draft->links, draft->link_count, draft->link_room);
    if (place)
        *place = *link;
}

void tx_draft_p2p_add(tx_draft *draft, int32_t a, int32_t b, tx_topo_access access, tx_topo_p2p value)
{
    tx_draft_p2p *p2p = APPEND(draft, draft->p2p, draft->p2p_count, draft->p2p_room);
    if (p2p)
        *p2p = (tx_draft_p2p){.a = a, .b = b, .access = access, .value = value};
}

void tx_draft_class_add(tx_draft *draft, const tx_draft_class *stated)
{
    tx_draft_class *place = APPEND(draft, draft->classes, draft->class_count, draft->class_room);
    if (place)
        *place = *stated;
}

int32_t tx_draft_find_bus(const tx_draft *draft, const char *bus)
{
    uint64_t wanted = 0, key = 0;
    if (!tx_topo_bus_parse(bus, &wanted))
        return -1;
    for (int32_t i = 0; i < draft->t->node_count; i++)
        if (draft->t->nodes[i].kind == TX_TOPO_FUNCTION && tx_topo_bus_parse(draft->t->nodes[i].bus, &key) &&
            key == wanted)
            return i;
    return -1;
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
