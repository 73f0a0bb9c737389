/* SPDX-License-Identifier: Apache-2.0
 * The providers of matrix products that there are, by number and by name. */
#include "backends/opencl/gemm/gemm.h"

#include <string.h>

const tx_cl_provider *tx_cl_gemm_provider(int i)
{
    static const tx_cl_provider *const others[] = {&tx_cl_gemm_few, &tx_cl_gemm_vector, &tx_cl_gemm_dot,
                                                   &tx_cl_gemm_clblast};
    const int count = (int)(sizeof others / sizeof others[0]), tiles = i - count - TX_CL_MATRIX;
    if (i < count)
        return others[i];
    if (tiles < 0)
        return &tx_cl_gemm_matrix[i - count];
    return tiles < TX_CL_TILES ? &tx_cl_gemm_tiles[tiles] : NULL;
}

bool tx_cl_gemm_offers(const tx_context *context, const tx_cl_provider *provider)
{
    return provider->device == TX_CL_ALL || (provider->device == TX_CL_CPUS) == context->limits.cpu;
}

bool tx_cl_gemm_knows(const tx_context *context, const char *name)
{
    const tx_cl_provider *found;
    for (int i = 0; (found = tx_cl_gemm_provider(i)) != NULL; i++)
        if (strcmp(name, found->name) == 0)
            return tx_cl_gemm_offers(context, found);
    return false;
}
