/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the provider of a matrix product.
 */
#include "backends/opencl/gemm/gemm.h"

#include <stdio.h>
#include <string.h>

static bool begins(const char *name, const char *with)
{
    return *with && strncmp(name, with, strlen(with)) == 0;
}

static tx_status check_preferred(const char *preferred)
{
    const tx_cl_provider *provider;
    if (!*preferred)
        return TX_OK;
    for (int i = 0; (provider = tx_cl_gemm_provider(i)) != NULL; i++)
        if (begins(provider->name, preferred))
            return TX_OK;
    return tx_fail(TX_INVALID,
                   "TX_GEMM=%s is not a provider; use portable, portable-vector, portable-tile, portable-few, x86-dot, "
                   "nvidia-mma, "
                   "nvidia-wgmma, amd-mfma, amd-wmma, intel-dpas or clblast",
                   preferred);
}

/* Adds the device's providers: preferred names get the highest share, then providers for few rows, which need no
 * measurement. */
static void suggest(const tx_cl_builder *b, const tx_cl_product *p, const char *preferred, tx_cl_selection *q)
{
    const tx_cl_provider *provider;
    for (int i = 0; (provider = tx_cl_gemm_provider(i)) != NULL; i++) {
        char why[TX_CL_WHY] = "";
        if (!tx_cl_gemm_supports(b->context, provider) || (p->packed != TX_F32 && !provider->packed) ||
            (p->offsets && !provider->grouped))
            continue;
        double share = provider->suits(b, provider, p, why);
        if (share > 0.0)
            share += TX_CL_SURE * ((provider->rows > 0) + 2 * begins(provider->name, preferred));
        tx_cl_add_candidate(q, i, provider->name, share, why);
    }
}

tx_status tx_cl_gemm_choose(tx_cl_builder *b, const tx_cl_product *p, tx_cl_gemm_choice *choice)
{
    const char *preferred = b->context->gemm;
    TX_TRY(check_preferred(preferred));
    tx_cl_selection q = {.what = "provider of matrix products", .kind = TX_CL_PRODUCT, .user = p};
    suggest(b, p, preferred, &q);
    TX_TRY(tx_cl_select(b, &q));
    choice->provider = tx_cl_gemm_provider(q.candidate[0].id);
    choice->fused = choice->provider->epilogues && !q.unfused;
    snprintf(choice->rejected, sizeof choice->rejected, "%s", q.rejected);
    return TX_OK;
}
