/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the providers of matrix products, and the options and arguments that TX's own kernels share.
 */
#include "backends/opencl/gemm/gemm.h"

#include <stdio.h>
#include <string.h>

static const tx_cl_providers *const all[] = {
    &tx_cl_gemm_few,
    &tx_cl_gemm_vector,
    &tx_cl_gemm_clblast,
    &tx_cl_gemm_tile,
#define TX_PROVIDERS(name) &tx_cl_gemm_##name,
#include "backends/opencl/extensions.def"
};

const tx_cl_provider *tx_cl_gemm_provider(int i)
{
    for (size_t f = 0; f < sizeof all / sizeof all[0]; i -= all[f++]->count)
        if (i < all[f]->count)
            return &all[f]->provider[i];
    return NULL;
}

bool tx_cl_gemm_supports(const tx_context *context, const tx_cl_provider *provider)
{
    return provider->device == TX_CL_ALL || (provider->device == TX_CL_CPUS) == context->limits.cpu;
}

bool tx_cl_gemm_has_provider(const tx_context *context, const char *name)
{
    const tx_cl_provider *found;
    for (int i = 0; (found = tx_cl_gemm_provider(i)) != NULL; i++)
        if (strcmp(name, found->name) == 0)
            return tx_cl_gemm_supports(context, found);
    return false;
}

void tx_cl_gemm_options(char *text, size_t size, const char *form, const tx_cl_product *p)
{
    snprintf(text, size, "%s -DAB=%s -DY=%s -DWIDEN=%d -DTRANS_A=%d -DTRANS_B=%d", form, tx_cl_storage(p->from),
             tx_cl_storage(p->to), p->from != TX_F32, p->trans_a, p->trans_b);
    if (p->packed != TX_F32)
        snprintf(text + strlen(text), size - strlen(text), " -DPACKED=%d",
                 p->packed == TX_MXFP4        ? 4
                 : p->packed == TX_Q8         ? 3
                 : p->packed == TX_NF4_DOUBLE ? 2
                                              : 1);
    if (p->offsets)
        snprintf(text + strlen(text), size - strlen(text), " -DGROUPED=%d", p->trans_a ? 2 : 1);
    tx_cl_epilogue_options(text, size, p);
}

void tx_cl_epilogue_options(char *text, size_t size, const tx_cl_product *p)
{
    const size_t used = strlen(text);
    if (p->epilogue == TX_EPILOGUE_GELU || p->epilogue == TX_EPILOGUE_GELU_GRAD)
        snprintf(text + used, size - used, " -DEPILOGUE=%d -DEXACT=%d", (int)p->epilogue, p->exact);
}

void tx_cl_gemm_arguments(tx_cl_builder *b, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    TX_CL_OPERANDS(b, p->a, p->b, p->bias, p->y);
    tx_cl_arg_control(b);
    TX_CL_I64(b, g->m, g->n, g->k, g->lda, g->ldb, g->stride_a, g->stride_b);
    TX_CL_I32(b, (int32_t)p->accumulate);
}

void tx_cl_gemm_offsets(tx_cl_builder *b, const tx_cl_product *p)
{
    if (!p->offsets)
        return;
    TX_CL_OPERANDS(b, p->offsets);
    TX_CL_I64(b, p->offsets->shape.dim[0] - 1);
}
