/* SPDX-License-Identifier: Apache-2.0
 *
 * For gradient rules. A rule (tx_grad_<name>, column `gradient` of ops.def) emits the ops that compute the gradients of
 * an op's inputs from those of its outputs. */
#ifndef TX_API_GRAD_H
#define TX_API_GRAD_H

#include "api/passes/passes.h"

typedef struct tx_grad {
    tx_graph *graph;
    const tx_node *node;    /* a copy, because the array of nodes may be reallocated while a rule runs */
    tx_tensor *const *dout; /* gradients of outputs */
    const tx_wanted *want;  /* inputs whose gradient is needed */
    tx_tensor **din;        /* gradients of inputs, set by the rule */
} tx_grad;

#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, rule, in, out) \
    void tx_grad_##rule(const tx_grad *c);
#include "ops.def"

/* The operand of the node, or its gradient, by its name in ops.def. */
#define TX_NODE_IN(c, op, name) ((c)->node->in[TX_IN(op, name)])
#define TX_NODE_OUT(c, op, name) ((c)->node->out[TX_OUT(op, name)])
#define TX_WANT(c, op, name) ((c)->want[TX_IN(op, name)])
#define TX_DIN(c, op, name) ((c)->din[TX_IN(op, name)])
/* Emits an op whose first `count` outputs are the gradients of the inputs with the same index. */
#define TX_GRAD_ALL(c, NAME, attributes, count, ...) \
    tx_grad_all(c, (tx_emit_args){.op = TX_OP_##NAME, .attrs = attributes, .in = {__VA_ARGS__}}, count)
void tx_grad_all(const tx_grad *c, tx_emit_args args, int count);
/* Returns the tensor in this type: itself, or a cast. NULL for NULL. */
tx_tensor *tx_grad_as(tx_tensor *t, tx_dtype dtype);

#endif
