/* SPDX-License-Identifier: Apache-2.0
 * GPT-2: the keys of its configuration, its parameters, its graph, its weights in files. */
#include "models/arch/gpt2.h"

#include "models/arch/labels.h"
#include "models/arch/stack.h"
#include "models/gguf/gguf_family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "transformer."
#define HEAD "lm_head.weight"
#define EMBEDDING "wte.weight"
#define SCORE_NAME "score.weight"

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
    {"add_cross_attention", "false", "cross-attention is not implemented"},
    {"tie_word_embeddings", "true", "an untied output head is not implemented"},
    {.name = NULL},
};

static const tx_preset presets[] = {
    {"gpt2", ""},
    {"gpt2-medium", "n_embd=1024,n_layer=24,n_head=16"},
    {"gpt2-large", "n_embd=1280,n_layer=36,n_head=20"},
    {"gpt2-xl", "n_embd=1600,n_layer=48,n_head=25"},
    {.name = NULL},
};

/* transformers' defaults, which describe the smallest published model. */
static const tx_gpt2_config defaults = {
    .base = {.architecture = &tx_gpt2,
             .vocab_size = 50257,
             .positions = 1024,
             .width = 768,
             .layers = 12,
             .heads = 12,
             .labels = TX_LABELS_DEFAULT,
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

/* Symbolic sizes of dimensions. */
enum { VOCAB = TX_EXTENT_VOCAB, EMBD = TX_EXTENT_WIDTH, POSITIONS = TX_EXTENT_OWN, QKV, INNER, LABELS };

/* Slots of parameters. */
enum {
    WTE,
    WPE,
    LN_1,
    LN_1_BIAS,
    ATTN,
    ATTN_BIAS,
    ATTN_PROJ,
    ATTN_PROJ_BIAS,
    LN_2,
    LN_2_BIAS,
    FC,
    FC_BIAS,
    FC_PROJ,
    FC_PROJ_BIAS,
    LN_F,
    LN_F_BIAS,
    SCORE
};

static const tx_stack_row rows[] = {
    {WTE, PREFIX "wte.weight", {VOCAB, EMBD}, .split = 1},
    {WPE, PREFIX "wpe.weight", {POSITIONS, EMBD}, .init = TX_STACK_NORMAL},
    {LN_1, PREFIX "h.%d.ln_1.weight", {EMBD}, .init = TX_STACK_ONE},
    {LN_1_BIAS, PREFIX "h.%d.ln_1.bias", {EMBD}, .init = TX_STACK_ZERO},
    {ATTN, PREFIX "h.%d.attn.c_attn.weight", {EMBD, QKV}, .split = 2},
    {ATTN_BIAS, PREFIX "h.%d.attn.c_attn.bias", {QKV}, .init = TX_STACK_ZERO, .split = 1},
    {ATTN_PROJ, PREFIX "h.%d.attn.c_proj.weight", {EMBD, EMBD}, .init = TX_STACK_RESIDUAL, .split = 1},
    {ATTN_PROJ_BIAS, PREFIX "h.%d.attn.c_proj.bias", {EMBD}, .init = TX_STACK_ZERO},
    {LN_2, PREFIX "h.%d.ln_2.weight", {EMBD}, .init = TX_STACK_ONE},
    {LN_2_BIAS, PREFIX "h.%d.ln_2.bias", {EMBD}, .init = TX_STACK_ZERO},
    {FC, PREFIX "h.%d.mlp.c_fc.weight", {EMBD, INNER}, .split = 2},
    {FC_BIAS, PREFIX "h.%d.mlp.c_fc.bias", {INNER}, .init = TX_STACK_ZERO, .split = 1},
    {FC_PROJ, PREFIX "h.%d.mlp.c_proj.weight", {INNER, EMBD}, .init = TX_STACK_RESIDUAL, .split = 1},
    {FC_PROJ_BIAS, PREFIX "h.%d.mlp.c_proj.bias", {EMBD}, .init = TX_STACK_ZERO},
    {LN_F, PREFIX "ln_f.weight", {EMBD}, .init = TX_STACK_ONE},
    {LN_F_BIAS, PREFIX "ln_f.bias", {EMBD}, .init = TX_STACK_ZERO},
    {SCORE, SCORE_NAME, {LABELS, EMBD}, .heads = 1 << TX_HEAD_SEQUENCE_CLASSIFICATION},
    {.name = NULL},
};

static int64_t extent_of(const tx_config *config, int64_t block, int32_t extent, int32_t dimension,
                         tx_param_sections *sections)
{
    (void)block;
    const int64_t inner = tx_gpt2_of(config)->n_inner;
    if (extent == QKV)
        *sections = (tx_param_sections){3, dimension, {config->width, config->width, config->width}, {0}};
    return extent == POSITIONS ? config->positions
           : extent == QKV     ? 3 * config->width
           : extent == LABELS  ? config->labels
           : inner             ? inner
                               : 4 * config->width;
}

static int32_t params(const tx_config *config)
{
    return tx_stack_params(config, rows);
}

static tx_status param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, rows, extent_of, tx_gpt2_of(config)->initializer_range, index, name, spec);
    spec->tied = index == 0 && config->architecture->head == TX_HEAD_CAUSAL_LM;
    return TX_OK;
}

/* ---- Graph ----------------------------------------------------------------------------------------- */

static tx_tensor *layer_norm(const tx_stack *b, tx_tensor *x, int32_t weight, int32_t bias)
{
    tx_tensor *gamma = tx_tp_param(tx_stack_weight(b, weight)), *beta = tx_tp_param(tx_stack_weight(b, bias));
    return tx_layer_norm(x, gamma, beta, (float)tx_gpt2_of(b->config)->layer_norm_epsilon);
}

static tx_tensor *activation(const tx_stack *b, tx_tensor *x)
{
    switch (tx_gpt2_of(b->config)->activation_function) {
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

static tx_tensor *attention(tx_stack *b, tx_tensor *qkv, int64_t layer)
{
    const tx_gpt2_config *c = tx_gpt2_of(b->config);
    double scale = c->scale_attn_weights ? 1.0 / sqrt((double)(c->base.width / c->base.heads)) : 1.0;
    if (c->scale_attn_by_inverse_layer_idx)
        scale /= (double)(layer + 1);
    const int32_t heads = tx_stack_heads_per_rank(b, c->base.heads, "n_head");
    tx_attention_options options = {.heads = heads, .kv_heads = heads, .scale = (float)scale};
    return tx_stack_attention(b, qkv, layer, &options, c->attn_pdrop);
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const double dropped = tx_gpt2_of(b->config)->resid_pdrop;
    tx_tensor *h = tx_stack_linear(b, layer_norm(b, x, LN_1, LN_1_BIAS), ATTN, ATTN_BIAS); /* q | k | v */
    h = tx_stack_linear(b, attention(b, h, layer), ATTN_PROJ, ATTN_PROJ_BIAS);
    x = tx_add(x, tx_stack_dropout(b, h, dropped));
    h = activation(b, tx_stack_linear(b, layer_norm(b, x, LN_2, LN_2_BIAS), FC, FC_BIAS));
    h = tx_stack_linear(b, h, FC_PROJ, FC_PROJ_BIAS);
    return tx_add(x, tx_stack_dropout(b, h, dropped));
}

static tx_tensor *logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack b;
    if (tx_stack_open(graph, config, options, rows, &b))
        return NULL;
    tx_tensor *wte = tx_stack_weight(&b, WTE), *wpe = tx_stack_weight(&b, WPE);
    tx_tensor *x = tx_stack_dropout(&b, tx_stack_embed(&b, wte, wpe), tx_gpt2_of(config)->embd_pdrop);
    x = tx_stack_blocks(&b, x, transformer_block);
    x = tx_stack_rows(&b, x); /* the norm is row-wise, so only the requested rows need it */
    x = layer_norm(&b, x, LN_F, LN_F_BIAS);
    return config->architecture->reads_last ? tx_linear(x, tx_stack_weight(&b, SCORE), NULL, true)
                                            : tx_linear(tx_tp_all_gather(x), wte, NULL, true);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static const char *without_prefix(const char *name)
{
    size_t length = strlen(PREFIX);
    return strncmp(name, PREFIX, length) == 0 ? name + length : name;
}

/* Causal masks in old files: h.<layer>.attn.bias and h.<layer>.attn.masked_bias. */
static bool is_mask(const char *name)
{
    if (strncmp(name, "h.", 2) != 0)
        return false;
    name += 2;
    name += strspn(name, "0123456789");
    return strcmp(name, ".attn.bias") == 0 || strcmp(name, ".attn.masked_bias") == 0;
}

/* A tx_weights_rename. The tensors of the published gpt2 have no prefix. */
static void rename_tensor(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    (void)config;
    const char *name = without_prefix(tensor);
    if (is_mask(name) || strcmp(name, HEAD) == 0)
        param[0] = '\0';
    else if (strcmp(name, SCORE_NAME) == 0)
        snprintf(param, TX_WEIGHTS_NAME, SCORE_NAME);
    else
        snprintf(param, TX_WEIGHTS_NAME, PREFIX "%s", name);
}

/* The embedding may have the prefix or not. */
static tx_status check_head(const tx_config *config, const tx_weights *weights)
{
    (void)config;
    TX_TRY(tx_arch_check_tied(weights, HEAD, EMBEDDING));
    return tx_arch_check_tied(weights, HEAD, PREFIX EMBEDDING);
}

static int64_t embeddings(const tx_config *config)
{
    return (config->vocab_size + config->positions) * config->width;
}

static bool is_of_head(const char *param)
{
    return strcmp(param, SCORE_NAME) == 0;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static const tx_stack_row *rows_of(const tx_config *config)
{
    (void)config;
    return rows;
}

/* Matrices of linear layers are [in, out] in Hugging Face's files. */
static tx_gguf_form form_of(const tx_config *config, const tx_stack_row *row, int32_t section, int64_t *heads)
{
    const bool linear = row->slot == ATTN || row->slot == ATTN_PROJ || row->slot == FC || row->slot == FC_PROJ;
    (void)config;
    (void)section;
    (void)heads;
    return linear ? TX_GGUF_TURNED : TX_GGUF_PLAIN;
}

static const tx_gguf_name gguf_names[] = {
    TX_GGUF_NAME(WTE, TX_GGUF_EMBEDDING),
    TX_GGUF_NAME(WPE, "position_embd.weight"),
    TX_GGUF_NAME(LN_1, "blk.%d.attn_norm.weight"),
    TX_GGUF_NAME(LN_1_BIAS, "blk.%d.attn_norm.bias"),
    TX_GGUF_NAME(ATTN, "blk.%d.attn_qkv.weight"),
    TX_GGUF_NAME(ATTN_BIAS, "blk.%d.attn_qkv.bias"),
    TX_GGUF_NAME(ATTN_PROJ, "blk.%d.attn_output.weight"),
    TX_GGUF_NAME(ATTN_PROJ_BIAS, "blk.%d.attn_output.bias"),
    TX_GGUF_NAME(LN_2, "blk.%d.ffn_norm.weight"),
    TX_GGUF_NAME(LN_2_BIAS, "blk.%d.ffn_norm.bias"),
    TX_GGUF_NAME(FC, "blk.%d.ffn_up.weight"),
    TX_GGUF_NAME(FC_BIAS, "blk.%d.ffn_up.bias"),
    TX_GGUF_NAME(FC_PROJ, "blk.%d.ffn_down.weight"),
    TX_GGUF_NAME(FC_PROJ_BIAS, "blk.%d.ffn_down.bias"),
    TX_GGUF_NAME(LN_F, "output_norm.weight"),
    TX_GGUF_NAME(LN_F_BIAS, "output_norm.bias"),
    {.name = NULL},
};
#define AT(member) offsetof(tx_gpt2_config, member)
static const tx_gguf_key gguf_keys[] = {
    TX_GGUF_MEMBER("context_length", AT(base.positions), INT, NOTHING),
    TX_GGUF_MEMBER("embedding_length", AT(base.width), INT, NOTHING),
    TX_GGUF_MEMBER("block_count", AT(base.layers), INT, NOTHING),
    TX_GGUF_MEMBER("feed_forward_length", AT(n_inner), INT, FOUR_WIDTHS),
    TX_GGUF_MEMBER(TX_GGUF_HEAD_COUNT, AT(base.heads), INT, NOTHING),
    TX_GGUF_MEMBER("attention.layer_norm_epsilon", AT(layer_norm_epsilon), NUMBER, NOTHING),
    {.key = NULL},
};
static const tx_gguf_scheme scheme = {.rows = rows_of, .names = gguf_names, .keys = gguf_keys, .form = form_of};
static const tx_gguf_family gguf = {
    .architecture = "gpt2",
    .scheme = &scheme,
    .gelu = "activation_function",
    TX_GGUF_FIXED({"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}),
};

#define ROW                                                                                           \
    .type = "gpt2", .config_bytes = sizeof(tx_gpt2_config), .defaults = &defaults.base, .keys = keys, \
    .fixed = fixed_keys, .presets = presets, .check = check, .params = params, .param = param,        \
    .embeddings = embeddings, .logits = logits, .inputs_first = true, .lora_targets = "c_attn",       \
    .rename = rename_tensor, .gguf = &gguf, .check_weights = check_head

const tx_architecture tx_gpt2 = {.class_name = "GPT2LMHeadModel", ROW};
const tx_architecture tx_gpt2_classifier = {.class_name = "GPT2ForSequenceClassification",
                                            ROW,
                                            .head = TX_HEAD_SEQUENCE_CLASSIFICATION,
                                            .reads_last = true,
                                            .read = tx_labels_read,
                                            .lora_saved = "score",
                                            .is_of_head = is_of_head};
