/* SPDX-License-Identifier: Apache-2.0
 * Calls the gradient rule of a node's op. */
#include "api/passes/grad.h"

static void (*const rules[TX_OP_COUNT])(const tx_grad *) = {
#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, rule, in, out) \
    [TX_OP_##NAME] = tx_grad_##rule,
#include "ops.def"
};

tx_status tx_op_grad(tx_graph *graph, const tx_node *node, tx_tensor *const dout[TX_MAX_OUT],
                     const tx_wanted want[TX_MAX_IN], tx_tensor *din[TX_MAX_IN])
{
    tx_node copy = *node;
    rules[copy.op](&(tx_grad){graph, &copy, dout, want, din});
    return graph->status;
}
