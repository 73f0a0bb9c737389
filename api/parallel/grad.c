/* SPDX-License-Identifier: Apache-2.0
 * Gradient rules of DP_ALL_REDUCE, TP_REDUCE_SCATTER, TP_ALL_GATHER, CP_TO_HEADS and CP_TO_ROWS. */
#include "api/passes/grad.h"
#include "api/parallel/buckets.h"

void tx_grad_dp_all_reduce(const tx_grad *c)
{
    c->din[0] = tx_dp_all_reduce(tx_grad_as(c->dout[0], TX_F32));
}

void tx_grad_tp_reduce_scatter(const tx_grad *c)
{
    c->din[0] = tx_tp_move(c->dout[0], TX_OP_TP_ALL_GATHER);
}

void tx_grad_tp_all_gather(const tx_grad *c)
{
    c->din[0] = tx_tp_move(tx_grad_as(c->dout[0], TX_F32), TX_OP_TP_REDUCE_SCATTER);
}

void tx_grad_cp_to_heads(const tx_grad *c)
{
    c->din[0] = tx_cp_move(c->dout[0], TX_OP_CP_TO_ROWS, &c->node->attrs);
}

void tx_grad_cp_to_rows(const tx_grad *c)
{
    c->din[0] = tx_cp_move(c->dout[0], TX_OP_CP_TO_HEADS, &c->node->attrs);
}
