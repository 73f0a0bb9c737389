/* SPDX-License-Identifier: Apache-2.0
 * Gradient rules of the ops of recurrent layers. */
#include "api/passes/grad.h"

/* The bits of attrs.sums for operands `first` and `first` + 1. */
static uint32_t wanted_sums(const tx_grad *c, int first)
{
    return (c->want[first].need ? 1u : 0u) | (c->want[first + 1].need ? 2u : 0u);
}

void tx_grad_short_conv(const tx_grad *c)
{
    tx_tensor *x = TX_NODE_IN(c, short_conv, x), *dy = tx_grad_as(c->dout[0], x->dtype);
    tx_attrs attrs = c->node->attrs;
    attrs.sums = wanted_sums(c, TX_IN(short_conv, w));
    TX_GRAD_ALL(c, SHORT_CONV_GRAD, attrs, 3, dy, x, TX_NODE_IN(c, short_conv, w), TX_NODE_IN(c, short_conv, bias),
                TX_NODE_IN(c, short_conv, starts));
}

void tx_grad_scan_rates(const tx_grad *c)
{
    tx_attrs attrs = c->node->attrs;
    attrs.sums = wanted_sums(c, TX_IN(scan_rates, a_log));
    TX_GRAD_ALL(c, SCAN_RATES_GRAD, attrs, 3, tx_grad_as(c->dout[0], TX_F32), TX_NODE_IN(c, scan_rates, x),
                TX_NODE_IN(c, scan_rates, a_log), TX_NODE_IN(c, scan_rates, dt_bias));
}

void tx_grad_linear_scan(const tx_grad *c)
{
    tx_tensor *qkv = TX_NODE_IN(c, linear_scan, qkv), *d_o = tx_grad_as(c->dout[0], qkv->dtype);
    tx_attrs attrs = c->node->attrs;
    attrs.sums = TX_WANT(c, linear_scan, skip).need ? 1u : 0u;
    TX_GRAD_ALL(c, LINEAR_SCAN_GRAD, attrs, 3, d_o, qkv, TX_NODE_IN(c, linear_scan, rates),
                TX_NODE_IN(c, linear_scan, skip), TX_NODE_IN(c, linear_scan, starts));
}
