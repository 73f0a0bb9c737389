/* SPDX-License-Identifier: Apache-2.0
 * The attention of an architecture's layers: over rows, over sequences that share tokens, or with caches. */
#include "models/arch/stack.h"

#include "api/base/blocks.h"

#include <inttypes.h>
#include <stdio.h>

int64_t tx_stack_length(const tx_stack *stack)
{
    const int64_t row = tx_stack_row_length(stack->graph, stack->tokens);
    return stack->options->cache > row ? stack->options->cache : row;
}

tx_tensor *tx_stack_cache(const tx_stack *stack, const char *name, int64_t block, const char *part, int64_t rows,
                          int64_t length, int64_t width)
{
    char state[TX_ARCH_NAME];
    snprintf(state, sizeof state, "cache.%s.%" PRId64 ".%s", name, block, part);
    const bool blocks = stack->options->cache_q8_0; /* of whole blocks, or attention's rule refuses the heads */
    return tx_state(stack->graph, state, blocks ? TX_U8 : TX_F32,
                    TX_SHAPE(rows, length, blocks ? tx_block_run(TX_Q8_0, width + 31) : width));
}

static tx_tensor *cache(const tx_stack *s, const tx_tensor *qkv, const tx_attention_options *o, int64_t block,
                        const char *part)
{
    const tx_shape *shape = tx_tensor_shape(qkv);
    const int64_t rows = s->options->cache_rows;
    return tx_stack_cache(s, "h", block, part, rows > 0 ? rows : shape->dim[0], s->options->cache,
                          shape->dim[2] / (o->heads + 2 * o->kv_heads) * o->kv_heads);
}

/* Rows of x [B, T, C] by their indices in its B T rows. */
static tx_tensor *take(tx_tensor *x, tx_tensor *indices)
{
    const tx_shape *shape = x ? tx_tensor_shape(x) : NULL;
    return x ? tx_gather(tx_reshape(x, TX_SHAPE(shape->dim[0] * shape->dim[1], shape->dim[2])), indices) : NULL;
}

static tx_tensor *attend(tx_graph *graph, tx_tensor *qkv, const tx_attention_options *options)
{
    tx_tensor *sequences = tx_find_input(graph, "sequences");
    tx_tensor *o = tx_attention(sequences ? take(qkv, sequences) : qkv, tx_find_input(graph, "attention_lengths"),
                                tx_find_input(graph, "attention_starts"), options);
    return sequences ? take(o, tx_find_input(graph, "places")) : o;
}

tx_tensor *tx_stack_attention(tx_stack *stack, tx_tensor *qkv, int64_t block, tx_attention_options *options,
                              double dropout)
{
    if (!qkv)
        return NULL;
    options->size = sizeof *options;
    options->causal = tx_stack_decodes(stack->config) && !stack->both;
    options->dropout = stack->options->train && !stack->options->no_dropout ? (float)dropout : 0.0f;
    options->site = stack->next_site++;
    options->first_head = stack->part * options->heads;
    if (stack->options->cache == 0)
        return attend(stack->graph, qkv, options);
    tx_tensor *k = cache(stack, qkv, options, block, "key"), *v = cache(stack, qkv, options, block, "value");
    return tx_attention_cached(qkv, k, v, stack->positions, tx_find_input(stack->graph, "sources"),
                               tx_find_input(stack->graph, "slots"), options);
}
