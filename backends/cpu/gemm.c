/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what is asked of a matrix product and chooses who runs it: TX's own loops for few rows, oneDNN for the rest.
 * What oneDNN declines (16-bit types on CPUs without instructions for them) it gets as fp32: the products of a batch
 * one by one, their operands widened into scratch. */
#include "gemm.h"

#include "gemm_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tx_cpu_gemm {
    tx_cpu_gemm_spec spec;
    tx_gemm_dnnl *product; /* NULL: few rows */
    bool widened;
    int64_t a_bytes, b_bytes, sum_bytes; /* of scratch: widened a and b, sums that are narrowed at the end */
    char variant[TX_GEMM_VARIANT];
};

static tx_status check(const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    if (s->batch < 1 || s->m < 1 || s->n < 1 || s->k < 1)
        return tx_fail(TX_INVALID, "matrix product: batch %lld, m %lld, n %lld, k %lld must be at least 1",
                       (long long)s->batch, (long long)s->m, (long long)s->n, (long long)s->k);
    if (s->lda < (spec->trans_a ? s->m : s->k) || s->ldb < (spec->trans_b ? s->k : s->n) || s->ldc < s->n)
        return tx_fail(TX_INVALID, "matrix product: leading dimensions %lld, %lld, %lld are shorter than a row",
                       (long long)s->lda, (long long)s->ldb, (long long)s->ldc);
    if (s->stride_a < 0 || s->stride_b < 0 || (s->batch > 1 && s->stride_c < (s->m - 1) * s->ldc + s->n))
        return tx_fail(TX_INVALID, "matrix product: the results of a batch overlap (stride %lld)",
                       (long long)s->stride_c);
    if (spec->type != TX_F32 && spec->type != TX_BF16 && spec->type != TX_F16)
        return tx_fail(TX_UNSUPPORTED, "matrix product: operands are F32, BF16 or F16");
    if (spec->result != TX_F32 && spec->result != spec->type)
        return tx_fail(TX_UNSUPPORTED, "matrix product: the result is F32 or the operands' type");
    if (spec->threads < 1)
        return tx_fail(TX_INVALID, "matrix product: %d threads", (int)spec->threads);
    return TX_OK;
}

/* A batch that shares b and whose a and c follow each other without a gap is one taller product. */
static tx_gemm joined(const tx_cpu_gemm_spec *spec)
{
    tx_gemm s = spec->shape;
    if (s.batch > 1 && s.stride_b == 0 && !spec->trans_a && s.stride_a == s.m * s.lda && s.stride_c == s.m * s.ldc) {
        s.m *= s.batch;
        s.batch = 1;
    }
    return s;
}

static bool few_rows(const tx_gemm *s)
{
    return s->batch == 1 && s->m <= TX_GEMM_THIN;
}

/* Prepares one product of the batch in fp32. */
static tx_status create_widened(tx_cpu_gemm *g, int64_t *scratch_bytes)
{
    const tx_gemm *s = &g->spec.shape;
    const bool narrows = g->spec.result != TX_F32;
    tx_cpu_gemm_spec wide = g->spec;
    wide.type = wide.result = TX_F32;
    wide.adds = g->spec.adds && !narrows;
    wide.shape = (tx_gemm){.batch = 1,
                           .m = s->m,
                           .n = s->n,
                           .k = s->k,
                           .lda = wide.trans_a ? s->m : s->k,
                           .ldb = wide.trans_b ? s->k : s->n,
                           .ldc = narrows ? s->n : s->ldc};
    g->widened = true;
    g->a_bytes = tx_gemm_wide_bytes(s->m * s->k);
    g->b_bytes = tx_gemm_wide_bytes(s->k * s->n);
    g->sum_bytes = narrows ? tx_gemm_wide_bytes(s->m * s->n) : 0;
    tx_status status = tx_gemm_dnnl_create(&wide, &g->product, scratch_bytes, g->variant);
    if (!status)
        strncat(g->variant, ", widened to fp32", sizeof g->variant - strlen(g->variant) - 1);
    *scratch_bytes += g->a_bytes + g->b_bytes + g->sum_bytes;
    return status;
}

tx_status tx_cpu_gemm_create(const tx_cpu_gemm_spec *spec, tx_cpu_gemm **gemm, int64_t *scratch_bytes)
{
    tx_status status = check(spec);
    if (status)
        return status;
    tx_cpu_gemm *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    int64_t bytes = 0;
    g->spec = *spec;
    g->spec.shape = joined(spec);
    if (few_rows(&g->spec.shape)) {
        bytes = tx_gemm_thin_scratch(&g->spec);
        snprintf(g->variant, sizeof g->variant, "few rows %s", spec->rows->name);
    } else {
        status = tx_gemm_dnnl_create(&g->spec, &g->product, &bytes, g->variant);
        if (status == TX_UNSUPPORTED)
            status = create_widened(g, &bytes);
    }
    if (status) {
        free(g);
        return status;
    }
    *gemm = g;
    *scratch_bytes = bytes;
    return TX_OK;
}

static tx_gemm_matrix stored(const void *data, tx_dtype type, int64_t first, int64_t rows, int64_t columns, int64_t ld)
{
    return (tx_gemm_matrix){(char *)data + first * (int64_t)tx_dtype_size(type), type, rows, columns, ld};
}

static tx_status run_widened(const tx_cpu_gemm *g, const tx_gemm_call *call)
{
    const tx_cpu_gemm_spec *spec = &g->spec;
    const tx_gemm *s = &spec->shape;
    char *a = call->scratch, *b = a + g->a_bytes, *sums = b + g->b_bytes;
    tx_status status = TX_OK;
    for (int64_t i = 0; !status && i < s->batch; i++) {
        const tx_gemm_matrix stored_a = stored(call->a, spec->type, i * s->stride_a, spec->trans_a ? s->k : s->m,
                                               spec->trans_a ? s->m : s->k, s->lda);
        const tx_gemm_matrix stored_b = stored(call->b, spec->type, i * s->stride_b, spec->trans_b ? s->n : s->k,
                                               spec->trans_b ? s->k : s->n, s->ldb);
        const tx_gemm_matrix c = stored(call->c, spec->result, i * s->stride_c, s->m, s->n, s->ldc);
        if (i == 0 || s->stride_a > 0)
            spec->rows->widen(&stored_a, (float *)(void *)a, spec->threads);
        if (i == 0 || s->stride_b > 0)
            spec->rows->widen(&stored_b, (float *)(void *)b, spec->threads);
        const tx_gemm_call wide = {.a = a,
                                   .b = b,
                                   .bias = call->bias,
                                   .c = g->sum_bytes ? sums : c.data,
                                   .add = call->add && !g->sum_bytes,
                                   .scratch = sums + g->sum_bytes};
        status = tx_gemm_dnnl_run(g->product, &wide);
        if (!status && g->sum_bytes)
            spec->rows->narrow((float *)(void *)sums, call->add, &c, spec->threads);
    }
    return status;
}

tx_status tx_cpu_gemm_run(tx_cpu_gemm *gemm, const void *a, const void *b, const float *bias, void *c, float beta,
                          void *scratch)
{
    const tx_cpu_gemm_spec *spec = &gemm->spec;
    if (bias && !spec->bias)
        return tx_fail(TX_INVALID, "matrix product: prepared without a bias");
    if (!(beta == 0.0f || (beta == 1.0f && spec->adds)))
        return tx_fail(TX_INVALID, "matrix product: prepared for beta 0%s, asked for %g", spec->adds ? " or 1" : "",
                       (double)beta);
    const tx_gemm_call call = {.a = a, .b = b, .bias = bias, .c = c, .add = beta != 0.0f, .scratch = scratch};
    if (gemm->widened)
        return run_widened(gemm, &call);
    if (gemm->product)
        return tx_gemm_dnnl_run(gemm->product, &call);
    spec->rows->multiply(spec, &call);
    return TX_OK;
}

const char *tx_cpu_gemm_variant(const tx_cpu_gemm *gemm)
{
    return gemm->variant;
}

void tx_cpu_gemm_destroy(tx_cpu_gemm *gemm)
{
    if (!gemm)
        return;
    tx_gemm_dnnl_destroy(gemm->product);
    free(gemm);
}
