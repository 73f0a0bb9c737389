/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a family that the Llama graph (llama_graph.c) computes: its table of tensors (llama_rows.h), keys of its
 * config.json, and the row of the table of architectures. phi3.c is an example. */
#ifndef TX_MODELS_LLAMA_FAMILY_H
#define TX_MODELS_LLAMA_FAMILY_H

#include "models/arch/experts.h"
#include "models/arch/labels.h"
#include "models/arch/llama_rows.h"
#include "models/gguf/gguf_family.h"

#include <stddef.h>

/* ---- Keys and defaults ------------------------------------------------------------------------------- */

/* A key's name in config.json, and the member that has its value. */
#define KEY(name, member) #name, offsetof(llama_config, member)
#define FLAG(name, member)                       \
    {                                            \
        KEY(name, member), TX_KEY_BOOL, .min = 0 \
    }
/* The sizes of latent attention. */
#define LATENT_KEYS LATENT_KEY_SIZES, SIZE(v_head_dim, latent.value, TX_MAX_ROTARY)
#define LATENT_KEY_SIZES                                                                             \
    SIZE(kv_lora_rank, latent.rank, 1 << 20), SIZE_OR_NULL(q_lora_rank, latent.query_rank, 1 << 20), \
        SIZE(qk_nope_head_dim, latent.plain, TX_MAX_ROTARY), SIZE(qk_rope_head_dim, latent.rotated, TX_MAX_ROTARY)
#define LATENT_DEFAULTS(rank_, query, plain_, rotated_, value_) \
    .latent = {.rank = (rank_),                                 \
               .query_rank = (query),                           \
               .plain = (plain_),                               \
               .rotated = (rotated_),                           \
               .value = (value_),                               \
               .pairs = true,                                   \
               .sharpness = 1}
/* Dropouts that are not implemented must be 0. */
#define NUMBER(name, member, most)                      \
    {                                                   \
        KEY(name, member), TX_KEY_NUMBER, .max = (most) \
    }
#define SIZE(name, member, most) SIZE_OF(name, NULL, member, most)
#define SIZE_OF(name, second_, member, most)                                        \
    {                                                                               \
        KEY(name, member), TX_KEY_INT, .min = 1, .max = (most), .second = (second_) \
    }
#define SIZE_OR_NULL(name, member, most)                               \
    {                                                                  \
        KEY(name, member), TX_KEY_INT_OR_NULL, .min = 1, .max = (most) \
    }
#define TOKEN(name)                                                          \
    {                                                                        \
        KEY(name, base.name), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1 \
    }
#define SETTING(name, member, least, most)                              \
    {                                                                   \
        KEY(name, member), TX_KEY_NUMBER, .min = (least), .max = (most) \
    }

/* Keys that all types have. The bounds keep all products of sizes within int64. */
#define SIZE_KEYS                                                                                      \
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),     \
        SIZE(intermediate_size, mlp.inner, 1 << 22), NUMBER(initializer_range, initializer_range, 10), \
        NUMBER(attention_dropout, attention.dropout, 0.999)
/* The sizes under the names of a family. */
#define NAMED_SIZE_KEYS(positions_, width_, layers_, heads_)                                        \
    SIZE(vocab_size, base.vocab_size, 1 << 30), SIZE(positions_, max_position_embeddings, 1 << 24), \
        SIZE(width_, base.width, 1 << 20), SIZE(layers_, base.layers, TX_LLAMA_LAYERS),             \
        SIZE(heads_, base.heads, 1 << 16), TOKEN(bos_token_id), TOKEN(eos_token_id),                \
        FLAG(tie_word_embeddings, tie_word_embeddings)
/* The keys of GPT-J and StarCoder, which are those of GPT-2. */
#define GPT_KEYS                                                                                            \
    NAMED_SIZE_KEYS(n_positions, n_embd, n_layer, n_head), INNER_KEY(n_inner), EPS_KEY(layer_norm_epsilon), \
        GELU_KEY(activation_function), NUMBER(resid_pdrop, residual.dropout, 0.999),                        \
        NUMBER(embd_pdrop, embedding.dropout, 0.999), NUMBER(attn_pdrop, attention.dropout, 0.999),         \
        NUMBER(initializer_range, initializer_range, 10)
/* The inner width of an MLP; null means four times the width. */
#define INNER_KEY(name) SIZE_OR_NULL(name, mlp.inner, 1 << 22)
#define KV_HEADS_KEY SIZE_OR_NULL(num_key_value_heads, attention.kv_heads, 1 << 16)
#define EPS_KEY(name) SETTING(name, norms.eps, 1e-12, 1)
/* For families that have one activation. */
#define ONE_ACT_KEY(name, activation) ACTS_KEY(name, activation, activation)
/* The activations from `first` to `last`, for families whose first activation is that one. */
#define ACTS_KEY(name, first, last)                                                                          \
    {                                                                                                        \
        KEY(name, mlp.choice), TX_KEY_CHOICE, .max = (last) - (first), .words = &tx_llama_activations[first] \
    }
#define GELU_KEY(name) ACTS_KEY(name, TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_FAST)
#define COMMON_KEYS SIZE_KEYS, KV_HEADS_KEY, EPS_KEY(rms_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU)
#define HEAD_DIM_KEY                                                                          \
    {                                                                                         \
        KEY(head_dim, attention.head_dim), TX_KEY_INT_OR_NULL, .min = 2, .max = TX_MAX_ROTARY \
    }
#define WINDOW_KEY SIZE_OR_NULL(sliding_window, attention.window, 1 << 24)
#define BIAS_KEY FLAG(attention_bias, attention.bias)
#define MLP_BIAS_KEY FLAG(mlp_bias, mlp.bias)

/* The number of experts has two names. */
#define EXPERTS_KEYS(name, second) EXPERTS_KEYS_FROM(1, name, second)
#define EXPERTS_KEYS_FROM(least, name, second_)                                                          \
    {KEY(name, experts.count), TX_KEY_INT, .min = (least), .max = 1 << 12, .second = (second_)},         \
        SIZE(num_experts_per_tok, experts.chosen, 1 << 12), FLAG(output_router_logits, experts.balance), \
        NUMBER(router_aux_loss_coef, experts.balance_factor, 1e6)
#define WHOLE(name, member, least, most)                             \
    {                                                                \
        KEY(name, member), TX_KEY_INT, .min = (least), .max = (most) \
    }
/* The keys of DeepSeek-V3's routing, and those with the numbers of its experts. */
#define CHOICE_KEYS                                                                                                    \
    SIZE_OR_NULL(n_group, experts.groups, TX_EXPERT_GROUPS), SIZE_OR_NULL(topk_group, experts.kept, TX_EXPERT_GROUPS), \
        FLAG(norm_topk_prob, experts.normalise), SETTING(routed_scaling_factor, experts.scale, 1e-6, 1e6),             \
        WHOLE(first_k_dense_replace, experts.first, 0, TX_LLAMA_LAYERS),                                               \
        SIZE(num_experts_per_tok, experts.chosen, 1 << 12), SIZE(moe_intermediate_size, experts.inner, 1 << 22)
#define DEEPSEEK_KEYS                                                                    \
    CHOICE_KEYS, SIZE_OF(n_routed_experts, "num_local_experts", experts.count, 1 << 12), \
        WHOLE(n_shared_experts, experts.shared, 0, 1 << 12)
#define MTP_KEY WHOLE(num_nextn_predict_layers, mtp_layers, 0, TX_LLAMA_LAYERS)
/* Granite's multipliers. */
#define MULTIPLIER(name, member) SETTING(name, member, 1e-9, 1e9)
#define GRANITE_KEYS                                                                                                \
    MULTIPLIER(embedding_multiplier, embedding.multiplier), MULTIPLIER(attention_multiplier, attention.multiplier), \
        MULTIPLIER(residual_multiplier, residual.multiplier), MULTIPLIER(logits_scaling, logits.divisor)
#define GRANITE_DEFAULTS \
    .embedding.multiplier = 1, .attention.multiplier = 1, .residual.multiplier = 1, .logits.divisor = 1
/* transformers' defaults. */
#define SIZES(row, table, vocab, positions_, width_, layers_, heads_, bos, eos) \
    .base = {.architecture = &(row),                                            \
             .vocab_size = (vocab),                                             \
             .width = (width_),                                                 \
             .layers = (layers_),                                               \
             .heads = (heads_),                                                 \
             .bos_token_id = (bos),                                             \
             .eos_token_id = (eos),                                             \
             .labels = TX_LABELS_DEFAULT},                                      \
    .rows = (table), .max_position_embeddings = (positions_)
#define ROPE(theta_)                                                 \
    {                                                                \
        .theta = (theta_), .factor = 1, .attention = 1, .rotated = 1 \
    }
/* YaRN with the usual numbers of turns, which leaves the scores as they are. */
#define YARN_ROPE(theta_, factor_, original_)                                                                        \
    {                                                                                                                \
        .theta = (theta_), .type = TX_ROPE_YARN, .factor = (factor_), .original = (original_), .low = 1, .high = 32, \
        .attention = 1, .rotated = 1, .truncate = true                                                               \
    }
/* Rotary positions in the first part of each head. */
#define PARTIAL_ROPE(theta_, part)                                                         \
    {                                                                                      \
        .theta = (theta_), .factor = 1, .attention = 1, .rotated = (part), .partial = true \
    }
#define REST(inner_, heads_of_kv, eps_, theta_) REST_OF(inner_, heads_of_kv, eps_, 0.02, ROPE(theta_))
#define REST_OF(inner_, heads_of_kv, eps_, range, ...)                                                             \
    .mlp.inner = (inner_), .attention.kv_heads = (heads_of_kv), .norms.eps = (eps_), .initializer_range = (range), \
    .positions.rope = __VA_ARGS__

/* An MLP without a gate, and its activations from the first one on. */
#define PLAIN_MLP(first, usual) .mlp.plain = true, .mlp.activation = (first), .mlp.choice = (usual) - (first)

#define EXPERTS_DEFAULTS(all, chosen_, factor)                                                    \
    .experts.count = (all), .experts.chosen = (chosen_), .experts.period = 1, .experts.last = -1, \
    .experts.balance_factor = (factor)
/* DeepSeek-V3's routing: the number of experts, of those that a token uses, and of those that all use. Then the first
 * layer with experts, their size, the number of groups, that of kept ones, and the scale of the weights. */
#define DEEPSEEK_DEFAULTS(all, chosen_, shared_, first_, inner_, groups_, kept_, scale_)                          \
    EXPERTS_DEFAULTS(all, chosen_, 0), .experts.shared = (shared_), .experts.first = (first_),                    \
                                       .experts.inner = (inner_), .experts.sigmoid = true, .experts.grouping = 1, \
                                       .experts.groups = (groups_), .experts.kept = (kept_), .experts.best = 2,   \
                                       .experts.least = 1e-20, .experts.scale = (scale_)

/* mla.c */
bool has_query_latent(const tx_config *config, int64_t layer);
bool lacks_query_latent(const tx_config *config, int64_t layer);
tx_tensor *tx_llama_latent_attention(tx_stack *b, tx_tensor *x, int64_t layer);

/* layer_attention.c: x [B, T, C] -> [B, T, heads * size] */
tx_tensor *tx_llama_layer_attention(tx_stack *b, tx_tensor *x, int64_t layer);

/* layer_inputs.c */
bool has_layer_inputs(const tx_config *config, int64_t layer);
/* Sets b->layer_inputs from the embeddings x, if the layers have further ones. */
void tx_llama_layer_inputs(tx_stack *b, tx_tensor *x);
/* The addend of the layer's embedding, through a gate that x computes. */
tx_tensor *tx_llama_layer_input(tx_stack *b, tx_tensor *x, int64_t layer);
/* The result x of a block plus its layer's embedding, times the scale of the layer, as far as it has these. */
tx_tensor *tx_llama_end_layer(tx_stack *b, tx_tensor *x, int64_t layer);

/* altup.c: embeddings [B, T, C] -> streams [B, T, streams * C], and back */
tx_tensor *tx_llama_open_streams(tx_stack *b, tx_tensor *x);
tx_tensor *tx_llama_close_streams(tx_stack *b, tx_tensor *streams);
/* The streams before a block, and after it: `first` is the first of the former, `updated` the block's result. */
tx_tensor *tx_llama_predict_streams(tx_stack *b, tx_tensor *streams);
tx_tensor *tx_llama_correct_streams(tx_stack *b, tx_tensor *streams, tx_tensor *first, tx_tensor *updated,
                                    int64_t layer);
/* Adds the residual of low rank of the attention's input to x, if the family has one. */
tx_tensor *tx_llama_augment(tx_stack *b, tx_tensor *x, tx_tensor *normed);
/* gate | up [.., 2 F] -> gelu(gate) up [.., F], where gates below the cutoff of their row count as 0. */
tx_tensor *tx_llama_sparse_gates(const tx_stack *b, tx_tensor *x);

tx_tensor *tx_llama_xielu(const tx_stack *b, tx_tensor *x); /* xielu.c */

/* ---- The row of the table of architectures ----------------------------------------------------------- */

extern const tx_stack_row tx_llama_rows[]; /* llama.c */
int32_t tx_llama_params(const tx_config *config);
tx_status tx_llama_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);
int64_t tx_llama_embeddings(const tx_config *config);
int64_t tx_llama_inactive(const tx_config *config);
int64_t tx_llama_rates(const tx_config *config, int64_t length, float *rates);
tx_tensor *tx_llama_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
void tx_llama_rename(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME]);
tx_status tx_llama_check_weights(const tx_config *config, const tx_weights *weights);
bool tx_llama_leaves_out(const tx_config *config, const char *tensor);
bool tx_llama_is_of_head(const char *param);

/* Elements first, .., first + count - 1 of the last dimension. */
static inline tx_tensor *columns_of(tx_tensor *x, int64_t first, int64_t count)
{
    return tx_shift_rows(x, count, first, 0);
}

/* ---- Heads (llama_heads.c) ------------------------------------------------------------------------------- */

/* Refuses a feature that tensor-parallel ranks do not support. */
void tx_llama_one_rank(tx_stack *b, const char *what);
/* Tensors with the same rows next to each other: [.., sum of their columns]. NULL on error, as the others. */
tx_tensor *tx_llama_join(tx_tensor *const *part, int32_t count);
/* Multiplies each of `count` sections of the columns, of these sizes, by a number. A first number of 0 means none. */
tx_tensor *tx_llama_scale_columns(tx_graph *graph, tx_tensor *x, int32_t count, const int64_t *sizes,
                                  const double *multipliers);
/* qkv of a file in which each group of query heads is followed by its head of keys and its head of values, as q, k and
 * v: [.., (heads + 2 of_kv) * size]. */
tx_tensor *tx_llama_ungroup(tx_tensor *qkv, int64_t heads, int64_t of_kv, int64_t size);
/* Swaps the halves of each head: a rotation of the result is one by the negative angle. */
tx_tensor *tx_llama_swap_halves(tx_tensor *x, int64_t heads, int64_t size);
/* Layer norms of each head of q and k in q | k | v, with weights of their own (Q_NORM and K_NORM). */
tx_tensor *tx_llama_norm_each(const tx_stack *b, tx_tensor *qkv, int64_t heads, int64_t of_kv, int64_t size);
/* Multiplies the queries by 1 + growth ln(1 + floor(position / original)), for `longest` positions. */
tx_tensor *tx_llama_scale_queries(tx_stack *b, tx_tensor *qkv, int64_t heads, int64_t size, int64_t longest);

/* A row with peft's default targets, and one with the usual values of the rest. */
#define USUAL_FAMILY(TYPE, CLASS) FAMILY(TYPE, CLASS, defaults, keys, "q_proj,v_proj", tx_llama_read, tx_llama_write)
#define FAMILY(TYPE, CLASS, ...) FAMILY_OF(TYPE, CLASS "ForCausalLM", __VA_ARGS__)
#define FAMILY_OF(TYPE, CLASS, DEFAULTS, KEYS, TARGETS, READ, WRITE) \
    FAMILY_CHECKED(TYPE, CLASS, DEFAULTS, KEYS, TARGETS, READ, WRITE, tx_llama_check)
/* A type with recurrent layers (mixer.h), for which peft has no default targets. */
#define MIXED_FAMILY(TYPE, CLASS, DEFAULTS, KEYS, READ) \
    FAMILY_CHECKED(TYPE, CLASS, DEFAULTS, KEYS, NULL, READ, tx_llama_write, tx_mixer_check), .recurs = tx_mixer_recurs
#define FAMILY_CHECKED(TYPE, CLASS, DEFAULTS, KEYS, TARGETS, READ, WRITE, CHECK)                               \
    .type = (TYPE), .class_name = (CLASS), .config_bytes = sizeof(llama_config), .defaults = &(DEFAULTS).base, \
    .keys = (KEYS), .read = (READ), .write = (WRITE), .check = (CHECK), .params = tx_llama_params,             \
    .param = tx_llama_param, .embeddings = tx_llama_embeddings, .inactive = tx_llama_inactive,                 \
    .rates = tx_llama_rates, .lora_targets = (TARGETS), .logits = tx_llama_logits, .rename = tx_llama_rename,  \
    .leaves_out = tx_llama_leaves_out, .check_weights = tx_llama_check_weights
/* general.architecture of its GGUF files, and further members of tx_gguf_family; CENTRED for layer norms. */
#define GGUF(...) GGUF_OF(tx_llama_gguf, __VA_ARGS__)
#define CENTRED_GGUF(...) GGUF_OF(tx_llama_gguf_centred, __VA_ARGS__)
/* The keys of DeepSeek-V3's routing, and the number of llama.cpp's function of scores. */
enum { GGUF_SOFTMAX = 1, GGUF_SIGMOID = 2 };
#define GGUF_GATING(function)                                                                                   \
    {                                                                                                           \
        .key = "expert_gating_func", .kind = TX_GGUF_INT, .otherwise = TX_GGUF_CONSTANT, .constant = (function) \
    }
#define GGUF_ROUTING(function)                                                                           \
    {.key = "leading_dense_block_count",                                                                 \
     .name = "first_k_dense_replace",                                                                    \
     .value = tx_llama_gguf_dense,                                                                       \
     .otherwise = TX_GGUF_CONSTANT /* also 0, which is not the default of config.json */},               \
        TX_GGUF_MEMBER("expert_shared_count", offsetof(llama_config, experts.shared), INT, NOTHING),     \
        TX_GGUF_MEMBER("expert_weights_scale", offsetof(llama_config, experts.scale), NUMBER, NOTHING),  \
        TX_GGUF_MEMBER("expert_weights_norm", offsetof(llama_config, experts.normalise), BOOL, NOTHING), \
        TX_GGUF_MEMBER("expert_group_count", offsetof(llama_config, experts.groups), INT, NOTHING),      \
        TX_GGUF_MEMBER("expert_group_used_count", offsetof(llama_config, experts.kept), INT, NOTHING),   \
        GGUF_GATING(function)
#define GGUF_OF(kind, ...)                             \
    .gguf = &(const tx_gguf_family)                    \
    {                                                  \
        .scheme = &(kind), .architecture = __VA_ARGS__ \
    }
/* Defines the row of a type's model without a head. */
#define WITHOUT_HEAD(row, TYPE, CLASS, DEFAULTS, KEYS, READ, ...)                                                      \
    const tx_architecture row##_base = {FAMILY_OF(TYPE, CLASS, DEFAULTS, KEYS, "q_proj,v_proj", READ, tx_llama_write), \
                                        .head = TX_HEAD_STATES, .decodes = true, .is_of_head = tx_llama_is_of_head,    \
                                        __VA_ARGS__}
/* Defines the rows of a type with a language model, a classifier, and neither. */
#define ALL_HEADS(row, TYPE, CLASS, DEFAULTS, KEYS, READ, ...)                                                     \
    const tx_architecture row = {FAMILY(TYPE, CLASS, DEFAULTS, KEYS, "q_proj,v_proj", READ, tx_llama_write),       \
                                 __VA_ARGS__};                                                                     \
    WITHOUT_HEAD(row, TYPE, CLASS "Model", DEFAULTS, KEYS, READ, __VA_ARGS__);                                     \
    const tx_architecture row##_classifier = {                                                                     \
        FAMILY_OF(TYPE, CLASS "ForSequenceClassification", DEFAULTS, KEYS, "q_proj,v_proj", READ, tx_llama_write), \
        .head = TX_HEAD_SEQUENCE_CLASSIFICATION,                                                                   \
        .reads_last = true,                                                                                        \
        .lora_saved = "score",                                                                                     \
        .is_of_head = tx_llama_is_of_head,                                                                         \
        __VA_ARGS__}

#endif
