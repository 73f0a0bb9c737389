/* SPDX-License-Identifier: Apache-2.0
 *
 * Products whose second operand is stored in 4 bits: each thread takes panels of its columns, unpacks one into scratch
 * that stays in its cache, and lets oneDNN multiply by it; so no bit depends on how many threads there are, which may
 * part the terms of one product of oneDNN's. Where it has no instructions for the type, in fp32. */
#include "gemm_parts.h"

#include "backends/nf4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_BYTES (1 << 20)

/* What one thread needs. */
typedef struct worker {
    tx_gemm_dnnl *whole, *rest; /* of a panel; of the last one where it is narrower, or NULL */
    tx_status status;           /* of a run */
    char message[256];
} worker;

struct tx_gemm_packed {
    tx_cpu_gemm_spec spec;                        /* of one thread */
    tx_dtype type;                                /* that is multiplied */
    int64_t width;                                /* of a panel; the last may be narrower */
    int64_t a_bytes;                              /* of scratch: a widened (0: as it is) */
    int64_t panel_bytes, sum_bytes, worker_bytes; /* of each worker's: a panel, its sums (0: none), with oneDNN's all */
    int32_t workers, threads;
    worker worker[];
};

static tx_status create_panel(const tx_gemm_packed *g, int64_t width, tx_gemm_dnnl **product, int64_t *scratch,
                              char variant[TX_GEMM_VARIANT])
{
    int64_t bytes = 0;
    tx_cpu_gemm_spec inner = g->spec;
    inner.packed = TX_F32;
    inner.type = g->type;
    inner.shape.n = width;
    inner.shape.ldb = inner.trans_b ? inner.shape.k : width;
    if (g->a_bytes)
        inner.shape.lda = inner.shape.k;
    if (g->sum_bytes) {
        inner.result = TX_F32;
        inner.adds = false;
        inner.shape.ldc = width;
    }
    TX_TRY(tx_gemm_dnnl_create(&inner, product, &bytes, variant));
    *scratch = bytes > *scratch ? bytes : *scratch;
    return TX_OK;
}

/* Panels of a size that depends on the shape alone: in a cache, but some for every thread of a few. */
#define LEAST_PANELS 8
static int64_t panel_width(const tx_gemm *s, int64_t size)
{
    const int64_t fits = PANEL_BYTES / (s->k * size), shares = (s->n + LEAST_PANELS - 1) / LEAST_PANELS;
    const int64_t width = (fits < shares ? fits : shares) / TX_NF4_BLOCK * TX_NF4_BLOCK;
    const int64_t least = width < TX_NF4_BLOCK ? TX_NF4_BLOCK : width;
    return least < s->n ? least : s->n;
}

tx_status tx_gemm_packed_create(const tx_cpu_gemm_spec *spec, tx_gemm_packed **packed, int64_t *scratch_bytes,
                                char variant[TX_GEMM_VARIANT])
{
    const tx_gemm *s = &spec->shape;
    const tx_dtype type = tx_cpu_gemm_native(spec->type) ? spec->type : TX_F32;
    const int64_t size = (int64_t)tx_dtype_size(type), width = panel_width(s, size);
    const int64_t panels = (s->n + width - 1) / width;
    const int32_t workers = panels < spec->threads ? (int32_t)panels : spec->threads;
    tx_gemm_packed *g = calloc(1, sizeof *g + (size_t)workers * sizeof g->worker[0]);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    g->spec = *spec;
    g->spec.threads = 1;
    g->threads = spec->threads;
    g->workers = workers;
    g->type = type;
    g->width = width;
    g->panel_bytes = tx_gemm_lines(width * s->k * size);
    g->a_bytes = type != spec->type ? tx_gemm_wide_bytes(s->m * s->k) : 0;
    if (spec->result != TX_F32 && (g->a_bytes || s->k > TX_GEMM_LONG))
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
        tx_gemm_packed_destroy(g);
        return status;
    }
    strncat(variant, ", unpacked from 4 bits", TX_GEMM_VARIANT - strlen(variant) - 1);
    g->worker_bytes = g->panel_bytes + g->sum_bytes + tx_gemm_lines(scratch);
    *scratch_bytes = g->a_bytes + workers * g->worker_bytes;
    *packed = g;
    return TX_OK;
}

/* The panel that begins at column j; `a` as it is multiplied. */
static tx_status run_panel(const tx_gemm_packed *g, const tx_gemm_call *call, const void *a, int32_t w, int64_t j)
{
    const tx_cpu_gemm_spec *spec = &g->spec;
    const tx_gemm *s = &spec->shape;
    const int64_t width = s->n - j < g->width ? s->n - j : g->width;
    const tx_gemm_matrix c = {(char *)call->c + j * (int64_t)tx_dtype_size(spec->result), spec->result, s->m, width,
                              s->ldc};
    char *panel = (char *)call->scratch + g->a_bytes + w * g->worker_bytes, *sums = panel + g->panel_bytes;
    const tx_gemm_call inner = {.a = a,
                                .b = panel,
                                .bias = call->bias ? call->bias + j : NULL,
                                .c = g->sum_bytes ? sums : c.data,
                                .add = call->add && !g->sum_bytes,
                                .scratch = sums + g->sum_bytes};
    spec->rows->unpack(spec, call->b, j, width, g->type, panel);
    TX_TRY(tx_gemm_dnnl_run(width == g->width ? g->worker[w].whole : g->worker[w].rest, &inner));
    if (g->sum_bytes)
        spec->rows->narrow((float *)(void *)sums, call->add, &c, 1);
    return TX_OK;
}

tx_status tx_gemm_packed_run(tx_gemm_packed *g, const tx_gemm_call *call)
{
    const tx_gemm *s = &g->spec.shape;
    const tx_gemm_matrix a = {(void *)call->a, g->spec.type, s->m, s->k, s->lda};
    if (g->a_bytes)
        g->spec.rows->widen(&a, call->scratch, g->threads);
#pragma omp parallel for schedule(static, 1) num_threads(g->workers)
    for (int32_t w = 0; w < g->workers; w++) {
        worker *own = &g->worker[w];
        own->status = TX_OK;
        for (int64_t j = w * g->width; j < s->n && !own->status; j += g->workers * g->width)
            own->status = run_panel(g, call, g->a_bytes ? call->scratch : call->a, w, j);
        if (own->status)
            snprintf(own->message, sizeof own->message, "%s", tx_error()); /* which is this thread's alone */
    }
    for (int32_t w = 0; w < g->workers; w++)
        if (g->worker[w].status)
            return tx_fail(g->worker[w].status, "%s", g->worker[w].message);
    return TX_OK;
}

void tx_gemm_packed_destroy(tx_gemm_packed *g)
{
    for (int32_t w = 0; g && w < g->workers; w++) {
        tx_gemm_dnnl_destroy(g->worker[w].whole);
        tx_gemm_dnnl_destroy(g->worker[w].rest);
    }
    free(g);
}
