/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what is asked of a matrix product and chooses who runs it: TX's own loops for few rows, matrix units for
 * fp32 where they are, oneDNN for the rest. What oneDNN declines, and bf16 on CPUs without instructions for it, where
 * it is slower than in fp32, it gets with operands that are widened to fp32 in scratch. There are also the sums that
 * are narrowed to 16 bits at the end: of these products, and of those over a long k, which oneDNN gets in pieces. */
#include "gemm.h"

#include "gemm_parts.h"

#include "backends/nf4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tx_cpu_gemm {
    tx_cpu_gemm_spec spec;
    tx_gemm_dnnl *product;  /* NULL: few rows, or packed */
    tx_gemm_packed *packed; /* NULL: b is not, or rows are few */
    const tx_gemm_amx *amx; /* NULL unless it goes to matrix units, in parts of bf16 */
    bool indirect, widened;
    int64_t a_bytes, b_bytes, sum_bytes; /* of scratch, where indirect: widened a and b, and sums */
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
    if (spec->packed != TX_F32 && (s->batch > 1 || spec->trans_a || s->ldb % TX_NF4_BLOCK != 0))
        return tx_fail(TX_UNSUPPORTED, "matrix product: of 4 bits is one matrix whose rows are whole blocks of %d",
                       TX_NF4_BLOCK);
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

/* Prepares one product of the batch, of operands of this type, with fp32 sums. */
static tx_status create_indirect(tx_cpu_gemm *g, tx_dtype type, int64_t *scratch_bytes)
{
    const tx_gemm *s = &g->spec.shape;
    const bool narrows = g->spec.result != TX_F32;
    tx_cpu_gemm_spec inner = g->spec;
    inner.type = type;
    inner.result = TX_F32;
    inner.shape.batch = 1;
    g->indirect = true;
    g->widened = type != g->spec.type;
    if (g->widened) {
        inner.shape.lda = inner.trans_a ? s->m : s->k;
        inner.shape.ldb = inner.trans_b ? s->k : s->n;
        g->a_bytes = tx_gemm_wide_bytes(s->m * s->k);
        g->b_bytes = tx_gemm_wide_bytes(s->k * s->n);
    }
    if (narrows) {
        inner.adds = false;
        inner.shape.ldc = s->n;
        g->sum_bytes = tx_gemm_wide_bytes(s->m * s->n);
    }
    tx_status status = tx_gemm_dnnl_create(&inner, &g->product, scratch_bytes, g->variant);
    if (!status && g->widened)
        strncat(g->variant, ", widened to fp32", sizeof g->variant - strlen(g->variant) - 1);
    *scratch_bytes += g->a_bytes + g->b_bytes + g->sum_bytes;
    return status;
}

tx_status tx_cpu_gemm_create(const tx_cpu_gemm_spec *spec, tx_cpu_gemm **gemm, int64_t *scratch_bytes)
{
    tx_status status = check(spec);
    if (status)
        return status;
    const tx_gemm_amx *amx = tx_gemm_amx_here();
    tx_cpu_gemm *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    int64_t bytes = 0;
    g->spec = *spec;
    g->spec.shape = joined(spec);
    if (g->spec.shape.batch == 1 && g->spec.shape.m <= TX_GEMM_THIN) {
        bytes = tx_gemm_thin_scratch(&g->spec);
        snprintf(g->variant, sizeof g->variant, "few rows %s", spec->rows->name);
    } else if (spec->packed != TX_F32) {
        status = tx_gemm_packed_create(&g->spec, &g->packed, &bytes, g->variant);
    } else if (amx && amx->takes(&g->spec)) {
        g->amx = amx;
        bytes = amx->scratch(&g->spec);
        snprintf(g->variant, sizeof g->variant, "amx, 3 parts of bf16");
    } else {
        if (!tx_cpu_gemm_native(spec->type))
            status = TX_UNSUPPORTED;
        else if (spec->result != TX_F32 && spec->shape.k > TX_GEMM_LONG)
            status = create_indirect(g, spec->type, &bytes);
        else
            status = tx_gemm_dnnl_create(&g->spec, &g->product, &bytes, g->variant);
        if (status == TX_UNSUPPORTED)
            status = create_indirect(g, TX_F32, &bytes);
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

/* Product `i` of the batch. */
static tx_status run_indirect(const tx_cpu_gemm *g, const tx_gemm_call *call, int64_t i)
{
    const tx_cpu_gemm_spec *spec = &g->spec;
    const tx_gemm *s = &spec->shape;
    const bool ta = spec->trans_a, tb = spec->trans_b;
    const tx_gemm_matrix a = stored(call->a, spec->type, i * s->stride_a, ta ? s->k : s->m, ta ? s->m : s->k, s->lda),
                         b = stored(call->b, spec->type, i * s->stride_b, tb ? s->n : s->k, tb ? s->k : s->n, s->ldb),
                         c = stored(call->c, spec->result, i * s->stride_c, s->m, s->n, s->ldc);
    char *wide_a = call->scratch, *wide_b = wide_a + g->a_bytes, *sums = wide_b + g->b_bytes;
    if (g->widened && (i == 0 || s->stride_a > 0))
        spec->rows->widen(&a, (float *)(void *)wide_a, spec->threads);
    if (g->widened && (i == 0 || s->stride_b > 0))
        spec->rows->widen(&b, (float *)(void *)wide_b, spec->threads);
    const bool narrows = g->sum_bytes > 0;
    const tx_gemm_call inner = {.a = g->widened ? wide_a : a.data,
                                .b = g->widened ? wide_b : b.data,
                                .bias = call->bias,
                                .c = narrows ? sums : c.data,
                                .add = call->add && !narrows,
                                .scratch = sums + g->sum_bytes};
    tx_status status = tx_gemm_dnnl_run(g->product, &inner);
    if (!status && narrows)
        spec->rows->narrow((float *)(void *)sums, call->add, &c, spec->threads);
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
    tx_status status = TX_OK;
    if (gemm->packed)
        status = tx_gemm_packed_run(gemm->packed, &call);
    else if (gemm->amx)
        gemm->amx->run(spec, &call);
    else if (!gemm->product)
        spec->rows->multiply(spec, &call);
    else if (!gemm->indirect)
        status = tx_gemm_dnnl_run(gemm->product, &call);
    else
        for (int64_t i = 0; !status && i < spec->shape.batch; i++)
            status = run_indirect(gemm, &call, i);
    return status;
}

void tx_cpu_gemm_library(char text[TX_CPU_GEMM_LIBRARY])
{
    tx_gemm_dnnl_library(text);
    if (tx_gemm_amx_here())
        strncat(text, ", fp32 by amx", TX_CPU_GEMM_LIBRARY - strlen(text) - 1);
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
    tx_gemm_packed_destroy(gemm->packed);
    free(gemm);
}
