/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN products whose operands or sums are converted in scratch. 16-bit operands are widened to fp32, and a 4-bit
 * second operand is unpacked. Sums are computed in fp32 and narrowed to 16 bits at the end: those of widened operands,
 * and those over a long k, which oneDNN computes in pieces.
 *
 * The second operand of a single product is converted in panels of columns. Each thread converts a panel into scratch
 * that stays in its cache and lets oneDNN multiply by it on one thread. So no bit depends on the number of threads,
 * which could otherwise divide the terms of a oneDNN product. Batches, and products with a transposed first operand,
 * which oneDNN would copy for each panel, are one panel, which gemm_tiles.c computes.
 */
#include "gemm_parts.h"

#include "backends/nf4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_BYTES (1 << 20)

/* The state of one thread. */
typedef struct worker {
    void *whole, *rest;      /* product of a panel; product of a narrower last panel, else NULL */
    tx_gemm_outcome outcome; /* of a run */
} worker;

typedef struct panels {
    tx_cpu_gemm_spec spec;                        /* with the threads of one worker */
    tx_dtype type;                                /* in which oneDNN multiplies */
    bool cut;                                     /* there are several panels, each on one thread; or only one */
    int64_t width;                                /* of a panel; the last may be narrower */
    int64_t a_bytes;                              /* scratch for a as fp32; 0 if a is not widened */
    int64_t panel_bytes, sum_bytes, worker_bytes; /* of a panel, of its sums, of all scratch of a worker */
    int32_t workers, threads;
    worker worker[];
} panels;

static tx_status create_panel(const panels *g, int64_t width, void **product, int64_t *scratch,
                              char variant[TX_GEMM_VARIANT])
{
    int64_t bytes = 0;
    tx_cpu_gemm_spec inner = g->spec;
    inner.packed = TX_F32;
    inner.type = g->type;
    inner.shape.batch = 1;
    inner.shape.n = width;
    if (g->panel_bytes)
        inner.shape.ldb = inner.trans_b ? inner.shape.k : width;
    if (g->a_bytes)
        inner.shape.lda = inner.trans_a ? inner.shape.m : inner.shape.k;
    if (g->sum_bytes) {
        inner.result = TX_F32;
        inner.adds = false;
        inner.shape.ldc = width;
    }
    TX_TRY((g->cut ? tx_gemm_dnnl_create : tx_gemm_tiles.create)(&inner, product, &bytes, variant));
    *scratch = bytes > *scratch ? bytes : *scratch;
    return TX_OK;
}

/* The width of a panel depends only on the shape: it fits in a cache, and there is a panel for each of a few
 * threads. */
#define MIN_PANELS 8
static int64_t panel_width(const tx_gemm *s, int64_t size)
{
    const int64_t fits = PANEL_BYTES / (s->k * size), shares = tx_ceil_div(s->n, MIN_PANELS);
    const int64_t width = (fits < shares ? fits : shares) / TX_NF4_BLOCK * TX_NF4_BLOCK;
    const int64_t min_width = width < TX_NF4_BLOCK ? TX_NF4_BLOCK : width;
    return min_width < s->n ? min_width : s->n;
}

static void destroy_panel(const panels *g, void *product)
{
    if (product)
        (g->cut ? tx_gemm_dnnl_destroy : tx_gemm_tiles.destroy)(product);
}

static void destroy(void *product)
{
    panels *g = product;
    for (int32_t w = 0; w < g->workers; w++) {
        destroy_panel(g, g->worker[w].whole);
        destroy_panel(g, g->worker[w].rest);
    }
    free(g);
}

/* Prepares a product that oneDNN computes in `type`, which is the operands' type or F32. */
static tx_status create_in(tx_dtype type, const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                           char variant[TX_GEMM_VARIANT])
{
    const tx_gemm *s = &spec->shape;
    const bool packed = spec->packed != TX_F32, widened = type != spec->type;
    const bool cut = packed || (widened && s->batch == 1 && !spec->trans_a);
    const int64_t size = (int64_t)tx_dtype_size(type), width = cut ? panel_width(s, size) : s->n;
    const int64_t count = tx_ceil_div(s->n, width);
    const int32_t workers = count < spec->threads ? (int32_t)count : spec->threads;
    panels *g = calloc(1, sizeof *g + (size_t)workers * sizeof g->worker[0]);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    g->spec = *spec;
    g->spec.threads = cut ? 1 : spec->threads;
    g->cut = cut;
    g->threads = spec->threads;
    g->workers = workers;
    g->type = type;
    g->width = width;
    g->panel_bytes = packed || widened ? tx_gemm_lines(width * s->k * size) : 0;
    g->a_bytes = widened ? tx_gemm_wide_bytes(s->m * s->k) : 0;
    if (spec->result != TX_F32 && (widened || s->k > TX_GEMM_LONG))
        g->sum_bytes = tx_gemm_wide_bytes(s->m * width);
    int64_t scratch = 0;
    char ignored[TX_GEMM_VARIANT];
    tx_status status = TX_OK;
    for (int32_t w = 0; w < workers && !status; w++) {
        status = create_panel(g, width, &g->worker[w].whole, &scratch, variant);
        if (!status && s->n % width)
            status = create_panel(g, s->n % width, &g->worker[w].rest, &scratch, ignored);
    }
    if (status) {
        destroy(g);
        return status;
    }
    if (packed || widened)
        strncat(variant, packed ? ", unpacked" : ", widened to fp32", TX_GEMM_VARIANT - strlen(variant) - 1);
    g->worker_bytes = g->panel_bytes + g->sum_bytes + tx_gemm_lines(scratch);
    *scratch_bytes = g->a_bytes + workers * g->worker_bytes;
    *product = g;
    return TX_OK;
}

static tx_gemm_matrix stored(const void *data, tx_dtype type, int64_t first, int64_t rows, int64_t columns, int64_t ld)
{
    return (tx_gemm_matrix){(char *)data + first * (int64_t)tx_dtype_size(type), type, rows, columns, ld};
}

/* Runs the panel of product `i` that begins at column j. `a` is already converted. */
static tx_status run_panel(const panels *g, const tx_gemm_call *call, const void *a, int64_t i, int32_t w, int64_t j)
{
    const tx_cpu_gemm_spec *spec = &g->spec;
    const tx_gemm *s = &spec->shape;
    const bool tb = spec->trans_b;
    const int64_t width = s->n - j < g->width ? s->n - j : g->width;
    const tx_gemm_matrix b = stored(call->b, spec->type, i * s->stride_b + (tb ? j * s->ldb : j), tb ? width : s->k,
                                    tb ? s->k : width, s->ldb),
                         c = stored(call->c, spec->result, i * s->stride_c + j, s->m, width, s->ldc);
    char *panel = (char *)call->scratch + g->a_bytes + w * g->worker_bytes, *sums = panel + g->panel_bytes;
    const tx_gemm_call inner = {.a = a,
                                .b = g->panel_bytes ? panel : b.data,
                                .bias = call->bias ? call->bias + j : NULL,
                                .c = g->sum_bytes ? sums : c.data,
                                .add = call->add && !g->sum_bytes,
                                .scratch = sums + g->sum_bytes};
    if (spec->packed != TX_F32)
        spec->rows->unpack(spec, call, j, width, g->type, panel);
    else if (g->panel_bytes && (i == 0 || s->stride_b > 0))
        spec->rows->widen(&b, (float *)(void *)panel, spec->threads);
    TX_TRY((g->cut ? tx_gemm_dnnl_run : tx_gemm_tiles.run)(width == g->width ? g->worker[w].whole : g->worker[w].rest,
                                                           &inner));
    if (g->sum_bytes)
        spec->rows->narrow((float *)(void *)sums, call->add, &c, spec->threads);
    return TX_OK;
}

/* Runs one worker's panels of product `i`. */
static tx_status run_worker(const panels *g, const tx_gemm_call *call, const void *a, int64_t i, int32_t w)
{
    for (int64_t j = w * g->width; j < g->spec.shape.n; j += g->workers * g->width)
        TX_TRY(run_panel(g, call, a, i, w, j));
    return TX_OK;
}

/* Runs product `i` of the batch. A single worker runs in this thread, so that oneDNN's threads are not a nested
 * team. */
static tx_status run_one(panels *g, const tx_gemm_call *call, int64_t i)
{
    const tx_gemm *s = &g->spec.shape;
    const bool ta = g->spec.trans_a;
    const tx_gemm_matrix stored_a =
        stored(call->a, g->spec.type, i * s->stride_a, ta ? s->k : s->m, ta ? s->m : s->k, s->lda);
    const void *a = g->a_bytes ? call->scratch : stored_a.data;
    if (g->a_bytes && (i == 0 || s->stride_a > 0))
        g->spec.rows->widen(&stored_a, call->scratch, g->threads);
    if (g->workers == 1)
        return run_worker(g, call, a, i, 0);
#pragma omp parallel for schedule(static, 1) num_threads(g->workers)
    for (int32_t w = 0; w < g->workers; w++)
        tx_gemm_keep(&g->worker[w].outcome, run_worker(g, call, a, i, w));
    for (int32_t w = 0; w < g->workers; w++)
        TX_TRY(tx_gemm_report(&g->worker[w].outcome));
    return TX_OK;
}

static tx_status run(void *product, const tx_gemm_call *call)
{
    panels *g = product;
    for (int64_t i = 0; i < g->spec.shape.batch; i++)
        TX_TRY(run_one(g, call, i));
    return TX_OK;
}

/* ---- The provider --------------------------------------------------------------------------------- */

static bool takes(const tx_cpu_gemm_spec *spec)
{
    (void)spec;
    return true;
}

/* Prepares a product in its own type if only operands or sums are converted, otherwise in fp32. */
static tx_status create(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                        char variant[TX_GEMM_VARIANT])
{
    tx_status status = TX_UNSUPPORTED;
    if (tx_gemm_converts(spec) && tx_cpu_gemm_native(spec->type))
        status = create_in(spec->type, spec, product, scratch_bytes, variant);
    return status == TX_UNSUPPORTED ? create_in(TX_F32, spec, product, scratch_bytes, variant) : status;
}

const tx_gemm_provider tx_gemm_panels = {takes, create, run, destroy, NULL};
