/* SPDX-License-Identifier: Apache-2.0
 *
 * LFM2 (Liquid AI, 2025): gated short convolutions, and attention with norms of q and k in some layers. LFM2-MoE has
 * experts, which are chosen as in DeepSeek-V3, after the first layers. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"

#define CONV LAYER "conv."

/* The rows up to the MLP. */
#define LFM2_ROWS                                                                                                \
    EMBED_ROW, {INPUT_NORM, LAYER "operator_norm.weight", {WIDTH}, ONES},                                        \
        {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .in = is_attending, .split = 1}, \
        {HEAD_NORM, LAYER "self_attn.q_layernorm|k_layernorm.weight", {QK_HEAD}, ONES, .in = is_attending},      \
        {O_PROJ, LAYER "self_attn.out_proj.weight", {WIDTH, HEADS}, .in = is_attending, .split = 2},             \
        {MIXER_IN, CONV "in_proj.weight", {MIXER_INPUTS, WIDTH}, .in = is_recurrent, .split = 1},                \
        {MIXER_CONV, CONV "conv.weight", {MIXER_CHANNELS, ONE, MIXER_TAPS}, .in = is_recurrent, .split = 1},     \
        {MIXER_OUT, CONV "out_proj.weight", {WIDTH, MIXER_VALUES}, .in = is_recurrent, .split = 2},              \
    {                                                                                                            \
        POST_NORM, LAYER "ffn_norm.weight", {WIDTH}, ONES                                                        \
    }
#define MLP LAYER "feed_forward."
#define MLP_ROWS(layers)                                                              \
    {GATE_UP_PROJ, MLP "w1|w3.weight", {GATE_UP, WIDTH}, .in = (layers), .split = 1}, \
    {                                                                                 \
        DOWN_PROJ, MLP "w2.weight", {WIDTH, INNER}, .in = (layers), .split = 2        \
    }
#define END_ROWS {FINAL_NORM, "model.embedding_norm.weight", {WIDTH}, ONES}, HEAD_ROWS

static const tx_stack_row rows[] = {LFM2_ROWS, MLP_ROWS(NULL), END_ROWS};
static const tx_stack_row moe_rows[] = {
    LFM2_ROWS,
    MLP_ROWS(is_dense),
    SOME_EXPERT_ROWS(MLP "gate.weight", MLP "experts.*.w1|w3.weight", MLP "experts.*.w2.weight"),
    {CHOICE_BIAS,
     MLP "expert_bias",
     {EXPERTS},
     ZEROS,
     IF(experts.biased),
     .router = true,
     .frozen = true,
     .in = is_sparse},
    END_ROWS,
};

static const tx_config_key keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE_OF(intermediate_size, "block_ff_dim", mlp.inner, 1 << 22),
    NUMBER(initializer_range, initializer_range, 10),
    KV_HEADS_KEY,
    EPS_KEY(norm_eps),
    FLAG(block_auto_adjust_ff_dim, mlp.rounds),
    SETTING(block_ffn_dim_multiplier, mlp.factor, 1e-3, 1e3),
    SIZE(block_multiple_of, mlp.multiple, 1 << 20),
    SIZE(conv_L_cache, mixer.taps, TX_MIXER_TAPS),
    {.name = NULL}};

static const tx_config_key moe_keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE(intermediate_size, mlp.inner, 1 << 22),
    NUMBER(initializer_range, initializer_range, 10),
    KV_HEADS_KEY,
    EPS_KEY(norm_eps),
    SIZE(conv_L_cache, mixer.taps, TX_MIXER_TAPS),
    SIZE_OF(num_experts, "num_local_experts", experts.count, 1 << 12),
    SIZE(num_experts_per_tok, experts.chosen, 1 << 12),
    SIZE(moe_intermediate_size, experts.inner, 1 << 22),
    WHOLE(num_dense_layers, experts.first, 0, TX_LLAMA_LAYERS),
    FLAG(use_expert_bias, experts.biased),
    FLAG(norm_topk_prob, experts.normalise),
    SETTING(routed_scaling_factor, experts.scale, 1e-6, 1e6),
    {.name = NULL}};

static const tx_fixed_key fixed[] = {{"conv_bias", "false", "biases of convolutions are not implemented"},
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_lfm2, rows, 65536, 128000, 2560, 32, 32, 1, 2),
                                      REST(12288, 8, 1e-5, 1e6),
                                      .padding = 1,
                                      .tie_word_embeddings = true,
                                      .mlp.rounds = true,
                                      .mlp.factor = 1,
                                      .mlp.multiple = 256,
                                      .mixer.kind = TX_MIXER_CONV,
                                      .mixer.taps = 3};

static const llama_config moe_defaults = {SIZES(tx_lfm2_moe, moe_rows, 65536, 128000, 2048, 32, 32, 1, 2),
                                          REST(7168, 8, 1e-5, 1e6),
                                          .padding = 1,
                                          .tie_word_embeddings = true,
                                          .mixer.kind = TX_MIXER_CONV,
                                          .mixer.taps = 3,
                                          EXPERTS_DEFAULTS(32, 4, 0),
                                          .experts.first = 2,
                                          .experts.inner = 1792,
                                          .experts.sigmoid = true,
                                          .experts.biased = true,
                                          .experts.normalise = true,
                                          .experts.least = 1e-6,
                                          .experts.scale = 1};

/* Without either list all layers have attention. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const bool types = tx_json_has(json, "layer_types"), indices = tx_json_has(json, "full_attn_idxs");
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_mixer_read(json, c, types || indices ? 0 : 1));
    return indices && !types ? tx_mixer_read_attending(json, "full_attn_idxs", c) : TX_OK;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static int64_t inner_of(const tx_config *config)
{
    return mlp_size(llama_of(config));
}

/* A file has the real size of the MLP. */
static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    TX_TRY(tx_json_set_bool(json, "block_auto_adjust_ff_dim", false));
    return tx_mixer_gguf_layers(file, "lfm2", json, "conv", "full_attention");
}

static tx_status read_moe_gguf(const tx_gguf_file *file, tx_json *json)
{
    return tx_mixer_gguf_layers(file, "lfm2moe", json, "conv", "full_attention");
}

static tx_status check_moe(const tx_gguf_exported *e)
{
    const double scale = llama_of(e->config)->experts.scale;
    return scale == 1 ? TX_OK : tx_fail(TX_UNSUPPORTED, "routed_scaling_factor: llama.cpp computes as if it were 1");
}

#define GGUF_NAMES                                                                 \
    TX_GGUF_OWN_NAMES(TX_GGUF_NAME(MIXER_IN, "blk.%d.shortconv.in_proj.weight"),   \
                      TX_GGUF_NAME(MIXER_CONV, "blk.%d.shortconv.conv.weight"),    \
                      TX_GGUF_NAME(MIXER_OUT, "blk.%d.shortconv.out_proj.weight"), \
                      TX_GGUF_NAME(FINAL_NORM, "token_embd_norm.weight"))

const tx_architecture tx_lfm2 = {
    MIXED_FAMILY("lfm2", "Lfm2ForCausalLM", defaults, keys, read), .fixed = fixed,
    GGUF("lfm2", GGUF_NAMES,
         TX_GGUF_OWN_KEYS(MIXER_GGUF_KV_HEADS(is_attending), MIXER_GGUF_MEMBER("shortconv.l_cache", mixer.taps),
                          MIXER_GGUF_VALUE("feed_forward_length", "intermediate_size", inner_of)),
         .lay = tx_mixer_gguf_lay, .read = read_gguf)};

/* The number of the sigmoid among llama.cpp's functions of scores. */
enum { SIGMOID = 2 };

const tx_architecture tx_lfm2_moe = {
    MIXED_FAMILY("lfm2_moe", "Lfm2MoeForCausalLM", moe_defaults, moe_keys, read), .fixed = fixed,
    GGUF("lfm2moe", GGUF_NAMES,
         TX_GGUF_OWN_KEYS(
             MIXER_GGUF_KV_HEADS(is_attending), MIXER_GGUF_MEMBER("shortconv.l_cache", mixer.taps),
             TX_GGUF_MEMBER("leading_dense_block_count", offsetof(llama_config, experts.first), INT, NOTHING),
             {.key = "expert_gating_func", .kind = TX_GGUF_INT, .otherwise = TX_GGUF_CONSTANT, .constant = SIGMOID}),
         TX_GGUF_FIXED({"use_expert_bias", true}, {"norm_topk_prob", true}), .check = check_moe, .read = read_moe_gguf,
         .lay = tx_mixer_gguf_lay)};
