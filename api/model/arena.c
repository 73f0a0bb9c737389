/* SPDX-License-Identifier: Apache-2.0
 * Addresses in arenas: the model and the planner allocate with these functions. */
#include "api/model/arena.h"

#include <inttypes.h>

const tx_arena_info *tx_arena_info_of(tx_arena_id arena)
{
    static const tx_arena_info table[TX_ARENA_COUNT] = {
#define X(name, kind, placed, lasts, alike) {TX_MEMORY_##kind, placed, lasts, alike},
        TX_ARENA_MAP(X)
#undef X
    };
    return &table[arena];
}

tx_status tx_arena_use(tx_arena *arena, int64_t address, int64_t bytes)
{
    int64_t chunk = address / arena->chunk_bytes, end = address % arena->chunk_bytes + bytes;
    if (end > arena->chunk_bytes)
        return tx_fail(TX_MEMORY,
                       "a tensor of %" PRId64 " bytes exceeds this device's largest allocation (%" PRId64
                       "): use a smaller batch or block",
                       bytes, arena->chunk_bytes);
    if (chunk >= TX_MAX_CHUNKS)
        return tx_fail(TX_UNSUPPORTED, "more than %d allocations of %" PRId64 " bytes would be needed", TX_MAX_CHUNKS,
                       arena->chunk_bytes);
    for (; arena->chunks <= chunk; arena->chunks++)
        arena->used[arena->chunks] = 0;
    arena->used[chunk] = tx_max(arena->used[chunk], end);
    return TX_OK;
}

tx_status tx_arena_append(tx_arena *arena, int64_t bytes, int64_t align, int64_t *address)
{
    int64_t rounded = tx_round_up(bytes, align);
    int64_t end = tx_arena_fit(arena->chunk_bytes, tx_arena_end(arena), rounded);
    tx_status status = tx_arena_use(arena, end, rounded);
    if (status == TX_OK)
        *address = end;
    return status;
}

void tx_arena_cover(tx_arena *arena, const tx_arena *other)
{
    for (int32_t i = 0; i < other->chunks; i++) {
        if (i >= arena->chunks) {
            arena->chunks = i + 1;
            arena->used[i] = 0;
        }
        arena->used[i] = tx_max(arena->used[i], other->used[i]);
    }
}

int64_t tx_arena_bytes(const tx_arena *arena)
{
    int64_t total = 0;
    for (int32_t i = 0; i < arena->chunks; i++)
        total += tx_arena_wanted(arena, i);
    return total;
}
