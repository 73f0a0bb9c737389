/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings of tokens for each layer (Gemma 3n, 2025), for llama_graph.c: each block adds its own, through a gate that
 * its result computes. */
#include "models/arch/llama_family.h"

#include <math.h>

bool has_layer_inputs(const tx_config *config, int64_t layer)
{
    (void)layer;
    return llama_of(config)->embedding.layer_width > 0;
}

/* The rows of the table that belong to the tokens. Those of tokens after its last row are its first row, and the rows
 * that pad it get no gradient. */
static tx_tensor *rows_of_tokens(const tx_stack *b)
{
    const llama_config *c = llama_of(b->config);
    const int64_t rows = layer_rows(c), padded = tx_arch_padded_vocab(b->config);
    tx_tensor *found = tx_stack_rows_of(b, INPUTS_TABLE, b->tokens);
    if (!found || c->embedding.layerless == 0)
        return found;
    const tx_shape shape = *tx_tensor_shape(found), tokens = TX_SHAPE(shape.dim[0], shape.dim[1]);
    tx_tensor *ones = tx_fill(b->graph, TX_SHAPE(rows, 1), 1.0f);
    tx_tensor *inside = tx_embedding(b->tokens, tx_place_rows(1, &ones, &(int64_t){0}, padded, 0, 1.0f), NULL, NULL);
    tx_tensor *outside =
        tx_add(tx_fill(b->graph, TX_SHAPE(shape.dim[0], shape.dim[1], 1), 1.0f), tx_scale(inside, -1.0f));
    tx_tensor *first = tx_stack_rows_of(b, INPUTS_TABLE, tx_range(b->graph, TX_SHAPE(1, 1), 0, 0));
    first = tx_matmul(outside, tx_reshape(first, TX_SHAPE(1, shape.dim[2])), false, false);
    return tx_add(tx_mul(found, tx_broadcast(tx_reshape(inside, tokens), shape, TX_AXIS_LAST)), first);
}

void tx_llama_layer_inputs(tx_stack *b, tx_tensor *x)
{
    const llama_config *c = llama_of(b->config);
    const int64_t width = c->embedding.layer_width;
    if (!x || !has_layer_inputs(b->config, 0))
        return;
    /* Ranks sum the gradient of the rows, which are fewer than those of the table. */
    tx_tensor *own = tx_scale(tx_tp_own_chunk(tx_tp_param(rows_of_tokens(b))), sqrtf((float)width));
    tx_tensor *seen = tx_scale(tx_stack_linear(b, x, INPUTS_PROJ, NO_BIAS), 1 / sqrtf((float)c->base.width));
    if (!own || !seen)
        return;
    const tx_shape shape = *tx_tensor_shape(seen);
    tx_tensor *parts = tx_reshape(seen, TX_SHAPE(tx_shape_count(&shape) / width, width));
    parts = tx_rms_norm(parts, tx_tp_param(tx_stack_weight(b, INPUTS_NORM)), (float)c->norms.eps);
    b->layer_inputs = tx_scale(tx_add(tx_reshape(parts, shape), own), sqrtf(0.5f));
}

tx_tensor *tx_llama_layer_input(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    const int64_t width = c->embedding.layer_width;
    tx_tensor *gate = tx_gelu(tx_stack_linear(b, x, INPUT_GATE, NO_BIAS), false);
    tx_tensor *input = tx_mul(gate, columns_of(b->layer_inputs, layer * width, width));
    input = tx_stack_linear(b, input, INPUT_PROJ, NO_BIAS);
    return tx_rms_norm(input, tx_tp_param(tx_stack_weight(b, ADDED_NORM)), (float)c->norms.eps);
}

tx_tensor *tx_llama_end_layer(tx_stack *b, tx_tensor *x, int64_t layer)
{
    if (has_layer_inputs(b->config, layer))
        x = tx_add(x, tx_llama_layer_input(b, x, layer));
    if (!x || !tx_stack_has(b, LAYER_SCALE))
        return x;
    return tx_mul(x, tx_broadcast(tx_stack_weight(b, LAYER_SCALE), *tx_tensor_shape(x), TX_AXIS_ALL));
}
