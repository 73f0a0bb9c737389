/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of parameter updates: operands are p, g, groups and the states, outputs p and the states. */
#include "api/graph/infer.h"

/* Ranges [n] of the flat arenas: p, g, groups, then states of F32. */
tx_status tx_infer_update(const tx_infer *c)
{
    int64_t count = tx_shape_count(&c->in[0].shape);
    TX_CHECK(tx_want_rank(c, 0, 1));
    for (int i = 0; i < tx_op_info_of(c->op)->inputs; i++) {
        bool groups = i == 2;
        TX_CHECK(tx_want_dtype(c, i, groups ? TX_U8 : TX_F32));
        int64_t blocks = (count + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK;
        TX_CHECK(tx_want_shape(c, i, &TX_SHAPE(groups ? blocks : count)));
    }
    for (int o = 0; o < tx_op_info_of(c->op)->outputs; o++)
        tx_give(c, o, o == 0 || tx_present(&c->in[2 + o]) ? TX_F32 : TX_DTYPE_COUNT, c->in[0].shape);
    return TX_OK;
}
