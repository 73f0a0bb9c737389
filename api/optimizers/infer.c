/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of the optimizers other than SGD and AdamW. */
#include "api/graph/infer.h"
#include "backends/adafactor.h"

/* Ranges [n] of the flat arenas, F32 or BF16, with states of the same shape and any floating type. */
tx_status tx_infer_update_any(const tx_infer *c)
{
    TX_TRY(tx_require_rank(c, 0, 1));
    TX_TRY(tx_require_update(c, true, tx_update_blocks(c)));
    for (int i = 3; i < tx_op_info_of(c->op)->inputs; i++) {
        TX_TRY(tx_require_float_type(c, i));
        TX_TRY(tx_require_shape(c, i, &c->in[0].shape));
    }
    return tx_set_state_outputs(c, tx_op_info_of(c->op)->outputs);
}

tx_status tx_infer_update_8bit(const tx_infer *c)
{
    TX_TRY(tx_require(c, "-1--UUF"));
    TX_TRY(tx_require_update(c, false, tx_update_blocks(c)));
    TX_TRY(tx_require_shape(c, 3, &c->in[0].shape));
    TX_TRY(tx_require_shape(c, 4, &c->in[0].shape));
    TX_TRY(tx_require_shape(c, 5, &TX_SHAPE(2 * tx_update_blocks(c))));
    return tx_set_state_outputs(c, tx_op_info_of(c->op)->outputs);
}

/* A matrix has one value a row and one a column; other parameters have one a weight. The last output is work. */
tx_status tx_infer_adafactor(const tx_infer *c)
{
    const tx_shape *p = &c->in[0].shape;
    const bool matrix = c->op == TX_OP_ADAFACTOR;
    const int states = matrix ? 2 : 1;
    TX_TRY(tx_require(c, matrix ? "-2--FF" : "-1--F"));
    TX_TRY(tx_require_update(c, false, 1));
    for (int i = 0; i < states; i++)
        TX_TRY(tx_require_shape(c, 3 + i, &TX_SHAPE(p->dim[i])));
    tx_set_output(c, 1 + states, TX_F32, TX_SHAPE(tx_adafactor_work(p)));
    return tx_set_state_outputs(c, 1 + states);
}

tx_status tx_infer_muon_momentum(const tx_infer *c)
{
    TX_TRY(tx_require(c, "F2F"));
    TX_TRY(tx_require_shape(c, 1, &TX_SHAPE(tx_shape_count(&c->in[0].shape))));
    tx_set_output(c, 0, TX_F32, c->in[1].shape);
    return tx_set_output(c, 1, TX_F32, c->in[0].shape);
}

tx_status tx_infer_muon(const tx_infer *c)
{
    TX_TRY(tx_require(c, "F2"));
    TX_TRY(tx_require_update(c, false, 1));
    return tx_set_output(c, 0, TX_F32, c->in[0].shape);
}

tx_status tx_infer_normalize(const tx_infer *c)
{
    TX_TRY(tx_require(c, "FF"));
    TX_TRY(tx_require_shape(c, 1, &TX_SHAPE(1)));
    return tx_set_output(c, 0, TX_F32, c->in[0].shape);
}
