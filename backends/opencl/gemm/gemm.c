/* SPDX-License-Identifier: Apache-2.0
 *
 * Emits op MATMUL with the provider that gemm_choose.c selects.
 */
#include "backends/opencl/gemm/gemm.h"

#include "api/graph/op.h"
#include "backends/opencl/ops/ops.h"

#include <stdio.h>

/* Emits the product without its epilogue, followed by the op of the same name. */
static tx_status emit_in_two(tx_cl_builder *b, const tx_cl_provider *provider, const tx_cl_product *p,
                             const tx_command *c)
{
    static const tx_op rests[] = {
        [TX_EPILOGUE_GELU] = TX_OP_GELU, [TX_EPILOGUE_GELU_GRAD] = TX_OP_GELU_GRAD, [TX_EPILOGUE_ADD] = TX_OP_ADD};
    tx_cl_product plain = *p;
    tx_command rest = *c;
    plain.epilogue = TX_EPILOGUE_NONE;
    plain.column_sums = NULL;
    plain.y = tx_present(p->kept) ? p->kept : p->y;
    rest.op = rests[p->epilogue];
    rest.in[0] = *plain.y;
    rest.in[1] = *p->z;
    for (int i = 2; i < TX_MAX_IN; i++)
        rest.in[i].dtype = TX_DTYPE_COUNT;
    rest.out[1].dtype = TX_DTYPE_COUNT;
    provider->emit(b, provider, &plain);
    return b->status != TX_OK || p->epilogue == TX_EPILOGUE_NONE ? b->status : b->emit(b, &rest);
}

static tx_status emit_product(tx_cl_builder *b, const tx_cl_gemm_choice *choice, const tx_cl_product *p,
                              const tx_command *c)
{
    if (!choice->fused)
        return emit_in_two(b, choice->provider, p, c);
    choice->provider->emit(b, choice->provider, p);
    return b->status;
}

/* Emits the product and the sum of its rows. */
static tx_status emit_with_sum(tx_cl_builder *b, const tx_cl_gemm_choice *choice, const tx_cl_product *p,
                               const tx_command *c)
{
    tx_operand column_sums = {.dtype = TX_DTYPE_COUNT};
    tx_cl_product with = *p;
    with.column_sums = &column_sums;
    TX_TRY(emit_product(b, choice, &with, c));
    return tx_cl_sum_after(b, &column_sums, 1);
}

tx_status tx_cl_gemm(tx_cl_builder *b, const tx_cl_product *p, const tx_command *c)
{
    tx_cl_gemm_choice choice;
    char variant[TX_CL_REJECTED + 32];
    TX_TRY(tx_cl_gemm_choose(b, p, &choice));
    snprintf(variant, sizeof variant, *choice.rejected ? "%s (%s)" : "%s", choice.provider->name, choice.rejected);
    tx_cl_variant(b, variant);
    if (b->before && !choice.provider->joins)
        TX_TRY(b->emit(b, b->before));
    if (b->after && b->after->op == TX_OP_REDUCE)
        return emit_with_sum(b, &choice, p, c);
    TX_TRY(emit_product(b, &choice, p, c));
    return b->after && !choice.provider->joins ? b->emit(b, b->after) : b->status;
}

tx_status tx_cl_matmul(tx_cl_builder *b, const tx_command *c)
{
    const tx_cl_product p = {
        .op = c->op,
        .g = tx_gemm_of(&c->attrs, &c->in[0].shape, &c->in[1].shape),
        .trans_a = c->attrs.trans_a,
        .trans_b = c->attrs.trans_b,
        .from = c->in[0].dtype,
        .to = c->out[0].dtype,
        .packed = tx_dtype_packed(c->in[1].dtype) ? c->in[1].dtype : TX_F32,
        .accumulate = c->attrs.accumulate,
        .epilogue = c->attrs.epilogue,
        .exact = c->attrs.exact,
        .a = &c->in[0],
        .b = &c->in[1],
        .bias = &c->in[2],
        .z = &c->in[3],
        .y = &c->out[0],
        .kept = &c->out[1],
    };
    return tx_cl_gemm(b, &p, c);
}
