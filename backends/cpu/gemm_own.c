/* SPDX-License-Identifier: Apache-2.0
 *
 * TX's own matrix product: panels of a and b are packed as fp32 into scratch, block by block, and multiplied tile by
 * tile (gemm_tile.c). Threads share the packing and the tiles of a block; the sum over k of one element is taken in
 * blocks whose size depends on k alone, in order, so its bits do not depend on the number of threads. */
#include "gemm_provider.h"
#include "gemm_tile.h"

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_DEPTH 512    /* a panel of b of this depth stays in the second cache */
#define BLOCK_ROWS 1536    /* packed a of a block: 3 MiB */
#define BLOCK_COLUMNS 3072 /* packed b of a block: 6 MiB */
#define ITEM_ROWS 96       /* packed a of a work item stays there too: 192 KiB */
#define ITEMS_A_THREAD 8   /* so that threads that are late cost little */
#define SMALL_WORK 65536   /* multiply-adds that are not worth waking a thread */
#define CACHE_LINE 16      /* numbers in it */
#define SCRATCH_ALIGNMENT 64

typedef struct own_gemm {
    tx_cpu_gemm_spec spec;
    int64_t rows, columns, depth;    /* of a block */
    int64_t item_rows, item_columns; /* of a work item */
    int64_t a_bytes, b_bytes;        /* of scratch: packed a, packed b, then partial sums */
    int threads;
    bool in_place; /* few rows of a that are read where they lie */
} own_gemm;

/* One block of the result over one block of k. */
typedef struct own_block {
    int64_t i, j, p, m, n, k;
    tx_gemm_lines a, b;
    float *packed_a, *packed_b;
    tx_gemm_target target;
} own_block;

static int64_t blocks_of(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

static int64_t round_up(int64_t count, int64_t unit)
{
    return blocks_of(count, unit) * unit;
}

/* Cuts `count` into equal blocks of at most `most`, in whole units. */
static int64_t block_size(int64_t count, int64_t most, int64_t unit)
{
    return round_up(blocks_of(count, blocks_of(count, most)), unit);
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static tx_status own_create(const tx_cpu_gemm_spec *spec, void **state, int64_t *scratch_bytes,
                            char variant[TX_GEMM_VARIANT])
{
    own_gemm *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    const tx_gemm *s = &spec->shape;
    const tx_gemm_tile *tile = spec->tile;
    g->spec = *spec;
    g->depth = block_size(s->k, BLOCK_DEPTH, 1);
    g->rows = block_size(s->m, BLOCK_ROWS, tile->rows);
    g->columns = block_size(s->n, BLOCK_COLUMNS, tile->columns);
    g->threads = (double)s->m * (double)s->n * (double)s->k < SMALL_WORK ? 1 : spec->threads;
    g->item_rows = block_size(g->rows, ITEM_ROWS, tile->rows);
    int64_t wanted = blocks_of((int64_t)g->threads * ITEMS_A_THREAD, blocks_of(g->rows, g->item_rows));
    g->item_columns = round_up(blocks_of(g->columns, wanted), tile->columns);
    g->a_bytes = round_up(g->rows * g->depth * (int64_t)sizeof(float), SCRATCH_ALIGNMENT);
    g->b_bytes = round_up(g->columns * g->depth * (int64_t)sizeof(float), SCRATCH_ALIGNMENT);
    if (s->m <= TX_GEMM_THIN) {
        int64_t items = g->threads * blocks_of(s->n, g->threads * TX_GEMM_THIN_COLUMNS);
        g->item_columns = round_up(blocks_of(s->n, items), CACHE_LINE);
        g->in_place = spec->type == TX_F32 && !spec->trans_a;
        *scratch_bytes = g->in_place ? 0 : s->m * s->k * (int64_t)sizeof(float);
        snprintf(variant, TX_GEMM_VARIANT, "own %s, few rows", tile->name);
        *state = g;
        return TX_OK;
    }
    bool sums = spec->result != TX_F32 && s->k > g->depth;
    *scratch_bytes = g->a_bytes + g->b_bytes + (sums ? g->rows * g->columns * (int64_t)sizeof(float) : 0);
    snprintf(variant, TX_GEMM_VARIANT, "own %s", tile->name);
    *state = g;
    return TX_OK;
}

/* All threads of the team: packs the block's panels, then multiplies its items. */
static void run_block(const own_gemm *g, const own_block *block)
{
    const tx_gemm_tile *tile = g->spec.tile;
    int64_t a_items = blocks_of(block->m, g->item_rows), b_items = blocks_of(block->n, g->item_columns);
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < a_items + b_items; item++) {
        if (item < a_items) {
            int64_t i = item * g->item_rows;
            tile->pack_a(&block->a, block->i + i, at_most(g->item_rows, block->m - i), block->p, block->k,
                         block->packed_a + i * block->k);
        } else {
            int64_t j = (item - a_items) * g->item_columns;
            tile->pack_b(&block->b, block->j + j, at_most(g->item_columns, block->n - j), block->p, block->k,
                         block->packed_b + j * block->k);
        }
    }
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < a_items * b_items; item++) {
        int64_t i = item / b_items * g->item_rows, j = item % b_items * g->item_columns;
        tx_gemm_target t = block->target;
        t.sum += i * t.ld_sum + j;
        t.c = (char *)t.c + (i * t.ldc + j) * (int64_t)tx_dtype_size(t.type);
        if (t.bias)
            t.bias += j;
        tile->multiply(at_most(g->item_rows, block->m - i), at_most(g->item_columns, block->n - j), block->k,
                       block->packed_a + i * block->k, block->packed_b + j * block->k, &t);
    }
}

/* Operands of product `index` of the batch. */
static tx_gemm_lines a_of(const own_gemm *g, const tx_gemm_call *call, int64_t index)
{
    const tx_gemm *s = &g->spec.shape;
    bool trans = g->spec.trans_a;
    const char *data = (const char *)call->a + index * s->stride_a * (int64_t)tx_dtype_size(g->spec.type);
    return (tx_gemm_lines){data, g->spec.type, trans ? 1 : s->lda, trans ? s->lda : 1};
}

static tx_gemm_lines b_of(const own_gemm *g, const tx_gemm_call *call, int64_t index)
{
    const tx_gemm *s = &g->spec.shape;
    bool trans = g->spec.trans_b;
    const char *data = (const char *)call->b + index * s->stride_b * (int64_t)tx_dtype_size(g->spec.type);
    return (tx_gemm_lines){data, g->spec.type, trans ? s->ldb : 1, trans ? 1 : s->ldb};
}

/* All threads of the team: one product of the batch. */
static void run_product(const own_gemm *g, const tx_gemm_call *call, int64_t index)
{
    const tx_gemm *s = &g->spec.shape;
    const int64_t out = (int64_t)tx_dtype_size(g->spec.result);
    own_block block = {
        .packed_a = call->scratch,
        .packed_b = (float *)(void *)((char *)call->scratch + g->a_bytes),
        .a = a_of(g, call, index),
        .b = b_of(g, call, index),
    };
    for (block.j = 0; block.j < s->n; block.j += g->columns)
        for (block.i = 0; block.i < s->m; block.i += g->rows)
            for (block.p = 0; block.p < s->k; block.p += g->depth) {
                block.m = at_most(g->rows, s->m - block.i);
                block.n = at_most(g->columns, s->n - block.j);
                block.k = at_most(g->depth, s->k - block.p);
                void *c = (char *)call->c + (index * s->stride_c + block.i * s->ldc + block.j) * out;
                bool direct = g->spec.result == TX_F32;
                block.target = (tx_gemm_target){
                    .sum = direct ? c : (void *)((char *)call->scratch + g->a_bytes + g->b_bytes),
                    .ld_sum = direct ? s->ldc : g->columns,
                    .c = c,
                    .type = g->spec.result,
                    .ldc = s->ldc,
                    .bias = call->bias ? call->bias + block.j : NULL,
                    .add = call->add,
                    .first = block.p == 0,
                    .last = block.p + block.k == s->k,
                };
                run_block(g, &block);
            }
}

/* All threads of the team: one product of few rows. */
static void run_thin(const own_gemm *g, const tx_gemm_call *call, int64_t index)
{
    const tx_gemm *s = &g->spec.shape;
    const tx_gemm_lines a = a_of(g, call, index), b = b_of(g, call, index);
    void *c = (char *)call->c + index * s->stride_c * (int64_t)tx_dtype_size(g->spec.result);
    tx_gemm_target target = {.sum = c,
                             .ld_sum = s->ldc,
                             .c = c,
                             .type = g->spec.result,
                             .ldc = s->ldc,
                             .bias = call->bias,
                             .add = call->add,
                             .first = true,
                             .last = true};
    if (!g->in_place) {
#pragma omp single
        g->spec.tile->unpack(&a, s->m, s->k, call->scratch);
    }
    const float *rows = g->in_place ? a.data : call->scratch;
#pragma omp for schedule(static)
    for (int64_t j = 0; j < s->n; j += g->item_columns)
        g->spec.tile->thin(s->m, j, at_most(g->item_columns, s->n - j), s->k, rows, g->in_place ? s->lda : s->k, &b,
                           &target);
}

static tx_status own_run(void *state, const tx_gemm_call *call)
{
    const own_gemm *g = state;
#pragma omp parallel num_threads(g->threads)
    for (int64_t index = 0; index < g->spec.shape.batch; index++)
        if (g->spec.shape.m <= TX_GEMM_THIN)
            run_thin(g, call, index);
        else
            run_product(g, call, index);
    return TX_OK;
}

static void own_library(const tx_gemm_tile *tile, char text[TX_CPU_GEMM_LIBRARY])
{
    snprintf(text, TX_CPU_GEMM_LIBRARY, "own %s", tile->name);
}

const tx_gemm_provider tx_gemm_own = {
    .name = "own", .create = own_create, .run = own_run, .destroy = free, .library = own_library};
