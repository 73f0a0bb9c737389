/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena is a range of addresses that a few allocations (chunks) provide: address = chunk * chunk_bytes + offset. No
 * tensor is in two chunks, so a device's limit on one allocation limits only single tensors. */
#ifndef TX_API_ARENA_H
#define TX_API_ARENA_H

#include "backends/backend.h"

#define TX_MAX_CHUNKS 64
/* Arenas in a file have whole blocks of this size, which are the fastest to transfer. */
#define TX_FILE_BLOCK 4096

/* The columns of TX_ARENA_MAP. */
typedef struct tx_arena_info {
    tx_memory_kind kind;
    bool placed, lasts, alike;
} tx_arena_info;

const tx_arena_info *tx_arena_info_of(tx_arena_id arena);

typedef struct tx_arena {
    tx_memory_space space;
    struct tx_comm *comm; /* ranks that share a TX_SPACE_WINDOW arena */
    bool addresses;       /* has addresses but no memory; others refer to its addresses */
    int64_t chunk_bytes;  /* span of addresses of a chunk */
    int32_t chunks;
    int64_t used[TX_MAX_CHUNKS];  /* bytes used in each chunk */
    int64_t held[TX_MAX_CHUNKS];  /* bytes allocated for each chunk */
    int64_t filed[TX_MAX_CHUNKS]; /* offset of each chunk in the model's file (TX_SPACE_FILE) */
    tx_buffer *buffer[TX_MAX_CHUNKS];
} tx_arena;

/* Whether an arena has states. */
static inline bool tx_arena_has_states(tx_arena_id arena)
{
    return arena == TX_ARENA_STATE || arena == TX_ARENA_SHARED_STATE || arena == TX_ARENA_LENT_STATE;
}

/* The arena whose memory an arena uses. */
static inline tx_arena_id tx_arena_memory(tx_arena_id arena)
{
    return arena == TX_ARENA_SHARED_STATE ? TX_ARENA_PLANNED
           : arena == TX_ARENA_LENT_STATE ? TX_ARENA_GRADIENTS
                                          : arena;
}

/* Rounds up to TX_ALIGNMENT. */
static inline int64_t tx_aligned(int64_t bytes)
{
    return tx_round_up(bytes, TX_ALIGNMENT);
}

/* Returns the size in the file of `bytes` of an arena. */
static inline int64_t tx_file_blocks(int64_t bytes)
{
    return tx_round_up(bytes, TX_FILE_BLOCK);
}

/* Returns the first address from `address` on at which `bytes` fit in one chunk. */
static inline int64_t tx_arena_fit(int64_t chunk_bytes, int64_t address, int64_t bytes)
{
    int64_t within = address % chunk_bytes;
    return within + bytes <= chunk_bytes ? address : address - within + chunk_bytes;
}

/* Returns the end address of the used part. */
static inline int64_t tx_arena_end(const tx_arena *arena)
{
    return arena->chunks > 0 ? (arena->chunks - 1) * arena->chunk_bytes + arena->used[arena->chunks - 1] : 0;
}

/* Whether the arena is in host memory or in a file. */
static inline bool tx_arena_is_offloaded(const tx_arena *arena)
{
    return arena->space == TX_SPACE_PINNED || arena->space == TX_SPACE_FILE;
}

/* Returns the bytes of memory that a chunk needs. */
static inline int64_t tx_arena_wanted(const tx_arena *arena, int32_t chunk)
{
    return arena->addresses || arena->space == TX_SPACE_FILE ? 0 : arena->used[chunk];
}

static inline int32_t tx_arena_chunk(const tx_arena *arena, int64_t address)
{
    return (int32_t)(address / arena->chunk_bytes);
}

/* Marks [address, address + bytes) as used. Fails if that is past the last possible chunk. */
tx_status tx_arena_use(tx_arena *arena, int64_t address, int64_t bytes);
/* Appends `bytes` (rounded up to `align`) after the used part and returns the address. */
tx_status tx_arena_append(tx_arena *arena, int64_t bytes, int64_t align, int64_t *address);
/* Grows `arena` to at least the size of `other`, chunk by chunk. */
void tx_arena_cover(tx_arena *arena, const tx_arena *other);
int64_t tx_arena_bytes(const tx_arena *arena);

#endif
