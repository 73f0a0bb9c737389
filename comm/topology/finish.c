/* SPDX-License-Identifier: Apache-2.0
 * Completes a draft: sorts and numbers the devices, and removes unused nodes of the tree. */
#define _GNU_SOURCE /* strverscmp */
#include "comm/topology/draft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compares by kind. NICs are then compared by name, as in nvidia-smi: mlx5_2 precedes mlx5_10. Finally devices are
 * compared by bus id; those without one come last. `number` is the device's previous index. */
static int compare_devices(const void *left, const void *right)
{
    const tx_topo_device *a = left, *b = right;
    uint64_t bus_a = INT64_MAX, bus_b = INT64_MAX;
    tx_topo_bus_parse(a->bus, &bus_a);
    tx_topo_bus_parse(b->bus, &bus_b);
    const int name = a->kind == TX_TOPO_NIC && b->kind == TX_TOPO_NIC ? strverscmp(a->system, b->system) : 0;
    const int64_t keys[][2] = {{(int64_t)a->kind, (int64_t)b->kind},
                               {name, 0},
                               {(int64_t)bus_a, (int64_t)bus_b},
                               {a->partition, b->partition},
                               {a->platform, b->platform},
                               {a->device, b->device},
                               {a->number, b->number}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Removes devices that no source confirmed, and sorts the others. The devices of a pasted matrix keep their order.
 * moved[old index] is set to the new index; -1 if removed. */
static void sort_devices(tx_topology *t, int32_t *moved)
{
    const bool pasted = t->origin == TX_TOPO_ORIGIN_PASTED;
    int32_t count = 0;
    for (int32_t i = 0; i < t->device_count; i++) {
        moved[i] = -1;
        if (t->devices[i].source == TX_DRAFT_UNSURE)
            continue;
        moved[i] = count;
        t->devices[count] = t->devices[i];
        t->devices[count].number = pasted ? t->devices[i].number : i;
        count++;
    }
    t->device_count = count;
    if (pasted || count == 0)
        return;
    qsort(t->devices, (size_t)count, sizeof *t->devices, compare_devices);
    for (int32_t i = 0; i < count; i++)
        moved[t->devices[i].number] = i;
}

static void number_devices(tx_topology *t)
{
    int32_t numbers[TX_TOPO_DEVICE_COUNT] = {0};
    for (int32_t i = 0; i < t->device_count; i++) {
        tx_topo_device *d = &t->devices[i];
        d->number = t->origin == TX_TOPO_ORIGIN_PASTED ? d->number : numbers[d->kind];
        numbers[d->kind]++;
        snprintf(d->label, sizeof d->label, "%s%" PRId32, tx_topo_device_names[d->kind], d->number);
        d->partitions = t->nodes[d->node].kind != TX_TOPO_FUNCTION;
        for (int32_t k = 0; k < t->device_count && t->nodes[d->node].kind == TX_TOPO_FUNCTION; k++)
            d->partitions += t->devices[k].node == d->node && t->devices[k].kind == d->kind;
    }
    t->gpus = numbers[TX_TOPO_GPU];
    t->nics = numbers[TX_TOPO_NIC];
    t->cpu_devices = numbers[TX_TOPO_CPU];
}

/* Returns the new index of a device; -1 if there is none. */
static int32_t place(const int32_t *moved, int32_t device)
{
    return device < 0 ? -1 : moved[device];
}

/* Facts about removed devices are removed too. */
static void move_facts(tx_draft *draft, const int32_t *moved)
{
    tx_topology *t = draft->t;
    int32_t kept = 0;
    for (int32_t i = 0; i < draft->fact_count; i++) {
        tx_draft_fact fact = draft->facts[i];
        fact.a = moved[fact.a];
        fact.b = moved[fact.b];
        if (fact.a >= 0 && fact.b >= 0)
            draft->facts[kept++] = fact;
    }
    draft->fact_count = kept;
    for (int32_t i = 0; i < t->numa_count; i++)
        t->numa[i].device = place(moved, t->numa[i].device);
}

static void mark_ancestors(const tx_topology *t, int32_t *marks, int32_t node)
{
    for (; node >= 0 && !marks[node]; node = t->nodes[node].parent)
        marks[node] = 1;
}

/* Removes nodes without devices or NUMA nodes below them. */
static tx_status prune(tx_topology *t)
{
    /* moved[i] is at first 1 for nodes that remain, later the new index. */
    int32_t count = 0, *moved = calloc((size_t)t->node_count, sizeof *moved);
    if (!moved)
        return tx_fail(TX_MEMORY, "topology: out of memory");
    mark_ancestors(t, moved, 0);
    for (int32_t i = 0; i < t->device_count; i++)
        mark_ancestors(t, moved, t->devices[i].node);
    for (int32_t i = 0; i < t->numa_count; i++)
        mark_ancestors(t, moved, t->numa[i].node);
    for (int32_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].kind == TX_TOPO_PACKAGE)
            mark_ancestors(t, moved, i);
    for (int32_t i = 0; i < t->node_count; i++) {
        if (!moved[i])
            continue;
        tx_topo_node node = t->nodes[i];
        node.parent = node.parent < 0 ? -1 : moved[node.parent];
        moved[i] = count;
        t->nodes[count++] = node;
    }
    t->node_count = count;
    for (int32_t i = 0; i < t->device_count; i++)
        t->devices[i].node = moved[t->devices[i].node];
    for (int32_t i = 0; i < t->numa_count; i++)
        t->numa[i].node = moved[t->numa[i].node];
    free(moved);
    return TX_OK;
}

/* Compares structs whose first member is their number. */
static int compare_numbers(const void *left, const void *right)
{
    const int32_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static tx_status finish(tx_draft *draft)
{
    tx_topology *t = draft->t;
    int32_t moved[TX_TOPO_DEVICES_MAX];
    if (!draft->status && t->node_count == 0)
        tx_draft_node(draft, TX_TOPO_MACHINE, -1);
    if (draft->status)
        return draft->status;
    sort_devices(t, moved);
    number_devices(t);
    move_facts(draft, moved);
    TX_TRY(prune(t));
    if (t->numa_count)
        qsort(t->numa, (size_t)t->numa_count, sizeof *t->numa, compare_numbers);
    if (t->cpu_count)
        qsort(t->cpus, (size_t)t->cpu_count, sizeof *t->cpus, compare_numbers);
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device >= 0 && t->devices[t->numa[i].device].gpu_numa < 0)
            t->devices[t->numa[i].device].gpu_numa = t->numa[i].number;
    return tx_topo_classify(draft);
}

tx_status tx_draft_finish(tx_draft *draft, tx_topology **topology)
{
    tx_status status = finish(draft);
    if (!status) {
        *topology = draft->t;
        draft->t = NULL;
    }
    tx_draft_discard(draft);
    return status;
}
