/* SPDX-License-Identifier: Apache-2.0
 * Builders for embeddings, positions of tokens and losses of logits. */
#include "api/graph/graph.h"

#include "api/base/needs.h"
#include "api/model/model.h"
#include "backends/rope.h"

/* Returns the hooks of a tensor's model; NULL if one device has the model. */
static const tx_parallel_hooks *hooks_of(const tx_tensor *x)
{
    return x->graph->model->hooks;
}

/* Whether ranks divide the rows of a table or the columns of logits. */
static bool is_divided(const tx_tensor *x)
{
    return x && hooks_of(x) && hooks_of(x)->divides(x);
}

/* Returns the default positions of the tokens of x [B, T, ..], or NULL if they start at 0. */
static tx_tensor *positions_of(const tx_tensor *x)
{
    return hooks_of(x) ? hooks_of(x)->places(x) : NULL;
}

tx_tensor *tx_rotary(tx_tensor *x, int32_t heads, int32_t head_size, const tx_rope *rope, tx_tensor *positions,
                     tx_tensor *rates)
{
    TX_NEEDS(x && rope, NULL);
    const tx_attrs attrs =
        TX_ATTRS(.attention.heads = heads, .attention.head_size = head_size, .rope = tx_graph_rope(x->graph, rope));
    return TX_EMIT(x, ROTARY, attrs, x, positions ? positions : positions_of(x), rates);
}

void tx_rotary_rates(const tx_rope *rope, int32_t head_size, float *rates)
{
    TX_NEEDS(rope && rates, );
    const tx_attrs attrs = {.attention.head_size = head_size, .rope = rope};
    for (int32_t i = 0; i < tx_rope_rotated(&attrs) / 2; i++)
        rates[i] = tx_rope_frequency(&attrs, i);
}

tx_tensor *tx_embedding_padded(tx_tensor *tokens, tx_tensor *token_table, int64_t padding, tx_tensor *position_table,
                               tx_tensor *positions)
{
    if (!tokens || !token_table)
        return NULL;
    if (is_divided(token_table))
        return hooks_of(tokens)->embed(tokens, token_table, padding, position_table, positions);
    if (position_table && !positions)
        positions = positions_of(tokens);
    return TX_EMIT(tokens, EMBEDDING, TX_ATTRS(.padding = padding < 0 ? 0 : padding + 1), tokens, token_table,
                   position_table, positions);
}

tx_tensor *tx_embedding(tx_tensor *tokens, tx_tensor *token_table, tx_tensor *position_table, tx_tensor *positions)
{
    return tx_embedding_padded(tokens, token_table, -1, position_table, positions);
}

tx_tensor *tx_output(tx_tensor *tensor)
{
    if (!tensor || tensor->graph->planned)
        return tensor;
    if (is_divided(tensor))
        return tx_graph_refuse(tensor->graph,
                               tx_fail(TX_UNSUPPORTED, "logits cannot be an output if ranks divide the vocabulary"));
    tx_tensor_root(tensor)->is_output = true;
    return tensor;
}

tx_tensor *tx_cross_entropy_smoothed(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing)
{
    const tx_attrs attrs = TX_ATTRS(.vocab = vocab, .smoothing = smoothing);
    if (logits && !(smoothing >= 0.0f && smoothing < 1.0f))
        return tx_graph_refuse(
            logits->graph,
            tx_fail(TX_INVALID, "cross_entropy: smoothing %g must be at least 0 and below 1", (double)smoothing));
    if (labels && is_divided(logits))
        return hooks_of(logits)->loss(logits, labels, vocab, smoothing);
    return TX_EMIT(logits, CROSS_ENTROPY, attrs, logits, labels);
}

tx_tensor *tx_cross_entropy(tx_tensor *logits, tx_tensor *labels, int64_t vocab)
{
    return tx_cross_entropy_smoothed(logits, labels, vocab, 0.0f);
}

/* Emits TOKEN_STATISTICS for the logits of these losses. */
static tx_status measure_tokens(tx_tensor *losses, tx_tensor *labels, tx_emit_args *args)
{
    const tx_node *n = losses->producer >= 0 ? &losses->graph->node[losses->producer] : NULL;
    if (!n || n->op != TX_OP_CROSS_ENTROPY)
        return tx_graph_fail(losses->graph,
                             tx_fail(TX_INVALID, "token_statistics: the losses are not those of cross_entropy"));
    *args = (tx_emit_args){.op = TX_OP_TOKEN_STATISTICS,
                           .attrs = TX_ATTRS(.vocab = n->attrs.vocab),
                           .in = {n->in[0], labels, n->out[TX_OUT(cross_entropy, lse)]}};
    tx_emit(losses->graph, args);
    return losses->graph->status;
}

tx_status tx_token_statistics(tx_tensor *losses, tx_tensor *labels, tx_tensor *statistics[TX_TOKEN_STATISTICS])
{
    TX_NEEDS(losses, TX_INVALID);
    tx_emit_args args;
    TX_TRY(measure_tokens(losses, labels, &args));
    for (int i = 0; i < TX_TOKEN_STATISTICS; i++)
        statistics[i] = tx_detach(args.out[i]);
    return losses->graph->status;
}

tx_tensor *tx_token_entropy(tx_tensor *losses, tx_tensor *labels)
{
    TX_NEEDS(losses, NULL);
    tx_emit_args args;
    return measure_tokens(losses, labels, &args) ? NULL : args.out[TX_OUT(token_statistics, entropy)];
}

tx_tensor *tx_distillation(tx_tensor *logits, tx_tensor *teacher, tx_tensor *labels, int64_t vocab, float temperature,
                           float alpha)
{
    const tx_attrs attrs = {.control = -1, .alpha = alpha, .vocab = vocab, .scale = temperature};
    if (is_divided(logits))
        logits = hooks_of(logits)->gather(logits);
    if (is_divided(teacher))
        teacher = hooks_of(teacher)->gather(teacher);
    return TX_EMIT(logits, DISTILLATION, attrs, logits, teacher, labels);
}
