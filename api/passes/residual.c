/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the residual stream of a forward graph (He et al., Deep residual learning for image recognition, 2015). A sum
 * x + f(x) is residual if f(x) depends on x through a product. The stream also has the ops that only make a term of
 * such a sum: embeddings, dropout, scales, and sums of branches. Architectures mark nothing. Scores that each layer
 * adds to its own are no stream: a layer depends on them only through the sum of an earlier one. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"

typedef struct finding {
    const tx_graph *graph;
    const tx_edit *edit;
    bool *stream;     /* by tensor: it is result 0 of an op of the stream */
    bool *narrow;     /* by tensor: its op can write 16 bits without a cast */
    int32_t *reached; /* by tensor: `stamp` if it depends on x of the current sum, stamp + 1 if through a product */
    int32_t stamp;
} finding;

/* Whether `f`, an operand of node `at`, depends on its operand `x` through a product, and not only through other sums
 * of x. */
static bool passes_product(finding *s, const tx_tensor *x, const tx_tensor *f, int32_t at)
{
    const int32_t stamp = s->stamp += 2;
    s->reached[x->id] = stamp;
    for (int32_t i = x->producer + 1; i < at; i++) {
        const tx_node *n = &s->graph->node[i];
        int32_t most = 0;
        if (n->op == TX_OP_ADD && (n->in[0] == x || n->in[1] == x))
            continue;
        for (int k = 0; k < TX_MAX_IN; k++)
            if (n->in[k] && s->reached[n->in[k]->id] > most)
                most = s->reached[n->in[k]->id];
        if (most >= stamp && tx_op_info_of(n->op)->op_class == TX_CONTRACTION)
            most = stamp + 1;
        for (int k = 0; k < TX_MAX_OUT && most >= stamp; k++)
            if (n->out[k])
                s->reached[n->out[k]->id] = most;
    }
    return s->reached[f->id] == stamp + 1;
}

static bool is_residual_sum(finding *s, int32_t at)
{
    const tx_node *n = &s->graph->node[at];
    const tx_tensor *a = n->in[0], *b = n->in[1];
    return n->op == TX_OP_ADD && n->out[0]->dtype == TX_F32 &&
           (passes_product(s, a, b, at) || passes_product(s, b, a, at));
}

/* Whether the op can write 16 bits without a cast of an operand. */
static bool can_narrow(const finding *s, const tx_node *n)
{
    const tx_cast_rule rule = tx_op_info_of(n->op)->cast;
    if (n->attrs.full)
        return false;
    if (rule == TX_CAST_HALF || rule == TX_CAST_ROUND || n->op == TX_OP_EMBEDDING || n->op == TX_OP_DROPOUT)
        return true;
    bool all = tx_op_is_residual(n->op) || tx_op_renames(n->op);
    for (int k = 0; k < tx_op_info_of(n->op)->inputs_min; k++)
        all = all && s->narrow[n->in[k]->id];
    return all;
}

/* Whether an op of the stream reads result 0 of the node, and all other readers accept 16 bits. */
static bool makes_term(const finding *s, const tx_node *n)
{
    int32_t readers;
    bool term = false;
    const tx_use *use = tx_edit_readers(s->edit, n->out[0], &readers);
    for (int32_t i = 0; i < readers; i++) {
        const tx_node *r = &s->graph->node[use[i].node];
        const tx_cast_rule rule = tx_op_info_of(r->op)->cast;
        const bool in_stream = r->out[0] && s->stream[r->out[0]->id];
        if (!in_stream && (r->attrs.full || rule == TX_CAST_FULL || rule == TX_CAST_STORED))
            return false;
        term = term || in_stream;
    }
    return term;
}

tx_status tx_residual_find(tx_edit *edit, const tx_graph *graph, bool *stream)
{
    const size_t tensors = (size_t)graph->tensors;
    finding s = {graph,
                 edit,
                 stream,
                 tx_edit_alloc(edit, tensors, sizeof *s.narrow),
                 tx_edit_alloc(edit, tensors, sizeof *s.reached),
                 0};
    TX_TRY(tx_edit_check(edit));
    for (int32_t i = 0; i < graph->nodes; i++) {
        const tx_tensor *y = graph->node[i].out[0];
        if (!y)
            continue;
        stream[y->id] = is_residual_sum(&s, i);
        s.narrow[y->id] = stream[y->id] || can_narrow(&s, &graph->node[i]);
    }
    for (int32_t i = graph->nodes - 1; i >= 0; i--) {
        const tx_node *n = &graph->node[i];
        if (n->out[0] && n->out[0]->dtype == TX_F32 && tx_op_is_residual(n->op) && s.narrow[n->out[0]->id])
            stream[n->out[0]->id] = stream[n->out[0]->id] || makes_term(&s, n);
    }
    return TX_OK;
}
