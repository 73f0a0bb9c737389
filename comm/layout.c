/* SPDX-License-Identifier: Apache-2.0
 * Groups of ranks: their nodes in the tree of sums, and the handlers of pieces. */
#include "comm/layout.h"

#include <stdlib.h>

/* Returns true if ranks first .. first + count - 1 belong to one group. */
static bool together(const tx_comm_layout *l, int32_t first, int32_t count)
{
    for (int32_t r = first + 1; r < first + count; r++)
        if (l->group[r] != l->group[first])
            return false;
    return true;
}

static void find_nodes(tx_comm_layout *l, int32_t first, int32_t count)
{
    if (!together(l, first, count)) {
        int32_t split = tx_comm_split(count);
        find_nodes(l, first, split);
        find_nodes(l, first + split, count - split);
        return;
    }
    int32_t group = l->group[first], index = l->nodes[group]++;
    l->node[l->node_count++] = (tx_comm_node){.first = first, .count = count, .group = group, .index = index};
    l->most_nodes = index + 1 > l->most_nodes ? index + 1 : l->most_nodes;
}

static void find_members(tx_comm_layout *l)
{
    for (int32_t r = 0; r < l->size; r++) {
        l->place[r] = l->start[l->group[r] + 1]++; /* counts at first; prefix sums below */
        l->most_members = l->place[r] + 1 > l->most_members ? l->place[r] + 1 : l->most_members;
    }
    for (int32_t g = 0; g < l->groups; g++)
        l->start[g + 1] += l->start[g];
    for (int32_t r = 0; r < l->size; r++)
        l->member[l->start[l->group[r]] + l->place[r]] = r;
}

tx_status tx_comm_layout_create(const int32_t *group, int32_t size, tx_comm_layout **layout)
{
    const size_t count = (size_t)size;
    tx_comm_layout *l = calloc(1, sizeof *l + count * sizeof *l->node + (5 * count + 1) * sizeof *l->group);
    if (!l)
        return tx_fail(TX_MEMORY, "no memory for the groups of %d ranks", (int)size);
    l->size = size;
    l->node = (tx_comm_node *)(l + 1);
    l->group = (int32_t *)(l->node + count);
    l->place = l->group + count;
    l->member = l->place + count;
    l->nodes = l->member + count;
    l->start = l->nodes + count;
    for (int32_t r = 0; r < size; r++) {
        l->group[r] = group[r];
        l->groups = group[r] + 1 > l->groups ? group[r] + 1 : l->groups;
    }
    find_members(l);
    find_nodes(l, 0, size);
    *layout = l;
    return TX_OK;
}

static int32_t members(const tx_comm_layout *l, int32_t group)
{
    return l->start[group + 1] - l->start[group];
}

int32_t tx_comm_layout_handler(const tx_comm_layout *layout, int32_t group, int32_t owner)
{
    return layout->member[layout->start[group] + layout->place[owner] % members(layout, group)];
}

static tx_comm_piece shard(int64_t count, int32_t size, int32_t index)
{
    int64_t first = tx_comm_shard(count, size, index);
    return (tx_comm_piece){first, tx_comm_shard(count, size, index + 1) - first};
}

tx_comm_piece tx_comm_layout_piece(const tx_comm_layout *layout, const tx_transfer *transfer, int32_t owner)
{
    const int64_t *begin = transfer->shard;
    if (transfer->kind == TX_ALL_GATHER && begin)
        return (tx_comm_piece){begin[owner], begin[owner + 1] - begin[owner]};
    if (transfer->kind == TX_REDUCE_SCATTER || transfer->kind == TX_ALL_GATHER)
        return shard(transfer->count, layout->size, owner);
    int32_t group = layout->group[owner];
    tx_comm_piece whole = shard(transfer->count, layout->groups, group);
    tx_comm_piece part = shard(whole.count, members(layout, group), layout->place[owner]);
    return (tx_comm_piece){whole.first + part.first, part.count};
}
