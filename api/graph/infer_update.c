/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of parameter updates: operands are p, g, groups and the states, outputs p and the states. */
#include "api/graph/infer.h"

tx_status tx_require_update(const tx_infer *c, bool any, int64_t groups)
{
    const tx_dtype stored = any && c->in[0].dtype == TX_BF16 ? TX_BF16 : TX_F32;
    TX_TRY(tx_require_dtype(c, 0, stored));
    TX_TRY(tx_require_dtype(c, 1, stored));
    TX_TRY(tx_require_shape(c, 1, &c->in[0].shape));
    TX_TRY(tx_require_dtype(c, 2, TX_U8));
    return tx_require_shape(c, 2, &TX_SHAPE(groups));
}

tx_status tx_set_state_outputs(const tx_infer *c, int outputs)
{
    for (int o = 1; o < outputs; o++)
        tx_set_output(c, o, c->in[2 + o].dtype, c->in[2 + o].shape);
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

int64_t tx_update_blocks(const tx_infer *c)
{
    return tx_ceil_div(tx_shape_count(&c->in[0].shape), TX_PARAM_BLOCK);
}

/* Updates of ranges [n] of the flat arenas with F32 states of the same shape. The last operand is the 16-bit copy of
 * the weights. */
tx_status tx_infer_update(const tx_infer *c)
{
    const int last = tx_op_info_of(c->op)->inputs - 1;
    TX_TRY(tx_require_rank(c, 0, 1));
    TX_TRY(tx_require_update(c, false, tx_update_blocks(c)));
    for (int i = 3; i <= last; i++) {
        TX_TRY(i == last ? tx_require_float_type(c, i) : tx_require_dtype(c, i, TX_F32));
        TX_TRY(tx_require_shape(c, i, &c->in[0].shape));
    }
    return tx_set_state_outputs(c, tx_op_info_of(c->op)->outputs);
}

tx_status tx_infer_mask_gradient(const tx_infer *c)
{
    TX_TRY(tx_require_rank(c, 0, 1));
    TX_TRY(tx_require_update(c, true, tx_update_blocks(c)));
    return tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
}
