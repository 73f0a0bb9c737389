/* SPDX-License-Identifier: Apache-2.0
 * The configuration of the Llama family: the members of all types, and their functions. */
#ifndef TX_MODELS_LLAMA_CONFIG_H
#define TX_MODELS_LLAMA_CONFIG_H

#include "models/arch/llama.h"
#include "models/arch/rope.h"
#include "models/arch/stack.h"

#define TX_LLAMA_LAYERS (1 << 12)        /* limit */
#define TX_LLAMA_EXPERT_LAYERS (1 << 10) /* limit for models with experts */

/* A set of layers. */
typedef struct tx_layer_set {
    bool listed; /* the file lists the layers; else other keys select them */
    uint64_t bits[TX_LLAMA_LAYERS / 64];
} tx_layer_set;

static inline bool has_layer(const tx_layer_set *set, int64_t layer)
{
    return set->bits[layer / 64] >> layer % 64 & 1u;
}

static inline void add_layer(tx_layer_set *set, int64_t layer)
{
    set->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

/* The activations of MLPs. GELU_NEW and GELU_FAST are the tanh form of GELU. */
enum {
    TX_LLAMA_SILU,
    TX_LLAMA_GELU_TANH,
    TX_LLAMA_GELU,
    TX_LLAMA_GELU_NEW,
    TX_LLAMA_GELU_FAST,
    TX_LLAMA_RELU2,
    TX_LLAMA_RELU
};
extern const char *const tx_llama_activations[];

/* The keys of config.json under their own names. */
typedef struct llama_config {
    tx_config base;
    const tx_stack_row *rows;        /* the table of the family's tensors */
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
    int32_t hidden_act, activation; /* the activation is the sum: `activation` is the first one of the family */
    tx_rope_config rope;
    int64_t padding;                /* 1 + pad_token_id, whose embedding gets no gradient; 0 without one */
    double resid_pdrop;             /* dropout of the sums that a block adds */
    double embd_pdrop;              /* dropout of the embeddings */
    bool learned_positions;         /* a table of positions, no rotary ones */
    int64_t first_position;         /* OPT: the row of that table for the first position */
    tx_layer_set layer_types;       /* the layers with the window */
    tx_layer_set no_rope_layers;    /* SmolLM3: the layers without rotary positions */
    int64_t no_rope_layer_interval; /* SmolLM3: period of the layers without rotary positions, or 0 */
    bool whole_norms;               /* OLMo 2: all heads of q, and of k, are normalised together */
    /* Granite. 0 means 1; of attention_multiplier, the scale of the scores, 1 / sqrt(head size). */
    double embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling;
    /* Gemma: weights of norms are 1 + gamma, embeddings are multiplied by sqrt(hidden_size). */
    bool gemma;
    bool has_local_rope; /* Gemma 3: layers with the window have their own rotary positions */
    tx_rope_config local_rope;
    int64_t sliding_window_pattern; /* Gemma: period of the layers without a window. 0 uses max_window_layers */
    int64_t query_pre_attn_scalar;  /* Gemma: scores are divided by its root. 0 uses the head size */
    double final_logit_softcapping; /* c tanh(logits / c), or 0 without a cap */
    double attn_logit_softcapping;  /* the same for scaled scores */
    double hidden_dropout;
    bool use_parallel_residual; /* attention and MLP both take the block's input */
    bool by_head;               /* GPT-NeoX: q, k and v of a head are adjacent */
    bool plain_mlp;             /* GPT-NeoX: the MLP has no gate */
    bool norms_after_rope;      /* HunYuan: the heads of q and k are normalised after their rotation */
    bool interleaved_rope;      /* Ernie: pairs that rotate are adjacent elements of a head */
    bool layer_norms;           /* Cohere: norms without a bias are layer norms, too */
    bool norms_plus_one;        /* Nemotron: weights of norms are 1 + gamma */
    bool window_rope;           /* EXAONE 4: if there is a window, only its layers have rotary positions */
    bool multi_query;           /* Falcon: all heads of q share a head of k and v */
    bool alibi;                 /* biases of distances (alibi.h), no rotary positions */
    double clip_qkv;            /* MPT: the limit of q, k and v; 0 means none */
    /* Of models with experts. */
    int64_t num_experts, num_experts_per_tok, decoder_sparse_step;
    int64_t moe_intermediate_size; /* 0 means intermediate_size */
    int64_t shared_expert_intermediate_size;
    bool norm_topk_prob, output_router_logits;
    double router_aux_loss_coef, router_jitter_noise;
    double swiglu_limit, swiglu_alpha; /* gpt-oss: clamped SwiGLU of interleaved gates. 0 means plain SwiGLU */
    bool has_experts, mixtral_names, qwen_names, shared_expert; /* select parameters */
    tx_layer_set dense;                                         /* the layers in mlp_only_layers */
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
    return c->has_experts && (layer + 1) % c->decoder_sparse_step == 0 && !has_layer(&c->dense, layer);
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

/* Whether a layer has the window. */
static inline bool slides(const llama_config *c, int64_t layer)
{
    if (c->layer_types.listed)
        return has_layer(&c->layer_types, layer);
    return c->sliding_window_pattern > 0 ? (layer + 1) % c->sliding_window_pattern != 0
                                         : c->use_sliding_window && layer >= c->max_window_layers;
}

/* The sliding window of a layer in positions, or 0 for full attention. */
static inline int64_t window_of(const llama_config *c, int64_t layer)
{
    return c->use_sliding_window && slides(c, layer) ? c->sliding_window : 0;
}

/* Whether a layer has rotary positions. */
static inline bool has_rope(const llama_config *c, int64_t layer)
{
    if (c->learned_positions || c->alibi)
        return false;
    if (c->window_rope)
        return !c->sliding_window || window_of(c, layer) > 0;
    if (c->no_rope_layers.listed)
        return !has_layer(&c->no_rope_layers, layer);
    return c->no_rope_layer_interval == 0 || (layer + 1) % c->no_rope_layer_interval != 0;
}

extern const tx_stack_row tx_llama_rows[]; /* llama.c */

/* The model types of llama.c: names of architectures, defaults and keys. */
#define TX_LLAMA_TYPES(X) X(llama) X(mistral) X(qwen2) X(qwen3) X(mixtral) X(qwen2_moe) X(qwen3_moe)
#define X(name)                                     \
    extern const llama_config tx_##name##_defaults; \
    extern const tx_config_key tx_##name##_keys[];
TX_LLAMA_TYPES(X)
#undef X

/* Reads the list "layer_types": "sliding_attention" or "full_attention" for each layer. */
tx_status tx_llama_read_layer_types(const tx_json *json, llama_config *config);
/* Reads the settings of layers with and without a window from "rope_parameters" of version 5 of transformers. */
tx_status tx_llama_read_ropes(const tx_json *json, tx_config *config);
/* The functions read, write and check of tx_architecture. */
tx_status tx_llama_read(const tx_json *json, tx_config *config);
/* The same for types whose embedding of padding is trained, too. */
tx_status tx_llama_read_unpadded(const tx_json *json, tx_config *config);
tx_status tx_llama_write(const tx_config *config, tx_json *json);
tx_status tx_llama_check(const tx_config *config);

#endif
