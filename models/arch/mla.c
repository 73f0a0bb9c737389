/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention (DeepSeek-V2, 2024, section 2.1) for llama_graph.c. Keys and values are computed from a
 * latent, and so may be queries. A part of each head has rotary positions; that part of the keys is the same for all
 * heads. */
#include "models/arch/llama_family.h"

#include <math.h>

bool has_query_latent(const tx_config *config, int64_t layer)
{
    (void)layer;
    return llama_of(config)->latent.query_rank > 0;
}

bool lacks_query_latent(const tx_config *config, int64_t layer)
{
    return !has_query_latent(config, layer);
}

/* The norms of latents have this eps, whatever rms_norm_eps is. */
static tx_tensor *norm(const tx_stack *b, tx_tensor *x, int32_t slot)
{
    return tx_rms_norm(x, tx_tp_param(tx_stack_weight(b, slot)), 1e-6f);
}

/* x [B, T, C] -> [B, T, heads * (plain + rotated)] */
static tx_tensor *queries(const tx_stack *b, tx_tensor *x)
{
    if (tx_stack_has(b, QUERY_DOWN))
        x = norm(b, tx_stack_linear(b, x, QUERY_DOWN, QUERY_DOWN_BIAS), QUERY_NORM);
    return tx_stack_linear(b, x, QUERY_UP, NO_BIAS);
}

static tx_rope rope_of(const tx_stack *b, const llama_config *c)
{
    tx_rope rope = tx_rope_of(&c->positions.rope, c->latent.rotated, tx_stack_length(b));
    rope.rotated = (int32_t)c->latent.rotated;
    return rope;
}

/* Swaps the first two dimensions of x [a, b, c], of any shape of so many elements. */
static tx_tensor *swapped(tx_tensor *x, int64_t a, int64_t b, int64_t c)
{
    return x ? tx_transpose(tx_reshape(x, TX_SHAPE(a, b, c))) : NULL;
}

/* Joins the last dimensions, of `first` and `second` elements. */
static tx_tensor *joined(tx_tensor *x, int64_t first, tx_tensor *y, int64_t second)
{
    return x && y ? tx_add(columns_of(x, 0, first + second), columns_of(y, -first, first + second)) : NULL;
}

/* Rotates the last elements of the heads of q and those that all keys share: [B, T, (heads + 1) * rotated]. */
static tx_tensor *rotate(const tx_stack *b, tx_tensor *q, tx_tensor *shared, int64_t heads)
{
    const llama_config *c = llama_of(b->config);
    const int64_t rotated = c->latent.rotated;
    const tx_shape shape = *tx_tensor_shape(shared), all = TX_SHAPE(shape.dim[0], shape.dim[1], (heads + 1) * rotated);
    tx_rope rope = rope_of(b, c);
    rope.rotated = 0;
    q = columns_of(tx_reshape(q, TX_SHAPE(shape.dim[0], shape.dim[1], heads, head_size(c))), c->latent.plain, rotated);
    q = tx_reshape(q, TX_SHAPE(shape.dim[0], shape.dim[1], heads * rotated));
    tx_tensor *x = joined(q, heads * rotated, shared, rotated);
    if (x && c->latent.pairs)
        x = tx_reshape(tx_transpose(tx_reshape(x, TX_SHAPE(tx_shape_count(&all) / rotated, rotated / 2, 2, 1))), all);
    return tx_rotary(x, (int32_t)heads + 1, (int32_t)rotated, &rope, b->positions,
                     tx_find_input(b->graph, "rope_rates"));
}

/* Generation with a cache of latents, which all heads share, instead of keys and values (section 2.1.2). A head's
 * query is multiplied by the matrix that would have expanded its keys, and the result by that of its values:
 * q^T (K c) = (K^T q)^T c. */
static tx_tensor *attend_latents(tx_stack *b, tx_tensor *q, tx_tensor *latent, tx_tensor *shared, int64_t layer,
                                 tx_attention_options *options)
{
    const llama_config *c = llama_of(b->config);
    const int64_t heads = options->heads, rank = c->latent.rank, size = rank + c->latent.rotated;
    const tx_shape shape = *tx_tensor_shape(latent);
    const int64_t tokens = shape.dim[0] * shape.dim[1], rows = b->options->cache_rows;
    tx_tensor *up = tx_reshape(tx_stack_weight(b, KV_UP), TX_SHAPE(heads, (c->latent.plain + c->latent.value) * rank));
    tx_tensor *to_keys = tx_reshape(columns_of(up, 0, c->latent.plain * rank), TX_SHAPE(heads, c->latent.plain, rank));
    tx_tensor *to_values = columns_of(up, c->latent.plain * rank, c->latent.value * rank);
    to_values = tx_reshape(to_values, TX_SHAPE(heads, c->latent.value, rank));
    tx_tensor *turned = rotate(b, q, shared, heads);
    q = columns_of(tx_reshape(q, TX_SHAPE(tokens, heads, head_size(c))), 0, c->latent.plain);
    q = swapped(tx_matmul(swapped(q, tokens, heads, c->latent.plain), to_keys, false, false), heads, tokens, rank);
    tx_tensor *turned_q = columns_of(turned, 0, heads * c->latent.rotated);
    q = joined(q, rank, tx_reshape(turned_q, TX_SHAPE(tokens, heads, c->latent.rotated)), c->latent.rotated);
    tx_tensor *key =
        joined(latent, rank, columns_of(turned, heads * c->latent.rotated, c->latent.rotated), c->latent.rotated);
    tx_tensor *qkv =
        joined(tx_reshape(q, TX_SHAPE(shape.dim[0], shape.dim[1], heads * size)), heads * size, key, 2 * size);
    qkv = tx_llama_scale_queries(b, qkv, heads, size, tx_stack_length(b));
    options->size = sizeof *options;
    options->kv_heads = 1;
    options->causal = true;
    tx_tensor *cache = tx_stack_cache(b, "h", layer, "latent", rows > 0 ? rows : shape.dim[0], b->options->cache, size);
    tx_tensor *y = tx_attention_cached(qkv, cache, cache, b->positions, tx_find_input(b->graph, "sources"),
                                       tx_find_input(b->graph, "slots"), options);
    y = y ? columns_of(tx_reshape(y, TX_SHAPE(tokens, heads, size)), 0, rank) : NULL;
    y = swapped(tx_matmul(swapped(y, tokens, heads, rank), to_values, false, true), heads, tokens, c->latent.value);
    return y ? tx_reshape(y, TX_SHAPE(shape.dim[0], shape.dim[1], heads * c->latent.value)) : NULL;
}

/* Whether the matrix that expands latents can be divided: it has no adapters, and elements of a floating type. */
static bool can_absorb(const tx_stack *b)
{
    tx_tensor *up = tx_stack_weight(b, KV_UP);
    return b->options->cache > 0 && !b->config->lora && !b->config->bank && up && !tx_dtype_packed(tx_tensor_dtype(up));
}

/* Declares the weights of the index of sparse attention, which saved folders have. It chooses all positions. */
static void declare_index(const tx_stack *b)
{
    for (int32_t slot = INDEX_QUERY; slot <= INDEX_WEIGHTS; slot++)
        if (tx_stack_has(b, slot))
            tx_stack_weight(b, slot);
}

/* Keys and values are expanded. Values are padded to the size of keys, so that all kernels of attention apply: the
 * product with values costs (plain + rotated) / value times as much, a fifth more of the attention in DeepSeek-V3. */
tx_tensor *tx_llama_latent_attention(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    const int32_t heads = tx_stack_heads_per_rank(b, c->base.heads, "num_attention_heads"),
                  size = (int32_t)head_size(c);
    const tx_rope rope = rope_of(b, c);
    tx_attention_options options = {
        .heads = heads, .kv_heads = heads, .scale = (float)(c->latent.sharpness / sqrt((double)size))};
    declare_index(b);
    tx_tensor *q = queries(b, x), *down = tx_stack_linear(b, x, KV_DOWN, KV_DOWN_BIAS);
    tx_tensor *latent = norm(b, columns_of(down, 0, c->latent.rank), KV_NORM),
              *shared = columns_of(down, c->latent.rank, c->latent.rotated);
    if (q && latent && shared && can_absorb(b))
        return attend_latents(b, q, latent, shared, layer, &options);
    tx_tensor *kv = tx_stack_linear(b, latent, KV_UP, NO_BIAS);
    shared = tx_tp_all_gather(shared);
    tx_tensor *qkv = tx_mla_qkv(q, kv, shared, heads, c->latent.pairs);
    qkv = tx_rotary(qkv, 2 * heads, size, &rope, b->positions, tx_find_input(b->graph, "rope_rates"));
    qkv = tx_llama_scale_queries(b, qkv, heads, size, tx_stack_length(b));
    tx_tensor *y = tx_stack_attention(b, qkv, layer, &options, c->attention.dropout);
    if (!y)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(y);
    y = columns_of(tx_reshape(y, TX_SHAPE(shape.dim[0], shape.dim[1], heads, size)), 0, c->latent.value);
    return tx_reshape(y, TX_SHAPE(shape.dim[0], shape.dim[1], heads * c->latent.value));
}
