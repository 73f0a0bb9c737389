/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by oneDNN whose operands it takes as they are; a provider of gemm.c's list.
 *
 * No bit depends on the number of threads. oneDNN divides a product among its threads and selects a method by their
 * number. So a small product is cut into tiles that depend only on its shape, and each tile is a product on one thread.
 * A large product is faster in one piece, with so few threads that they do not change the method (measured with version
 * 2.6 on AVX2: random shapes, up to 64 threads).
 *
 * oneDNN does not pack the operands of a small product and reads them in place. Rows that are a power of two apart
 * then share a few sets of the cache, and the product reaches 60 % of its speed. Copies whose rows are a cache line
 * longer avoid this. The bits of the result are the same as without copies.
 */
#include "gemm_parts.h"

#include "api/base/arithmetic.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tiles -------------------------------------------------------------------------------------------- */

#define SMALL 0.0038        /* oneDNN packs the operands if 1 / m + 1 / n is less */
#define FEW_TERMS 128       /* of a result; with fewer, packing does not pay */
#define COLUMNS 128         /* of a tile, which starts at a cache line */
#define MOST_ROWS 256       /* of a tile */
#define ROWS 32             /* rows of a tile are a multiple */
#define TERMS (1 << 19)     /* least terms of a tile, so that starting it takes little of the time */
#define TILES 16            /* wanted, for as many threads; more tiles convert an operand more often */
#define RESULTS (1 << 16)   /* least results of a thread of a large product */
#define TERMS_OF_A_RESULT 4 /* least terms of a result for each thread of a large product */

/* How a product is cut. Tiles of one item of the batch follow each other by rows; or a tile is several items. */
typedef struct cut {
    int64_t items, rows, columns; /* of a tile; the last ones may be smaller */
    int64_t by_items, by_rows, by_columns;
    int32_t threads; /* of a tile */
} cut;

static cut cut_of(const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    cut c = {.items = 1, .rows = s->m, .columns = s->n, .threads = 1};
    if (1.0 / (double)s->m + 1.0 / (double)s->n < SMALL && s->k >= FEW_TERMS) {
        const int64_t threads = tx_min(s->m * s->n / RESULTS, s->k / TERMS_OF_A_RESULT);
        c.threads = (int32_t)tx_max(1, tx_min(spec->threads, threads));
    } else {
        c.columns = tx_min(s->n, COLUMNS);
        const int64_t enough = tx_ceil_div(TERMS, c.columns * s->k),
                      share = tx_ceil_div(s->m, tx_ceil_div(TILES, tx_ceil_div(s->n, c.columns)));
        const int64_t rows = tx_round_up(tx_max(enough, share), ROWS);
        c.rows = tx_min(s->m, tx_min(rows, MOST_ROWS));
        if (c.rows == s->m && c.columns == s->n)
            c.items = tx_min(s->batch, tx_ceil_div(TERMS, s->m * s->n * s->k));
    }
    c.by_items = tx_ceil_div(s->batch, c.items);
    c.by_rows = tx_ceil_div(s->m, c.rows);
    c.by_columns = tx_ceil_div(s->n, c.columns);
    return c;
}

/* ---- Copies -------------------------------------------------------------------------------------------- */

#define CACHE_LINE 16       /* fp32 numbers in a cache line */
#define APART 128           /* rows that are a multiple of it apart share sets of the cache */
#define MIN_SIZE 96         /* least m n / (m + n) with which the product gains more than the copies cost */
#define COPIED (1 << 21)    /* maximum numbers in both copies, which stay in a cache */
#define IN_PLACE "gemm:jit" /* oneDNN's implementation that reads the operands of a small product in place */

/* True if op(b), or both operands, are copied before a product that is cut. */
static bool pays_copies(const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    return spec->type == TX_F32 && s->batch == 1 && !spec->trans_b && strcmp(spec->rows->name, "avx2") == 0 &&
           s->ldb % APART == 0 && s->m * s->n >= MIN_SIZE * (s->m + s->n) &&
           s->k <= COPIED / (spec->trans_a ? s->m + s->n : s->n);
}

/* Copies `rows` rows of `columns` numbers, `ld` apart. */
static void copy(int32_t threads, const float *from, int64_t rows, int64_t columns, int64_t ld, float *to)
{
    const int64_t to_ld = columns + CACHE_LINE;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_ld, from + r * ld, (size_t)columns * sizeof *to);
}

/* ---- The provider -------------------------------------------------------------------------------------- */

/* The state of one thread: products of a whole tile, and of those that are the last in items or rows, or columns. */
typedef struct worker {
    void *product[2][2];
    tx_gemm_outcome outcome; /* of a run */
} worker;

typedef struct tiles {
    tx_cpu_gemm_spec spec;                  /* leading dimensions are those of the copies */
    int64_t a_ld, b_ld;                     /* of the operands of a run */
    int64_t a_bytes, b_bytes, worker_bytes; /* of the copies, 0 if the operand is read in place; scratch of a worker */
    cut cut;
    int32_t workers;
    worker worker[];
} tiles;

static void destroy(void *product)
{
    tiles *g = product;
    for (int32_t w = 0; w < g->workers; w++)
        for (int last = 0; last < 4; last++)
            tx_gemm_dnnl_destroy(g->worker[w].product[last / 2][last % 2]);
    free(g);
}

/* Prepares a product of `size` [items, rows, columns]. */
static tx_status create_tile(tiles *g, const int64_t size[3], void **product, char variant[TX_GEMM_VARIANT])
{
    int64_t bytes = 0;
    tx_cpu_gemm_spec tile = g->spec;
    tile.shape.batch = size[0];
    tile.shape.m = size[1];
    tile.shape.n = size[2];
    tile.threads = g->cut.threads;
    TX_TRY(tx_gemm_dnnl_create(&tile, product, &bytes, variant));
    g->worker_bytes = tx_max(g->worker_bytes, tx_gemm_lines(bytes));
    return TX_OK;
}

static tx_status create_worker(tiles *g, worker *w, char variant[TX_GEMM_VARIANT])
{
    const tx_gemm *s = &g->spec.shape;
    const cut *c = &g->cut;
    char ignored[TX_GEMM_VARIANT];
    const int64_t items = s->batch % c->items, rows = s->m % c->rows, columns = s->n % c->columns;
    for (int last = 0; last < 4; last++) {
        const bool down = last / 2, right = last % 2;
        if ((down && !rows && !items) || (right && !columns))
            continue;
        const int64_t size[3] = {down && items ? items : c->items, down && rows ? rows : c->rows,
                                 right ? columns : c->columns};
        TX_TRY(create_tile(g, size, &w->product[down][right], last ? ignored : variant));
    }
    return TX_OK;
}

/* Prepares copies of the operands. */
static void add_copies(tiles *g)
{
    tx_gemm *s = &g->spec.shape;
    s->ldb = s->n + CACHE_LINE;
    g->b_bytes = tx_gemm_wide_bytes(s->k * s->ldb);
    if (g->spec.trans_a && s->lda % APART == 0) {
        s->lda = s->m + CACHE_LINE;
        g->a_bytes = tx_gemm_wide_bytes(s->k * s->lda);
    }
}

static tx_status create_from(const tx_cpu_gemm_spec *spec, cut c, bool copies, void **product, int64_t *scratch_bytes,
                             char variant[TX_GEMM_VARIANT])
{
    const int64_t count = c.by_items * c.by_rows * c.by_columns;
    const int32_t workers = c.threads > 1 ? 1 : (int32_t)tx_min(spec->threads, count);
    tiles *g = calloc(1, sizeof *g + (size_t)workers * sizeof g->worker[0]);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    *g = (tiles){.spec = *spec, .a_ld = spec->shape.lda, .b_ld = spec->shape.ldb, .cut = c, .workers = workers};
    if (copies)
        add_copies(g);
    tx_status status = TX_OK;
    for (int32_t w = 0; w < workers && !status; w++)
        status = create_worker(g, &g->worker[w], variant);
    if (!status && copies && !strstr(variant, IN_PLACE))
        status = TX_UNSUPPORTED;
    if (status) {
        destroy(g);
        return status;
    }
    if (copies)
        strncat(variant, ", padded", TX_GEMM_VARIANT - strlen(variant) - 1);
    *scratch_bytes = g->a_bytes + g->b_bytes + workers * g->worker_bytes;
    *product = g;
    return TX_OK;
}

static tx_status create(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                        char variant[TX_GEMM_VARIANT])
{
    const cut c = cut_of(spec);
    tx_status status = TX_UNSUPPORTED;
    if (c.by_rows * c.by_columns > 1 && pays_copies(spec))
        status = create_from(spec, c, true, product, scratch_bytes, variant);
    return status == TX_UNSUPPORTED ? create_from(spec, c, false, product, scratch_bytes, variant) : status;
}

static char *at(const void *data, tx_dtype type, int64_t element)
{
    return (char *)data + element * (int64_t)tx_dtype_size(type);
}

/* Computes tile `t` of the product. Tiles of one group of columns, which share b, follow each other. */
static tx_status run_tile(const tiles *g, const tx_gemm_call *call, int64_t t, int32_t w)
{
    const tx_cpu_gemm_spec *spec = &g->spec;
    const tx_gemm *s = &spec->shape;
    const cut *c = &g->cut;
    const int64_t row = t % c->by_rows, column = t / c->by_rows % c->by_columns, item = t / c->by_rows / c->by_columns;
    const int64_t i = item * c->items, r = row * c->rows, j = column * c->columns;
    const bool down = c->items > 1 ? i + c->items > s->batch : r + c->rows > s->m, right = j + c->columns > s->n;
    const tx_gemm_call inner = {.a = at(call->a, spec->type, i * s->stride_a + (spec->trans_a ? r : r * s->lda)),
                                .b = at(call->b, spec->type, i * s->stride_b + (spec->trans_b ? j * s->ldb : j)),
                                .bias = call->bias ? call->bias + j : NULL,
                                .c = at(call->c, spec->result, i * s->stride_c + r * s->ldc + j),
                                .add = call->add,
                                .scratch = (char *)call->scratch + w * g->worker_bytes};
    return tx_gemm_dnnl_run(g->worker[w].product[down][right], &inner);
}

/* Runs tiles on all workers. A single worker runs in this thread, so that oneDNN's threads are not a nested team. */
static tx_status run_tiles(tiles *g, const tx_gemm_call *call)
{
    const int64_t count = g->cut.by_items * g->cut.by_rows * g->cut.by_columns;
    if (g->workers == 1) {
        for (int64_t t = 0; t < count; t++)
            TX_TRY(run_tile(g, call, t, 0));
        return TX_OK;
    }
    for (int32_t w = 0; w < g->workers; w++)
        g->worker[w].outcome.status = TX_OK;
#pragma omp parallel for schedule(dynamic, 1) num_threads(g->workers)
    for (int64_t t = 0; t < count; t++) {
        const int32_t w = omp_get_thread_num();
        if (!g->worker[w].outcome.status)
            tx_gemm_keep(&g->worker[w].outcome, run_tile(g, call, t, w));
    }
    for (int32_t w = 0; w < g->workers; w++)
        TX_TRY(tx_gemm_report(&g->worker[w].outcome));
    return TX_OK;
}

static tx_status run(void *product, const tx_gemm_call *call)
{
    tiles *g = product;
    const tx_gemm *s = &g->spec.shape;
    const int32_t threads = g->spec.threads;
    char *b = call->scratch, *a = b + g->b_bytes;
    tx_gemm_call inner = *call;
    if (g->b_bytes) {
        copy(threads, call->b, s->k, s->n, g->b_ld, (float *)(void *)b);
        inner.b = b;
    }
    if (g->a_bytes) {
        copy(threads, call->a, s->k, s->m, g->a_ld, (float *)(void *)a);
        inner.a = a;
    }
    inner.scratch = a + g->a_bytes;
    return run_tiles(g, &inner);
}

static bool takes(const tx_cpu_gemm_spec *spec)
{
    return !tx_gemm_converts(spec) && tx_cpu_gemm_native(spec->type);
}

const tx_gemm_provider tx_gemm_tiles = {takes, create, run, destroy, NULL};
