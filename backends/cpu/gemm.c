/* SPDX-License-Identifier: Apache-2.0
 *
 * Validates a matrix product and selects its provider. TX's own loops compute few rows, matrix units compute fp32 if
 * the processor has them, and oneDNN computes the rest. File gemm_panels.c converts operands or sums in scratch if
 * oneDNN declines the types. It does the same for bf16 on CPUs that multiply faster in fp32. File gemm_tiles.c cuts
 * products so that no bit depends on the number of threads.
 */
#include "gemm.h"

#include "gemm_parts.h"

#include "api/base/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tx_cpu_gemm {
    tx_cpu_gemm_spec spec;
    const tx_gemm_provider *provider;
    void *product;
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
        return tx_fail(TX_UNSUPPORTED, "matrix product: operands must be F32, BF16 or F16");
    if (spec->result != TX_F32 && spec->result != spec->type)
        return tx_fail(TX_UNSUPPORTED, "matrix product: the result must be F32 or the operands' type");
    const int64_t values = tx_block_values(spec->packed);
    const int64_t unit = tx_packed_unit(spec->packed);
    if (spec->packed != TX_F32 &&
        (s->batch > 1 || spec->trans_a || s->ldb % unit != 0 || (values && (!spec->trans_b || s->ldb != s->k))))
        return tx_fail(TX_UNSUPPORTED,
                       "matrix product: a packed operand must be one matrix whose rows are whole blocks of %d",
                       (int)unit);
    if (spec->threads < 1)
        return tx_fail(TX_INVALID, "matrix product: %d threads; use at least 1", (int)spec->threads);
    return TX_OK;
}

/* A batch that shares b is one taller product if its matrices a and c are contiguous. Returns that product, or the
 * shape unchanged. */
static tx_gemm joined(const tx_cpu_gemm_spec *spec)
{
    tx_gemm s = spec->shape;
    if (s.batch > 1 && s.stride_b == 0 && !spec->trans_a && s.stride_a == s.m * s.lda && s.stride_c == s.m * s.ldc) {
        s.m *= s.batch;
        s.batch = 1;
    }
    return s;
}

/* ---- Loops over rows (gemm_rows.c) ----------------------------------------------------------------- */

static bool takes_few(const tx_cpu_gemm_spec *spec)
{
    return spec->shape.batch == 1 && tx_gemm_few(spec);
}

static bool takes_blocks(const tx_cpu_gemm_spec *spec)
{
    return spec->shape.batch == 1 && tx_gemm_blocks(spec) && spec->rows->any_rows();
}

static tx_status create_rows(const tx_cpu_gemm_spec *spec, void **product, int64_t *scratch_bytes,
                             char variant[TX_GEMM_VARIANT])
{
    snprintf(variant, TX_GEMM_VARIANT, "%s %s", tx_gemm_few(spec) ? "few rows" : "8-bit rows", spec->rows->name);
    *scratch_bytes = tx_gemm_thin_scratch(spec);
    *product = (void *)(uintptr_t)spec;
    return TX_OK;
}

static tx_status run_rows(void *product, const tx_gemm_call *call)
{
    const tx_cpu_gemm_spec *spec = product;
    spec->rows->multiply(spec, call);
    return TX_OK;
}

static const tx_gemm_provider few_rows = {takes_few, create_rows, run_rows, NULL, NULL},
                              block_rows = {takes_blocks, create_rows, run_rows, NULL, NULL};

/* ---- The list ------------------------------------------------------------------------------------------ */

/* clang-format off */
static const tx_gemm_provider *const providers[] = {
    &few_rows,
    &block_rows,
#define TX_GEMM_PROVIDER(provider) &provider,
#include "backends/cpu/extensions.def"
    &tx_gemm_tiles,
    &tx_gemm_panels,
};
/* clang-format on */
#define PROVIDERS (sizeof providers / sizeof providers[0])

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
    status = TX_UNSUPPORTED;
    for (size_t i = 0; i < PROVIDERS && status == TX_UNSUPPORTED; i++) {
        g->provider = providers[i];
        if (g->provider->takes(&g->spec))
            status = g->provider->create(&g->spec, &g->product, &bytes, g->variant);
    }
    if (status) {
        free(g);
        return status;
    }
    *gemm = g;
    *scratch_bytes = bytes;
    return TX_OK;
}

tx_status tx_cpu_gemm_run(tx_cpu_gemm *gemm, const void *a, const void *b, int64_t matrix, const float *bias, void *c,
                          float beta, void *scratch)
{
    const tx_cpu_gemm_spec *spec = &gemm->spec;
    if (bias && !spec->bias)
        return tx_fail(TX_INVALID, "matrix product: prepared without a bias");
    if (!(beta == 0.0f || (beta == 1.0f && spec->adds)))
        return tx_fail(TX_INVALID, "matrix product: prepared for beta 0%s, but run with %g", spec->adds ? " or 1" : "",
                       (double)beta);
    const tx_gemm_call call = {
        .a = a, .b = b, .matrix = matrix, .bias = bias, .c = c, .add = beta != 0.0f, .scratch = scratch};
    return gemm->provider->run(gemm->product, &call);
}

void tx_cpu_gemm_library(char text[TX_CPU_GEMM_LIBRARY])
{
    tx_gemm_dnnl_library(text);
    for (size_t i = 0; i < PROVIDERS; i++) {
        const char *units = providers[i]->units ? providers[i]->units() : NULL;
        if (units)
            snprintf(text + strlen(text), TX_CPU_GEMM_LIBRARY - strlen(text), ", fp32 by %s", units);
    }
}

const char *tx_cpu_gemm_variant(const tx_cpu_gemm *gemm)
{
    return gemm->variant;
}

void tx_cpu_gemm_destroy(tx_cpu_gemm *gemm)
{
    if (!gemm)
        return;
    if (gemm->provider->destroy)
        gemm->provider->destroy(gemm->product);
    free(gemm);
}
