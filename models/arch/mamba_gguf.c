/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 4, Bamba and Falcon-H1 in GGUF files. */
#include "models/arch/mamba.h"

#include "models/arch/granite.h"
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"
#include "models/gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HYBRID "granitehybrid"
#define FINETUNED HYBRID ".rope.scaling.finetuned"

/* ---- Granite 4 and Bamba ------------------------------------------------------------------------------------ */

static bool rotates(const tx_config *config)
{
    return config->layers > 0 && has_rope(llama_of(config), 0);
}

/* llama.cpp's flag of rotary positions. */
static void put_hybrid(const tx_config *config, tx_gguf_writer *writer)
{
    tx_gguf_put_bool(writer, FINETUNED, rotates(config));
}

static tx_status check_hybrid(const tx_gguf_exported *e)
{
    if (tx_mixer_gguf_inner(e->config) != 2 * e->config->width)
        return tx_fail(TX_UNSUPPORTED, "mamba_expand: llama.cpp computes as if it were 2");
    return tx_mixer_gguf_check(e);
}

/* Sets mamba_expand from the inner size of Mamba layers. */
static tx_status read_expand(const tx_gguf_file *file, tx_json *json)
{
    int64_t inner, width;
    TX_TRY(tx_json_get_int(json, "hidden_size", 1, 1 << 20, &width));
    TX_TRY(tx_gguf_get_int(file, HYBRID ".ssm.inner_size", 1, 1 << 26, &inner));
    if (inner % width != 0)
        return tx_fail(TX_UNSUPPORTED, "ssm.inner_size: %" PRId64 " is not a multiple of the width, %" PRId64, inner,
                       width);
    return tx_json_set_int(json, "mamba_expand", inner / width);
}

static tx_status read_granite(const tx_gguf_file *file, tx_json *json)
{
    bool rope = true;
    int64_t inner;
    TX_TRY(TX_GGUF_OPTIONAL(bool, file, FINETUNED, &rope));
    TX_TRY(tx_json_set_string(json, "position_embedding_type", rope ? "rope" : "nope"));
    if (!tx_json_has(json, "num_local_experts"))
        TX_TRY(tx_json_set_int(json, "num_local_experts", 0));
    if (!tx_json_has(json, "shared_intermediate_size")) {
        TX_TRY(tx_json_get_int(json, "intermediate_size", 1, 1 << 22, &inner));
        TX_TRY(tx_json_set_int(json, "shared_intermediate_size", inner));
    }
    TX_TRY(read_expand(file, json));
    return tx_mixer_gguf_layers(file, HYBRID, json, "mamba", "attention");
}

/* In models without experts the inner size is that of the MLP, which is the shared part in others. */
static int64_t granite_inner(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    return c->experts.count > 0 ? expert_size(c) : shared_size(c);
}

static int64_t granite_chosen(const tx_config *config)
{
    return llama_of(config)->experts.count > 0 ? llama_of(config)->experts.chosen : 0;
}

static bool has_no_mamba(const tx_config *config)
{
    return !tx_mixer_recurs(config);
}

static tx_status check_dense(const tx_gguf_exported *e)
{
    if (llama_of(e->config)->experts.count > 0)
        return tx_fail(TX_UNSUPPORTED,
                       "num_local_experts: GGUF files of Granite 4 with experts and without Mamba layers "
                       "are not implemented");
    return rotates(e->config) ? TX_OK
                              : tx_fail(TX_UNSUPPORTED, "position_embedding_type: llama.cpp computes models without "
                                                        "Mamba layers as if it were \"rope\"");
}

#define GRANITE_NAMES                                                       \
    TX_GGUF_OWN_NAMES(TX_GGUF_NAME(GATE_UP_PROJ, "blk.%d.ffn_gate.weight"), \
                      TX_GGUF_NAME(SHARED_GATE_UP_PROJ, "blk.%d.ffn_gate_shexp.weight"))

/* Models without Mamba layers are Granite 3 for llama.cpp. */
static const tx_gguf_family dense = {
    .scheme = &tx_llama_gguf,
    .architecture = "granite",
    .export_only = true,
    .pairs = true,
    .rope_factors = true,
    .halves = true,
    GRANITE_NAMES,
    TX_GGUF_OWN_KEYS(GRANITE_GGUF_SCALES, MIXER_GGUF_VALUE("feed_forward_length", NULL, granite_inner),
                     MIXER_GGUF_VALUE(TX_GGUF_EXPERTS, NULL, tx_mixer_gguf_none),
                     MIXER_GGUF_VALUE("expert_used_count", NULL, tx_mixer_gguf_none),
                     MIXER_GGUF_VALUE("expert_shared_feed_forward_length", NULL, tx_mixer_gguf_none)),
    .check = check_dense};

const tx_gguf_family tx_granitehybrid_gguf = {
    .scheme = &tx_llama_gguf,
    .architecture = HYBRID,
    .with = "logit_scale",
    .pairs = true,
    .rope_factors = true,
    .halves = true,
    GRANITE_NAMES,
    TX_GGUF_OWN_KEYS(GRANITE_GGUF_SCALES, MIXER_GGUF_KEYS, MIXER_GGUF_KV_HEADS(is_attending),
                     MIXER_GGUF_VALUE("feed_forward_length", "intermediate_size", granite_inner),
                     MIXER_GGUF_VALUE("expert_used_count", "num_experts_per_tok", granite_chosen)),
    TX_GGUF_FIXED({"mamba_conv_bias", true}),
    .check = check_hybrid,
    .put = put_hybrid,
    .read = read_granite,
    .lay = tx_mixer_gguf_lay,
    .other = &dense,
    .is_other = has_no_mamba};

static tx_status read_bamba(const tx_gguf_file *file, tx_json *json)
{
    int64_t layers;
    double *heads = NULL;
    bool rope = true;
    TX_TRY(TX_GGUF_OPTIONAL(bool, file, FINETUNED, &rope));
    if (!rope)
        return tx_fail(TX_UNSUPPORTED, FINETUNED ": a bamba has rotary positions");
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    TX_TRY(tx_mixer_gguf_list(file, HYBRID "." TX_GGUF_HEAD_COUNT "_kv", layers, &heads));
    tx_json *list = tx_json_array(); /* `json` owns it before it is filled, so a failure leaks nothing */
    tx_status status = tx_json_set(json, "attn_layer_indices", list);
    for (int64_t i = 0; i < layers; i++)
        if (heads[i] != 0)
            TX_THEN(status, tx_json_append_int(list, i));
    free(heads);
    TX_THEN(status, read_expand(file, json));
    return status;
}

/* Only the part of each head that rotates has its rows in pairs. */
static void lay_bamba(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout)
{
    const llama_config *c = llama_of(config);
    layout->rotated = (int64_t)(c->positions.rope.rotated * (double)head_size(c));
    tx_mixer_gguf_lay(config, row, section, layout);
}

const tx_gguf_family tx_bamba_gguf = {.scheme = &tx_llama_gguf,
                                      .architecture = HYBRID,
                                      .without = {"logit_scale"},
                                      .pairs = true,
                                      .rope_factors = true,
                                      TX_GGUF_OWN_KEYS(MIXER_GGUF_KEYS, MIXER_GGUF_KV_HEADS(is_attending)),
                                      TX_GGUF_FIXED({"mamba_conv_bias", true}),
                                      .check = check_hybrid,
                                      .put = put_hybrid,
                                      .read = read_bamba,
                                      .lay = lay_bamba};

/* ---- Falcon-H1 ---------------------------------------------------------------------------------------------- */

static double known(double factor)
{
    return factor > 0 ? factor : 1;
}

/* The multipliers of z, x, B, C and the steps. */
static void scale_inputs(const llama_config *c, tx_gguf_layout *layout)
{
    const int64_t values = tx_mixer_values(c), keys = c->mixer.k_heads * c->mixer.k_size;
    const int64_t sizes[TX_LLAMA_MULTIPLIERS] = {values, values, keys, keys, c->mixer.v_heads};
    int64_t end = 0;
    for (int i = 0; i < TX_LLAMA_MULTIPLIERS; i++) {
        layout->factors[i].end = end += sizes[i];
        layout->factors[i].factor = known(c->mixer.multipliers[i]) * known(c->mixer.in);
        if (layout->factors[i].factor != 1)
            layout->change = TX_GGUF_SCALED;
    }
}

/* Weights contain the multipliers in GGUF files. */
static void lay_falcon(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout)
{
    const llama_config *c = llama_of(config);
    tx_mixer_gguf_lay(config, row, section, layout);
    switch (row->slot) {
    case EMBED:
        tx_mixer_gguf_scale(layout, c->embedding.multiplier);
        break;
    case QKV_PROJ:
        tx_mixer_gguf_scale(layout, known(c->attention.in) * (section == 1 ? known(c->attention.key_multiplier) : 1));
        break;
    case O_PROJ:
        tx_mixer_gguf_scale(layout, c->attention.out);
        break;
    case MIXER_IN:
        scale_inputs(c, layout);
        break;
    case MIXER_OUT:
        tx_mixer_gguf_scale(layout, c->mixer.out);
        break;
    case GATE_UP_PROJ:
        tx_mixer_gguf_scale(layout, section == 0 ? c->mlp.multipliers[0] : 1);
        break;
    case DOWN_PROJ:
        tx_mixer_gguf_scale(layout, c->mlp.multipliers[1]);
        break;
    case LM_HEAD:
        tx_mixer_gguf_scale(layout, c->logits.multiplier);
        break;
    default:
        break;
    }
}

static tx_status check_falcon(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->mixer.norm && c->mixer.norm_first)
        return tx_fail(TX_UNSUPPORTED, "mamba_norm_before_gate: llama.cpp computes as if it were false");
    if (c->tie_word_embeddings && known(c->embedding.multiplier) != known(c->logits.multiplier))
        return tx_fail(TX_UNSUPPORTED, "tie_word_embeddings: a GGUF file cannot store an embedding and a tied output "
                                       "head with different multipliers");
    return tx_mixer_gguf_check(e);
}

/* A file has no multipliers, and transformers' are 1. */
static tx_status read_falcon(const tx_gguf_file *file, tx_json *json)
{
    int64_t inner, heads;
    TX_TRY(tx_gguf_get_int(file, "falcon-h1.ssm.inner_size", 1, 1 << 22, &inner));
    TX_TRY(tx_gguf_get_int(file, "falcon-h1.ssm.time_step_rank", 1, TX_MIXER_HEADS, &heads));
    TX_TRY(tx_json_set_int(json, "mamba_d_ssm", inner));
    TX_TRY(tx_json_set_int(json, "mamba_d_head", inner / heads));
    return tx_json_set_bool(json, "mamba_norm_before_gate", false);
}

const tx_gguf_family tx_falcon_h1_gguf = {
    .scheme = &tx_llama_gguf,
    .architecture = "falcon-h1",
    TX_GGUF_OWN_NAMES(TX_GGUF_NAME(POST_NORM, "blk.%d.ffn_norm")), /* without ".weight" */
    TX_GGUF_OWN_KEYS(MIXER_GGUF_KEYS),
    TX_GGUF_FIXED({"attention_bias", false}, {"mamba_conv_bias", true}),
    .check = check_falcon,
    .read = read_falcon,
    .lay = lay_falcon};
