/* SPDX-License-Identifier: Apache-2.0
 * Mixtral (Jiang et al., Mixtral of Experts, 2024): a Mistral with experts in every layer. MiniMax-01 (MiniMax, 2025)
 * has lightning attention in most layers. MiniMax-M2 (2025) chooses experts by sigmoids plus a bias, and normalises q
 * and k over all heads. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"

#define MOE LAYER "block_sparse_moe."

static const tx_stack_row rows[] = {
    OPENING_ROWS,
    EXPERT_ROWS(MOE "gate.weight", MOE "experts.*.w1|w3.weight", MOE "experts.*.w2.weight"),
    LAST_ROWS,
};

static const tx_config_key keys[] = {
    COMMON_KEYS,
    HEAD_DIM_KEY,
    WINDOW_KEY,
    EXPERTS_KEYS(num_local_experts, "num_experts"),
    NUMBER(router_jitter_noise, experts.jitter, 1),
    {.name = NULL},
};

static const llama_config defaults = {SIZES(tx_mixtral, rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                      REST(14336, 8, 1e-5, 1e6), .attention.windowed = true,
                                      EXPERTS_DEFAULTS(8, 2, 0.001), .experts.normalise = true};

const tx_architecture tx_mixtral = {USUAL_FAMILY("mixtral", "Mixtral"),
                                    GGUF("llama", .pairs = true, .rope_factors = true, .with = TX_GGUF_EXPERTS)};

/* ---- MiniMax-01 ---------------------------------------------------------------------------------------- */

/* Published files have the number of rotated elements of a head. */
static tx_status read_rotated(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    int64_t rotated = head_size(c);
    TX_TRY(TX_JSON_OPTIONAL(int, json, "rotary_dim", 1, head_size(c), &rotated));
    c->positions.rope.rotated = (double)rotated / (double)head_size(c);
    return tx_llama_read(json, config);
}

#define LIGHTNING LAYER "self_attn."

static const tx_stack_row minimax_rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .in = is_attending, .split = 1},
    {O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .in = is_attending, .split = 2},
    {MIXER_IN, LIGHTNING "qkv_proj.weight", {MIXER_INPUTS, WIDTH}, .in = is_recurrent, .split = 1},
    {MIXER_GATE, LIGHTNING "output_gate.weight", {MIXER_VALUES, WIDTH}, .in = is_recurrent, .split = 1},
    {MIXER_NORM, LIGHTNING "norm.weight", {MIXER_VALUES}, ONES, .in = is_recurrent, .split = 1},
    {MIXER_OUT, LIGHTNING "out_proj.weight", {WIDTH, MIXER_VALUES}, .in = is_recurrent, .split = 2},
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    EXPERT_ROWS(MOE "gate.weight", MOE "experts.*.w1|w3.weight", MOE "experts.*.w2.weight"),
    LAST_ROWS,
};

/* The factors of the stream and of the part that a layer adds to it. */
#define FACTORS(name, of) \
    MULTIPLIER(name##_alpha_factor, residual.factors[of][0]), MULTIPLIER(name##_beta_factor, residual.factors[of][1])
static const tx_config_key minimax_keys[] = {COMMON_KEYS,
                                             HEAD_DIM_KEY,
                                             WINDOW_KEY,
                                             EXPERTS_KEYS(num_local_experts, "num_experts"),
                                             NUMBER(router_jitter_noise, experts.jitter, 1),
                                             FACTORS(full_attn, 0),
                                             FACTORS(linear_attn, 1),
                                             FACTORS(mlp, 2),
                                             {.name = NULL}};

static const llama_config minimax_defaults = {SIZES(tx_minimax, minimax_rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                              REST(14336, 8, 1e-5, 1e6),
                                              .attention.windowed = true,
                                              EXPERTS_DEFAULTS(8, 2, 0.001),
                                              .experts.normalise = true,
                                              .residual.normed = true,
                                              .residual.factors = {{1, 1}, {1, 1}, {1, 1}},
                                              .mixer.kind = TX_MIXER_LIGHTNING,
                                              .mixer.joined = true};

/* Every second layer has lightning attention if no list says which ones. Its heads are as many as those of queries. */
static tx_status read_minimax(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(read_rotated(json, config));
    if (tx_json_has(json, "layer_types"))
        TX_TRY(tx_mixer_read(json, c, 0));
    for (int64_t i = 1; i < config->layers && !c->mixer.layers.listed; i += 2)
        add_layer(&c->mixer.layers, i);
    c->mixer.k_heads = c->mixer.v_heads = config->heads;
    c->mixer.k_size = c->mixer.v_size = head_size(c);
    return TX_OK;
}

static const tx_fixed_key minimax_fixed[] = {
    {"postnorm", "true", "sums that do not begin at the norms are not implemented, nor in transformers"},
    {.name = NULL}};

const tx_architecture tx_minimax = {
    MIXED_FAMILY("minimax", "MiniMaxForCausalLM", minimax_defaults, minimax_keys, read_minimax),
    .fixed = minimax_fixed};

/* ---- MiniMax-M2 ---------------------------------------------------------------------------------------- */

static const tx_stack_row m2_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("q_norm|k_norm.weight", QK_WIDTH, ONES)),
    EXPERT_ROWS(MOE "gate.weight", MOE "experts.*.w1|w3.weight", MOE "experts.*.w2.weight"),
    CHOICE_BIAS_ROW(NULL, MOE "e_score_correction_bias", EXPERTS),
    LAST_ROWS,
};

static const tx_config_key m2_keys[] = {COMMON_KEYS,
                                        HEAD_DIM_KEY,
                                        EXPERTS_KEYS(num_local_experts, "num_experts"),
                                        NUMBER(router_jitter_noise, experts.jitter, 1),
                                        {.name = NULL}};

static const tx_fixed_key m2_fixed[] = {
    {"use_qk_norm", "true", "attention without norms of q and k is not implemented, nor in transformers"},
    {"use_routing_bias", "true", "a choice without biases is not implemented, nor in transformers"},
    {"scoring_func", "sigmoid", "other scores are not implemented, nor in transformers"},
    {"qk_norm_type", "per_layer", "norms of single heads are not implemented, nor in transformers"},
    {.name = NULL}};

/* Files list the kind of each layer's attention, as earlier models of this kind needed. */
static tx_status read_m2(const tx_json *json, tx_config *config)
{
    static const char key[] = "attn_type_list";
    tx_json *list = NULL;
    int64_t kind;
    if (tx_json_has(json, key))
        TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    for (size_t i = 0; list && i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, i), key, 0, 1, &kind));
        if (kind != 1)
            return tx_fail(TX_UNSUPPORTED, "%s: only 1 is implemented, as in transformers", key);
    }
    return read_rotated(json, config);
}

static const llama_config m2_defaults = {SIZES(tx_minimax_m2, m2_rows, 200064, 196608, 3072, 62, 48, 200034, 200020),
                                         REST_OF(1536, 8, 1e-6, 0.02, PARTIAL_ROPE(5e6, 1)),
                                         .attention.head_dim = 128,
                                         .norms.whole = true,
                                         EXPERTS_DEFAULTS(256, 8, 0.001),
                                         .experts.normalise = true,
                                         .experts.sigmoid = true,
                                         .experts.least = 1e-20};

const tx_architecture tx_minimax_m2 = {
    FAMILY("minimax_m2", "MiniMaxM2", m2_defaults, m2_keys, "q_proj,v_proj", read_m2, tx_llama_write),
    .fixed = m2_fixed,
    GGUF("minimax-m2",
         TX_GGUF_OWN_KEYS(TX_GGUF_MEMBER("expert_feed_forward_length", offsetof(llama_config, mlp.inner), INT, NOTHING),
                          GGUF_GATING(GGUF_SIGMOID)),
         TX_GGUF_FIXED({"tie_word_embeddings", false}))};
