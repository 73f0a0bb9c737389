/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tensors of a family that the Llama graph (llama_graph.c) computes: sizes of dimensions, slots, and rows
 * that several families have. */
#ifndef TX_MODELS_LLAMA_ROWS_H
#define TX_MODELS_LLAMA_ROWS_H

#include "models/arch/llama_config.h"
#include "models/arch/stack.h"

#include <stddef.h>

/* Symbolic sizes of dimensions. QKV, GATE_UP and the sizes of norms of q and k set the sections of the parameter. */
enum {
    VOCAB = TX_EXTENT_VOCAB,
    WIDTH = TX_EXTENT_WIDTH,
    QKV = TX_EXTENT_OWN,
    QK_HEAD,     /* a gamma for the heads of q and one for those of k */
    QUERY_HEADS, /* their number */
    KEY_HEADS,
    HEAD_SIZE,
    EMBED_WIDTH,
    QK,       /* q and k without v */
    QK_WIDTH, /* a gamma for all of q and one for all of k */
    HEADS,
    LATENT_QUERY, /* sizes of latent attention: the latent of queries, that of keys and values with and without */
    LATENT_KEY,   /* the elements of keys that rotate, and the heads' keys and values that are computed from it */
    LATENT,
    KEYS_AND_VALUES,
    VALUES,
    INDEX_QUERIES, /* of the index of sparse attention, its heads and the size of one */
    INDEX_HEADS,
    INDEX_SIZE,
    POSITIONS,
    GATE_UP,
    INNER,
    EXPERTS,
    EXPERT_GATE_UP,
    EXPERT_PAIR, /* gate and up without sections: all of a gate first, or alternating elements */
    EXPERT_INNER,
    SHARED_GATE_UP,
    SHARED_INNER,
    ONE,
    GATED_QKV, /* q has a gate for each head */
    MIXER_INPUTS,
    MIXER_CHANNELS,
    MIXER_TAPS,
    MIXER_HEADS,
    MIXER_TWO_HEADS, /* two numbers for each head */
    MIXER_VALUES,
    MIXER_VALUE, /* of one head */
    LAYER_INPUT, /* the embedding of a layer, and of all layers (layer_inputs.c) */
    LAYER_INPUTS,
    STREAMS, /* their number, its square, and the elements of all but the first (altup.c) */
    STREAM_PAIRS,
    OTHER_STREAMS,
    LOW_RANK,
    LABELS
};

/* Slots of parameters. The graph has the parts of a block whose parameters the table has. A norm without a bias is an
 * RMS norm, else a layer norm; the slot of the bias follows the slot of the norm. */
enum {
    EMBED,
    EMBED_NORM,
    EMBED_NORM_BIAS,
    POSITION_TABLE,
    INPUTS_TABLE, /* embeddings of layers (layer_inputs.c): of tokens, and a layer with a norm of their embeddings */
    INPUTS_PROJ,
    INPUTS_NORM,
    STREAMS_IN, /* to streams after the first (altup.c) */
    PROJECT_IN, /* after the embedding, and before the head */
    PROJECT_OUT,
    STREAM_NORM, /* the coefficients of streams, and the scale of the first one for INPUT_GATE */
    STREAM_ROUTER,
    STREAM_PREDICTION,
    STREAM_CORRECTION,
    STREAM_SCALE,
    INPUT_NORM, /* before the attention */
    INPUT_NORM_BIAS,
    QKV_PROJ,
    QKV_BIAS,
    HEAD_NORM,
    Q_NORM, /* layer norms of the heads of q and k, with weights [size] or [heads, size] */
    Q_NORM_BIAS,
    K_NORM,
    K_NORM_BIAS,
    QUERY_DOWN, /* latent attention: to the latents, and from them */
    QUERY_DOWN_BIAS,
    QUERY_NORM,
    QUERY_UP,
    KV_DOWN,
    KV_DOWN_BIAS,
    KV_NORM,
    KV_UP,
    INDEX_QUERY, /* the index of sparse attention */
    INDEX_KEY,
    INDEX_NORM,
    INDEX_NORM_BIAS,
    INDEX_WEIGHTS,
    SINKS, /* of the heads */
    O_PROJ,
    O_BIAS,
    ATTENTION_NORM, /* after the attention, before the addition */
    ATTENTION_NORM_BIAS,
    LOW_RANK_IN, /* a residual next to the attention (altup.c) */
    LOW_RANK_OUT,
    LOW_RANK_NORM,
    MIXER_IN, /* of recurrent layers (mixer.h) */
    MIXER_GATE,
    MIXER_RATES,
    MIXER_CONV,
    MIXER_CONV_BIAS,
    MIXER_A_LOG,
    MIXER_SKIP,
    MIXER_DT_BIAS,
    MIXER_NORM,
    MIXER_OUT,
    POST_NORM, /* before the MLP */
    POST_NORM_BIAS,
    ROUTER_SCALE, /* of a norm of its own before the router */
    ROUTER,
    ROUTER_BIAS,
    EXPERT_SCALE, /* factors of the weights of experts */
    CHOICE_BIAS,  /* is added to scores only to choose experts */
    EXPERTS_GATE_UP,
    EXPERTS_GATE_UP_BIAS,
    EXPERTS_DOWN,
    EXPERTS_DOWN_BIAS,
    EXPERTS_NORM, /* of experts next to an MLP: before and after them, and after the MLP */
    EXPERTS_NORM_BIAS,
    EXPERTS_OUT_NORM,
    EXPERTS_OUT_NORM_BIAS,
    MLP_OWN_NORM,
    MLP_OWN_NORM_BIAS,
    SHARED_GATE_UP_PROJ,
    SHARED_DOWN_PROJ,
    SHARED_GATE,
    GATE_UP_PROJ,
    DOWN_PROJ,
    GATE_UP_BIAS,
    DOWN_BIAS,
    XIELU_POSITIVE, /* the activation of Apertus */
    XIELU_NEGATIVE,
    XIELU_BETA,
    XIELU_EPS,
    MLP_NORM, /* after the MLP, before the addition */
    MLP_NORM_BIAS,
    INPUT_GATE, /* after the MLP: how the layer's own embedding is added */
    INPUT_PROJ,
    ADDED_NORM,
    LAYER_SCALE, /* of the result of a block */
    STREAM_OUT,  /* after the blocks, of streams after the first */
    STREAM_OUT_2,
    STREAM_OUT_3,
    FINAL_NORM,
    FINAL_NORM_BIAS,
    HEAD_DENSE, /* before the output head: a layer, its activation and a norm */
    HEAD_DENSE_NORM,
    HEAD_DENSE_NORM_BIAS,
    LM_HEAD,
    LM_HEAD_BIAS,
    SCORE,
    NO_BIAS
};

/* The parameter exists if the flag is set or is not set. */
#define IF(flag) .with = offsetof(llama_config, flag)
#define UNLESS(flag) .without = offsetof(llama_config, flag)
#define ONES .init = TX_STACK_ONE
#define ZEROS .init = TX_STACK_ZERO

/* Names separated by bars are the tensors of the sections in files; a star is the index of an expert. */
#define LAYER "model.layers.%d."
#define EMBED_ROW                                                      \
    {                                                                  \
        EMBED, "model.embed_tokens.weight", {VOCAB, WIDTH}, .split = 1 \
    }
#define SEPARATE_QKV_ROWS                                                                                       \
    {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .split = 1},                        \
    {                                                                                                           \
        QKV_BIAS, LAYER "self_attn.q_proj|k_proj|v_proj.bias", {QKV}, ZEROS, IF(attention.qkv_bias), .split = 1 \
    }
#define O_ROWS                                                                    \
    {O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .split = 2},        \
    {                                                                             \
        O_BIAS, LAYER "self_attn.o_proj.bias", {WIDTH}, ZEROS, IF(attention.bias) \
    }
/* The attention of layer_attention.c. */
#define LAYER_ATTENTION_ROWS                                                                                         \
    {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .in = has_values, .split = 1},           \
        {QKV_PROJ, LAYER "self_attn.q_proj|k_proj.weight", {QK, WIDTH}, .in = has_only_keys, .split = 1},            \
        {QKV_PROJ, LAYER "self_attn.q_proj.weight", {HEADS, WIDTH}, .in = has_only_queries, .split = 1},             \
        {QKV_BIAS,  LAYER "self_attn.q_proj|k_proj|v_proj.bias", {QKV}, ZEROS, IF(attention.bias), .in = has_values, \
         .split = 1},                                                                                                \
        {QKV_BIAS,  LAYER "self_attn.q_proj|k_proj.bias", {QK}, ZEROS, IF(attention.bias), .in = has_only_keys,      \
         .split = 1},                                                                                                \
        {QKV_BIAS,           LAYER "self_attn.q_proj.bias", {HEADS},   ZEROS,                                        \
         IF(attention.bias), .in = has_only_queries,        .split = 1},                                             \
        {Q_NORM, LAYER "self_attn.q_norm.weight", {HEAD_SIZE}, ONES},                                                \
        {K_NORM, LAYER "self_attn.k_norm.weight", {HEAD_SIZE}, ONES, .in = has_keys}, O_ROWS
/* The embeddings of layers (layer_inputs.c): before the blocks, and in each. */
#define LAYER_TABLE_ROWS                                                                                         \
    {INPUTS_TABLE, "model.embed_tokens_per_layer.weight", {VOCAB, LAYER_INPUTS}, .in = has_layer_inputs},        \
        {INPUTS_PROJ, "model.per_layer_model_projection.weight", {LAYER_INPUTS, WIDTH}, .in = has_layer_inputs}, \
    {                                                                                                            \
        INPUTS_NORM, "model.per_layer_projection_norm.weight", {LAYER_INPUT}, ONES, .in = has_layer_inputs       \
    }
#define LAYER_INPUT_ROWS                                                                                 \
    {INPUT_GATE, LAYER "per_layer_input_gate.weight", {LAYER_INPUT, WIDTH}, .in = has_layer_inputs},     \
        {INPUT_PROJ, LAYER "per_layer_projection.weight", {WIDTH, LAYER_INPUT}, .in = has_layer_inputs}, \
    {                                                                                                    \
        ADDED_NORM, LAYER "post_per_layer_input_norm.weight", {WIDTH}, ONES, .in = has_layer_inputs      \
    }
/* The attention of DeepSeek-V2 (mla.c). */
#define LATENT_ROWS                                                                                               \
    {QUERY_DOWN, LAYER "self_attn.q_a_proj.weight", {LATENT_QUERY, WIDTH}, .in = has_query_latent},               \
        {QUERY_DOWN_BIAS,    LAYER "self_attn.q_a_proj.bias", {LATENT_QUERY}, ZEROS,                              \
         IF(attention.bias), .in = has_query_latent},                                                             \
        {QUERY_NORM, LAYER "self_attn.q_a_layernorm.weight", {LATENT_QUERY}, ONES, .in = has_query_latent},       \
        {QUERY_UP, LAYER "self_attn.q_b_proj.weight", {HEADS, LATENT_QUERY}, .in = has_query_latent, .split = 1}, \
        {QUERY_UP, LAYER "self_attn.q_proj.weight", {HEADS, WIDTH}, .in = lacks_query_latent, .split = 1},        \
        {KV_DOWN, LAYER "self_attn.kv_a_proj_with_mqa.weight", {LATENT_KEY, WIDTH}, .init = TX_STACK_NORMAL},     \
        {KV_DOWN_BIAS, LAYER "self_attn.kv_a_proj_with_mqa.bias", {LATENT_KEY}, ZEROS, IF(attention.bias)},       \
        {KV_NORM, LAYER "self_attn.kv_a_layernorm.weight", {LATENT}, ONES},                                       \
        {KV_UP, LAYER "self_attn.kv_b_proj.weight", {KEYS_AND_VALUES, LATENT}, .split = 1},                       \
        {O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, VALUES}, .split = 2},                                   \
    {                                                                                                             \
        O_BIAS, LAYER "self_attn.o_proj.bias", {WIDTH}, ZEROS, IF(attention.bias)                                 \
    }
/* The rows of Llama up to the MLP, and with others after q, k and v. */
#define OPENING_ROWS OPENING_TO_QKV, CLOSING_OF_ATTENTION
#define OPENING_ROWS_WITH(...) OPENING_TO_QKV, __VA_ARGS__, CLOSING_OF_ATTENTION
#define OPENING_TO_QKV EMBED_ROW, {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES}, SEPARATE_QKV_ROWS
#define CLOSING_OF_ATTENTION                                              \
    O_ROWS,                                                               \
    {                                                                     \
        POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES \
    }
/* Layer norms of q and k with a weight for each head: their names. */
#define EACH_NORM_ROWS(q, k, ...)                                                                     \
    {Q_NORM, LAYER "self_attn." q ".weight", {QUERY_HEADS, HEAD_SIZE}, ONES, EACH_NORM, __VA_ARGS__}, \
    {                                                                                                 \
        K_NORM, LAYER "self_attn." k ".weight", {KEY_HEADS, HEAD_SIZE}, ONES, EACH_NORM, __VA_ARGS__  \
    }
#define EACH_NORM .router = true, .other_decay = true /* vectors, in the precision of tables */
/* Norms of q and k. */
#define HEAD_NORM_ROW(name, size, ...)                          \
    {                                                           \
        HEAD_NORM, LAYER "self_attn." name, {size}, __VA_ARGS__ \
    }
#define MLP_BIAS_ROWS MLP_BIAS_ROWS_IF(mlp.bias)
#define MLP_BIAS_ROWS_IF(flag)                                                                  \
    {GATE_UP_BIAS, LAYER "mlp.gate_proj|up_proj.bias", {GATE_UP}, ZEROS, IF(flag), .split = 1}, \
    {                                                                                           \
        DOWN_BIAS, LAYER "mlp.down_proj.bias", {WIDTH}, ZEROS, IF(flag)                         \
    }
/* An MLP without a gate: the names of its matrices without ".weight", and the flag of biases. */
#define PLAIN_MLP_ROWS(up, down) PLAIN_MLP_ROWS_IF(mlp.bias, up, down)
#define PLAIN_MLP_ROWS_IF(flag, up, down)                                 \
    {GATE_UP_PROJ, up ".weight", {INNER, WIDTH}, .split = 1},             \
        {GATE_UP_BIAS, up ".bias", {INNER}, ZEROS, IF(flag), .split = 1}, \
        {DOWN_PROJ, down ".weight", {WIDTH, INNER}, .split = 2},          \
    {                                                                     \
        DOWN_BIAS, down ".bias", {WIDTH}, ZEROS, IF(flag)                 \
    }
/* A layer norm: its name without ".weight". */
#define LAYER_NORM_ROWS(slot, name)               \
    {slot, name ".weight", {WIDTH}, ONES},        \
    {                                             \
        slot##_BIAS, name ".bias", {WIDTH}, ZEROS \
    }
/* OPENING_ROWS with layer norms. */
#define CENTRED_OPENING_ROWS                                                                    \
    EMBED_ROW, LAYER_NORM_ROWS(INPUT_NORM, LAYER "input_layernorm"), SEPARATE_QKV_ROWS, O_ROWS, \
        LAYER_NORM_ROWS(POST_NORM, LAYER "post_attention_layernorm")
#define SEPARATE_MLP_ROWS                                                               \
    {GATE_UP_PROJ, LAYER "mlp.gate_proj|up_proj.weight", {GATE_UP, WIDTH}, .split = 1}, \
    {                                                                                   \
        DOWN_PROJ, LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .split = 2             \
    }
#define JOINED_MLP_ROWS                                                            \
    {GATE_UP_PROJ, LAYER "mlp.gate_up_proj.weight", {GATE_UP, WIDTH}, .split = 1}, \
    {                                                                              \
        DOWN_PROJ, LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .split = 2        \
    }
/* Experts in all layers, or in those that is_sparse selects: the names of their matrices. */
#define EXPERT_ROWS(router_, gate_up, down) EXPERT_ROWS_IN(NULL, router_, gate_up, down)
#define SOME_EXPERT_ROWS(router_, gate_up, down) EXPERT_ROWS_IN(is_sparse, router_, gate_up, down)
#define EXPERT_ROWS_IN(layers, router_, gate_up, down)                                                             \
    {ROUTER, router_, {EXPERTS, WIDTH}, .router = true, .in = (layers)},                                           \
        {EXPERTS_GATE_UP, gate_up, {EXPERTS, EXPERT_GATE_UP, WIDTH}, .split = 2, .experts = true, .in = (layers)}, \
    {                                                                                                              \
        EXPERTS_DOWN, down, {EXPERTS, WIDTH, EXPERT_INNER}, .split = 3, .experts = true, .in = (layers)            \
    }
/* A bias of the choice of experts: its name and shape. */
#define CHOICE_BIAS_ROW(layers, name, ...)                                                      \
    {                                                                                           \
        CHOICE_BIAS, name, {__VA_ARGS__}, ZEROS, .router = true, .frozen = true, .in = (layers) \
    }
/* The experts that all tokens use, and the MLP of layers without experts. */
#define SHARED_ROWS(gate_up, down)                                                         \
    {SHARED_GATE_UP_PROJ, gate_up, {SHARED_GATE_UP, WIDTH}, .in = has_shared, .split = 1}, \
    {                                                                                      \
        SHARED_DOWN_PROJ, down, {WIDTH, SHARED_INNER}, .in = has_shared, .split = 2        \
    }
#define DENSE_ROWS                                                                                      \
    {GATE_UP_PROJ, LAYER "mlp.gate_proj|up_proj.weight", {GATE_UP, WIDTH}, .in = is_dense, .split = 1}, \
    {                                                                                                   \
        DOWN_PROJ, LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .in = is_dense, .split = 2             \
    }
/* The MLPs of DeepSeek-V3. */
#define SHARED_EXPERTS_ROWS \
    SHARED_ROWS(LAYER "mlp.shared_experts.gate_proj|up_proj.weight", LAYER "mlp.shared_experts.down_proj.weight")
#define MLP_EXPERT_ROWS(router_)                                                    \
    SOME_EXPERT_ROWS(LAYER router_, LAYER "mlp.experts.*.gate_proj|up_proj.weight", \
                     LAYER "mlp.experts.*.down_proj.weight")
#define DEEPSEEK_MLP_ROWS                                                                                              \
    MLP_EXPERT_ROWS("mlp.gate.weight"), CHOICE_BIAS_ROW(is_sparse, LAYER "mlp.gate.e_score_correction_bias", EXPERTS), \
        SHARED_EXPERTS_ROWS, DENSE_ROWS
#define HEAD_ROWS                                                                                               \
    {LM_HEAD,   "lm_head.weight", {VOCAB, WIDTH}, UNLESS(tie_word_embeddings), .heads = 1 << TX_HEAD_CAUSAL_LM, \
     .split = 1},                                                                                               \
        {SCORE, "score.weight", {LABELS, WIDTH}, .heads = 1 << TX_HEAD_SEQUENCE_CLASSIFICATION},                \
    {                                                                                                           \
        .name = NULL                                                                                            \
    }
#define LAST_ROWS {FINAL_NORM, "model.norm.weight", {WIDTH}, ONES}, HEAD_ROWS

#endif
