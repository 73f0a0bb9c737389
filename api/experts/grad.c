/* SPDX-License-Identifier: Apache-2.0
 * Gradient rules of the experts' ops. */
#include "api/passes/grad.h"
#include "api/experts/experts.h"

void tx_grad_grouped_matmul(const tx_grad *c)
{
    tx_tensor *x = TX_NODE_IN(c, grouped_matmul, x), *w = TX_NODE_IN(c, grouped_matmul, w),
              *dy = tx_grad_as(c->dout[0], x->dtype);
    tx_tensor *offsets = TX_NODE_IN(c, grouped_matmul, offsets);
    const bool transposed = c->node->attrs.trans_b;
    const tx_wanted *want_x = &TX_WANT(c, grouped_matmul, x);
    if (TX_WANT(c, grouped_matmul, w).need)
        TX_DIN(c, grouped_matmul, w) =
            TX_EMIT(dy, GROUPED_MATMUL_GRAD, TX_PLAIN, transposed ? dy : x, transposed ? x : dy, offsets);
    if (want_x->need)
        TX_DIN(c, grouped_matmul, x) =
            TX_EMIT_AS(dy, GROUPED_MATMUL, TX_ATTRS(.trans_b = !transposed), &want_x->dtype, NULL, dy, w, offsets);
}

void tx_grad_top_k(const tx_grad *c)
{
    tx_tensor *x = TX_NODE_IN(c, top_k, x);
    tx_attrs attrs = c->node->attrs;
    attrs.rows = tx_shape_last(&x->shape);
    TX_DIN(c, top_k, x) = TX_EMIT(c->dout[0], TOP_K_GRAD, attrs, c->dout[0], TX_NODE_OUT(c, top_k, indices),
                                  attrs.choice.normalized ? x : NULL);
}

void tx_grad_combine(const tx_grad *c)
{
    TX_GRAD_ALL(c, COMBINE_GRAD, TX_PLAIN, 2, c->dout[0], TX_NODE_IN(c, combine, x), TX_NODE_IN(c, combine, weights),
                TX_NODE_IN(c, combine, places), TX_NODE_IN(c, combine, tokens));
}

/* The gradient's rows return in the type of x. */
void tx_grad_move_rows(const tx_grad *c)
{
    const tx_op back = c->node->op == TX_OP_EP_DISPATCH ? TX_OP_EP_COLLECT : TX_OP_EP_DISPATCH;
    tx_tensor *x = c->node->in[0], *counts = c->node->in[1];
    c->din[0] = tx_move_rows(back, tx_grad_as(c->dout[0], x->dtype), counts, x->shape.dim[0]);
}
