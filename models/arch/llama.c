/* SPDX-License-Identifier: Apache-2.0
 *
 * The Llama family (Touvron et al., LLaMA, 2023) as Hugging Face stores and computes it: Llama, Mistral, Qwen2, Qwen3,
 * and the mixture-of-experts models (experts.h) Mixtral, Qwen2-MoE, Qwen3-MoE.
 *
 * Pre-norm blocks with RMS norms, rotary embeddings, grouped-query attention (Ainslie et al., GQA, 2023), SwiGLU;
 * projections y = x W^T with W [out, in]. Files store q, k and v separately, and gate and up. Here each group is one
 * parameter, so that one matrix product computes it. */
#include "models/arch/experts.h"
#include "models/arch/llama_config.h"
#include "models/arch/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEAD "lm_head.weight"
#define EMBEDDING "model.embed_tokens.weight"
#define LAYER "model.layers.%d."
#define MIXTRAL LAYER "block_sparse_moe."
#define MLP LAYER "mlp."
#define SHARED "shared_expert"
#define GATES "gate_proj|up_proj.weight"
#define DOWN "down_proj.weight"

/* ---- Parameters -------------------------------------------------------------------------------------- */
/* Symbolic sizes of dimensions. */
/* Sizes that a dimension can have. */
enum {
    VOCAB = TX_EXTENT_VOCAB,
    WIDTH = TX_EXTENT_WIDTH,
    QKV = TX_EXTENT_OWN,
    QK_HEAD,
    HEADS,
    GATE_UP,
    INNER,
    EXPERTS,
    EXPERT_GATE_UP,
    EXPERT_INNER,
    SHARED_GATE_UP,
    SHARED_INNER,
    ONE
};

/* Slots of parameters. */
enum {
    EMBED,
    INPUT_NORM,
    QKV_PROJ,
    QKV_BIAS,
    HEAD_NORM,
    O_PROJ,
    O_BIAS,
    POST_NORM,
    ROUTER,
    EXPERTS_GATE_UP,
    EXPERTS_DOWN,
    SHARED_GATE_UP_PROJ,
    SHARED_DOWN_PROJ,
    SHARED_GATE,
    GATE_UP_PROJ,
    DOWN_PROJ,
    GATE_UP_BIAS,
    DOWN_BIAS,
    FINAL_NORM,
    LM_HEAD,
    NO_BIAS
};

/* The parameter exists if the flag is set or is not set. SPARSE and DENSE: only in layers with, or without experts. */
#define IF(flag) .with = offsetof(llama_config, flag)
#define UNLESS(flag) .without = offsetof(llama_config, flag)
#define SPARSE(flag) IF(flag), .in = is_sparse
#define DENSE(flag) IF(flag), .in = is_dense
#define ONES .draw = TX_DRAW_ONE
#define ZEROS .draw = TX_DRAW_ZERO
#define OF_EXPERTS(dimension) .split = (dimension), .experts = true

/* Names separated by bars are the tensors of the sections in files; a star is the index of an expert. */
static const tx_stack_row rows[] = {
    {EMBED, EMBEDDING, {VOCAB, WIDTH}, .split = 1},
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .split = 1},
    {QKV_BIAS, LAYER "self_attn.q_proj|k_proj|v_proj.bias", {QKV}, ZEROS, IF(qkv_bias), .split = 1},
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_HEAD}, ONES, IF(head_norms)},
    {O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, LAYER "self_attn.o_proj.bias", {WIDTH}, ZEROS, IF(attention_bias)},
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    {ROUTER, MIXTRAL "gate.weight", {EXPERTS, WIDTH}, .router = true, IF(mixtral_names)},
    {EXPERTS_GATE_UP,
     MIXTRAL "experts.*.w1|w3.weight",
     {EXPERTS, EXPERT_GATE_UP, WIDTH},
     IF(mixtral_names),
     OF_EXPERTS(2)},
    {EXPERTS_DOWN, MIXTRAL "experts.*.w2.weight", {EXPERTS, WIDTH, EXPERT_INNER}, IF(mixtral_names), OF_EXPERTS(3)},
    {ROUTER, MLP "gate.weight", {EXPERTS, WIDTH}, .router = true, SPARSE(qwen_names)},
    {EXPERTS_GATE_UP, MLP "experts.*." GATES, {EXPERTS, EXPERT_GATE_UP, WIDTH}, SPARSE(qwen_names), OF_EXPERTS(2)},
    {EXPERTS_DOWN, MLP "experts.*." DOWN, {EXPERTS, WIDTH, EXPERT_INNER}, SPARSE(qwen_names), OF_EXPERTS(3)},
    {SHARED_GATE_UP_PROJ, MLP SHARED "." GATES, {SHARED_GATE_UP, WIDTH}, SPARSE(shared_expert), .split = 1},
    {SHARED_DOWN_PROJ, MLP SHARED "." DOWN, {WIDTH, SHARED_INNER}, SPARSE(shared_expert), .split = 2},
    {SHARED_GATE, MLP SHARED "_gate.weight", {ONE, WIDTH}, SPARSE(shared_expert)},
    {GATE_UP_PROJ, MLP GATES, {GATE_UP, WIDTH}, DENSE(qwen_names), .split = 1},
    {DOWN_PROJ, MLP DOWN, {WIDTH, INNER}, DENSE(qwen_names), .split = 2},
    {GATE_UP_PROJ, MLP GATES, {GATE_UP, WIDTH}, UNLESS(has_experts), .split = 1},
    {GATE_UP_BIAS, MLP "gate_proj|up_proj.bias", {GATE_UP}, ZEROS, IF(mlp_bias), .split = 1},
    {DOWN_PROJ, MLP DOWN, {WIDTH, INNER}, UNLESS(has_experts), .split = 2},
    {DOWN_BIAS, MLP "down_proj.bias", {WIDTH}, ZEROS, IF(mlp_bias)},
    {FINAL_NORM, "model.norm.weight", {WIDTH}, ONES},
    {LM_HEAD, HEAD, {VOCAB, WIDTH}, UNLESS(tie_word_embeddings), .split = 1},
    {.name = NULL},
};

/* A parameter gate | up with this inner width. */
static int64_t gate_and_up(int64_t inner, int32_t dimension, tx_param_sections *sections)
{
    *sections = (tx_param_sections){2, dimension, {inner, inner}, 0};
    return 2 * inner;
}

static int64_t extent_of(const tx_config *config, int32_t extent, int32_t dimension, tx_param_sections *sections)
{
    const llama_config *c = llama_of(config);
    const int64_t heads = config->heads * head_size(c), of_kv = kv_heads(c) * head_size(c);
    switch (extent) {
    case QKV:
        *sections = (tx_param_sections){3, dimension, {heads, of_kv, of_kv}, head_size(c)};
        return heads + 2 * of_kv;
    case QK_HEAD:
        *sections = (tx_param_sections){2, dimension, {head_size(c), head_size(c)}, 0};
        return 2 * head_size(c);
    case GATE_UP:
        return gate_and_up(c->intermediate_size, dimension, sections);
    case EXPERT_GATE_UP:
        return gate_and_up(expert_size(c), dimension, sections);
    case SHARED_GATE_UP:
        return gate_and_up(c->shared_expert_intermediate_size, dimension, sections);
    case EXPERTS:
        return c->num_experts;
    case EXPERT_INNER:
        return expert_size(c);
    case SHARED_INNER:
        return c->shared_expert_intermediate_size;
    case ONE:
        return 1;
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
    spec->tied = index == 0 && llama_of(config)->tie_word_embeddings;
    return TX_OK;
}

static int64_t embeddings(const tx_config *config)
{
    return config->vocab_size * config->width;
}

/* Weights of the experts that a token is not routed to. */
static int64_t idle(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    int64_t layers = 0;
    for (int64_t i = 0; i < config->layers; i++)
        layers += is_sparse(config, i);
    return layers * (c->num_experts - c->num_experts_per_tok) * 3 * config->width * expert_size(c);
}

/* ---- Graph ------------------------------------------------------------------------------------------- */

static tx_tensor *norm(const tx_stack *b, tx_tensor *x, int32_t weight)
{
    return tx_rms_norm(x, tx_tp_param(tx_stack_weight(b, weight)), (float)llama_of(b->config)->rms_norm_eps);
}

/* x [B, T, C] -> [B, T, heads * size] */
static tx_tensor *attention(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    const int32_t heads = tx_stack_heads_per_rank(b, c->base.heads, "num_attention_heads"),
                  size = (int32_t)head_size(c);
    const int32_t of_kv = tx_stack_kv_heads_per_rank(b, kv_heads(c), "num_key_value_heads");
    int32_t context;
    const int64_t row = tx_tensor_shape(b->tokens)->dim[1] * tx_graph_cp_size(b->graph, &context);
    const int64_t length = b->options->cache > row ? b->options->cache : row;
    const tx_rope rope = tx_rope_of(&c->rope, size, length);
    tx_attention_options options = {.heads = heads, .kv_heads = of_kv, .window = (int32_t)window_of(c, layer)};
    tx_tensor *qkv = tx_stack_linear(b, x, QKV_PROJ, QKV_BIAS);
    if (c->head_norms)
        qkv = tx_head_norm(qkv, tx_tp_input(tx_stack_weight(b, HEAD_NORM)), heads, of_kv, (float)c->rms_norm_eps);
    qkv = tx_rotary(qkv, heads + of_kv, size, &rope, b->positions);
    return tx_stack_attention(b, qkv, layer, &options, c->attention_dropout);
}

static tx_tensor *mlp(const tx_stack *b, tx_tensor *x)
{
    return tx_stack_linear(b, tx_swiglu(tx_stack_linear(b, x, GATE_UP_PROJ, GATE_UP_BIAS)), DOWN_PROJ, DOWN_BIAS);
}

/* The shared expert, which processes all tokens. */
static tx_tensor *shared_mlp(const tx_stack *b, tx_tensor *x)
{
    return tx_stack_linear(b, tx_swiglu(tx_stack_linear(b, x, SHARED_GATE_UP_PROJ, NO_BIAS)), SHARED_DOWN_PROJ,
                           NO_BIAS);
}

/* 1 / (1 + e^-x), as (1 + tanh(x / 2)) / 2. */
static tx_tensor *sigmoid(tx_stack *b, tx_tensor *x)
{
    tx_tensor *t = tx_tanh(tx_scale(x, 0.5f));
    return t ? tx_scale(tx_add(t, tx_fill(b->graph, *tx_tensor_shape(t), 1.0f)), 0.5f) : NULL;
}

static tx_experts experts_of(const llama_config *c)
{
    return (tx_experts){.count = c->num_experts,
                        .chosen = c->num_experts_per_tok,
                        .normalise = c->norm_topk_prob,
                        .balance = c->output_router_logits,
                        .router = ROUTER,
                        .gate_up = EXPERTS_GATE_UP,
                        .down = EXPERTS_DOWN};
}

/* The routed experts plus the shared expert times its gate. */
static tx_tensor *sparse_mlp(tx_stack *b, tx_tensor *x)
{
    const llama_config *c = llama_of(b->config);
    const tx_experts experts = experts_of(c);
    tx_tensor *y = tx_stack_experts(b, x, &experts);
    if (!c->shared_expert || !y)
        return y;
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *shared = shared_mlp(b, x), *gate = sigmoid(b, tx_stack_linear(b, x, SHARED_GATE, NO_BIAS));
    gate = gate ? tx_reshape(gate, TX_SHAPE(shape.dim[0], shape.dim[1])) : NULL;
    return tx_add(y, tx_mul(shared, tx_broadcast(gate, shape, TX_AXIS_LAST)));
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    tx_tensor *h = attention(b, norm(b, x, INPUT_NORM), layer);
    x = tx_add(x, tx_stack_linear(b, h, O_PROJ, O_BIAS));
    h = norm(b, x, POST_NORM);
    return tx_add(x, is_sparse(b->config, layer) ? sparse_mlp(b, h) : mlp(b, h));
}

static tx_tensor *logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack b;
    if (tx_stack_open(graph, config, options, rows, &b))
        return NULL;
    tx_tensor *embedding = tx_stack_weight(&b, EMBED);
    tx_tensor *x = tx_stack_embed(&b, embedding, NULL);
    x = norm(&b, tx_stack_rows(&b, tx_stack_blocks(&b, x, transformer_block)), FINAL_NORM);
    const tx_experts experts = experts_of(llama_of(config));
    tx_stack_router_loss(&b, &experts, llama_of(config)->router_aux_loss_coef);
    return tx_linear(tx_tp_all_gather(x),
                     llama_of(config)->tie_word_embeddings ? embedding : tx_stack_weight(&b, LM_HEAD), NULL, true);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

/* Skips a copy of a tied head, and the rope frequencies that old files contain. */
static void rename_tensor(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const bool is_copy = strcmp(tensor, HEAD) == 0 && llama_of(config)->tie_word_embeddings;
    snprintf(param, TX_WEIGHTS_NAME, "%s", is_copy || strstr(tensor, ".rotary_emb.inv_freq") ? "" : tensor);
}

static tx_status check_head(const tx_config *config, const tx_weights *weights)
{
    return llama_of(config)->tie_word_embeddings ? tx_arch_check_tied(weights, HEAD, EMBEDDING) : TX_OK;
}

static const tx_fixed_key fixed_keys[] = {{.name = NULL}};
/* transformers applies the window to other layers than these models' configurations say. */
static const tx_fixed_key fixed_moe_keys[] = {
    {"use_sliding_window", false, "sliding windows of this model type are not implemented"}, {.name = NULL}};
static const tx_preset presets[] = {{.name = NULL}};

#define ROW(NAME, CLASS, FIXED)                                                                                \
    .type = #NAME, .class_name = CLASS "ForCausalLM", .config_bytes = sizeof(llama_config),                    \
    .defaults = &tx_##NAME##_defaults.base, .keys = tx_##NAME##_keys, .fixed = FIXED, .presets = presets,      \
    .read = tx_llama_read, .write = tx_llama_write, .check = tx_llama_check, .params = params, .param = param, \
    .embeddings = embeddings, .idle = idle, .lora_targets = "q_proj,v_proj", .logits = logits,                 \
    .rename = rename_tensor, .check_weights = check_head

const tx_architecture tx_llama = {ROW(llama, "Llama", fixed_keys)};
const tx_architecture tx_mistral = {ROW(mistral, "Mistral", fixed_keys)};
const tx_architecture tx_qwen2 = {ROW(qwen2, "Qwen2", fixed_keys)};
const tx_architecture tx_qwen3 = {ROW(qwen3, "Qwen3", fixed_keys)};
const tx_architecture tx_mixtral = {ROW(mixtral, "Mixtral", fixed_keys)};
const tx_architecture tx_qwen2_moe = {ROW(qwen2_moe, "Qwen2Moe", fixed_moe_keys)};
const tx_architecture tx_qwen3_moe = {ROW(qwen3_moe, "Qwen3Moe", fixed_moe_keys)};
