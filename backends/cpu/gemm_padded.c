/* SPDX-License-Identifier: Apache-2.0
 *
 * fp32 products of few rows or columns by oneDNN on CPUs with AVX2; a provider of gemm.c's list.
 *
 * If the result is small, oneDNN does not pack the operands and reads them in place. Rows that are a power of two apart
 * then share a few sets of the cache, and the product reaches 60 % of its speed. Copies whose rows are a cache line
 * longer avoid this. The bits of the result are the same as without copies.
 */
#include "gemm_parts.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 16  /* fp32 numbers in a cache line */
#define APART 128      /* rows that are a multiple of it apart share sets of the cache */
#define MIN_SIZE 96    /* least m n / (m + n) with which the product gains more than the copies cost */
#define MOST (1 << 21) /* numbers in both copies, which stay in a cache */
#define PACKED 0.0038  /* oneDNN packs the operands if 1 / m + 1 / n is less (measured with version 2.6) */

typedef struct padded {
    tx_cpu_gemm_spec spec;
    int64_t a_bytes, b_bytes; /* of the copies; 0 if the operand is read in place */
    void *product;
} padded;

static bool takes(const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    const bool plain = spec->type == TX_F32 && spec->packed == TX_F32 && s->batch == 1 && !spec->trans_b;
    return plain && strcmp(spec->rows->name, "avx2") == 0 && s->ldb % APART == 0 &&
           1.0 / (double)s->m + 1.0 / (double)s->n >= PACKED && s->m * s->n >= MIN_SIZE * (s->m + s->n) &&
           s->k <= MOST / (spec->trans_a ? s->m + s->n : s->n);
}

static void destroy(void *product)
{
    padded *g = product;
    tx_gemm_dnnl_destroy(g->product);
    free(g);
}

static tx_status create(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                        char variant[TX_GEMM_VARIANT])
{
    const tx_gemm *s = &spec->shape;
    tx_cpu_gemm_spec inner = *spec;
    padded *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    inner.shape.ldb = s->n + CACHE_LINE;
    g->b_bytes = tx_gemm_wide_bytes(s->k * inner.shape.ldb);
    if (spec->trans_a && s->lda % APART == 0) {
        inner.shape.lda = s->m + CACHE_LINE;
        g->a_bytes = tx_gemm_wide_bytes(s->k * inner.shape.lda);
    }
    g->spec = *spec;
    const tx_status status = tx_gemm_dnnl_create(&inner, &g->product, scratch_bytes, variant);
    if (status || !strstr(variant, "gemm:jit")) {
        destroy(g);
        return status ? status : TX_UNSUPPORTED; /* other implementations pack the operands */
    }
    strncat(variant, ", padded", TX_GEMM_VARIANT - strlen(variant) - 1);
    *scratch_bytes += g->a_bytes + g->b_bytes;
    *product = g;
    return TX_OK;
}

/* Copies k rows of `columns` numbers. */
static void copy(const padded *g, const float *from, int64_t ld, int64_t columns, float *to)
{
    const int64_t rows = g->spec.shape.k, to_ld = columns + CACHE_LINE;
#pragma omp parallel for schedule(static) num_threads(g->spec.threads) if (g->spec.threads > 1)
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_ld, from + r * ld, (size_t)columns * sizeof *to);
}

static tx_status run(void *product, const tx_gemm_call *call)
{
    const padded *g = product;
    const tx_gemm *s = &g->spec.shape;
    char *b = call->scratch, *a = b + g->b_bytes;
    tx_gemm_call inner = *call;
    copy(g, call->b, s->ldb, s->n, (float *)(void *)b);
    inner.b = b;
    if (g->a_bytes) {
        copy(g, call->a, s->lda, s->m, (float *)(void *)a);
        inner.a = a;
    }
    inner.scratch = a + g->a_bytes;
    return tx_gemm_dnnl_run(g->product, &inner);
}

const tx_gemm_provider tx_gemm_padded = {takes, create, run, destroy, NULL};
