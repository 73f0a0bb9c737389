/* SPDX-License-Identifier: Apache-2.0
 * GPT-2's parameters and its graph. */
#include "models/gpt2.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Parameters -------------------------------------------------------------------------------------- */

/* Sizes that a dimension can have; NONE ends the shape. */
typedef enum tx_extent { NONE, VOCAB, POSITIONS, EMBD, QKV, INNER } tx_extent;

typedef enum tx_draw { ZERO, ONE, NORMAL, RESIDUAL } tx_draw;

typedef struct tx_param_row {
    const char *name; /* behind "transformer." and, in a block, "h.<layer>." */
    tx_extent extent[2];
    tx_draw draw;
} tx_param_row;

static const tx_param_row before[] = {
    {"wte.weight", {VOCAB, EMBD}, NORMAL},
    {"wpe.weight", {POSITIONS, EMBD}, NORMAL},
};

static const tx_param_row block[] = {
    {"ln_1.weight", {EMBD}, ONE},
    {"ln_1.bias", {EMBD}, ZERO},
    {"attn.c_attn.weight", {EMBD, QKV}, NORMAL},
    {"attn.c_attn.bias", {QKV}, ZERO},
    {"attn.c_proj.weight", {EMBD, EMBD}, RESIDUAL},
    {"attn.c_proj.bias", {EMBD}, ZERO},
    {"ln_2.weight", {EMBD}, ONE},
    {"ln_2.bias", {EMBD}, ZERO},
    {"mlp.c_fc.weight", {EMBD, INNER}, NORMAL},
    {"mlp.c_fc.bias", {INNER}, ZERO},
    {"mlp.c_proj.weight", {INNER, EMBD}, RESIDUAL},
    {"mlp.c_proj.bias", {EMBD}, ZERO},
};

static const tx_param_row after[] = {
    {"ln_f.weight", {EMBD}, ONE},
    {"ln_f.bias", {EMBD}, ZERO},
};

enum {
    BEFORE = sizeof before / sizeof before[0],
    BLOCK = sizeof block / sizeof block[0],
    AFTER = sizeof after / sizeof after[0]
};

static int64_t extent_of(const tx_gpt2_config *c, tx_extent extent)
{
    switch (extent) {
    case VOCAB:
        return c->vocab_size;
    case POSITIONS:
        return c->n_positions;
    case EMBD:
        return c->n_embd;
    case QKV:
        return 3 * c->n_embd;
    case INNER:
        return c->n_inner ? c->n_inner : 4 * c->n_embd;
    case NONE:
        break;
    }
    return 0;
}

int64_t tx_gpt2_padded_vocab(const tx_gpt2_config *config)
{
    return (config->vocab_size + TX_GPT2_VOCAB_MULTIPLE - 1) / TX_GPT2_VOCAB_MULTIPLE * TX_GPT2_VOCAB_MULTIPLE;
}

int32_t tx_gpt2_params(const tx_gpt2_config *config)
{
    return BEFORE + BLOCK * (int32_t)config->n_layer + AFTER;
}

static tx_param_spec spec_of(const tx_gpt2_config *c, const tx_param_row *row)
{
    tx_param_spec spec = {0};
    for (int32_t i = 0; i < 2 && row->extent[i] != NONE; i++) {
        spec.shape.dim[spec.shape.rank++] = extent_of(c, row->extent[i]);
        if (row->extent[i] == QKV)
            spec.sections = (tx_param_sections){3, i, {c->n_embd, c->n_embd, c->n_embd}};
    }
    if (row->extent[0] == VOCAB) {
        spec.logical = spec.shape;
        spec.shape.dim[0] = tx_gpt2_padded_vocab(c);
    }
    spec.decay = spec.shape.rank > 1;
    spec.init = row->draw == ZERO ? TX_INIT_ZERO : row->draw == ONE ? TX_INIT_ONE : TX_INIT_NORMAL;
    if (row->draw == NORMAL || row->draw == RESIDUAL)
        spec.scale = (float)c->initializer_range;
    /* Each of the 2 n_layer additions to the residual stream (Radford et al., 2019, section 2.3). */
    if (row->draw == RESIDUAL)
        spec.scale = (float)(c->initializer_range / sqrt(2.0 * (double)c->n_layer));
    return spec;
}

tx_status tx_gpt2_param(const tx_gpt2_config *config, int32_t index, char name[TX_GPT2_NAME], tx_param_spec *spec)
{
    int32_t count = tx_gpt2_params(config), in_blocks = index - BEFORE;
    if (index < 0 || index >= count)
        return tx_fail(TX_INVALID, "parameter %d of %d asked for", index, count);
    const tx_param_row *row = &before[index < BEFORE ? index : 0];
    if (index >= count - AFTER)
        row = &after[index - (count - AFTER)];
    else if (index >= BEFORE)
        row = &block[in_blocks % BLOCK];
    if (index >= BEFORE && index < count - AFTER)
        snprintf(name, TX_GPT2_NAME, "transformer.h.%d.%s", in_blocks / BLOCK, row->name);
    else
        snprintf(name, TX_GPT2_NAME, "transformer.%s", row->name);
    *spec = spec_of(config, row);
    return TX_OK;
}

int64_t tx_gpt2_param_count(const tx_gpt2_config *config)
{
    int64_t total = 0;
    char name[TX_GPT2_NAME];
    tx_param_spec spec;
    for (int32_t i = 0; i < tx_gpt2_params(config) && !tx_gpt2_param(config, i, name, &spec); i++)
        total += tx_shape_count(spec.logical.rank ? &spec.logical : &spec.shape);
    return total;
}

/* ---- Graph ----------------------------------------------------------------------------------------- */

/* What the builders below share. Parameters are taken in the order of tx_gpt2_param, so that the arena is in layer
 * order. */
typedef struct tx_gpt2_builder {
    tx_graph *graph;
    const tx_gpt2_config *config;
    const tx_gpt2_options *options;
    int32_t next_param;
    int32_t next_site; /* of dropout */
    int64_t batch;
} tx_gpt2_builder;

static tx_tensor *take_param(tx_gpt2_builder *b)
{
    char name[TX_GPT2_NAME];
    tx_param_spec spec;
    if (tx_gpt2_param(b->config, b->next_param++, name, &spec))
        return NULL;
    return tx_param(b->graph, name, &spec);
}

static tx_tensor *layer_norm(tx_gpt2_builder *b, tx_tensor *x)
{
    tx_tensor *gamma = take_param(b), *beta = take_param(b);
    return tx_layer_norm(x, gamma, beta, (float)b->config->layer_norm_epsilon);
}

static tx_tensor *linear(tx_gpt2_builder *b, tx_tensor *x)
{
    tx_tensor *weight = take_param(b), *bias = take_param(b);
    return tx_linear(x, weight, bias, false);
}

/* A site has its number whether it drops or not: the draws of the others do not depend on it. */
static tx_tensor *dropout(tx_gpt2_builder *b, tx_tensor *x, double p)
{
    int32_t site = b->next_site++;
    return b->options->train && p > 0 ? tx_dropout(x, (float)p, site) : x;
}

static tx_tensor *activation(const tx_gpt2_builder *b, tx_tensor *x)
{
    switch (b->config->activation_function) {
    case TX_GPT2_GELU_NEW:
    case TX_GPT2_GELU_PYTORCH_TANH:
    case TX_GPT2_GELU_PYTHON_TANH:
    case TX_GPT2_GELU_FAST:
    case TX_GPT2_GELU_ACCURATE:
        return tx_gelu(x, false);
    case TX_GPT2_GELU:
    case TX_GPT2_GELU_PYTHON:
        return tx_gelu(x, true);
    case TX_GPT2_SILU:
    case TX_GPT2_SWISH:
        return tx_silu(x);
    case TX_GPT2_ACTIVATION_COUNT:
        break;
    }
    return NULL;
}

static tx_tensor *cache(const tx_gpt2_builder *b, int64_t layer, const char *part)
{
    char name[TX_GPT2_NAME];
    snprintf(name, sizeof name, "cache.h.%" PRId64 ".%s", layer, part);
    return tx_state(b->graph, name, TX_F32, TX_SHAPE(b->batch, b->options->cache, b->config->n_embd));
}

static tx_tensor *attention(tx_gpt2_builder *b, tx_tensor *qkv, int64_t layer)
{
    const tx_gpt2_config *c = b->config;
    double scale = c->scale_attn_weights ? 1.0 / sqrt((double)(c->n_embd / c->n_head)) : 1.0;
    if (c->scale_attn_by_inverse_layer_idx)
        scale /= (double)(layer + 1);
    tx_attention_options options = {
        .size = sizeof options,
        .heads = (int32_t)c->n_head,
        .kv_heads = (int32_t)c->n_head,
        .causal = true,
        .scale = (float)scale,
        .dropout = b->options->train ? (float)c->attn_pdrop : 0.0f,
        .site = b->next_site++,
    };
    if (b->options->cache > 0) {
        tx_tensor *keys = cache(b, layer, "key"), *values = cache(b, layer, "value");
        return tx_attention_cached(qkv, keys, values, b->options->positions, b->options->sources, &options);
    }
    return tx_attention(qkv, b->options->lengths, &options);
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *transformer_block(tx_gpt2_builder *b, tx_tensor *x, int64_t layer)
{
    tx_tensor *h = linear(b, layer_norm(b, x)); /* q | k | v */
    h = linear(b, attention(b, h, layer));
    x = tx_add(x, dropout(b, h, b->config->resid_pdrop));
    h = activation(b, linear(b, layer_norm(b, x)));
    h = linear(b, h);
    return tx_add(x, dropout(b, h, b->config->resid_pdrop));
}

static tx_status check_call(const tx_gpt2_config *c, const tx_tensor *tokens, const tx_gpt2_options *o)
{
    const tx_shape *shape = tx_tensor_shape(tokens);
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "options.size is %zu, expected %zu", o->size, sizeof *o);
    if (shape->rank != 2 || tx_tensor_dtype(tokens) != TX_I32)
        return tx_fail(TX_INVALID, "tokens must be I32 [B, T]");
    int64_t tokens_in_row = shape->dim[1], positions = o->cache > tokens_in_row ? o->cache : tokens_in_row;
    if (positions > c->n_positions)
        return tx_fail(TX_INVALID, "%" PRId64 " positions asked for, the model has n_positions = %" PRId64, positions,
                       c->n_positions);
    if (o->cache > 0 && (o->train || o->lengths || tokens_in_row > o->cache))
        return tx_fail(TX_INVALID,
                       "with a cache of %" PRId64 " positions: no training, no lengths, at most that many tokens a row",
                       o->cache);
    if ((o->cache > 0) != (o->positions != NULL) || (o->sources && !o->cache))
        return tx_fail(TX_INVALID, "positions go with a cache, and sources with both");
    return tx_gpt2_config_check(c);
}

tx_tensor *tx_gpt2_logits(tx_graph *graph, const tx_gpt2_config *config, tx_tensor *tokens,
                          const tx_gpt2_options *options)
{
    static const tx_gpt2_options evaluation = {.size = sizeof evaluation};
    const tx_gpt2_options *o = options ? options : &evaluation;
    if (!tokens)
        return NULL;
    tx_status status = check_call(config, tokens, o);
    if (status) {
        tx_graph_fail(graph, tx_fail_in(status, "gpt2"));
        return NULL;
    }
    tx_gpt2_builder b = {.graph = graph, .config = config, .options = o, .batch = tx_tensor_shape(tokens)->dim[0]};
    tx_tensor *wte = take_param(&b), *wpe = take_param(&b);
    tx_tensor *x = dropout(&b, tx_embedding(tokens, wte, wpe, o->positions), config->embd_pdrop);
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        x = transformer_block(&b, x, layer);
    if (o->rows && x) /* the norm works row by row: the others need not be normalised */
        x = tx_gather(tx_reshape(x, TX_SHAPE(tx_shape_rows(tx_tensor_shape(x)), config->n_embd)), o->rows);
    return tx_linear(layer_norm(&b, x), wte, NULL, true);
}

tx_tensor *tx_gpt2_loss(tx_tensor *logits, const tx_gpt2_config *config, tx_tensor *labels)
{
    return tx_mean_loss(tx_cross_entropy(logits, labels, config->vocab_size));
}
