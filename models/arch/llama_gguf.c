/* SPDX-License-Identifier: Apache-2.0
 * Variants of Llama in GGUF files: names by slots, keys by members, layouts by the mathematics. */
#include "models/arch/llama_family.h"
#include "models/gguf/gguf_family.h"

#include <inttypes.h>
#include <string.h>

static const tx_gguf_name names[] = {
    TX_GGUF_NAME(EMBED, TX_GGUF_EMBEDDING),
    TX_GGUF_NAME(EMBED_NORM, "token_embd_norm.weight"),
    TX_GGUF_NAME(EMBED_NORM_BIAS, "token_embd_norm.bias"),
    TX_GGUF_NAME(POSITION_TABLE, "position_embd.weight"),
    TX_GGUF_NAME(INPUT_NORM, "blk.%d.attn_norm.weight"),
    TX_GGUF_NAME(INPUT_NORM_BIAS, "blk.%d.attn_norm.bias"),
    TX_GGUF_NAME(QKV_PROJ, "blk.%d.attn_q|attn_k|attn_v.weight"),
    TX_GGUF_NAME(QKV_BIAS, "blk.%d.attn_q|attn_k|attn_v.bias"),
    TX_GGUF_NAME(QKV_PROJ, "blk.%d.attn_qkv.weight"),
    TX_GGUF_NAME(QKV_BIAS, "blk.%d.attn_qkv.bias"),
    TX_GGUF_NAME(HEAD_NORM, "blk.%d.attn_q_norm|attn_k_norm.weight"),
    TX_GGUF_NAME(Q_NORM, "blk.%d.attn_q_norm.weight"),
    TX_GGUF_NAME(K_NORM, "blk.%d.attn_k_norm.weight"),
    TX_GGUF_NAME(QUERY_DOWN, "blk.%d.attn_q_a.weight"),
    TX_GGUF_NAME(QUERY_NORM, "blk.%d.attn_q_a_norm.weight"),
    TX_GGUF_NAME(QUERY_UP, "blk.%d.attn_q_b.weight"),
    TX_GGUF_NAME(KV_DOWN, "blk.%d.attn_kv_a_mqa.weight"),
    TX_GGUF_NAME(KV_NORM, "blk.%d.attn_kv_a_norm.weight"),
    TX_GGUF_NAME(KV_UP, "blk.%d.attn_k_b.weight"),
    TX_GGUF_NAME(SINKS, "blk.%d.attn_sinks.weight"),
    TX_GGUF_NAME(O_PROJ, "blk.%d.attn_output.weight"),
    TX_GGUF_NAME(O_BIAS, "blk.%d.attn_output.bias"),
    TX_GGUF_NAME(ATTENTION_NORM, "blk.%d.post_attention_norm.weight"),
    TX_GGUF_NAME(MIXER_IN, "blk.%d.ssm_in.weight"),
    TX_GGUF_NAME(MIXER_GATE, "blk.%d.attn_gate.weight"),
    TX_GGUF_NAME(MIXER_RATES, "blk.%d.ssm_beta|ssm_alpha.weight"),
    TX_GGUF_NAME(MIXER_RATES, "blk.%d.ssm_ba.weight"),
    TX_GGUF_NAME(MIXER_CONV, "blk.%d.ssm_conv1d.weight"),
    TX_GGUF_NAME(MIXER_CONV_BIAS, "blk.%d.ssm_conv1d.bias"),
    TX_GGUF_NAME(MIXER_A_LOG, "blk.%d.ssm_a"),
    TX_GGUF_NAME(MIXER_SKIP, "blk.%d.ssm_d"),
    TX_GGUF_NAME(MIXER_DT_BIAS, "blk.%d.ssm_dt.bias"),
    TX_GGUF_NAME(MIXER_NORM, "blk.%d.ssm_norm.weight"),
    TX_GGUF_NAME(MIXER_OUT, "blk.%d.ssm_out.weight"),
    TX_GGUF_NAME(POST_NORM, "blk.%d.ffn_norm.weight"),
    TX_GGUF_NAME(POST_NORM_BIAS, "blk.%d.ffn_norm.bias"),
    TX_GGUF_NAME(ROUTER, "blk.%d.ffn_gate_inp.weight"),
    TX_GGUF_NAME(ROUTER_BIAS, "blk.%d.ffn_gate_inp.bias"),
    TX_GGUF_NAME(CHOICE_BIAS, "blk.%d.exp_probs_b.bias"),
    TX_GGUF_NAME(EXPERTS_GATE_UP, "blk.%d.ffn_gate_exps|ffn_up_exps.weight"),
    TX_GGUF_NAME(EXPERTS_GATE_UP, "blk.%d.ffn_gate_exps.weight"),
    TX_GGUF_NAME(EXPERTS_GATE_UP_BIAS, "blk.%d.ffn_gate_exps.bias"),
    TX_GGUF_NAME(EXPERTS_DOWN, "blk.%d.ffn_down_exps.weight"),
    TX_GGUF_NAME(EXPERTS_DOWN_BIAS, "blk.%d.ffn_down_exps.bias"),
    TX_GGUF_NAME(SHARED_GATE_UP_PROJ, "blk.%d.ffn_gate_shexp|ffn_up_shexp.weight"),
    TX_GGUF_NAME(SHARED_DOWN_PROJ, "blk.%d.ffn_down_shexp.weight"),
    TX_GGUF_NAME(SHARED_GATE, "blk.%d.ffn_gate_inp_shexp.weight"),
    TX_GGUF_NAME(GATE_UP_PROJ, "blk.%d.ffn_gate|ffn_up.weight"),
    TX_GGUF_NAME(GATE_UP_BIAS, "blk.%d.ffn_gate|ffn_up.bias"),
    TX_GGUF_NAME(GATE_UP_PROJ, "blk.%d.ffn_up.weight"),
    TX_GGUF_NAME(GATE_UP_BIAS, "blk.%d.ffn_up.bias"),
    TX_GGUF_NAME(DOWN_PROJ, "blk.%d.ffn_down.weight"),
    TX_GGUF_NAME(DOWN_BIAS, "blk.%d.ffn_down.bias"),
    TX_GGUF_NAME(MLP_NORM, "blk.%d.post_ffw_norm.weight"),
    TX_GGUF_NAME(FINAL_NORM, "output_norm.weight"),
    TX_GGUF_NAME(FINAL_NORM_BIAS, "output_norm.bias"),
    TX_GGUF_NAME(LM_HEAD, TX_GGUF_OUTPUT),
    TX_GGUF_NAME(LM_HEAD_BIAS, "output.bias"),
    {.name = NULL},
};

#define AT(member) offsetof(llama_config, member)
#define COUNT(key, member) TX_GGUF_MEMBER(key, AT(member), INT, NOTHING)
#define KEYS_WITH(epsilon)                                                                                          \
    {                                                                                                               \
        COUNT("context_length", max_position_embeddings), COUNT("embedding_length", base.width),                    \
            COUNT("block_count", base.layers), COUNT(TX_GGUF_HEAD_COUNT, base.heads),                               \
            TX_GGUF_MEMBER("attention.head_count_kv", AT(attention.kv_heads), INT, HEADS),                          \
            TX_GGUF_MEMBER("feed_forward_length", AT(mlp.inner), INT, FOUR_WIDTHS),                                 \
            TX_GGUF_MEMBER(epsilon, AT(norms.eps), NUMBER, NOTHING),                                                \
            COUNT("attention.key_length", attention.head_dim), COUNT("attention.value_length", attention.head_dim), \
            COUNT(TX_GGUF_WINDOW, attention.window), COUNT(TX_GGUF_EXPERTS, experts.count),                         \
            COUNT("expert_used_count", experts.chosen), COUNT("expert_feed_forward_length", experts.inner),         \
            COUNT("expert_shared_feed_forward_length", experts.shared_inner), {.key = NULL},                        \
    }
static const tx_gguf_key keys[] = KEYS_WITH("attention.layer_norm_rms_epsilon");
static const tx_gguf_key centred_keys[] = KEYS_WITH("attention.layer_norm_epsilon");

static const tx_stack_row *rows_of(const tx_config *config)
{
    return llama_of(config)->rows;
}

static tx_gguf_form form_of(const tx_config *config, const tx_stack_row *row, int32_t section, int64_t *heads)
{
    const llama_config *c = llama_of(config);
    const tx_gguf_family *family = tx_gguf_family_of(config);
    const bool joined = !strchr(row->name, '|');
    switch (row->slot) {
    case QKV_PROJ:
    case QKV_BIAS:
        *heads = section == 1 ? kv_heads(c) : config->heads;
        return c->attention.by_head                      ? TX_GGUF_BY_HEAD
               : family->pairs && !joined && section < 2 ? TX_GGUF_PAIRS
                                                         : TX_GGUF_PLAIN;
    case INPUT_NORM:
    case HEAD_NORM:
    case ATTENTION_NORM:
    case POST_NORM:
    case MLP_NORM:
    case FINAL_NORM:
        return c->norms.add_one ? TX_GGUF_SHIFTED : TX_GGUF_PLAIN;
    case GATE_UP_PROJ:
    case SHARED_GATE_UP_PROJ:
        return family->halves ? TX_GGUF_HALVES : TX_GGUF_PLAIN;
    case EXPERTS_GATE_UP:
    case EXPERTS_GATE_UP_BIAS:
        return c->experts.limit > 0                              ? TX_GGUF_GATES
               : c->experts.scales_inputs                        ? TX_GGUF_COLUMNS
               : joined && !c->mlp.plain && !c->experts.with_mlp ? TX_GGUF_HALVES
                                                                 : TX_GGUF_PLAIN;
    case EXPERTS_DOWN:
        return c->experts.limit > 0 || c->experts.scales_inputs ? TX_GGUF_TURNED : TX_GGUF_PLAIN;
    default:
        return TX_GGUF_PLAIN;
    }
}

static const tx_rope_config *rope_of(const tx_config *config, int64_t *size)
{
    const llama_config *c = llama_of(config);
    *size = c->latent.rank ? c->latent.rotated : full_head_size(c);
    const bool rotates = !c->positions.learned && !c->positions.alibi && c->positions.rope.theta > 0;
    return rotates ? &c->positions.rope : NULL;
}

#define SCHEME(list)                                                                                  \
    {                                                                                                 \
        .rows = rows_of, .names = names, .keys = (list), .form = form_of, .rope = rope_of, .flags = { \
            {AT(attention.qkv_bias), "attn_q.bias"},                                                  \
            {AT(attention.bias), "attn_q.bias"},                                                      \
            {AT(mlp.bias), "ffn_gate.bias"},                                                          \
            {AT(mixer.norm), "ssm_norm.weight"},                                                      \
            {AT(norms.heads), "attn_q_norm.weight"},                                                  \
            {AT(norms.each), "attn_q_norm.weight"},                                                   \
        }                                                                                             \
    }
const tx_gguf_scheme tx_llama_gguf = SCHEME(keys);
const tx_gguf_scheme tx_llama_gguf_centred = SCHEME(centred_keys);

tx_status tx_llama_gguf_windows(const tx_gguf_exported *model, int period)
{
    const llama_config *c = llama_of(model->config);
    for (int64_t i = 0; i < c->base.layers; i++)
        if ((window_of(c, i) > 0) != ((i + 1) % period != 0))
            return tx_fail(TX_UNSUPPORTED, "layer_types: llama.cpp computes as if only layers %d, %d, .. had no window",
                           period - 1, 2 * period - 1);
    return TX_OK;
}

tx_status tx_llama_gguf_set_windows(tx_json *json, int64_t layers, const double *slides)
{
    tx_json *list = tx_json_array(); /* `json` owns it before it is filled, so a failure leaks nothing */
    tx_status status = tx_json_set(json, "layer_types", list);
    for (int64_t i = 0; i < layers; i++)
        TX_THEN(status, tx_json_append_string(list, slides && slides[i] != 0 ? "sliding_attention" : "full_attention"));
    return status;
}

int64_t tx_llama_gguf_dense(const tx_config *config)
{
    int64_t count = 0;
    while (count < config->layers && is_dense(config, count))
        count++;
    return count;
}

tx_status tx_llama_gguf_check_experts(const tx_gguf_exported *model)
{
    const llama_config *c = llama_of(model->config);
    for (int64_t first = tx_llama_gguf_dense(model->config), i = first; i < c->base.layers; i++)
        if (is_dense(model->config, i))
            return tx_fail(TX_UNSUPPORTED, "llama.cpp computes as if all layers from %" PRId64 " on had experts",
                           first);
    return c->experts.groups > 1 && (c->experts.grouping == 0 || c->experts.best != 2)
               ? tx_fail(TX_UNSUPPORTED, "n_group: llama.cpp chooses groups by the sum of their two best scores")
               : TX_OK;
}

tx_status tx_llama_gguf_check_heads(const tx_gguf_exported *model)
{
    const llama_config *c = llama_of(model->config);
    return kv_heads(c) == c->base.heads
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "num_key_value_heads: llama.cpp reads only files with num_attention_heads");
}

int64_t tx_llama_gguf_shared(const tx_config *config)
{
    return shared_size(llama_of(config));
}

tx_status tx_llama_gguf_read_latent(const tx_gguf_file *file, const char *key, tx_json *json)
{
    char own[TX_GGUF_KEY_ROOM];
    int64_t size, rotated;
    TX_TRY(tx_gguf_own_key(file, "rope.dimension_count", own));
    TX_TRY(tx_gguf_get_int(file, own, 1, TX_MAX_ROTARY, &rotated));
    TX_TRY(tx_gguf_own_key(file, key, own));
    TX_TRY(tx_gguf_get_int(file, own, rotated + 1, 2 * TX_MAX_ROTARY, &size));
    TX_TRY(tx_json_set_int(json, "qk_rope_head_dim", rotated));
    return tx_json_set_int(json, "qk_nope_head_dim", size - rotated);
}

tx_status tx_llama_gguf_read_experts(const tx_gguf_file *file, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t further = 0, layers;
    TX_TRY(tx_gguf_own_key(file, TX_GGUF_MTP, key));
    TX_TRY(TX_GGUF_OPTIONAL(int, file, key, 0, TX_LLAMA_LAYERS, &further));
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", further + 1, TX_LLAMA_LAYERS, &layers));
    TX_TRY(tx_json_set_int(json, "num_hidden_layers", layers - further));
    if (further)
        TX_TRY(tx_json_set_int(json, "num_nextn_predict_layers", 0));
    TX_TRY(tx_gguf_own_key(file, "expert_weights_norm", key));
    return tx_gguf_has(file, key) ? TX_OK : tx_json_set_bool(json, "norm_topk_prob", false);
}
