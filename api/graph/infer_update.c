/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of parameter updates: operands are p, g, groups and the states, outputs p and the states. */
#include "api/graph/infer.h"

/* p and g alike of F32 (ADAMW_ANYPRECISION, MASK_GRADIENT: or BF16), and group bytes. */
static tx_status check_operands(const tx_infer *c, int64_t groups)
{
    const bool bf16 = (c->op == TX_OP_ADAMW_ANYPRECISION || c->op == TX_OP_MASK_GRADIENT) && c->in[0].dtype == TX_BF16;
    TX_TRY(tx_want_dtype(c, 0, bf16 ? TX_BF16 : TX_F32));
    TX_TRY(tx_want_dtype(c, 1, bf16 ? TX_BF16 : TX_F32));
    TX_TRY(tx_want_shape(c, 1, &c->in[0].shape));
    TX_TRY(tx_want_dtype(c, 2, TX_U8));
    return tx_want_shape(c, 2, &TX_SHAPE(groups));
}

/* Output 0 is like p, the others are like the states; an absent state has dtype TX_DTYPE_COUNT. */
static tx_status give_states(const tx_infer *c, int outputs)
{
    for (int o = 1; o < outputs; o++)
        tx_give(c, o, c->in[2 + o].dtype, c->in[2 + o].shape);
    return tx_give(c, 0, c->in[0].dtype, c->in[0].shape);
}

static int64_t blocks_of(const tx_infer *c)
{
    return (tx_shape_count(&c->in[0].shape) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK;
}

/* Ranges [n] of the flat arenas, and states of the same shape: H for ADAMW_ANYPRECISION, else F32; and the weights'
 * copy of 16 bits, which is the last operand of those others. */
tx_status tx_infer_update(const tx_infer *c)
{
    TX_TRY(tx_want_rank(c, 0, 1));
    TX_TRY(check_operands(c, blocks_of(c)));
    for (int i = 3; i < tx_op_info_of(c->op)->inputs; i++) {
        const bool any = c->op == TX_OP_ADAMW_ANYPRECISION || i == tx_op_info_of(c->op)->inputs - 1;
        TX_TRY(any ? tx_want_float_type(c, i) : tx_want_dtype(c, i, TX_F32));
        TX_TRY(tx_want_shape(c, i, &c->in[0].shape));
    }
    return give_states(c, tx_op_info_of(c->op)->outputs);
}

tx_status tx_infer_mask_gradient(const tx_infer *c)
{
    TX_TRY(tx_want_rank(c, 0, 1));
    TX_TRY(check_operands(c, blocks_of(c)));
    return tx_give(c, 0, c->in[1].dtype, c->in[1].shape);
}

tx_status tx_infer_update_8bit(const tx_infer *c)
{
    TX_TRY(tx_want(c, "-1--UUF"));
    TX_TRY(check_operands(c, blocks_of(c)));
    TX_TRY(tx_want_shape(c, 3, &c->in[0].shape));
    TX_TRY(tx_want_shape(c, 4, &c->in[0].shape));
    TX_TRY(tx_want_shape(c, 5, &TX_SHAPE(2 * blocks_of(c))));
    return give_states(c, tx_op_info_of(c->op)->outputs);
}

/* A matrix with a number a row and one a column, or what is none with as many as p has; and work. */
tx_status tx_infer_adafactor(const tx_infer *c)
{
    const tx_shape *p = &c->in[0].shape;
    const bool matrix = c->op == TX_OP_ADAFACTOR;
    const int states = matrix ? 2 : 1;
    TX_TRY(tx_want(c, matrix ? "-2--FF" : "-1--F"));
    TX_TRY(check_operands(c, 1));
    for (int i = 0; i < states; i++)
        TX_TRY(tx_want_shape(c, 3 + i, &TX_SHAPE(p->dim[i])));
    tx_give(c, 1 + states, TX_F32, TX_SHAPE(tx_adafactor_work(p)));
    return give_states(c, 1 + states);
}

tx_status tx_infer_muon_momentum(const tx_infer *c)
{
    TX_TRY(tx_want(c, "F2F"));
    TX_TRY(tx_want_shape(c, 1, &TX_SHAPE(tx_shape_count(&c->in[0].shape))));
    tx_give(c, 0, TX_F32, c->in[1].shape);
    return tx_give(c, 1, TX_F32, c->in[0].shape);
}

tx_status tx_infer_muon(const tx_infer *c)
{
    TX_TRY(tx_want(c, "F2"));
    TX_TRY(check_operands(c, 1));
    return tx_give(c, 0, TX_F32, c->in[0].shape);
}

tx_status tx_infer_normalize(const tx_infer *c)
{
    TX_TRY(tx_want(c, "FF"));
    TX_TRY(tx_want_shape(c, 1, &TX_SHAPE(1)));
    return tx_give(c, 0, TX_F32, c->in[0].shape);
}
