/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of layers that differ (Gemma 4, 2026), for llama_graph.c. Heads of layers without a window have sizes of
 * their own, and their values may be the keys before norm and rotation. Values have a norm without weights. The last
 * layers have only queries: they use keys, values and caches of the last layer of their kind before them. */
#include "models/arch/llama_family.h"

/* RMS norms of heads of `size` elements. */
static tx_tensor *norm(const tx_stack *b, tx_tensor *x, tx_tensor *gamma, int64_t size)
{
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *heads = tx_reshape(x, TX_SHAPE(tx_shape_count(&shape) / size, size));
    return tx_reshape(tx_rms_norm(heads, gamma, (float)llama_of(b->config)->norms.eps), shape);
}

/* gamma [size] for each of `heads` heads: [1, heads * size] */
static tx_tensor *repeated(tx_tensor *gamma, int64_t heads, int64_t size)
{
    return tx_reshape(tx_broadcast(gamma, TX_SHAPE(heads, size), TX_AXIS_ROWS), TX_SHAPE(1, heads * size));
}

/* Norms of the heads of q, k and v. */
static tx_tensor *norm_all(const tx_stack *b, tx_tensor *qkv, int64_t heads, int64_t of_kv, int64_t size)
{
    if (!qkv)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(qkv);
    tx_tensor *const gamma[] = {repeated(tx_tp_input(tx_stack_weight(b, Q_NORM)), heads, size),
                                repeated(tx_tp_input(tx_stack_weight(b, K_NORM)), of_kv, size),
                                tx_fill(b->graph, TX_SHAPE(1, of_kv * size), 1.0f)};
    tx_tensor *all = tx_reshape(tx_llama_join(gamma, 3), TX_SHAPE(shape.dim[2]));
    tx_tensor *y = norm(b, qkv, tx_fill(b->graph, TX_SHAPE(size), 1.0f), size);
    return tx_mul(y, tx_broadcast(all, shape, TX_AXIS_ROWS));
}

/* Swaps halves and parts of heads: from [first, second, ..] to [second, first, ..]. */
static tx_tensor *regroup(tx_tensor *x, int64_t first, int64_t second, int64_t size)
{
    if (!x || first == 1 || second == 1)
        return x;
    const tx_shape shape = *tx_tensor_shape(x),
                   parts = TX_SHAPE(tx_shape_count(&shape) / size, first, second, size / (first * second));
    return tx_reshape(tx_transpose(tx_reshape(x, parts)), shape);
}

/* Whether later layers use the keys and values of this one. */
static bool lends(const tx_config *config, int64_t layer)
{
    const llama_config *c = llama_of(config);
    for (int64_t i = layer + 1; i < c->attention.lending; i++)
        if (slides(c, i) == slides(c, layer))
            return false;
    return c->attention.borrowing > 0;
}

/* The rotary positions of a layer. */
typedef struct turn {
    tx_rope rope;
    int64_t parts; /* of half a head (tx_rope_parts) */
} turn;

static turn turn_of(const tx_stack *b, int64_t layer, int64_t size)
{
    const llama_config *c = llama_of(b->config);
    const tx_rope_config *rope = slides(c, layer) ? &c->positions.local : &c->positions.rope;
    return (turn){tx_rope_of(rope, size, 0), tx_rope_parts(rope, size)}; /* no type that depends on the length */
}

/* x [B, T, C] -> q | k | v with norms and positions */
static tx_tensor *own(tx_stack *b, tx_tensor *x, int64_t layer, const tx_attention_options *o, int64_t size)
{
    const int64_t q = o->heads * size, kv = o->kv_heads * size;
    const turn turned = turn_of(b, layer, size);
    tx_tensor *qkv = tx_stack_linear(b, x, QKV_PROJ, QKV_BIAS);
    if (has_only_keys(b->config, layer))
        qkv = tx_llama_join((tx_tensor *const[]){qkv, columns_of(qkv, q, kv)}, 2);
    qkv = regroup(norm_all(b, qkv, o->heads, o->kv_heads, size), 2, turned.parts, size);
    qkv = tx_rotary(qkv, o->heads + o->kv_heads, (int32_t)size, &turned.rope, b->positions, NULL);
    const bool window = slides(llama_of(b->config), layer);
    if (lends(b->config, layer)) {
        b->shared[window].block = layer;
        b->shared[window].kv = b->options->cache ? NULL : columns_of(qkv, q, 2 * kv);
    }
    return qkv;
}

/* The same with the keys and values of another layer. With a cache they are there, and not read here. */
static tx_tensor *borrowed(tx_stack *b, tx_tensor *x, int64_t layer, const tx_attention_options *o, int64_t size)
{
    const turn turned = turn_of(b, layer, size);
    tx_tensor *gamma = tx_tp_input(tx_stack_weight(b, Q_NORM));
    tx_tensor *q = norm(b, tx_stack_linear(b, x, QKV_PROJ, QKV_BIAS), gamma, size);
    q = tx_rotary(regroup(q, 2, turned.parts, size), o->heads, (int32_t)size, &turned.rope, b->positions, NULL);
    if (b->options->cache)
        return columns_of(q, 0, (o->heads + 2 * o->kv_heads) * size);
    return tx_llama_join((tx_tensor *const[]){q, b->shared[slides(llama_of(b->config), layer)].kv}, 2);
}

tx_tensor *tx_llama_layer_attention(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    const int64_t size = head_size_of(c, layer);
    const char *const of_keys = slides(c, layer) ? "num_key_value_heads" : "num_global_key_value_heads";
    const bool keys = has_keys(b->config, layer);
    tx_attention_options options = {.heads = tx_stack_heads_per_rank(b, c->base.heads, "num_attention_heads"),
                                    .kv_heads = tx_stack_kv_heads_per_rank(b, kv_heads_of(c, layer), of_keys),
                                    .scale = (float)c->attention.multiplier,
                                    .window = (int32_t)window_of(c, layer),
                                    .kept = !keys};
    tx_tensor *qkv = keys ? own(b, x, layer, &options, size) : borrowed(b, x, layer, &options, size);
    const int64_t block = keys ? layer : b->shared[slides(c, layer)].block;
    tx_tensor *y = tx_stack_attention(b, qkv, block, &options, c->attention.dropout);
    return regroup(y, turn_of(b, layer, size).parts, 2, size);
}
