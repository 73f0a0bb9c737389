/* SPDX-License-Identifier: Apache-2.0
 * The graph of T5. The bias of distances is added to scores that attention without a fused op computes (relative.h). */
#include "models/arch/relative.h"
#include "models/arch/t5.h"

#include <math.h>

static int32_t bucket_of_encoder(const tx_config *config, int64_t distance)
{
    return tx_relative_row(distance, true, tx_t5_of(config)->buckets, tx_t5_of(config)->farthest);
}

static int32_t bucket_of_decoder(const tx_config *config, int64_t distance)
{
    return tx_relative_row(distance, false, tx_t5_of(config)->buckets, tx_t5_of(config)->farthest);
}

static tx_tensor *norm(const tx_stack *b, tx_tensor *x, int32_t slot)
{
    return tx_rms_norm(x, tx_stack_weight(b, slot), (float)tx_t5_of(b->config)->layer_norm_epsilon);
}

static tx_tensor *dropout(tx_stack *b, tx_tensor *x)
{
    return tx_stack_dropout(b, x, tx_t5_of(b->config)->dropout_rate);
}

static bool decodes(const tx_stack *b)
{
    return b->block >= tx_t5_of(b->config)->num_layers;
}

/* The keys, or the values, of a block's caches: "target" [B, cache, width] of the decoder's tokens, "source" [B, S,
 * width] of the encoder's states. */
static tx_tensor *cache(const tx_stack *b, const char *name, const char *part, int64_t length)
{
    const int64_t slots = b->options->cache_rows, rows = slots > 0 ? slots : tx_tensor_shape(b->tokens)->dim[0];
    const int64_t width = b->config->heads * tx_t5_of(b->config)->d_kv;
    return tx_stack_cache(b, name, b->block - tx_t5_of(b->config)->num_layers, part, rows, length, width);
}

/* Attention of queries in slot + 1 for x: over keys and values of x, or of `source` if the slot is the decoder's for
 * the encoder's states. With caches these hold them. */
static tx_tensor *attend(tx_stack *b, tx_tensor *x, int32_t slot, tx_tensor *scores)
{
    const bool crosses = slot == TX_T5_CROSS_NORM, cached = b->options->cache > 0 && decodes(b);
    tx_tensor *h = norm(b, x, slot), *q = tx_stack_linear(b, h, slot + 1, TX_T5_NO_BIAS), *k = NULL, *v = NULL;
    if (!cached || !crosses)
        k = tx_stack_linear(b, crosses ? b->source : h, slot + 2, TX_T5_NO_BIAS);
    if (cached && scores) {
        const char *name = crosses ? "source" : "target";
        tx_tensor *kv = k;
        const int64_t length = tx_shape_last(tx_tensor_shape(scores));
        k = cache(b, name, "key", length);
        v = cache(b, name, "value", length);
        if (kv && tx_cache_append(kv, k, v, b->positions, tx_find_input(b->graph, "sources"), NULL))
            return NULL;
    }
    const tx_relative_options options = {
        .heads = b->config->heads, .scores = scores, .scale = 1.0, .dropout = tx_t5_of(b->config)->dropout_rate};
    h = k ? tx_relative_attention(b, q, k, v, &options) : NULL;
    return tx_add(x, dropout(b, tx_stack_linear(b, h, slot + 3, TX_T5_NO_BIAS)));
}

static tx_tensor *activate(const tx_stack *b, tx_tensor *x)
{
    switch (tx_t5_of(b->config)->dense) {
    case TX_T5_RELU:
        return tx_relu(x);
    case TX_T5_SILU:
        return tx_silu(x);
    case TX_T5_GATED_SILU:
        return tx_swiglu(x);
    case TX_T5_GATED_GELU:
    case TX_T5_GATED_GELU_NEW:
        return tx_geglu(x);
    default:
        return tx_gelu(x, tx_t5_of(b->config)->dense == TX_T5_GELU);
    }
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t block)
{
    (void)block;
    x = attend(b, x, TX_T5_SELF_NORM, b->scores);
    if (decodes(b))
        x = attend(b, x, TX_T5_CROSS_NORM, b->source_scores);
    tx_tensor *h = activate(b, tx_stack_linear(b, norm(b, x, TX_T5_FF_NORM), TX_T5_FF_IN, TX_T5_NO_BIAS));
    return tx_add(x, dropout(b, tx_stack_linear(b, dropout(b, h), TX_T5_FF_OUT, TX_T5_NO_BIAS)));
}

/* The states of the source after the encoder, [B, S, C]. */
static tx_tensor *encode(tx_stack *b, tx_tensor *table, tx_tensor *mask)
{
    tx_tensor *bias = tx_relative_bias(b, tx_stack_weight(b, TX_T5_ENCODER_BIAS), bucket_of_encoder);
    b->scores = tx_relative_scores(b, b->config->heads, tx_tensor_shape(b->tokens)->dim[1], bias, mask);
    tx_tensor *x = dropout(b, tx_stack_embed(b, table, NULL));
    x = tx_stack_range(b, x, 0, tx_t5_of(b->config)->num_layers, transformer_block);
    return dropout(b, norm(b, x, TX_T5_ENCODER_NORM));
}

/* Writes the keys and values of the source, which has one row, to the caches of the input `slots`. */
static tx_tensor *keep(tx_stack *b, tx_tensor *source)
{
    tx_tensor *slots = tx_find_input(b->graph, "slots");
    const int64_t length = tx_tensor_shape(b->tokens)->dim[1], copies = tx_tensor_shape(slots)->dim[0];
    tx_tensor *first = copies > 1 ? tx_range(b->graph, TX_SHAPE(copies), 0, 0) : NULL;
    for (b->block = tx_t5_of(b->config)->num_layers; b->block < b->config->layers; b->block++) {
        tx_tensor *kv = tx_stack_linear(b, source, TX_T5_CROSS_NORM + 2, TX_T5_NO_BIAS);
        const int64_t width = kv ? tx_shape_last(tx_tensor_shape(kv)) : 0;
        if (first)
            kv = tx_reshape(tx_gather(tx_reshape(kv, TX_SHAPE(1, length * width)), first),
                            TX_SHAPE(copies, length, width));
        if (tx_cache_append(kv, cache(b, "source", "key", length), cache(b, "source", "value", length), b->positions,
                            NULL, slots))
            return NULL;
    }
    return source;
}

/* Logits of the decoder's tokens. The scores of attention must be set. */
static tx_tensor *decode(tx_stack *b, tx_tensor *table)
{
    const tx_t5_config *c = tx_t5_of(b->config);
    tx_tensor *x = dropout(b, tx_stack_lookup(b, table, NULL));
    x = tx_stack_range(b, x, c->num_layers, b->config->layers, transformer_block);
    x = dropout(b, norm(b, tx_stack_rows(b, x), TX_T5_DECODER_NORM));
    if (c->scale_decoder_outputs)
        x = tx_scale(x, (float)(1.0 / sqrt((double)b->config->width)));
    return tx_stack_head(b, x, c->untied ? tx_stack_weight(b, TX_T5_LM_HEAD) : table, NULL,
                         c->untied ? TX_T5_LM_HEAD : TX_T5_EMBED);
}

static tx_tensor *whole(tx_stack *b, tx_tensor *table, tx_tensor *target)
{
    const int64_t heads = b->config->heads, t = tx_tensor_shape(target)->dim[1];
    tx_tensor *mask = tx_relative_mask(b);
    b->source = encode(b, table, mask);
    b->tokens = target;
    tx_tensor *bias = tx_relative_bias(b, tx_stack_weight(b, TX_T5_DECODER_BIAS), bucket_of_decoder);
    b->scores = tx_relative_scores(b, heads, t, bias, NULL);
    b->source_scores = tx_relative_scores(b, heads, t, NULL, mask);
    return b->source ? decode(b, table) : NULL;
}

/* The next token of each row, over caches. */
static tx_tensor *step(tx_stack *b, tx_tensor *table, tx_tensor *mask)
{
    tx_tensor *rows = tx_find_input(b->graph, "bias_rows");
    b->scores = tx_relative_query(b, tx_stack_weight(b, TX_T5_DECODER_BIAS), rows);
    b->source_scores = tx_relative_scores(b, b->config->heads, 1, NULL, mask);
    return decode(b, table);
}

tx_tensor *tx_t5_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack b;
    if (tx_stack_open(graph, config, options, tx_t5_rows, &b))
        return NULL;
    tx_tensor *target = tx_find_input(graph, "decoder_input_ids"), *mask = tx_find_input(graph, "source_mask");
    tx_tensor *table = tx_stack_weight(&b, TX_T5_EMBED);
    if (options->cache > 0)
        return mask ? step(&b, table, mask) : keep(&b, encode(&b, table, tx_relative_mask(&b)));
    if (target && tx_tensor_shape(target)->rank == 2)
        return whole(&b, table, target);
    tx_graph_fail(graph, tx_fail(TX_UNSUPPORTED, "%s: an encoder with a decoder needs decoder_input_ids, I32 [B, T]",
                                 config->architecture->class_name));
    return NULL;
}

void tx_t5_bias_rows(const tx_config *config, int64_t position, int64_t count, int32_t *rows)
{
    for (int64_t i = 0; i < count; i++)
        rows[i] = bucket_of_decoder(config, i - position);
}
