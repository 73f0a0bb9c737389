/* SPDX-License-Identifier: Apache-2.0
 *
 * The Llama family (Touvron et al., LLaMA, 2023) as Hugging Face stores and computes it: Llama, Mistral, Qwen2, Qwen3.
 *
 * Pre-norm blocks with RMS norms, rotary positions, keys and values of fewer heads than queries (Ainslie et al., GQA,
 * 2023), SwiGLU; projections of the form y = x W^T with W [out, in]. Files hold q | k | v and gate | up apart; here
 * each is one parameter, so that each is one product. */
#include "models/arch/llama.h"
#include "models/arch/rope.h"
#include "models/arch/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEAD "lm_head.weight"
#define EMBEDDING "model.embed_tokens.weight"
#define LAYER "model.layers.%d."

/* The keys of config.json under their own names. */
typedef struct llama_config {
    tx_config base;
    int64_t intermediate_size;
    int64_t num_key_value_heads; /* 0: as many as there are heads (null in the file) */
    int64_t head_dim;            /* 0: hidden_size / heads */
    int64_t sliding_window;      /* 0: none */
    int64_t max_window_layers;   /* of Qwen's: the first layer that has the window */
    bool use_sliding_window;     /* the same */
    bool attention_bias, mlp_bias, tie_word_embeddings;
    bool qkv_bias;   /* Qwen2: biases of q, k and v, none of the output */
    bool head_norms; /* Qwen3: heads of q and k are normalised */
    double rms_norm_eps, initializer_range, attention_dropout;
    int32_t hidden_act;
    tx_rope_config rope;
} llama_config;

static const llama_config *llama_of(const tx_config *config)
{
    return (const llama_config *)config;
}

static int64_t head_size(const llama_config *c)
{
    return c->head_dim ? c->head_dim : c->base.width / c->base.heads;
}

static int64_t kv_heads(const llama_config *c)
{
    return c->num_key_value_heads ? c->num_key_value_heads : c->base.heads;
}

/* ---- Configuration ----------------------------------------------------------------------------------- */

#define KEY(name) #name, offsetof(llama_config, name)
#define BASE(name, field) #name, offsetof(llama_config, base.field)

static const char *const activations[] = {"silu"};

/* What all of them have. The bounds keep all products of sizes within int64. */
#define COMMON_KEYS                                                                                                \
    {BASE(vocab_size, vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 30},                                          \
        {BASE(max_position_embeddings, positions), TX_KEY_INT, .min = 1, .max = 1 << 24},                          \
        {BASE(hidden_size, width), TX_KEY_INT, .min = 1, .max = 1 << 20},                                          \
        {BASE(num_hidden_layers, layers), TX_KEY_INT, .min = 1, .max = 1 << 12},                                   \
        {BASE(num_attention_heads, heads), TX_KEY_INT, .min = 1, .max = 1 << 16},                                  \
        {KEY(num_key_value_heads), TX_KEY_INT_OR_NULL, .min = 1, .max = 1 << 16},                                  \
        {KEY(intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22},                                            \
        {BASE(bos_token_id, bos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},                        \
        {BASE(eos_token_id, eos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},                        \
        {KEY(hidden_act), TX_KEY_CHOICE, .words = activations},                                                    \
        {KEY(rms_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},                                                \
        {KEY(initializer_range), TX_KEY_NUMBER, .max = 10}, {KEY(attention_dropout), TX_KEY_NUMBER, .max = 0.999}, \
    {                                                                                                              \
        KEY(tie_word_embeddings), TX_KEY_BOOL, .min = 0                                                            \
    }
#define HEAD_DIM_KEY                                                      \
    {                                                                     \
        KEY(head_dim), TX_KEY_INT_OR_NULL, .min = 2, .max = TX_MAX_ROTARY \
    }
#define WINDOW_KEY                                                        \
    {                                                                     \
        KEY(sliding_window), TX_KEY_INT_OR_NULL, .min = 1, .max = 1 << 24 \
    }

#define QWEN_WINDOW_KEYS                                          \
    WINDOW_KEY, {KEY(use_sliding_window), TX_KEY_BOOL, .min = 0}, \
    {                                                             \
        KEY(max_window_layers), TX_KEY_INT, .max = 1 << 12        \
    }

static const tx_config_key llama_keys[] = {
    COMMON_KEYS,    HEAD_DIM_KEY, {KEY(attention_bias), TX_KEY_BOOL, .min = 0}, {KEY(mlp_bias), TX_KEY_BOOL, .min = 0},
    {.name = NULL},
};
static const tx_config_key mistral_keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};
static const tx_config_key qwen2_keys[] = {
    COMMON_KEYS,
    QWEN_WINDOW_KEYS,
    {.name = NULL},
};

static const tx_config_key qwen3_keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, QWEN_WINDOW_KEYS, {KEY(attention_bias), TX_KEY_BOOL, .min = 0}, {.name = NULL},
};

static const tx_fixed_key fixed_keys[] = {{.name = NULL}};
static const tx_preset presets[] = {{.name = NULL}};

/* transformers' defaults. */
#define DEFAULTS(row, vocab, positions_, inner, heads_of_kv, bos, eos)                        \
    .base = {.architecture = &(row),                                                          \
             .vocab_size = (vocab),                                                           \
             .positions = (positions_),                                                       \
             .width = 4096,                                                                   \
             .layers = 32,                                                                    \
             .heads = 32,                                                                     \
             .bos_token_id = (bos),                                                           \
             .eos_token_id = (eos)},                                                          \
    .intermediate_size = (inner), .num_key_value_heads = (heads_of_kv), .rms_norm_eps = 1e-6, \
    .initializer_range = 0.02, .rope = {.theta = 1e4, .factor = 1, .attention = 1}

static const llama_config llama_defaults = {DEFAULTS(tx_llama, 32000, 2048, 11008, 0, 1, 2)};
static const llama_config mistral_defaults = {DEFAULTS(tx_mistral, 32000, 131072, 14336, 8, 1, 2),
                                              .use_sliding_window = true, .sliding_window = 4096};
static const llama_config qwen2_defaults = {DEFAULTS(tx_qwen2, 151936, 32768, 22016, 32, -1, -1), .qkv_bias = true,
                                            .sliding_window = 4096, .max_window_layers = 28};

static const llama_config qwen3_defaults = {DEFAULTS(tx_qwen3, 151936, 32768, 22016, 32, -1, -1), .head_dim = 128,
                                            .sliding_window = 4096, .max_window_layers = 28, .head_norms = true};

/* Keys that a position of a layer sees; 0: all before it. */
static int64_t window_of(const llama_config *c, int64_t layer)
{
    return c->use_sliding_window && layer >= c->max_window_layers ? c->sliding_window : 0;
}

/* transformers writes "layer_types" of what the other keys say; a list of another kind would not be heeded. */
static tx_status check_layer_types(const tx_json *json, const llama_config *c)
{
    tx_json *types;
    tx_status status =
        tx_json_has(json, "layer_types") ? tx_json_get(json, "layer_types", TX_JSON_ARRAY, &types) : TX_NOT_FOUND;
    for (size_t i = 0; !status && i < tx_json_size(types); i++) {
        const char *type = "";
        status = tx_json_as_string(tx_json_at(types, i), "layer_types", &type);
        if (!status && strcmp(type, window_of(c, (int64_t)i) ? "sliding_attention" : "full_attention") != 0)
            status = tx_fail(TX_UNSUPPORTED,
                             "layer_types: \"%.40s\" of layer %zu is not what use_sliding_window, sliding_window and "
                             "max_window_layers say; other lists are not implemented",
                             type, i);
    }
    return status == TX_NOT_FOUND ? TX_OK : status;
}

static tx_status read_rest(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    c->qkv_bias = c->attention_bias || config->architecture == &tx_qwen2;
    tx_status status = tx_rope_read(json, config->positions, &c->rope);
    const bool layered = config->architecture == &tx_qwen2 || config->architecture == &tx_qwen3;
    return status || !layered ? status : check_layer_types(json, c);
}

static tx_status write_rest(const tx_config *config, tx_json *json)
{
    return tx_rope_write(&llama_of(config)->rope, json);
}

static tx_status check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    if (!c->head_dim && config->width % config->heads != 0)
        return tx_fail(TX_INVALID, "hidden_size: %" PRId64 " is not a multiple of num_attention_heads, %" PRId64,
                       config->width, config->heads);
    if (config->heads % kv_heads(c) != 0)
        return tx_fail(TX_INVALID,
                       "num_attention_heads: %" PRId64 " is not a multiple of num_key_value_heads, %" PRId64,
                       config->heads, kv_heads(c));
    if (head_size(c) % 2 != 0 || head_size(c) > TX_MAX_ROTARY)
        return tx_fail(TX_INVALID, "head_dim: %" PRId64 " is not even and at most %d", head_size(c), TX_MAX_ROTARY);
    return tx_rope_check(&c->rope, head_size(c));
}

/* ---- Parameters -------------------------------------------------------------------------------------- */

/* Sizes that a dimension can have. */
enum { VOCAB = TX_EXTENT_VOCAB, WIDTH = TX_EXTENT_WIDTH, QKV = TX_EXTENT_OWN, QK_HEAD, HEADS, GATE_UP, INNER };

/* Names between bars are those of the sections in files. */
static const tx_stack_row rows[] = {
    {EMBEDDING, {VOCAB, WIDTH}, .draw = TX_DRAW_NORMAL},
    {LAYER "input_layernorm.weight", {WIDTH}, .draw = TX_DRAW_ONE},
    {LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .draw = TX_DRAW_NORMAL},
    {LAYER "self_attn.q_proj|k_proj|v_proj.bias",
     {QKV},
     .draw = TX_DRAW_ZERO,
     .with = offsetof(llama_config, qkv_bias)},
    {LAYER "self_attn.q_norm|k_norm.weight",
     {QK_HEAD},
     .draw = TX_DRAW_ONE,
     .with = offsetof(llama_config, head_norms)},
    {LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .draw = TX_DRAW_NORMAL},
    {LAYER "self_attn.o_proj.bias", {WIDTH}, .draw = TX_DRAW_ZERO, .with = offsetof(llama_config, attention_bias)},
    {LAYER "post_attention_layernorm.weight", {WIDTH}, .draw = TX_DRAW_ONE},
    {LAYER "mlp.gate_proj|up_proj.weight", {GATE_UP, WIDTH}, .draw = TX_DRAW_NORMAL},
    {LAYER "mlp.gate_proj|up_proj.bias", {GATE_UP}, .draw = TX_DRAW_ZERO, .with = offsetof(llama_config, mlp_bias)},
    {LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .draw = TX_DRAW_NORMAL},
    {LAYER "mlp.down_proj.bias", {WIDTH}, .draw = TX_DRAW_ZERO, .with = offsetof(llama_config, mlp_bias)},
    {"model.norm.weight", {WIDTH}, .draw = TX_DRAW_ONE},
    {HEAD, {VOCAB, WIDTH}, .draw = TX_DRAW_NORMAL, .without = offsetof(llama_config, tie_word_embeddings)},
    {.name = NULL},
};

static int64_t extent_of(const tx_config *config, int32_t extent, int32_t dimension, tx_param_sections *sections)
{
    const llama_config *c = llama_of(config);
    const int64_t heads = config->heads * head_size(c), of_kv = kv_heads(c) * head_size(c);
    switch (extent) {
    case QKV:
        *sections = (tx_param_sections){3, dimension, {heads, of_kv, of_kv}};
        return heads + 2 * of_kv;
    case QK_HEAD:
        *sections = (tx_param_sections){2, dimension, {head_size(c), head_size(c)}};
        return 2 * head_size(c);
    case GATE_UP:
        *sections = (tx_param_sections){2, dimension, {c->intermediate_size, c->intermediate_size}};
        return 2 * c->intermediate_size;
    default:
        return extent == HEADS ? heads : c->intermediate_size;
    }
}

static int32_t params(const tx_config *config)
{
    return tx_stack_params(config, rows);
}

static tx_status param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, rows, extent_of, llama_of(config)->initializer_range, index, name, spec);
    return TX_OK;
}

static int64_t embeddings(const tx_config *config)
{
    return config->vocab_size * config->width;
}

/* ---- Graph ------------------------------------------------------------------------------------------- */

static tx_tensor *norm(tx_stack *b, tx_tensor *x)
{
    return tx_rms_norm(x, tx_stack_take(b), (float)llama_of(b->config)->rms_norm_eps);
}

/* x [B, T, C] -> [B, T, heads * size] */
static tx_tensor *attention(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    const int32_t heads = (int32_t)c->base.heads, of_kv = (int32_t)kv_heads(c), size = (int32_t)head_size(c);
    const int64_t row = tx_tensor_shape(b->tokens)->dim[1], length = b->options->cache > row ? b->options->cache : row;
    const tx_rope rope = tx_rope_of(&c->rope, size, length);
    tx_attention_options options = {.heads = heads, .kv_heads = of_kv, .window = (int32_t)window_of(c, layer)};
    tx_tensor *qkv = tx_stack_linear(b, x, c->qkv_bias);
    if (c->head_norms)
        qkv = tx_head_norm(qkv, tx_stack_take(b), heads, of_kv, (float)c->rms_norm_eps);
    qkv = tx_rotary(qkv, heads + of_kv, size, &rope, b->positions);
    return tx_stack_attention(b, qkv, layer, &options, c->attention_dropout);
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *h = attention(b, norm(b, x), layer);
    x = tx_add(x, tx_stack_linear(b, h, c->attention_bias));
    h = tx_swiglu(tx_stack_linear(b, norm(b, x), c->mlp_bias));
    return tx_add(x, tx_stack_linear(b, h, c->mlp_bias));
}

static tx_tensor *logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack b;
    if (tx_stack_open(graph, config, options, &b))
        return NULL;
    tx_tensor *embedding = tx_stack_take(&b);
    tx_tensor *x = tx_stack_embed(&b, embedding, NULL);
    x = norm(&b, tx_stack_rows(&b, tx_stack_blocks(&b, x, transformer_block)));
    return tx_linear(x, llama_of(config)->tie_word_embeddings ? embedding : tx_stack_take(&b), NULL, true);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

/* Old files carry the frequencies of rotary positions. */
static void rename_tensor(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const bool is_copy = strcmp(tensor, HEAD) == 0 && llama_of(config)->tie_word_embeddings;
    snprintf(param, TX_WEIGHTS_NAME, "%s", is_copy || strstr(tensor, ".rotary_emb.inv_freq") ? "" : tensor);
}

static tx_status check_head(const tx_config *config, const tx_weights *weights)
{
    return llama_of(config)->tie_word_embeddings ? tx_arch_check_tied(weights, HEAD, EMBEDDING) : TX_OK;
}

#define ROW(NAME, CLASS)                                                                                  \
    .type = #NAME, .class_name = CLASS "ForCausalLM", .config_bytes = sizeof(llama_config),               \
    .defaults = &NAME##_defaults.base, .keys = NAME##_keys, .fixed = fixed_keys, .presets = presets,      \
    .read = read_rest, .write = write_rest, .check = check, .params = params, .param = param,             \
    .embeddings = embeddings, .lora_targets = "q_proj,v_proj", .logits = logits, .rename = rename_tensor, \
    .check_weights = check_head

const tx_architecture tx_llama = {ROW(llama, "Llama")};
const tx_architecture tx_mistral = {ROW(mistral, "Mistral")};
const tx_architecture tx_qwen2 = {ROW(qwen2, "Qwen2")};
const tx_architecture tx_qwen3 = {ROW(qwen3, "Qwen3")};
