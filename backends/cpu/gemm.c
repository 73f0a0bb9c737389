/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses who runs a matrix product, and checks what is asked. */
#include "gemm.h"

#include "gemm_provider.h"
#include "gemm_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tx_cpu_gemm {
    const tx_gemm_provider *provider;
    void *state;
    bool bias, adds;
    char variant[TX_GEMM_VARIANT];
};

/* In order of preference. */
static const tx_gemm_provider *const providers[] = {
#ifdef TX_ONEDNN
    &tx_gemm_onednn,
#endif
    &tx_gemm_own,
};
#define PROVIDERS (sizeof providers / sizeof *providers)

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

/* Sets *first to the first provider to try. */
static tx_status wish(size_t *first)
{
    const char *text = getenv("TX_GEMM");
    if (text && *text && strcmp(text, "portable") != 0)
        return tx_fail(TX_INVALID, "TX_GEMM=%s: only \"portable\" is known", text);
    *first = text && *text ? PROVIDERS - 1 : 0;
    return TX_OK;
}

tx_status tx_cpu_gemm_library(const struct tx_gemm_tile *tile, char text[TX_CPU_GEMM_LIBRARY])
{
    size_t first = 0;
    tx_status status = wish(&first);
    if (!status)
        providers[first]->library(tile, text);
    return status;
}

tx_status tx_cpu_gemm_create(const tx_cpu_gemm_spec *spec, tx_cpu_gemm **gemm, int64_t *scratch_bytes)
{
    size_t at = 0;
    tx_status status = check(spec);
    if (!status)
        status = wish(&at);
    if (status)
        return status;
    tx_cpu_gemm_spec seen = *spec;
    seen.shape = joined(spec);
    if (seen.shape.batch == 1 && seen.shape.m <= TX_GEMM_THIN)
        at = PROVIDERS - 1; /* few rows: own reads b at the rate of memory */
    tx_cpu_gemm *g = calloc(1, sizeof *g);
    if (!g)
        return tx_fail(TX_MEMORY, "matrix product: out of memory");
    int64_t bytes = 0;
    char declined[TX_GEMM_VARIANT / 2] = "";
    do {
        g->provider = providers[at++];
        status = g->provider->create(&seen, &g->state, &bytes, g->variant);
        if (status == TX_UNSUPPORTED)
            snprintf(declined, sizeof declined, " (%s)", tx_error());
    } while (status == TX_UNSUPPORTED && at < PROVIDERS);
    if (status) {
        free(g);
        return status;
    }
    strncat(g->variant, declined, sizeof g->variant - strlen(g->variant) - 1);
    g->bias = spec->bias;
    g->adds = spec->adds;
    *gemm = g;
    *scratch_bytes = bytes;
    return TX_OK;
}

tx_status tx_cpu_gemm_run(tx_cpu_gemm *gemm, const void *a, const void *b, const float *bias, void *c, float beta,
                          void *scratch)
{
    if (bias && !gemm->bias)
        return tx_fail(TX_INVALID, "matrix product: prepared without a bias");
    if (!(beta == 0.0f || (beta == 1.0f && gemm->adds)))
        return tx_fail(TX_INVALID, "matrix product: prepared for beta 0%s, asked for %g", gemm->adds ? " or 1" : "",
                       (double)beta);
    const tx_gemm_call call = {.a = a, .b = b, .bias = bias, .c = c, .add = beta != 0.0f, .scratch = scratch};
    return gemm->provider->run(gemm->state, &call);
}

const char *tx_cpu_gemm_variant(const tx_cpu_gemm *gemm)
{
    return gemm->variant;
}

void tx_cpu_gemm_destroy(tx_cpu_gemm *gemm)
{
    if (!gemm)
        return;
    gemm->provider->destroy(gemm->state);
    free(gemm);
}
