/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena is a range of addresses served by a few allocations (chunks): address = chunk * chunk_bytes + offset.
 * Nothing straddles two chunks, so a device's limit on one allocation limits single tensors only. */
#ifndef TX_API_ARENA_H
#define TX_API_ARENA_H

#include "backends/backend.h"

#define TX_MAX_CHUNKS 64
#define TX_FILE_BLOCK 4096 /* arenas in a file are whole blocks of so many bytes, which are the fastest to move */

typedef struct tx_arena {
    tx_memory_space space;
    struct tx_comm *comm; /* the ranks that share it, of TX_SPACE_WINDOW */
    bool addresses;       /* has no memory: others say by its addresses what they hold of it */
    int64_t chunk_bytes;  /* span of a chunk's addresses */
    int32_t chunks;
    int64_t used[TX_MAX_CHUNKS];  /* bytes used in each chunk */
    int64_t held[TX_MAX_CHUNKS];  /* bytes allocated for each chunk */
    int64_t filed[TX_MAX_CHUNKS]; /* where each lies in the model's file, of TX_SPACE_FILE */
    tx_buffer *buffer[TX_MAX_CHUNKS];
} tx_arena;

/* Rounded up to TX_ALIGNMENT. */
static inline int64_t tx_aligned(int64_t bytes)
{
    return (bytes + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

/* Bytes in the file of an arena with so many bytes. */
static inline int64_t tx_file_blocks(int64_t bytes)
{
    return (bytes + TX_FILE_BLOCK - 1) / TX_FILE_BLOCK * TX_FILE_BLOCK;
}

/* Can `bytes` at `offset` be there, or where is the next address at which they can? */
static inline int64_t tx_arena_fit(int64_t chunk_bytes, int64_t address, int64_t bytes)
{
    int64_t within = address % chunk_bytes;
    return within + bytes <= chunk_bytes ? address : address - within + chunk_bytes;
}

/* The address behind all that is used. */
static inline int64_t tx_arena_end(const tx_arena *arena)
{
    return arena->chunks > 0 ? (arena->chunks - 1) * arena->chunk_bytes + arena->used[arena->chunks - 1] : 0;
}

/* Whether it lies outside the device's memory. */
static inline bool tx_arena_is_offloaded(const tx_arena *arena)
{
    return arena->space == TX_SPACE_PINNED || arena->space == TX_SPACE_FILE;
}

/* Bytes of memory that a chunk is to have. */
static inline int64_t tx_arena_wanted(const tx_arena *arena, int32_t chunk)
{
    return arena->addresses || arena->space == TX_SPACE_FILE ? 0 : arena->used[chunk];
}

static inline int32_t tx_arena_chunk(const tx_arena *arena, int64_t address)
{
    return (int32_t)(address / arena->chunk_bytes);
}

/* Notes that [address, address + bytes) is used. Fails when that is past the last possible chunk. */
tx_status tx_arena_use(tx_arena *arena, int64_t address, int64_t bytes);
/* Appends `bytes` (rounded up to `align`) behind what is used; tells the address. */
tx_status tx_arena_append(tx_arena *arena, int64_t bytes, int64_t align, int64_t *address);
/* Makes `arena` at least as large as `other`, chunk by chunk. */
void tx_arena_cover(tx_arena *arena, const tx_arena *other);
int64_t tx_arena_bytes(const tx_arena *arena);

#endif
