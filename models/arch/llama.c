/* SPDX-License-Identifier: Apache-2.0
 *
 * The Llama family (Touvron et al., LLaMA, 2023) as Hugging Face stores and computes it: Llama, Mistral, Qwen2, Qwen3,
 * and the mixture-of-experts models (experts.h) Mixtral, Qwen2-MoE, Qwen3-MoE.
 *
 * Pre-norm blocks with RMS norms, rotary embeddings, grouped-query attention (Ainslie et al., GQA, 2023), SwiGLU;
 * projections y = x W^T with W [out, in]. Files store q, k and v separately, and gate and up. Here each group is one
 * parameter, so that one matrix product computes it. */
#include "models/arch/alibi.h"
#include "models/arch/experts.h"
#include "models/arch/llama_family.h"
#include "models/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIXTRAL LAYER "block_sparse_moe."
#define MLP LAYER "mlp."
#define SHARED "shared_expert"
#define GATES "gate_proj|up_proj.weight"
#define DOWN "down_proj.weight"

/* ---- Parameters -------------------------------------------------------------------------------------- */

/* SPARSE and DENSE: only in layers with, or without experts. */
#define SPARSE(flag) IF(flag), .in = is_sparse
#define DENSE(flag) IF(flag), .in = is_dense
#define OF_EXPERTS(dimension) .split = (dimension), .experts = true

const tx_stack_row tx_llama_rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_QKV_ROWS,
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_HEAD}, ONES, IF(head_norms)},
    O_ROWS,
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
    LAST_ROWS,
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
    case QKV: /* GPT-NeoX: q, k and v of a head together */
        if (c->by_head)
            return 3 * heads;
        *sections = (tx_param_sections){3, dimension, {heads, of_kv, of_kv}, head_size(c)};
        return heads + 2 * of_kv;
    case QK_HEAD:
        *sections = (tx_param_sections){2, dimension, {head_size(c), head_size(c)}, 0};
        return 2 * head_size(c);
    case QK_WIDTH:
        *sections = (tx_param_sections){2, dimension, {heads, of_kv}, 0};
        return heads + of_kv;
    case QUERY_HEADS:
        return config->heads;
    case POSITIONS:
        return c->max_position_embeddings + c->first_position;
    case EXPERT_INTERLEAVED:
        return 2 * expert_size(c);
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
    case LABELS:
        return config->labels;
    default:
        return extent == HEADS ? heads : c->intermediate_size ? c->intermediate_size : 4 * config->width;
    }
}

int32_t tx_llama_params(const tx_config *config)
{
    return tx_stack_params(config, llama_of(config)->rows);
}

tx_status tx_llama_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, llama_of(config)->rows, extent_of, llama_of(config)->initializer_range, index, name, spec);
    spec->tied = index == 0 && llama_of(config)->tie_word_embeddings && !tx_arch_classifies(config);
    return TX_OK;
}

int64_t tx_llama_embeddings(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    const int64_t positions = c->learned_positions ? c->max_position_embeddings + c->first_position : 0;
    return (config->vocab_size + positions) * config->width;
}

/* Weights of the experts that a token is not routed to. */
int64_t tx_llama_idle(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    int64_t layers = 0;
    for (int64_t i = 0; i < config->layers; i++)
        layers += is_sparse(config, i);
    return layers * (c->num_experts - c->num_experts_per_tok) * 3 * config->width * expert_size(c);
}

/* ---- Graph ------------------------------------------------------------------------------------------- */

/* The weight of an RMS norm. */
static tx_tensor *gamma_of(const tx_stack *b, tx_tensor *gamma)
{
    if (!gamma || !(llama_of(b->config)->gemma || llama_of(b->config)->norms_plus_one))
        return gamma;
    return tx_add(gamma, tx_fill(b->graph, *tx_tensor_shape(gamma), 1.0f));
}

/* A norm, or x if the family has none at this place. */
static tx_tensor *norm(const tx_stack *b, tx_tensor *x, int32_t weight)
{
    const llama_config *c = llama_of(b->config);
    const float eps = (float)c->rms_norm_eps;
    if (!tx_stack_has(b, weight))
        return x;
    tx_tensor *gamma = gamma_of(b, tx_tp_param(tx_stack_weight(b, weight)));
    if (tx_stack_has(b, weight + 1))
        return tx_layer_norm(x, gamma, tx_tp_param(tx_stack_weight(b, weight + 1)), eps);
    return c->layer_norms ? tx_layer_norm(x, gamma, tx_fill(b->graph, TX_SHAPE(c->base.width), 0.0f), eps)
                          : tx_rms_norm(x, gamma, eps);
}

/* Refuses a feature that tensor-parallel ranks do not support. */
static void needs_one_rank(tx_stack *b, const char *what)
{
    if (b->parts > 1)
        tx_graph_fail(b->graph, tx_fail(TX_UNSUPPORTED, "%s: tensor parallelism is not implemented for %s",
                                        b->config->architecture->type, what));
}

/* RMS norms of q and k: of each head, or of all heads together. */
static tx_tensor *norm_heads(tx_stack *b, tx_tensor *qkv, int32_t heads, int32_t of_kv)
{
    const llama_config *c = llama_of(b->config);
    if (!tx_stack_has(b, HEAD_NORM))
        return qkv;
    if (c->whole_norms)
        needs_one_rank(b, "norms over all heads");
    tx_tensor *gamma = gamma_of(b, tx_tp_input(tx_stack_weight(b, HEAD_NORM)));
    return c->whole_norms ? tx_stack_whole_norms(qkv, gamma, heads * head_size(c), (float)c->rms_norm_eps)
                          : tx_head_norm(qkv, gamma, heads, of_kv, (float)c->rms_norm_eps);
}

/* x [B, T, C] -> q | k | v */
static tx_tensor *project(tx_stack *b, tx_tensor *x, int32_t heads, int32_t size)
{
    tx_tensor *qkv = tx_stack_linear(b, x, QKV_PROJ, QKV_BIAS);
    if (!qkv || !llama_of(b->config)->by_head)
        return qkv;
    const tx_shape shape = *tx_tensor_shape(qkv);
    return tx_reshape(tx_transpose(tx_reshape(qkv, TX_SHAPE(tx_shape_rows(&shape), heads, 3, size))), shape);
}

static double score_scale(const llama_config *c)
{
    const double size = c->query_pre_attn_scalar > 0 ? (double)c->query_pre_attn_scalar : (double)head_size(c);
    return c->query_pre_attn_scalar <= 0 && c->attention_multiplier > 0 ? c->attention_multiplier : 1 / sqrt(size);
}

int64_t tx_llama_rates(const tx_config *config, int64_t length, float *rates)
{
    const llama_config *c = llama_of(config);
    if (c->rope.type != TX_ROPE_DYNAMIC && c->rope.type != TX_ROPE_LONGROPE)
        return 0;
    const tx_rope rope = tx_rope_of(&c->rope, head_size(c), length);
    if (rates)
        tx_rotary_rates(&rope, (int32_t)head_size(c), rates);
    return (rope.rotated ? rope.rotated : head_size(c)) / 2;
}

/* Regroups the elements of `heads` heads: from `rows` rows of columns to columns. */
static tx_tensor *regroup(tx_tensor *x, int64_t heads, int64_t rows, int64_t columns)
{
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    return tx_reshape(tx_transpose(tx_reshape(x, TX_SHAPE(tx_shape_rows(&shape) * heads, rows, columns, 1))), shape);
}

/* Rotates whole heads, in which pairs beyond the rotated part have the frequency 0. */
static void widen(tx_rope *rope, int32_t size)
{
    if (rope->rotated == 0)
        return;
    rope->theta = powf(rope->theta, (float)size / (float)rope->rotated);
    for (int32_t i = rope->rotated / 2; i < size / 2; i++)
        rope->divisor[i] = INFINITY;
    rope->rotated = 0;
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
    const bool local = c->has_local_rope && slides(c, layer);
    tx_rope rope = tx_rope_of(local ? &c->local_rope : &c->rope, size, length);
    tx_attention_options options = {
        .heads = heads, .kv_heads = of_kv, .scale = (float)score_scale(c), .window = (int32_t)window_of(c, layer)};
    options.cap = (float)c->attn_logit_softcapping;
    if (tx_stack_has(b, SINKS))
        options.sinks = tx_stack_weight(b, SINKS);
    tx_tensor *qkv = tx_stack_clip(b, project(b, x, heads, size), c->clip_qkv);
    if (!c->norms_after_rope)
        qkv = norm_heads(b, qkv, heads, of_kv);
    /* Scores do not depend on the order of the elements. The result gets its order back. */
    if (c->interleaved_rope) {
        qkv = regroup(qkv, heads + 2 * of_kv, size / 2, 2);
        widen(&rope, size);
    }
    if (has_rope(c, layer))
        qkv = tx_rotary(qkv, heads + of_kv, size, &rope, b->positions,
                        local ? NULL : tx_find_input(b->graph, "rope_rates"));
    if (c->norms_after_rope)
        qkv = norm_heads(b, qkv, heads, of_kv);
    if (c->alibi)
        qkv = tx_alibi_add(b, qkv, heads, size);
    tx_tensor *y = tx_stack_attention(b, qkv, layer, &options, c->attention_dropout);
    y = c->alibi ? tx_alibi_remove(y, heads, size) : y;
    return c->interleaved_rope ? regroup(y, heads, 2, size / 2) : y;
}

static tx_tensor *activate(const llama_config *c, tx_tensor *x)
{
    const int32_t activation = c->activation + c->hidden_act;
    if (activation == TX_LLAMA_RELU2 || activation == TX_LLAMA_RELU) {
        x = tx_relu(x);
        return activation == TX_LLAMA_RELU ? x : tx_mul(x, x);
    }
    if (c->plain_mlp)
        return tx_gelu(x, activation == TX_LLAMA_GELU);
    return activation == TX_LLAMA_SILU ? tx_swiglu(x) : tx_geglu(x);
}

static tx_tensor *mlp(const tx_stack *b, tx_tensor *x)
{
    tx_tensor *h = activate(llama_of(b->config), tx_stack_linear(b, x, GATE_UP_PROJ, GATE_UP_BIAS));
    return tx_stack_linear(b, h, DOWN_PROJ, DOWN_BIAS);
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
                        .router_bias = ROUTER_BIAS,
                        .gate_up = EXPERTS_GATE_UP,
                        .gate_up_bias = EXPERTS_GATE_UP_BIAS,
                        .down = EXPERTS_DOWN,
                        .down_bias = EXPERTS_DOWN_BIAS,
                        .alpha = (float)c->swiglu_alpha,
                        .limit = (float)c->swiglu_limit};
}

/* The routed experts plus the shared expert times its gate. */
static tx_tensor *sparse_mlp(tx_stack *b, tx_tensor *x)
{
    const llama_config *c = llama_of(b->config);
    const tx_experts experts = experts_of(c);
    if (c->swiglu_limit > 0)
        needs_one_rank(b, "experts with biases");
    tx_tensor *y = tx_stack_experts(b, x, &experts);
    if (!c->shared_expert || !y)
        return y;
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *shared = shared_mlp(b, x), *gate = sigmoid(b, tx_stack_linear(b, x, SHARED_GATE, NO_BIAS));
    gate = gate ? tx_reshape(gate, TX_SHAPE(shape.dim[0], shape.dim[1])) : NULL;
    return tx_add(y, tx_mul(shared, tx_broadcast(gate, shape, TX_AXIS_LAST)));
}

/* x times a multiplier of the configuration; 0 means 1. */
static tx_tensor *scaled(tx_tensor *x, double multiplier)
{
    return multiplier > 0 && multiplier != 1 ? tx_scale(x, (float)multiplier) : x;
}

/* Adds a part of a block to the residual stream. */
static tx_tensor *add_part(tx_stack *b, tx_tensor *x, tx_tensor *part)
{
    const llama_config *c = llama_of(b->config);
    if (c->resid_pdrop > 0)
        part = tx_stack_dropout(b, part, c->resid_pdrop);
    return tx_add(x, scaled(part, c->residual_multiplier));
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    tx_tensor *h = norm(b, x, INPUT_NORM);
    tx_tensor *attended = norm(b, tx_stack_linear(b, attention(b, h, layer), O_PROJ, O_BIAS), ATTENTION_NORM);
    if (llama_of(b->config)->use_parallel_residual) {
        h = mlp(b, tx_stack_has(b, POST_NORM) ? norm(b, x, POST_NORM) : h);
        if (llama_of(b->config)->resid_pdrop > 0) {
            attended = tx_stack_dropout(b, attended, llama_of(b->config)->resid_pdrop);
            h = tx_stack_dropout(b, h, llama_of(b->config)->resid_pdrop);
        }
        return tx_add(x, tx_add(attended, h));
    }
    x = add_part(b, x, attended);
    h = norm(b, x, POST_NORM);
    return add_part(b, x, norm(b, is_sparse(b->config, layer) ? sparse_mlp(b, h) : mlp(b, h), MLP_NORM));
}

/* The embeddings. Gemma's lookup includes the factor, so that NEFTune noise is added after it. */
static tx_tensor *embed(tx_stack *b, tx_tensor *table)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *positions = c->learned_positions ? tx_stack_weight(b, POSITION_TABLE) : NULL;
    if (c->first_position > 0) {
        const tx_shape rows = TX_SHAPE(c->max_position_embeddings);
        positions = tx_gather(positions, tx_range(b->graph, rows, (int32_t)c->first_position, 1));
    }
    if (!c->gemma) {
        tx_tensor *x = norm(b, scaled(tx_stack_embed(b, table, positions), c->embedding_multiplier), EMBED_NORM);
        return c->embd_pdrop > 0 ? tx_stack_dropout(b, x, c->embd_pdrop) : x;
    }
    tx_tensor *x = tx_stack_lookup(b, table, NULL);
    return tx_arch_noise(b->graph, scaled(x, sqrt((double)b->config->width)), b->options);
}

/* c tanh(x / c) */
static tx_tensor *capped(tx_stack *b, tx_tensor *x, double cap)
{
    if (!(cap > 0))
        return x;
    needs_one_rank(b, "final_logit_softcapping");
    return tx_scale(tx_tanh(tx_scale(x, (float)(1 / cap))), (float)cap);
}

tx_tensor *tx_llama_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    const llama_config *c = llama_of(config);
    tx_stack b;
    if (tx_stack_open(graph, config, options, c->rows, &b))
        return NULL;
    b.padding = c->padding <= config->vocab_size ? c->padding - 1 : -1;
    tx_tensor *embedding = tx_stack_weight(&b, EMBED);
    tx_tensor *x = embed(&b, embedding);
    if (c->alibi)
        b.scores = tx_alibi_elements(
            &b, &(tx_alibi){config->heads, head_size(c), score_scale(c), config->architecture == &tx_falcon});
    x = norm(&b, tx_stack_rows(&b, tx_stack_blocks(&b, x, transformer_block)), FINAL_NORM);
    if (config->architecture->reads_last)
        return tx_linear(x, tx_stack_weight(&b, SCORE), NULL, true);
    /* The input of the head is scaled, because it is smaller than the logits, and the loss is fused with a product. */
    x = scaled(x, c->logits_scaling > 0 ? 1 / c->logits_scaling : 0);
    const tx_experts experts = experts_of(c);
    tx_stack_router_loss(&b, &experts, c->router_aux_loss_coef);
    const bool tied = c->tie_word_embeddings;
    tx_tensor *head = tied ? embedding : tx_stack_weight(&b, LM_HEAD);
    tx_tensor *bias = tx_stack_has(&b, LM_HEAD_BIAS) ? tx_stack_weight(&b, LM_HEAD_BIAS) : NULL;
    if (bias)
        needs_one_rank(&b, "a bias of the output head");
    return capped(&b, tx_stack_head(&b, x, head, bias, tied ? EMBED : LM_HEAD), c->final_logit_softcapping);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static const char *name_of(const tx_config *config, int32_t slot)
{
    const tx_stack_row *row = llama_of(config)->rows;
    while (row->slot != slot)
        row++;
    return row->name;
}

/* The length of a name's first part, with its dot. */
static size_t first_part(const char *name)
{
    return strcspn(name, ".") + 1;
}

/* Whether the file of a base model ("embed_tokens.weight", as in Qwen3-Embedding) has the tensor: then its name lacks
 * the first part of the parameter's. */
static bool lacks_prefix(const tx_config *config, const char *tensor)
{
    for (const tx_stack_row *row = llama_of(config)->rows; row->name; row++) {
        const char *rest = row->name + first_part(row->name);
        if (row->slot != LM_HEAD && row->slot != SCORE && strncmp(tensor, rest, first_part(rest)) == 0)
            return true;
    }
    return false;
}

/* Skips a copy of a tied head, and the rope frequencies and causal masks that old files contain. */
void tx_llama_rename(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const char *embedding = name_of(config, EMBED);
    const bool is_copy = strcmp(tensor, name_of(config, LM_HEAD)) == 0 &&
                         (llama_of(config)->tie_word_embeddings || tx_arch_classifies(config));
    const bool is_mask = tx_ends_with(tensor, ".attn.bias") || tx_ends_with(tensor, ".attention.bias") ||
                         tx_ends_with(tensor, ".masked_bias");
    if (is_copy || is_mask || strstr(tensor, ".rotary_emb.inv_freq"))
        param[0] = '\0';
    else if (lacks_prefix(config, tensor))
        snprintf(param, TX_WEIGHTS_NAME, "%.*s%s", (int)first_part(embedding), embedding, tensor);
    else
        snprintf(param, TX_WEIGHTS_NAME, "%s", tensor);
}

tx_status tx_llama_check_weights(const tx_config *config, const tx_weights *weights)
{
    return llama_of(config)->tie_word_embeddings
               ? tx_arch_check_tied(weights, name_of(config, LM_HEAD), name_of(config, EMBED))
               : TX_OK;
}

const tx_fixed_key tx_llama_fixed_keys[] = {{.name = NULL}};
const tx_preset tx_llama_presets[] = {{.name = NULL}};
/* transformers applies the window to other layers than these models' configurations say. */
static const tx_fixed_key fixed_moe_keys[] = {
    {"use_sliding_window", false, "sliding windows of this model type are not implemented"}, {.name = NULL}};

static bool is_of_head(const char *param)
{
    return strcmp(param, "score.weight") == 0;
}

#define ROW(NAME, CLASS, FIXED)                                                                              \
    FAMILY_OF(#NAME, CLASS, tx_##NAME##_defaults, tx_##NAME##_keys, FIXED, "q_proj,v_proj", tx_llama_rename, \
              tx_llama_write),                                                                               \
        .read = tx_llama_read, .check = tx_llama_check
/* A type with a language model and a classifier. */
#define ROWS(NAME, CLASS)                                                                                              \
    const tx_architecture tx_##NAME = {ROW(NAME, CLASS "ForCausalLM", tx_llama_fixed_keys)};                           \
    const tx_architecture tx_##NAME##_classifier = {ROW(NAME, CLASS "ForSequenceClassification", tx_llama_fixed_keys), \
                                                    .head = TX_HEAD_SEQUENCE_CLASSIFICATION, .reads_last = true,       \
                                                    .lora_saved = "score", .is_of_head = is_of_head}

ROWS(llama, "Llama");
ROWS(mistral, "Mistral");
ROWS(qwen2, "Qwen2");
ROWS(qwen3, "Qwen3");
const tx_architecture tx_mixtral = {ROW(mixtral, "MixtralForCausalLM", tx_llama_fixed_keys)};
const tx_architecture tx_qwen2_moe = {ROW(qwen2_moe, "Qwen2MoeForCausalLM", fixed_moe_keys)};
const tx_architecture tx_qwen3_moe = {ROW(qwen3_moe, "Qwen3MoeForCausalLM", fixed_moe_keys)};
