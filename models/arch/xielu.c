/* SPDX-License-Identifier: Apache-2.0
 * The activation xIELU (Huang and Schlag, Deriving activation functions using integration, 2024). */
#include "models/arch/llama_family.h"

/* ln(1 + e^x) of a parameter of one element */
static tx_tensor *softplus(const tx_stack *b, tx_tensor *x)
{
    return tx_logarithm(tx_add(tx_fill(b->graph, TX_SHAPE(1), 1.0f), tx_exponential(tx_tp_input(x))));
}

/* p x^2 + beta x above 0, n (e^x - 1 - x) + beta x below it. transformers replaces x by at most eps in e^x, which
 * changes the result by less than |eps|. */
tx_tensor *tx_llama_xielu(const tx_stack *b, tx_tensor *x)
{
    tx_tensor *beta = tx_stack_weight(b, XIELU_BETA);
    tx_tensor *p = softplus(b, tx_stack_weight(b, XIELU_POSITIVE)),
              *n = tx_add(beta, softplus(b, tx_stack_weight(b, XIELU_NEGATIVE)));
    if (!x || !tx_stack_weight(b, XIELU_EPS))
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *above = tx_relu(x), *below = tx_scale(tx_relu(tx_scale(x, -1.0f)), -1.0f);
    /* e^x - 1 = tanh(x / 2) (e^x + 1) is exact near 0, too. */
    tx_tensor *grown =
        tx_mul(tx_tanh(tx_scale(below, 0.5f)), tx_add(tx_exponential(below), tx_fill(b->graph, shape, 1.0f)));
    tx_tensor *left = tx_mul(tx_add(grown, tx_scale(below, -1.0f)), tx_broadcast(n, shape, TX_AXIS_ALL));
    tx_tensor *right = tx_mul(tx_mul(above, above), tx_broadcast(p, shape, TX_AXIS_ALL));
    return tx_add(tx_add(left, right), tx_mul(x, tx_broadcast(beta, shape, TX_AXIS_ALL)));
}
