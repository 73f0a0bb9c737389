/* SPDX-License-Identifier: Apache-2.0
 * Memory and limits of a template: permanent memory, and blocks that are freed once nothing points to them. */
#include "api/base/number.h"
#include "models/jinja/value.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 16)
#define UNIT (_Alignof(max_align_t))
#define LEAST_GROWTH ((size_t)1 << 22) /* of the memory between two collections */

typedef struct tx_jinja_chunk {
    struct tx_jinja_chunk *next;
    size_t used, size;
    max_align_t data[];
} tx_jinja_chunk;

typedef struct tx_jinja_block {
    struct tx_jinja_block *next; /* of those whose words were not read yet */
    size_t size;
    bool reached;
    max_align_t data[];
} tx_jinja_block;

void tx_jinja_arena_free(tx_jinja_arena *a)
{
    for (tx_jinja_chunk *c = a->chunk, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (size_t i = 0; i < a->blocks; i++)
        free(a->block[i]);
    free(a->block);
    free(a->kept);
    *a = (tx_jinja_arena){.status = a->status};
}

/* ---- Limits --------------------------------------------------------------------------------------------- */

tx_jinja_value tx_jinja_fail(tx_jinja_arena *a, tx_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    if (!a->status)
        a->status = tx_fail(status, "chat template, line %d: %s", a->line, text);
    return TX_JINJA_NOTHING;
}

bool tx_jinja_step(tx_jinja_arena *a, uint64_t count)
{
    a->steps += count;
    if (a->steps > a->most_steps)
        tx_jinja_fail(a, TX_UNSUPPORTED, "it takes more than %llu steps, the limit for a conversation",
                      (unsigned long long)a->most_steps);
    return !a->status;
}

bool tx_jinja_enter_value(tx_jinja_arena *a)
{
    if (++a->depth > TX_JINJA_DEPTH)
        tx_jinja_fail(a, TX_UNSUPPORTED, "a value is nested deeper than %d", TX_JINJA_DEPTH);
    return tx_jinja_step(a, 1);
}

bool tx_jinja_charge(tx_jinja_arena *a, size_t bytes)
{
    if (bytes > a->limit - a->used)
        tx_jinja_fail(a, TX_UNSUPPORTED, "it needs more than %zu MiB of memory, the limit for a conversation",
                      a->limit >> 20);
    else
        a->used += bytes;
    return !a->status;
}

/* ---- Allocation ----------------------------------------------------------------------------------------- */

static void *no_memory(tx_jinja_arena *a)
{
    a->status = tx_fail(TX_MEMORY, "chat template: out of memory");
    return NULL;
}

static void *take_permanent(tx_jinja_arena *a, size_t bytes)
{
    tx_jinja_chunk *c = a->chunk;
    if (!c || bytes > c->size - c->used) {
        const size_t room = bytes > CHUNK ? bytes : CHUNK;
        if (!tx_jinja_charge(a, room))
            return NULL;
        c = calloc(1, sizeof *c + room);
        if (!c)
            return no_memory(a);
        *c = (tx_jinja_chunk){.next = a->chunk, .size = room};
        a->chunk = c;
    }
    void *taken = (char *)c->data + c->used;
    c->used += bytes;
    return taken;
}

/* Bytes of a block with its header, its place in the table and those that malloc adds. */
static size_t cost_of(size_t bytes)
{
    return bytes + sizeof(tx_jinja_block) + 2 * sizeof(void *);
}

static void *take_block(tx_jinja_arena *a, size_t bytes)
{
    if (!tx_jinja_charge(a, cost_of(bytes)))
        return NULL;
    if (tx_array_reserve(&a->block, &a->block_room, a->blocks + 1, sizeof(void *), "values"))
        return no_memory(a);
    tx_jinja_block *block = calloc(1, sizeof *block + bytes);
    if (!block)
        return no_memory(a);
    block->size = bytes;
    a->block[a->blocks++] = block;
    return block->data;
}

void *tx_jinja_take(tx_jinja_arena *a, size_t count, size_t size)
{
    if (a->status)
        return NULL;
    if (size && count > (a->limit - UNIT) / size) {
        tx_jinja_charge(a, SIZE_MAX);
        return NULL;
    }
    const size_t bytes = (count * size + UNIT - 1) / UNIT * UNIT;
    return a->collects ? take_block(a, bytes) : take_permanent(a, bytes);
}

/* ---- Collection ----------------------------------------------------------------------------------------- */

void tx_jinja_keep(tx_jinja_arena *a, const void *pointer)
{
    if (!a->status && tx_array_reserve(&a->kept, &a->kept_room, a->keeps + 1, sizeof *a->kept, "values"))
        no_memory(a);
    if (!a->status)
        a->kept[a->keeps++] = pointer;
}

tx_jinja_value tx_jinja_keep_value(tx_jinja_arena *a, tx_jinja_value v)
{
    if (v.kind >= TX_JINJA_STRING)
        tx_jinja_keep(a, v.string); /* whichever pointer it is */
    return v;
}

static int by_address(const void *x, const void *y)
{
    const uintptr_t p = (uintptr_t) * (tx_jinja_block *const *)x, q = (uintptr_t) * (tx_jinja_block *const *)y;
    return (p > q) - (p < q);
}

static uintptr_t end_of(const tx_jinja_block *block)
{
    return (uintptr_t)block->data + block->size;
}

/* Adds the block that a word points into, if there is one, to those whose words are read. */
static void reach(const tx_jinja_arena *a, uintptr_t word, tx_jinja_block **todo)
{
    size_t low = 0, high = a->blocks; /* block[low] is the last one that begins at or before the word */
    if (!high || word < (uintptr_t)a->block[0] || word > end_of(a->block[high - 1]))
        return;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)a->block[middle] <= word)
            low = middle;
        else
            high = middle;
    }
    tx_jinja_block *block = a->block[low];
    if (block->reached || word > end_of(block))
        return;
    block->reached = true;
    block->next = *todo;
    *todo = block;
}

void tx_jinja_collect(tx_jinja_arena *a)
{
    tx_jinja_block *todo = NULL;
    size_t left = 0;
    if (a->used < a->collect_at || !tx_jinja_step(a, 4 * a->blocks + a->used / 64))
        return;
    a->tail = (tx_jinja_tail){0}; /* nothing may point to it */
    qsort(a->block, a->blocks, sizeof *a->block, by_address);
    for (size_t i = 0; i < a->keeps; i++)
        reach(a, (uintptr_t)a->kept[i], &todo);
    while (todo) {
        const tx_jinja_block *block = todo;
        todo = block->next;
        for (size_t at = 0; at < block->size; at += sizeof(uintptr_t)) {
            uintptr_t word;
            memcpy(&word, (const char *)block->data + at, sizeof word);
            reach(a, word, &todo);
        }
    }
    for (size_t i = 0; i < a->blocks; i++) {
        tx_jinja_block *block = a->block[i];
        if (block->reached) {
            block->reached = false;
            a->block[left++] = block;
        } else {
            a->used -= cost_of(block->size);
            free(block);
        }
    }
    a->blocks = left;
    const size_t growth = a->used > LEAST_GROWTH ? a->used : LEAST_GROWTH, half = (a->limit - a->used) / 2;
    a->collect_at = a->used + (growth < half ? growth : half);
}
