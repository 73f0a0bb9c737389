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

/* Ranges [n] of the flat arenas with F32 states of the same shape, without a copy of the weights. */
tx_status tx_infer_update_moments(const tx_infer *c)
{
    TX_TRY(tx_require(c, tx_op_info_of(c->op)->inputs == 6 ? "F1F-FFF" : "F1F-FF"));
    return tx_infer_update_any(c);
}

tx_status tx_infer_exchange(const tx_infer *c)
{
    TX_TRY(tx_require(c, "F1F"));
    TX_TRY(tx_require_shape(c, 1, &c->in[0].shape));
    tx_set_output(c, 1, TX_F32, c->in[0].shape);
    return tx_set_output(c, 0, TX_F32, c->in[0].shape);
}

/* Codes of the range's shape; last, one F32 value a block for each of them. */
tx_status tx_infer_update_8bit(const tx_infer *c)
{
    const int last = tx_op_info_of(c->op)->inputs - 1, codes = last - 3;
    TX_TRY(tx_require(c, codes == 2 ? "-1--UUF" : "-1--UF"));
    TX_TRY(tx_require_update(c, false, tx_update_blocks(c)));
    for (int i = 3; i < last; i++)
        TX_TRY(tx_require_shape(c, i, &c->in[0].shape));
    TX_TRY(tx_require_shape(c, last, &TX_SHAPE(codes * tx_update_blocks(c))));
    return tx_set_state_outputs(c, tx_op_info_of(c->op)->outputs);
}

/* A matrix has one value a row and one a column; other parameters have one a weight. The last output is work. */
tx_status tx_infer_adafactor(const tx_infer *c)
{
    const tx_shape *p = &c->in[0].shape;
    const bool matrix = c->op == TX_OP_ADAFACTOR;
    const int states = matrix ? 2 : 1;
    TX_TRY(tx_require(c, matrix ? "-2--FF" : "----F"));
    TX_TRY(tx_require_update(c, false, 1));
    for (int i = 0; i < states; i++)
        TX_TRY(tx_require_shape(c, 3 + i, &TX_SHAPE(matrix ? p->dim[i] : tx_shape_count(p))));
    tx_set_output(c, 1 + states, TX_F32, TX_SHAPE(tx_adafactor_work(p)));
    return tx_set_state_outputs(c, 1 + states);
}

tx_status tx_infer_stable_adamw(const tx_infer *c)
{
    const int64_t n = tx_shape_count(&c->in[0].shape);
    TX_TRY(tx_require(c, "F--FF"));
    TX_TRY(tx_require_update(c, false, 1));
    for (int i = 3; i < 5; i++)
        TX_TRY(tx_require_shape(c, i, &TX_SHAPE(n)));
    tx_set_output(c, 3, TX_F32, TX_SHAPE(tx_blocks(n, TX_REDUCE_BLOCK) + 1));
    return tx_set_state_outputs(c, 3);
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

tx_status tx_infer_projection(const tx_infer *c)
{
    if (c->attrs->update.projection_steps < 1 || c->out[0].shape.rank != 2)
        return tx_refuse(c, "the projection is a matrix that serves 1 or more updates");
    return tx_set_output(c, 0, TX_F32, c->out[0].shape);
}

/* Values of s: one a row (or column) of the gradient, or one. */
static tx_shape scales_of(const tx_infer *c, int64_t channels)
{
    return TX_SHAPE(c->attrs->update.by_tensor ? 1 : channels);
}

tx_status tx_infer_apollo_scale(const tx_infer *c)
{
    const tx_shape *x = &c->in[0].shape;
    TX_TRY(tx_require(c, "F2FF"));
    for (int i = 1; i < 3; i++) {
        TX_TRY(tx_require_shape(c, i, &TX_SHAPE(tx_shape_count(x))));
        tx_set_output(c, i - 1, TX_F32, c->in[i].shape);
    }
    tx_set_output(c, 2, TX_F32, scales_of(c, x->dim[0]));
    return tx_set_output(c, 3, TX_F32, TX_SHAPE(2 * x->dim[0]));
}

tx_status tx_infer_apollo(const tx_infer *c)
{
    const tx_shape *p = &c->in[0].shape;
    TX_TRY(tx_require(c, "F2--FF"));
    TX_TRY(tx_require_update(c, false, 1));
    const tx_shape scales = scales_of(c, tx_max(p->dim[0], p->dim[1]));
    TX_TRY(tx_require_shape(c, 3, &scales));
    TX_TRY(tx_require_shape(c, 4, &TX_SHAPE(1)));
    tx_set_output(c, 1, TX_F32, c->in[4].shape);
    tx_set_output(c, 2, TX_F32, TX_SHAPE(p->dim[0] + 1));
    return tx_set_output(c, 0, TX_F32, *p);
}
