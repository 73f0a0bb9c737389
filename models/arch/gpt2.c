/* SPDX-License-Identifier: Apache-2.0
 * GPT-2: the keys of its configuration, its parameters, its graph, its weights in files. */
#include "models/arch/gpt2.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "transformer."
#define HEAD "lm_head.weight"
#define EMBEDDING "wte.weight"
/* Elements that are compared at a time. */
#define CHUNK 4096

/* ---- Configuration ----------------------------------------------------------------------------------- */

#define KEY(name) #name, offsetof(tx_gpt2_config, name)
#define BASE(name, field) #name, offsetof(tx_gpt2_config, base.field)

static const char *const activations[TX_GPT2_ACTIVATION_COUNT] = {
#define X(name, text) [TX_GPT2_##name] = text,
    TX_GPT2_ACTIVATION_MAP(X)
#undef X
};

/* The bounds keep all products of sizes within int64. */
static const tx_config_key keys[] = {
    {BASE(vocab_size, vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 30},
    {BASE(n_positions, positions), TX_KEY_INT, .min = 1, .max = 1 << 24, .second = "max_position_embeddings"},
    {BASE(n_embd, width), TX_KEY_INT, .min = 1, .max = 1 << 20, .second = "hidden_size"},
    {BASE(n_layer, layers), TX_KEY_INT, .min = 1, .max = 1 << 12, .second = "num_hidden_layers"},
    {BASE(n_head, heads), TX_KEY_INT, .min = 1, .max = 1 << 20, .second = "num_attention_heads"},
    {KEY(n_inner), TX_KEY_INT_OR_NULL, .min = 1, .max = 1 << 22},
    {BASE(bos_token_id, bos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {BASE(eos_token_id, eos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {KEY(activation_function), TX_KEY_CHOICE, .max = TX_GPT2_ACTIVATION_COUNT - 1, .words = activations},
    {KEY(layer_norm_epsilon), TX_KEY_NUMBER, .min = 1e-12, .max = 1},
    {KEY(initializer_range), TX_KEY_NUMBER, .max = 10},
    {KEY(resid_pdrop), TX_KEY_NUMBER, .max = 0.999},
    {KEY(embd_pdrop), TX_KEY_NUMBER, .max = 0.999},
    {KEY(attn_pdrop), TX_KEY_NUMBER, .max = 0.999},
    {KEY(scale_attn_weights), TX_KEY_BOOL, .min = 0},
    {KEY(scale_attn_by_inverse_layer_idx), TX_KEY_BOOL, .min = 0},
    {KEY(reorder_and_upcast_attn), TX_KEY_BOOL, .min = 0},
    {.name = NULL},
};

static const tx_fixed_key fixed_keys[] = {
    {"add_cross_attention", false, "cross-attention is not implemented"},
    {"tie_word_embeddings", true, "an output head of its own is not implemented"},
    {.name = NULL},
};

static const tx_preset presets[] = {
    {"gpt2", ""},
    {"gpt2-medium", "n_embd=1024,n_layer=24,n_head=16"},
    {"gpt2-large", "n_embd=1280,n_layer=36,n_head=20"},
    {"gpt2-xl", "n_embd=1600,n_layer=48,n_head=25"},
    {.name = NULL},
};

/* transformers' defaults, which are those of the smallest published model. */
static const tx_gpt2_config defaults = {
    .base = {.architecture = &tx_gpt2,
             .vocab_size = 50257,
             .positions = 1024,
             .width = 768,
             .layers = 12,
             .heads = 12,
             .bos_token_id = 50256,
             .eos_token_id = 50256},
    .activation_function = TX_GPT2_GELU_NEW,
    .layer_norm_epsilon = 1e-5,
    .initializer_range = 0.02,
    .resid_pdrop = 0.1,
    .embd_pdrop = 0.1,
    .attn_pdrop = 0.1,
    .scale_attn_weights = true,
};

static tx_status check(const tx_config *c)
{
    if (c->width % c->heads != 0)
        return tx_fail(TX_INVALID, "n_embd: %" PRId64 " is not a multiple of n_head, %" PRId64, c->width, c->heads);
    return TX_OK;
}

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
        return c->base.vocab_size;
    case POSITIONS:
        return c->base.positions;
    case EMBD:
        return c->base.width;
    case QKV:
        return 3 * c->base.width;
    case INNER:
        return c->n_inner ? c->n_inner : 4 * c->base.width;
    case NONE:
        break;
    }
    return 0;
}

static int32_t params(const tx_config *config)
{
    return BEFORE + BLOCK * (int32_t)config->layers + AFTER;
}

static tx_param_spec spec_of(const tx_gpt2_config *c, const tx_param_row *row)
{
    tx_param_spec spec = {0};
    for (int32_t i = 0; i < 2 && row->extent[i] != NONE; i++) {
        spec.shape.dim[spec.shape.rank++] = extent_of(c, row->extent[i]);
        if (row->extent[i] == QKV)
            spec.sections = (tx_param_sections){3, i, {c->base.width, c->base.width, c->base.width}};
    }
    if (row->extent[0] == VOCAB) {
        spec.logical = spec.shape;
        spec.shape.dim[0] = tx_arch_padded_vocab(&c->base);
    }
    spec.decay = spec.shape.rank > 1;
    spec.init = row->draw == ZERO ? TX_INIT_ZERO : row->draw == ONE ? TX_INIT_ONE : TX_INIT_NORMAL;
    if (row->draw == NORMAL || row->draw == RESIDUAL)
        spec.scale = (float)c->initializer_range;
    /* Each of the 2 n_layer additions to the residual stream (Radford et al., 2019, section 2.3). */
    if (row->draw == RESIDUAL)
        spec.scale = (float)(c->initializer_range / sqrt(2.0 * (double)c->base.layers));
    return spec;
}

static tx_status param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    const int32_t count = params(config), in_blocks = index - BEFORE;
    const tx_param_row *row = &before[index < BEFORE ? index : 0];
    if (index >= count - AFTER)
        row = &after[index - (count - AFTER)];
    else if (index >= BEFORE)
        row = &block[in_blocks % BLOCK];
    if (index >= BEFORE && index < count - AFTER)
        snprintf(name, TX_ARCH_NAME, PREFIX "h.%d.%s", in_blocks / BLOCK, row->name);
    else
        snprintf(name, TX_ARCH_NAME, PREFIX "%s", row->name);
    *spec = spec_of(tx_gpt2_of(config), row);
    return TX_OK;
}

/* ---- Graph ----------------------------------------------------------------------------------------- */

/* What the builders below share. Parameters are taken in the order of tx_arch_param, so that the arena is in layer
 * order. */
typedef struct tx_gpt2_builder {
    tx_graph *graph;
    const tx_gpt2_config *config;
    const tx_arch_options *options;
    int32_t next_param;
    int32_t next_site; /* of dropout */
    int64_t batch;
    tx_tensor *positions;
} tx_gpt2_builder;

static tx_tensor *take_param(tx_gpt2_builder *b)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    return tx_arch_param(&b->config->base, b->next_param++, name, &spec) ? NULL : tx_param(b->graph, name, &spec);
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
    default:
        return NULL;
    }
}

static tx_tensor *cache(const tx_gpt2_builder *b, int64_t layer, const char *part)
{
    char name[TX_ARCH_NAME];
    snprintf(name, sizeof name, "cache.h.%" PRId64 ".%s", layer, part);
    return tx_state(b->graph, name, TX_F32, TX_SHAPE(b->batch, b->options->cache, b->config->base.width));
}

static tx_tensor *attention(tx_gpt2_builder *b, tx_tensor *qkv, int64_t layer)
{
    const tx_gpt2_config *c = b->config;
    double scale = c->scale_attn_weights ? 1.0 / sqrt((double)(c->base.width / c->base.heads)) : 1.0;
    if (c->scale_attn_by_inverse_layer_idx)
        scale /= (double)(layer + 1);
    tx_attention_options options = {
        .size = sizeof options,
        .heads = (int32_t)c->base.heads,
        .kv_heads = (int32_t)c->base.heads,
        .causal = true,
        .scale = (float)scale,
        .dropout = b->options->train ? (float)c->attn_pdrop : 0.0f,
        .site = b->next_site++,
    };
    if (b->options->cache > 0) {
        tx_tensor *k = cache(b, layer, "key"), *v = cache(b, layer, "value");
        return tx_attention_cached(qkv, k, v, b->positions, tx_find_input(b->graph, "sources"), &options);
    }
    return tx_attention(qkv, tx_find_input(b->graph, "attention_lengths"), &options);
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

static tx_status check_call(const tx_graph *graph, const tx_gpt2_config *c, const tx_arch_options *o)
{
    const tx_tensor *tokens = tx_find_input(graph, "input_ids");
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "options.size is %zu, expected %zu", o->size, sizeof *o);
    if (!tokens || tx_tensor_shape(tokens)->rank != 2 || tx_tensor_dtype(tokens) != TX_I32)
        return tx_fail(TX_INVALID, "the graph must have an input input_ids, I32 [B, T]");
    int64_t tokens_in_row = tx_tensor_shape(tokens)->dim[1];
    int64_t positions = o->cache > tokens_in_row ? o->cache : tokens_in_row;
    if (positions > c->base.positions)
        return tx_fail(TX_INVALID, "%" PRId64 " positions asked for, the model has n_positions = %" PRId64, positions,
                       c->base.positions);
    if (o->cache > 0 && (o->train || tx_find_input(graph, "attention_lengths") || tokens_in_row > o->cache))
        return tx_fail(TX_INVALID,
                       "with a cache of %" PRId64 " positions: no training, no lengths, at most that many tokens a row",
                       o->cache);
    if ((o->cache > 0) != (tx_find_input(graph, "positions") != NULL) || (tx_find_input(graph, "sources") && !o->cache))
        return tx_fail(TX_INVALID, "positions go with a cache, and sources with both");
    return tx_config_check(&c->base);
}

static tx_tensor *logits(tx_graph *graph, const tx_config *any, const tx_arch_options *o)
{
    const tx_gpt2_config *config = tx_gpt2_of(any);
    tx_status status = check_call(graph, config, o);
    if (status) {
        tx_graph_fail(graph, tx_fail_in(status, "gpt2"));
        return NULL;
    }
    tx_tensor *tokens = tx_find_input(graph, "input_ids"), *rows = tx_find_input(graph, "rows");
    tx_gpt2_builder b = {.graph = graph,
                         .config = config,
                         .options = o,
                         .batch = tx_tensor_shape(tokens)->dim[0],
                         .positions = tx_find_input(graph, "positions")};
    tx_tensor *wte = take_param(&b), *wpe = take_param(&b);
    tx_tensor *x = tx_arch_noise(tx_embedding(tokens, wte, wpe, b.positions), o);
    x = dropout(&b, x, config->embd_pdrop);
    for (int64_t layer = 0; layer < any->layers; layer++)
        x = transformer_block(&b, x, layer);
    if (rows && x) /* the norm works row by row: the others need not be normalised */
        x = tx_gather(tx_reshape(x, TX_SHAPE(tx_shape_rows(tx_tensor_shape(x)), any->width)), rows);
    return tx_linear(layer_norm(&b, x), wte, NULL, true);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static const char *without_prefix(const char *name)
{
    size_t length = strlen(PREFIX);
    return strncmp(name, PREFIX, length) == 0 ? name + length : name;
}

/* The causal masks that old files carry: h.<layer>.attn.bias and h.<layer>.attn.masked_bias. */
static bool is_mask(const char *name)
{
    if (strncmp(name, "h.", 2) != 0)
        return false;
    name += 2;
    name += strspn(name, "0123456789");
    return strcmp(name, ".attn.bias") == 0 || strcmp(name, ".attn.masked_bias") == 0;
}

/* A tx_weights_rename. The published gpt2 has no prefix. */
static void rename_tensor(const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const char *name = without_prefix(tensor);
    if (is_mask(name) || strcmp(name, HEAD) == 0)
        param[0] = '\0';
    else
        snprintf(param, TX_WEIGHTS_NAME, PREFIX "%s", name);
}

static int32_t find(const tx_weights *w, const char *name)
{
    for (int32_t i = 0; i < tx_weights_count(w); i++)
        if (strcmp(without_prefix(tx_weights_tensor_at(w, i)->name), name) == 0)
            return i;
    return -1;
}

/* A head that is stored must be the token embedding, to the bit of its fp32 values: only a tied head is
 * implemented. */
static tx_status check_head(const tx_weights *w)
{
    float head[CHUNK], embedding[CHUNK];
    int32_t h = find(w, HEAD), e = find(w, EMBEDDING);
    if (h < 0 || e < 0)
        return TX_OK;
    int64_t count = tx_st_elements(tx_weights_tensor_at(w, h));
    bool same = count == tx_st_elements(tx_weights_tensor_at(w, e));
    for (int64_t at = 0; at < count && same; at += CHUNK) {
        int64_t now = count - at < CHUNK ? count - at : CHUNK;
        tx_status status = tx_weights_read_f32(w, h, at, now, head);
        if (!status)
            status = tx_weights_read_f32(w, e, at, now, embedding);
        if (status)
            return status;
        same = memcmp(head, embedding, (size_t)now * sizeof head[0]) == 0;
    }
    if (!same)
        return tx_fail(TX_UNSUPPORTED,
                       "%s: " HEAD " differs from " EMBEDDING ": an output head of its own is not implemented",
                       tx_weights_path(w));
    return TX_OK;
}

static int64_t embeddings(const tx_config *config)
{
    return (config->vocab_size + config->positions) * config->width;
}

const tx_architecture tx_gpt2 = {
    .type = "gpt2",
    .class_name = "GPT2LMHeadModel",
    .config_bytes = sizeof(tx_gpt2_config),
    .defaults = &defaults.base,
    .keys = keys,
    .fixed = fixed_keys,
    .presets = presets,
    .check = check,
    .params = params,
    .param = param,
    .embeddings = embeddings,
    .logits = logits,
    .rename = rename_tensor,
    .check_weights = check_head,
};
