/* SPDX-License-Identifier: Apache-2.0
 * The configuration of the Llama family: the members of all types, and their functions. */
#ifndef TX_MODELS_LLAMA_CONFIG_H
#define TX_MODELS_LLAMA_CONFIG_H

#include "models/arch/llama.h"
#include "models/arch/rope.h"

#define TX_LLAMA_LAYERS (1 << 12)        /* limit */
#define TX_LLAMA_EXPERT_LAYERS (1 << 10) /* limit for models with experts */

/* The keys of config.json under their own names. */
typedef struct llama_config {
    tx_config base;
    int64_t max_position_embeddings; /* base.positions is longer if scaling extends it (tx_rope_positions) */
    int64_t intermediate_size;
    int64_t num_key_value_heads; /* 0 means the number of query heads (null in the file) */
    int64_t head_dim;            /* 0 means hidden_size / heads */
    int64_t sliding_window;      /* 0 means no window */
    int64_t max_window_layers;   /* Qwen: the first layer with the window */
    bool use_sliding_window;     /* Qwen */
    bool attention_bias, mlp_bias, tie_word_embeddings;
    bool qkv_bias;   /* Qwen2: q, k and v have biases, the output projection has none */
    bool head_norms; /* Qwen3: the heads of q and k are normalised */
    double rms_norm_eps, initializer_range, attention_dropout;
    int32_t hidden_act;
    tx_rope_config rope;
    /* Of models with experts. */
    int64_t num_experts, num_experts_per_tok, decoder_sparse_step;
    int64_t moe_intermediate_size; /* 0 means intermediate_size */
    int64_t shared_expert_intermediate_size;
    bool norm_topk_prob, output_router_logits;
    double router_aux_loss_coef, router_jitter_noise;
    bool has_experts, mixtral_names, qwen_names, shared_expert; /* select parameters */
    uint64_t dense[TX_LLAMA_LAYERS / 64];                       /* bit set of the layers in mlp_only_layers */
} llama_config;

static inline const llama_config *llama_of(const tx_config *config)
{
    return (const llama_config *)config;
}

static inline int64_t head_size(const llama_config *c)
{
    return c->head_dim ? c->head_dim : c->base.width / c->base.heads;
}

/* Returns true if a layer has experts instead of an MLP. */
static inline bool is_sparse(const tx_config *config, int64_t layer)
{
    const llama_config *c = llama_of(config);
    return c->has_experts && (layer + 1) % c->decoder_sparse_step == 0 && !(c->dense[layer / 64] >> layer % 64 & 1u);
}

static inline bool is_dense(const tx_config *config, int64_t layer)
{
    return !is_sparse(config, layer);
}

static inline int64_t expert_size(const llama_config *c)
{
    return c->moe_intermediate_size ? c->moe_intermediate_size : c->intermediate_size;
}

static inline int64_t kv_heads(const llama_config *c)
{
    return c->num_key_value_heads ? c->num_key_value_heads : c->base.heads;
}

/* The sliding window of a layer in positions, or 0 for full attention. */
static inline int64_t window_of(const llama_config *c, int64_t layer)
{
    return c->use_sliding_window && layer >= c->max_window_layers ? c->sliding_window : 0;
}

/* The model types: names of architectures, defaults and keys. */
#define TX_LLAMA_TYPES(X) X(llama) X(mistral) X(qwen2) X(qwen3) X(mixtral) X(qwen2_moe) X(qwen3_moe)
#define X(name)                                     \
    extern const llama_config tx_##name##_defaults; \
    extern const tx_config_key tx_##name##_keys[];
TX_LLAMA_TYPES(X)
#undef X

/* The functions read, write and check of tx_architecture. */
tx_status tx_llama_read(const tx_json *json, tx_config *config);
tx_status tx_llama_write(const tx_config *config, tx_json *json);
tx_status tx_llama_check(const tx_config *config);

#endif
