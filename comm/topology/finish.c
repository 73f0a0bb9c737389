/* SPDX-License-Identifier: Apache-2.0
 * From what collectors added to a topology: devices in order and numbered, the tree without what nothing hangs from. */
#include "comm/topology/draft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    int32_t kind;
    uint64_t bus; /* the largest where none is known */
    int32_t partition, platform, device, index;
} place;

static int compare_places(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->bus != b->bus)
        return a->bus < b->bus ? -1 : 1;
    const int32_t keys[4][2] = {
        {a->partition, b->partition}, {a->platform, b->platform}, {a->device, b->device}, {a->index, b->index}};
    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Where each device goes: places[new].index is its old index, moved[old] its new one, -1 when dropped. A pasted matrix
 * keeps its order. Returns how many stay. */
static int32_t order_devices(const tx_topology *t, place *places, int32_t *moved)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->device_count; i++) {
        const tx_topo_device *d = &t->devices[i];
        moved[i] = -1;
        if (d->source == TX_DRAFT_UNSURE)
            continue;
        place *p = &places[count++];
        *p = (place){.kind = (int32_t)d->kind,
                     .bus = UINT64_MAX,
                     .partition = d->partition,
                     .platform = d->platform,
                     .device = d->device,
                     .index = i};
        tx_topo_bus_parse(d->bus, &p->bus);
    }
    if (t->origin != TX_TOPO_ORIGIN_PASTED)
        qsort(places, (size_t)count, sizeof *places, compare_places);
    for (int32_t i = 0; i < count; i++)
        moved[places[i].index] = i;
    return count;
}

static void number_devices(tx_topology *t)
{
    int32_t numbers[TX_TOPO_DEVICE_COUNT] = {0};
    for (int32_t i = 0; i < t->device_count; i++) {
        tx_topo_device *d = &t->devices[i];
        d->number = t->origin == TX_TOPO_ORIGIN_PASTED ? d->number : numbers[d->kind];
        numbers[d->kind]++;
        snprintf(d->label, sizeof d->label, "%s%" PRId32, tx_topo_device_name(d->kind), d->number);
        d->partitions = 0;
        for (int32_t k = 0; k < t->device_count; k++)
            d->partitions += t->devices[k].node == d->node && t->devices[k].kind == d->kind;
        if (t->nodes[d->node].kind != TX_TOPO_FUNCTION)
            d->partitions = 1;
    }
    t->gpus = numbers[TX_TOPO_GPU];
    t->nics = numbers[TX_TOPO_NIC];
    t->cpu_devices = numbers[TX_TOPO_CPU];
}

/* Structs that begin with two devices, a and b: those of dropped devices go. Returns how many stay. */
static int32_t move_pairs(void *structs, int32_t count, size_t size, const int32_t *moved)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t *to = (int32_t *)(void *)((char *)structs + (size_t)kept * size);
        memmove(to, (char *)structs + (size_t)i * size, size);
        to[0] = moved[to[0]];
        to[1] = moved[to[1]];
        kept += to[0] >= 0 && to[1] >= 0;
    }
    return kept;
}

/* What was said of dropped devices goes with them. */
static void move_facts(tx_draft *draft, const int32_t *moved)
{
    draft->link_count = move_pairs(draft->links, draft->link_count, sizeof *draft->links, moved);
    draft->p2p_count = move_pairs(draft->p2p, draft->p2p_count, sizeof *draft->p2p, moved);
    draft->class_count = move_pairs(draft->classes, draft->class_count, sizeof *draft->classes, moved);
    int32_t kept = 0;
    for (int32_t i = 0; i < draft->t->copy_count; i++) {
        tx_topo_copy copy = draft->t->copies[i];
        bool known = (copy.from < 0 || moved[copy.from] >= 0) && (copy.to < 0 || moved[copy.to] >= 0);
        copy.from = copy.from < 0 ? -1 : moved[copy.from];
        copy.to = copy.to < 0 ? -1 : moved[copy.to];
        if (known)
            draft->t->copies[kept++] = copy;
    }
    draft->t->copy_count = kept;
    for (int32_t i = 0; i < draft->t->numa_count; i++)
        if (draft->t->numa[i].device >= 0)
            draft->t->numa[i].device = moved[draft->t->numa[i].device];
}

static tx_status sort_devices(tx_draft *draft)
{
    tx_topology *t = draft->t;
    size_t n = (size_t)t->device_count;
    place *places = calloc(n + 1, sizeof *places);
    int32_t *moved = calloc(n + 1, sizeof *moved);
    tx_topo_device *devices = calloc(n + 1, sizeof *devices);
    if (!places || !moved || !devices) {
        free(places);
        free(moved);
        free(devices);
        return tx_fail(TX_MEMORY, "topology: out of memory");
    }
    int32_t count = order_devices(t, places, moved);
    for (int32_t i = 0; i < count; i++)
        devices[i] = t->devices[places[i].index];
    free(t->devices);
    t->devices = devices;
    t->device_count = count;
    number_devices(t);
    move_facts(draft, moved);
    free(places);
    free(moved);
    return TX_OK;
}

static void keep_with_ancestors(const tx_topology *t, bool *kept, int32_t node)
{
    for (int32_t i = node; i >= 0 && !kept[i]; i = t->nodes[i].parent)
        kept[i] = true;
}

/* Drops nodes that nothing hangs from. */
static tx_status prune(tx_topology *t)
{
    bool *kept = calloc((size_t)t->node_count, sizeof *kept);
    int32_t *moved = calloc((size_t)t->node_count, sizeof *moved);
    if (!kept || !moved) {
        free(kept);
        free(moved);
        return tx_fail(TX_MEMORY, "topology: out of memory");
    }
    keep_with_ancestors(t, kept, 0);
    for (int32_t i = 0; i < t->device_count; i++)
        keep_with_ancestors(t, kept, t->devices[i].node);
    for (int32_t i = 0; i < t->numa_count; i++)
        keep_with_ancestors(t, kept, t->numa[i].node);
    for (int32_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].kind == TX_TOPO_PACKAGE)
            keep_with_ancestors(t, kept, i);
    int32_t count = 0;
    for (int32_t i = 0; i < t->node_count; i++) {
        moved[i] = count;
        if (!kept[i])
            continue;
        tx_topo_node node = t->nodes[i];
        node.parent = node.parent < 0 ? -1 : moved[node.parent];
        t->nodes[count++] = node;
    }
    t->node_count = count;
    for (int32_t i = 0; i < t->device_count; i++)
        t->devices[i].node = moved[t->devices[i].node];
    for (int32_t i = 0; i < t->numa_count; i++)
        t->numa[i].node = moved[t->numa[i].node];
    free(kept);
    free(moved);
    return TX_OK;
}

/* Of structs that begin with their number. */
static int compare_numbers(const void *left, const void *right)
{
    const int32_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

tx_status tx_draft_finish(tx_draft *draft, tx_topology **topology)
{
    tx_topology *t = draft->t;
    if (!draft->status && t->node_count == 0)
        tx_draft_node(draft, TX_TOPO_MACHINE, -1);
    tx_status status = draft->status;
    if (!status)
        status = sort_devices(draft);
    if (!status)
        status = prune(t);
    if (!status) {
        if (t->numa_count)
            qsort(t->numa, (size_t)t->numa_count, sizeof *t->numa, compare_numbers);
        if (t->cpu_count)
            qsort(t->cpus, (size_t)t->cpu_count, sizeof *t->cpus, compare_numbers);
        for (int32_t i = 0; i < t->numa_count; i++)
            if (t->numa[i].device >= 0 && t->devices[t->numa[i].device].gpu_numa < 0)
                t->devices[t->numa[i].device].gpu_numa = t->numa[i].number;
        status = tx_topo_classify(draft);
    }
    if (!status) {
        *topology = t;
        draft->t = NULL;
    }
    tx_draft_discard(draft);
    return status;
}
