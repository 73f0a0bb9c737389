/* SPDX-License-Identifier: Apache-2.0
 *
 * Mamba-2 (Dao and Gu, 2024) as transformers stores it: blocks of a norm and a recurrent mixer, without attention and
 * MLPs. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"

#include <inttypes.h>

#define BLOCK "backbone.layers.%d."

static const tx_stack_row rows[] = {
    {EMBED, "backbone.embeddings.weight", {VOCAB, WIDTH}, .split = 1},
    {INPUT_NORM, BLOCK "norm.weight", {WIDTH}, ONES},
    MAMBA_ROWS(BLOCK "mixer.", TX_STACK_BY_INPUTS, TX_STACK_LOG_STEPS),
    {FINAL_NORM, "backbone.norm_f.weight", {WIDTH}, ONES, .other_decay = true}, /* by its name, in transformers */
    HEAD_ROWS,
};

static const tx_config_key keys[] = {SIZE(vocab_size, base.vocab_size, 1 << 30),
                                     SIZE(hidden_size, base.width, 1 << 20),
                                     SIZE(num_hidden_layers, base.layers, TX_LLAMA_LAYERS),
                                     TOKEN(bos_token_id),
                                     TOKEN(eos_token_id),
                                     FLAG(tie_word_embeddings, tie_word_embeddings),
                                     EPS_KEY(layer_norm_epsilon),
                                     ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU),
                                     NUMBER(initializer_range, initializer_range, 10),
                                     SIZE(conv_kernel, mixer.taps, TX_MIXER_TAPS),
                                     SIZE(n_groups, mixer.k_heads, TX_MIXER_HEADS),
                                     SIZE(num_heads, mixer.v_heads, TX_MIXER_HEADS),
                                     SIZE(head_dim, mixer.v_size, TX_MIXER_SIZE),
                                     SIZE(state_size, mixer.k_size, TX_MIXER_SIZE),
                                     FLAG(use_conv_bias, mixer.conv_bias),
                                     {.name = NULL}};

static const tx_fixed_key fixed[] = {{"use_bias", "false", "biases of Mamba's projections are not implemented"},
                                     {.name = NULL}};

/* The model has no limit of positions; this one bounds the buffers of TX. */
enum { POSITIONS_MOST = 1 << 20 };

static const llama_config defaults = {SIZES(tx_mamba2, rows, 32768, POSITIONS_MOST, 4096, 64, 1, 0, 2),
                                      .base.positions = POSITIONS_MOST, .norms.eps = 1e-5, .initializer_range = 0.1,
                                      ALONE_MAMBA_DEFAULTS};

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    int64_t expand = 2;
    config->positions = POSITIONS_MOST;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "expand", 1, 64, &expand));
    if (expand * config->width != tx_mixer_values(c))
        return tx_fail(TX_INVALID, "expand times hidden_size, %" PRId64 ", is not num_heads times head_dim, %" PRId64,
                       expand * config->width, tx_mixer_values(c));
    for (int64_t i = 0; i < TX_LLAMA_LAYERS; i++) /* also those of deeper copies, which predictions make */
        add_layer(&c->mixer.layers, i);
    return tx_mixer_read_limits(json, "time_step_limit", c);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

/* transformers wants the ratio of the inner size to the width. */
static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    int64_t inner, heads, width;
    TX_TRY(tx_json_get_int(json, "hidden_size", 1, 1 << 20, &width));
    TX_TRY(tx_gguf_get_int(file, "mamba2.ssm.inner_size", 1, 1 << 26, &inner));
    TX_TRY(tx_gguf_get_int(file, "mamba2.ssm.time_step_rank", 1, TX_MIXER_HEADS, &heads));
    TX_TRY(tx_json_set_int(json, "head_dim", inner / heads));
    return tx_json_set_int(json, "expand", inner / width);
}

#define NONE(key_)                                                                       \
    {                                                                                    \
        .key = (key_), .kind = TX_GGUF_INT, .otherwise = TX_GGUF_CONSTANT, .constant = 0 \
    }
const tx_architecture tx_mamba2 = {
    FAMILY_CHECKED("mamba2", "Mamba2ForCausalLM", defaults, keys, NULL, read, NULL, tx_mixer_check_alone),
    .recurs = tx_mixer_recurs, .fixed = fixed,
    GGUF("mamba2",
         TX_GGUF_OWN_KEYS(MIXER_GGUF_KEYS, NONE(TX_GGUF_HEAD_COUNT), NONE("feed_forward_length"),
                          MIXER_GGUF_VALUE(TX_GGUF_HEAD_COUNT "_kv", NULL, tx_mixer_gguf_none)),
         TX_GGUF_FIXED({"use_conv_bias", true}), .check = tx_mixer_gguf_check, .read = read_gguf,
         .lay = tx_mixer_gguf_lay)};
