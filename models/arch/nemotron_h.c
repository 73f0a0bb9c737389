/* SPDX-License-Identifier: Apache-2.0
 *
 * Nemotron-H (NVIDIA, 2025) and Nemotron 3: each block is one of Mamba-2, attention without positions, an MLP with the
 * square of ReLU, or experts that are such MLPs, routed as in DeepSeek-V3. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK "backbone.layers.%d."
#define MIXER BLOCK "mixer."

static bool is_mlp(const tx_config *config, int64_t layer)
{
    return has_layer(&llama_of(config)->mixer.mlps, layer);
}

static bool has_attention(const tx_config *config, int64_t layer)
{
    return !is_recurrent(config, layer) && !is_mlp(config, layer) && !is_sparse(config, layer);
}

static const tx_stack_row rows[] = {
    {EMBED, "backbone.embeddings.weight", {VOCAB, WIDTH}, .split = 1},
    {INPUT_NORM, BLOCK "norm.weight", {WIDTH}, ONES},
    {QKV_PROJ, MIXER "q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .in = has_attention, .split = 1},
    {O_PROJ, MIXER "o_proj.weight", {WIDTH, HEADS}, .in = has_attention, .split = 2},
    MAMBA_ROWS(MIXER, TX_STACK_BY_INPUTS, TX_STACK_LOG_STEPS),
    {GATE_UP_PROJ, MIXER "up_proj.weight", {INNER, WIDTH}, .in = is_mlp, .split = 1},
    {DOWN_PROJ, MIXER "down_proj.weight", {WIDTH, INNER}, .in = is_mlp, .split = 2},
    {ROUTER, MIXER "gate.weight", {EXPERTS, WIDTH}, .router = true, .in = is_sparse},
    CHOICE_BIAS_ROW(is_sparse, MIXER "gate.e_score_correction_bias", EXPERTS),
    {EXPERTS_GATE_UP,
     MIXER "experts.*.up_proj.weight",
     {EXPERTS, EXPERT_INNER, WIDTH},
     .split = 2,
     .experts = true,
     .in = is_sparse},
    {EXPERTS_DOWN,
     MIXER "experts.*.down_proj.weight",
     {EXPERTS, WIDTH, EXPERT_INNER},
     .split = 3,
     .experts = true,
     .in = is_sparse},
    {SHARED_GATE_UP_PROJ, MIXER "shared_experts.up_proj.weight", {SHARED_INNER, WIDTH}, .in = is_sparse, .split = 1},
    {SHARED_DOWN_PROJ, MIXER "shared_experts.down_proj.weight", {WIDTH, SHARED_INNER}, .in = is_sparse, .split = 2},
    {FINAL_NORM, "backbone.norm_f.weight", {WIDTH}, ONES, .other_decay = true}, /* by its name, in transformers */
    HEAD_ROWS,
};

static const tx_config_key keys[] = {SIZE_KEYS,
                                     KV_HEADS_KEY,
                                     HEAD_DIM_KEY,
                                     EPS_KEY(layer_norm_epsilon),
                                     NUMBER(hidden_dropout, residual.hidden_dropout, 0),
                                     ONE_ACT_KEY(mlp_hidden_act, TX_LLAMA_RELU2),
                                     SIZE_OF(conv_kernel, "mamba_d_conv", mixer.taps, TX_MIXER_TAPS),
                                     SIZE_OF(n_groups, "mamba_n_groups", mixer.k_heads, TX_MIXER_HEADS),
                                     SIZE(mamba_num_heads, mixer.v_heads, TX_MIXER_HEADS),
                                     SIZE(mamba_head_dim, mixer.v_size, TX_MIXER_SIZE),
                                     SIZE(ssm_state_size, mixer.k_size, TX_MIXER_SIZE),
                                     FLAG(use_conv_bias, mixer.conv_bias),
                                     NUMBER(time_step_min, mixer.low, 1e9),
                                     SIZE_OF(n_routed_experts, "num_local_experts", experts.count, 1 << 12),
                                     SIZE_OR_NULL(n_group, experts.groups, TX_EXPERT_GROUPS),
                                     SIZE_OR_NULL(topk_group, experts.kept, TX_EXPERT_GROUPS),
                                     FLAG(norm_topk_prob, experts.normalise),
                                     SETTING(routed_scaling_factor, experts.scale, 1e-6, 1e6),
                                     SIZE(num_experts_per_tok, experts.chosen, 1 << 12),
                                     SIZE(moe_intermediate_size, experts.inner, 1 << 22),
                                     SIZE(moe_shared_expert_intermediate_size, experts.shared_inner, 1 << 22),
                                     {.name = NULL}};

static const tx_fixed_key fixed[] = {{"use_bias", "false", "biases of Mamba's projections are not implemented"},
                                     {"mamba_proj_bias", "false", "biases of Mamba's projections are not implemented"},
                                     {"mlp_bias", "false", "biases of this type's MLPs are not implemented"},
                                     {"attention_bias", "false", "biases of this type's attention are not implemented"},
                                     {"tie_word_embeddings", "false", "transformers does not tie them in this type"},
                                     {"mamba_hidden_act", "silu", "other activations of Mamba are not implemented"},
                                     {.name = NULL}};

/* transformers limits steps to at least time_step_min, not to time_step_limit. */
static const llama_config defaults = {SIZES(tx_nemotron_h, rows, 131072, 4096, 4096, 4, 32, 1, 2),
                                      REST(21504, 8, 1e-5, 1e4),
                                      PLAIN_MLP(TX_LLAMA_RELU2, TX_LLAMA_RELU2),
                                      .attention.head_dim = 128,
                                      DEEPSEEK_DEFAULTS(8, 2, 0, 0, 7688, 1, 1, 1),
                                      .experts.normalise = true,
                                      .experts.shared_inner = 7688,
                                      .mixer.low = 0.001,
                                      ALONE_MAMBA_DEFAULTS};

/* Reads the kinds of blocks from a pattern: M, *, - or E for each. */
static tx_status read_pattern(const char *pattern, llama_config *c, tx_layer_set *sparse)
{
    static const char kinds[] = "M*-E";
    tx_layer_set *const sets[] = {&c->mixer.layers, NULL, &c->mixer.mlps, sparse};
    for (int64_t i = 0; pattern[i]; i++) {
        const char *kind = strchr(kinds, pattern[i]);
        if (!kind || i >= TX_LLAMA_LAYERS)
            return tx_fail(TX_INVALID, "hybrid_override_pattern: expected at most %d of M, *, - and E, found \"%.80s\"",
                           TX_LLAMA_LAYERS, pattern);
        if (sets[kind - kinds])
            add_layer(sets[kind - kinds], i);
    }
    return TX_OK;
}

/* Reads the kinds of blocks from a list, or without one from the pattern. Their number is that of the layers. */
static tx_status read_kinds(const tx_json *json, llama_config *c)
{
    tx_layer_set sparse = {.listed = true};
    const tx_layer_word words[] = {{"linear_attention", &c->mixer.layers},
                                   {"mamba", &c->mixer.layers},
                                   {"full_attention", NULL},
                                   {"attention", NULL},
                                   {"mlp", &c->mixer.mlps},
                                   {"moe", &sparse},
                                   {NULL, NULL}};
    const char *pattern = "ME*-", *name = tx_json_has(json, "layers_block_type") ? "layers_block_type" : "layer_types";
    tx_json *list = NULL;
    TX_TRY(TX_JSON_OPTIONAL(string, json, "hybrid_override_pattern", &pattern));
    if (tx_json_has(json, name)) {
        TX_TRY(tx_json_get(json, name, TX_JSON_ARRAY, &list));
        TX_TRY(tx_llama_read_words(json, name, (int64_t)tx_json_size(list), words));
    } else {
        TX_TRY(read_pattern(pattern, c, &sparse));
    }
    const int64_t count = list ? (int64_t)tx_json_size(list) : (int64_t)strlen(pattern);
    if (count < 1 || (tx_json_has(json, "num_hidden_layers") && c->base.layers != count))
        return tx_fail(TX_INVALID, "num_hidden_layers: %" PRId64 ", but %" PRId64 " layers have a kind", c->base.layers,
                       count);
    c->base.layers = count;
    for (int64_t i = 0; i < count; i++)
        if (!has_layer(&sparse, i))
            add_layer(&c->experts.dense, i);
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(tx_llama_read_unpadded(json, config));
    if (tx_json_has(json, "moe_latent_size"))
        return tx_fail(TX_UNSUPPORTED, "moe_latent_size: experts of another width are not implemented");
    c->positions.none.listed = true;
    for (int64_t i = 0; i < TX_LLAMA_LAYERS; i++)
        add_layer(&c->positions.none, i);
    return read_kinds(json, c);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static bool has_experts(const tx_config *config)
{
    for (int64_t i = 0; i < config->layers; i++)
        if (is_sparse(config, i))
            return true;
    return false;
}

static bool has_mlp(const tx_config *config, int64_t layer)
{
    return is_mlp(config, layer) || is_sparse(config, layer);
}

/* The number that files have for layers with an MLP. */
static int64_t inner_of(const tx_config *config)
{
    return has_experts(config) ? expert_size(llama_of(config)) : mlp_size(llama_of(config));
}

static tx_status check_gguf(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    for (int64_t i = 0; i < e->config->layers && has_experts(e->config); i++)
        if (is_mlp(e->config, i))
            return tx_fail(TX_UNSUPPORTED,
                           "hybrid_override_pattern: llama.cpp has no models with both experts and MLPs");
    if (tx_mixer_recurs(e->config) && !c->mixer.conv_bias)
        return tx_fail(TX_UNSUPPORTED, "llama.cpp does not compute Mamba-2 without biases of the convolution");
    if (c->mixer.low > 0)
        tx_reporter_print(e->report, "time_step_min: llama.cpp does not limit the steps of Mamba-2 to at least %g",
                          c->mixer.low);
    return TX_OK;
}

/* Makes the list layers_block_type: Mamba, attention or `mlp`. */
static tx_status read_blocks(const tx_gguf_file *file, const char *architecture, const char *mlp, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t layers;
    double *heads = NULL, *inner = NULL;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    tx_gguf_key_of(key, architecture, TX_GGUF_HEAD_COUNT "_kv");
    TX_TRY(tx_mixer_gguf_list(file, key, layers, &heads));
    tx_status status =
        tx_mixer_gguf_list(file, tx_gguf_key_of(key, architecture, "feed_forward_length"), layers, &inner);
    tx_json *list = tx_json_array(); /* `json` owns it before it is filled, so a failure leaks nothing */
    TX_THEN(status, tx_json_set(json, "layers_block_type", list));
    for (int64_t i = 0; i < layers && !status; i++)
        status = tx_json_append_string(list, inner[i] != 0 ? mlp : heads[i] != 0 ? "attention" : "mamba");
    free(heads);
    free(inner);
    return status;
}

/* The inner size of a file is that of all Mamba layers. */
static tx_status read_head_size(const tx_gguf_file *file, const char *architecture, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t inner, heads;
    TX_TRY(tx_gguf_get_int(file, tx_gguf_key_of(key, architecture, "ssm.inner_size"), 1, 1 << 26, &inner));
    TX_TRY(tx_gguf_get_int(file, tx_gguf_key_of(key, architecture, "ssm.time_step_rank"), 1, TX_MIXER_HEADS, &heads));
    return tx_json_set_int(json, "mamba_head_dim", inner / heads);
}

static tx_status read_dense(const tx_gguf_file *file, tx_json *json)
{
    TX_TRY(read_head_size(file, "nemotron_h", json));
    return read_blocks(file, "nemotron_h", "mlp", json);
}

static tx_status read_moe(const tx_gguf_file *file, tx_json *json)
{
    TX_TRY(tx_mixer_gguf_check_mtp(file, "nemotron_h_moe"));
    TX_TRY(read_head_size(file, "nemotron_h_moe", json));
    return read_blocks(file, "nemotron_h_moe", "moe", json);
}

#define AT(member) offsetof(llama_config, member)
#define GGUF_KEYS(inner_)                                                                                     \
    MIXER_GGUF_KEYS, MIXER_GGUF_KV_HEADS(has_attention),                                                      \
        TX_GGUF_MEMBER("attention.layer_norm_epsilon", AT(norms.eps), NUMBER, NOTHING),                       \
    {                                                                                                         \
        .key = "feed_forward_length", .name = (inner_), .kind = TX_GGUF_INT, .value = inner_of, .in = has_mlp \
    }
#define COUNT(key, member) TX_GGUF_MEMBER(key, AT(member), INT, NOTHING)
#define GGUF_OF_BLOCKS                                                                  \
    TX_GGUF_OWN_NAMES(TX_GGUF_NAME(EXPERTS_GATE_UP, "blk.%d.ffn_up_exps.weight"),       \
                      TX_GGUF_NAME(SHARED_GATE_UP_PROJ, "blk.%d.ffn_up_shexp.weight")), \
        TX_GGUF_FIXED({"use_conv_bias", true}), .pairs = true, .check = check_gguf, .lay = tx_mixer_gguf_lay
static const tx_gguf_family of_experts = {
    .scheme = &tx_llama_gguf,
    .architecture = "nemotron_h_moe",
    GGUF_OF_BLOCKS,
    TX_GGUF_OWN_KEYS(GGUF_KEYS("moe_intermediate_size"), COUNT("expert_group_count", experts.groups),
                     COUNT("expert_group_used_count", experts.kept),
                     {.key = "expert_shared_count", .kind = TX_GGUF_INT, .otherwise = TX_GGUF_CONSTANT, .constant = 1},
                     TX_GGUF_MEMBER("expert_weights_norm", AT(experts.normalise), BOOL, NOTHING),
                     TX_GGUF_MEMBER("expert_weights_scale", AT(experts.scale), NUMBER, NOTHING)),
    .read = read_moe};

const tx_architecture tx_nemotron_h = {
    FAMILY_CHECKED("nemotron_h", "NemotronHForCausalLM", defaults, keys, "q_proj,k_proj,v_proj,o_proj", read, NULL,
                   tx_mixer_check),
    .recurs = tx_mixer_recurs,
    .fixed = fixed,
    .file_root = "backbone.",
    .class_root = "model.",
    GGUF("nemotron_h", GGUF_OF_BLOCKS,
         TX_GGUF_OWN_KEYS(GGUF_KEYS("intermediate_size"), MIXER_GGUF_VALUE(TX_GGUF_EXPERTS, NULL, tx_mixer_gguf_none),
                          MIXER_GGUF_VALUE("expert_used_count", NULL, tx_mixer_gguf_none),
                          MIXER_GGUF_VALUE("expert_feed_forward_length", NULL, tx_mixer_gguf_none),
                          MIXER_GGUF_VALUE("expert_shared_feed_forward_length", NULL, tx_mixer_gguf_none)),
         .read = read_dense, .other = &of_experts, .is_other = has_experts)};
