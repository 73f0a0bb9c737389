/* SPDX-License-Identifier: Apache-2.0
 * Checks that llama.cpp computes a model as its configuration says. */
#include "models/arch/gguf.h"

#include "models/arch/llama_config.h"
#include "models/arch/t5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define T5_FARTHEST 128
#define TANH_WARNING ": llama.cpp computes gelu_new, which differs by up to 0.0005"

/* llama.cpp rotates all layers of SmolLM3 except every fourth. */
static tx_status check_no_rope(const tx_gguf_exported *e)
{
    const tx_json *list = tx_json_find(e->json, "no_rope_layers");
    for (size_t i = 0; i < tx_json_size(list); i++) {
        int64_t rotates;
        TX_TRY(tx_json_as_int(tx_json_at(list, i), "no_rope_layers", 0, 1, &rotates));
        if (rotates != ((i + 1) % 4 != 0))
            return tx_fail(TX_UNSUPPORTED, "no_rope_layers: llama.cpp computes as if it were every fourth layer");
    }
    return TX_OK;
}

/* llama.cpp derives the layers with a window from the type: all but every `period`-th. */
static tx_status check_windows(const tx_gguf_exported *e, int period)
{
    const llama_config *c = llama_of(e->config);
    for (int64_t i = 0; i < c->base.layers; i++)
        if ((window_of(c, i) > 0) != ((i + 1) % period != 0))
            return tx_fail(TX_UNSUPPORTED, "layer_types: llama.cpp computes as if only layers %d, %d, .. had no window",
                           period - 1, 2 * period - 1);
    return TX_OK;
}

static tx_status check_exaone4(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    const bool windows = c->base.layers == TX_GGUF_EXAONE4_LAYERS;
    if ((c->attention.window > 0) != windows)
        return tx_fail(TX_UNSUPPORTED, "sliding_window: llama.cpp computes windows if and only if there are %d layers",
                       TX_GGUF_EXAONE4_LAYERS);
    return windows ? check_windows(e, 4) : TX_OK;
}

/* llama.cpp derives the scale of scores and the base of layers with a window from the type. */
static tx_status check_gemma(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    const bool third = c->positions.has_local, largest = c->base.layers == (third ? 62 : 46);
    const int64_t scalar = largest ? c->base.width / c->base.heads : head_size(c);
    if (c->attention.query_scalar != scalar)
        return tx_fail(TX_UNSUPPORTED, "query_pre_attn_scalar: llama.cpp computes as if it were %" PRId64, scalar);
    TX_TRY(check_windows(e, third ? 6 : 2));
    if (third && (c->positions.local.theta != 1e4 || c->positions.local.type != TX_ROPE_DEFAULT))
        return tx_fail(TX_UNSUPPORTED, "rope_local_base_freq: llama.cpp computes as if it were 10000");
    return TX_OK;
}

/* llama.cpp computes the tanh form of GELU, also for models that were trained with the exact form. */
static tx_status check_gelu(const tx_gguf_exported *e)
{
    static const char *const keys[TX_GGUF_FAMILIES] = {
        [TX_GGUF_GPT2] = "activation_function",
        [TX_GGUF_GPT_BIGCODE] = "activation_function",
        [TX_GGUF_GPT_NEOX] = "hidden_act",
        [TX_GGUF_STARCODER2] = "hidden_act",
        [TX_GGUF_PHI] = "hidden_act",
        [TX_GGUF_FALCON] = "activation",
        [TX_GGUF_BERT] = "hidden_act",
        [TX_GGUF_DISTILBERT] = "activation",
        [TX_GGUF_MODERNBERT] = "hidden_activation",
    };
    const char *activation, *key = keys[e->type->family];
    if (!key)
        return TX_OK;
    TX_TRY(tx_json_get_string(e->json, key, &activation));
    if (e->type->family == TX_GGUF_MODERNBERT && (strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0))
        return TX_OK;
    if (strncmp(activation, "gelu", 4) != 0)
        return tx_fail(TX_UNSUPPORTED, "%s: \"%.40s\": llama.cpp computes gelu_new", key, activation);
    if (strcmp(activation, "gelu") == 0 || strcmp(activation, "gelu_python") == 0)
        tx_reporter_print(e->report, "%s: \"%s\"" TANH_WARNING, key, activation);
    return TX_OK;
}

/* llama.cpp has no setting for the scale of scores, and computes the tanh form of GELU, too. */
static tx_status check_mpt(const tx_gguf_exported *e)
{
    if (llama_of(e->config)->attention.multiplier != 0)
        return tx_fail(TX_UNSUPPORTED, "softmax_scale: llama.cpp computes as if it were null");
    tx_reporter_print(e->report, "MPT has the exact form of GELU" TANH_WARNING);
    return TX_OK;
}

/* llama.cpp derives the activation from the tensors, and does not scale the states before a tied output head. */
static tx_status check_t5(const tx_gguf_exported *e)
{
    const tx_t5_config *c = tx_t5_of(e->config);
    if (c->dense != TX_T5_RELU && c->dense != TX_T5_GATED_GELU && c->dense != TX_T5_GATED_GELU_NEW)
        return tx_fail(TX_UNSUPPORTED, "feed_forward_proj: llama.cpp computes only relu and gated-gelu");
    if (c->farthest != T5_FARTHEST)
        return tx_fail(TX_UNSUPPORTED, "relative_attention_max_distance: llama.cpp computes as if it were %d",
                       T5_FARTHEST);
    if (c->num_decoder_layers > c->num_layers)
        return tx_fail(TX_UNSUPPORTED, "num_decoder_layers: llama.cpp reads at most as many as num_layers, %" PRId64,
                       c->num_layers);
    if (c->scale_decoder_outputs != !c->untied)
        return tx_fail(TX_UNSUPPORTED, "scale_decoder_outputs: must be true if and only if tie_word_embeddings is");
    if (!c->untied)
        tx_reporter_print(e->report, "tie_word_embeddings: llama.cpp's logits are %g times as large",
                          sqrt((double)e->config->width));
    return TX_OK;
}

/* llama.cpp has one base, and scales only layers without a window. */
static tx_status check_olmo3(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->positions.local.theta != c->positions.rope.theta || c->positions.local.type != TX_ROPE_DEFAULT)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: sliding_attention: llama.cpp computes rope_type default with "
                                       "the rope_theta of full_attention");
    return TX_OK;
}

static tx_status check_glm(const tx_gguf_exported *e)
{
    const int64_t size = e->config->width / e->config->heads;
    return head_size(llama_of(e->config)) == size
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "head_dim: llama.cpp computes as if it were %" PRId64, size);
}

/* llama.cpp derives the activation from the type. */
static tx_status check_gpt_oss(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->experts.alpha != 1.702 || c->experts.limit != 7)
        return tx_fail(TX_UNSUPPORTED, "swiglu_alpha, swiglu_limit: llama.cpp computes as if they were 1.702 and 7");
    return check_windows(e, 2);
}

tx_status tx_gguf_check_settings(const tx_gguf_exported *e)
{
    static tx_status (*const checks[TX_GGUF_FAMILIES])(const tx_gguf_exported *) = {
        [TX_GGUF_GEMMA2] = check_gemma,    [TX_GGUF_GPT_OSS] = check_gpt_oss, [TX_GGUF_MPT] = check_mpt,
        [TX_GGUF_EXAONE4] = check_exaone4, [TX_GGUF_T5] = check_t5,           [TX_GGUF_OLMO3] = check_olmo3,
        [TX_GGUF_GLM] = check_glm,
    };
    for (const tx_gguf_fixed *fixed = tx_gguf_fixed_keys; fixed->type; fixed++) {
        bool value = fixed->value;
        if (strcmp(fixed->type, e->type->type) == 0 && tx_json_has(e->json, fixed->name))
            TX_TRY(tx_json_get_bool(e->json, fixed->name, &value));
        if (value != fixed->value)
            return tx_fail(TX_UNSUPPORTED, "%s: llama.cpp computes as if it were %s", fixed->name,
                           fixed->value ? "true" : "false");
    }
    if (strcmp(e->type->type, "smollm3") == 0)
        TX_TRY(check_no_rope(e));
    if (checks[e->type->family])
        TX_TRY(checks[e->type->family](e));
    if (tx_gguf_has_rows(e->type, TX_GGUF_QWEN3_MOE))
        for (int64_t i = 0; i < e->config->layers; i++)
            if (!is_sparse(e->config, i))
                return tx_fail(TX_UNSUPPORTED, "mlp_only_layers, decoder_sparse_step: llama.cpp computes as if all "
                                               "layers had experts");
    return check_gelu(e);
}
