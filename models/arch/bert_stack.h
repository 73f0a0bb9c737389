/* SPDX-License-Identifier: Apache-2.0
 *
 * The encoder that BERT, RoBERTa, DistilBERT, ELECTRA and MPNet share. A family is a tx_bert_kind: its names in files
 * and its differences. Each family has five heads, ForMaskedLM, ForSequenceClassification, ForTokenClassification,
 * ForMultipleChoice and ForQuestionAnswering, and the bare encoder, whose files have names without the family's prefix.
 * Next to input_ids the graph may have token_type_ids, I32 [B, T]; the default is 0. DistilBERT and MPNet ignore it. */
#ifndef TX_MODELS_BERT_STACK_H
#define TX_MODELS_BERT_STACK_H

#include "models/arch/families.h"
#include "models/arch/relative.h"
#include "models/gguf/gguf_family.h"

#include <stddef.h>

/* Activations: those of hidden_act, then those that only heads use. */
typedef enum tx_bert_act {
    TX_BERT_GELU,
    TX_BERT_GELU_NEW,
    TX_BERT_GELU_TANH,
    TX_BERT_SILU,
    TX_BERT_SWISH,
    TX_BERT_RELU,
    TX_BERT_ACTS,
    TX_BERT_TANH = TX_BERT_ACTS
} tx_bert_act;

extern const char *const tx_bert_acts[TX_BERT_ACTS]; /* their names in config.json */
tx_tensor *tx_bert_activate(int32_t act, tx_tensor *x);

/* Names of tensors: the one that files may also hold, and the parameter that it must equal. */
typedef struct tx_bert_tie {
    const char *copy, *of; /* `copy` is NULL after the last */
} tx_bert_tie;

typedef struct tx_bert_kind {
    bool counts_tokens;         /* positions count the tokens without padding, from pad_token_id + 1 on */
    bool has_embedding_size;    /* embedding_size is a key, else it is the width */
    bool exact_gelu;            /* the masked head uses exact GELU instead of hidden_act */
    bool input_dropout;         /* the head of sequence classification also applies dropout to its input */
    bool same_head;             /* the masked head uses head_act */
    bool dropout_of_texts;      /* classifier_dropout is only for sequence classification */
    bool undropped;             /* no dropout after feed-forward layers */
    bool disentangled;          /* distances have queries and keys instead of a bias that all layers share */
    tx_relative_bucket *bucket; /* of distances; or NULL */
    /* These may be NULL. The table of distances if it is not a parameter; it returns NULL if none is needed. The block,
     * and the input [B, C] of sequence classification, instead of BERT's. */
    tx_tensor *(*table)(tx_stack *stack);
    tx_stack_block *block;
    /* Query | key | value of x, and queries | keys of distances, if they are not linear layers of BERT's form. */
    tx_tensor *(*project)(tx_stack *stack, tx_tensor *x), *(*project_distances)(tx_stack *stack, tx_tensor *x);
    tx_tensor *(*pool)(tx_stack *stack, tx_tensor *x);
    const char *prefix;       /* of the encoder's names in files */
    const char *const *heads; /* prefixes of tensors of all heads; ends with NULL */
    const tx_stack_row *rows[TX_HEAD_COUNT];
    tx_bert_tie ties[3];
} tx_bert_kind;
#define TX_BERT_HEADS(masked, texts, tokens, choices, answers, states) \
    .rows = {[TX_HEAD_MASKED_LM] = (masked),                           \
             [TX_HEAD_SEQUENCE_CLASSIFICATION] = (texts),              \
             [TX_HEAD_TOKEN_CLASSIFICATION] = (tokens),                \
             [TX_HEAD_MULTIPLE_CHOICE] = (choices),                    \
             [TX_HEAD_QUESTION_ANSWERING] = (answers),                 \
             [TX_HEAD_STATES] = (states)}

/* The keys of config.json under BERT's names. */
typedef struct tx_bert_config {
    tx_config base;
    const tx_bert_kind *kind;
    int64_t max_position_embeddings; /* rows of the position table; base.positions is the limit for a text */
    int64_t embedding_size, intermediate_size, type_vocab_size, pad_token_id;
    int64_t buckets;                                  /* of distances */
    int64_t position_buckets, max_relative_positions; /* DeBERTa's, like the flags after `projects` */
    bool projects;                                    /* a linear layer maps embeddings to hidden_size */
    bool relative_attention, position_biased_input, share_att_key, legacy, has_types, norms_distances;
    int32_t hidden_act, head_act; /* the last is that of the dense layer of sequence classification */
    /* ModernBERT's: each `every`-th layer sees all positions; the others see `local` / 2 on each side. */
    int64_t every, local;
    double global_theta, local_theta, mlp_dropout;
    int32_t pooling;
    double layer_norm_eps, initializer_range, hidden_dropout_prob, attention_probs_dropout_prob;
    double qa_dropout;         /* DistilBERT's, before the head for question answering */
    double pooler_dropout;     /* before that dense layer */
    double classifier_dropout; /* TX_BERT_NO_DROPOUT means hidden_dropout_prob (null in the file) */
} tx_bert_config;

#define TX_BERT_NO_DROPOUT (-1.0)

/* ---- Configuration ----------------------------------------------------------------------------------- */

#define TX_BERT_KEY(name, field) #name, offsetof(tx_bert_config, field)
/* Keys that all families have. The bounds keep all products of sizes within int64. */
#define TX_BERT_COMMON_KEYS                                                                                    \
    {TX_BERT_KEY(vocab_size, base.vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 30},                          \
        {TX_BERT_KEY(max_position_embeddings, max_position_embeddings), TX_KEY_INT, .min = 1, .max = 1 << 24}, \
        {TX_BERT_KEY(bos_token_id, base.bos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},        \
        {TX_BERT_KEY(eos_token_id, base.eos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},        \
        {TX_BERT_KEY(pad_token_id, pad_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},             \
    {                                                                                                          \
        TX_BERT_KEY(initializer_range, initializer_range), TX_KEY_NUMBER, .max = 10                            \
    }

/* Sizes and rates under the names of the family. */
#define TX_BERT_SIZE(name, field, most)                                    \
    {                                                                      \
        TX_BERT_KEY(name, field), TX_KEY_INT, .min = 1, .max = 1 << (most) \
    }
#define TX_BERT_RATE(name, field)                             \
    {                                                         \
        TX_BERT_KEY(name, field), TX_KEY_NUMBER, .max = 0.999 \
    }
#define TX_BERT_ACT_KEY(name)                                                                        \
    {                                                                                                \
        TX_BERT_KEY(name, hidden_act), TX_KEY_CHOICE, .max = TX_BERT_ACTS - 1, .words = tx_bert_acts \
    }

/* The keys of BERT, and of families that call them the same. */
#define TX_BERT_KEYS                                                                                                  \
    TX_BERT_COMMON_KEYS, TX_BERT_SIZE(hidden_size, base.width, 20), TX_BERT_SIZE(num_hidden_layers, base.layers, 12), \
        TX_BERT_SIZE(num_attention_heads, base.heads, 20), TX_BERT_SIZE(intermediate_size, intermediate_size, 22),    \
        TX_BERT_SIZE(type_vocab_size, type_vocab_size, 20), TX_BERT_ACT_KEY(hidden_act),                              \
        {TX_BERT_KEY(layer_norm_eps, layer_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},                         \
        TX_BERT_RATE(hidden_dropout_prob, hidden_dropout_prob),                                                       \
        TX_BERT_RATE(attention_probs_dropout_prob, attention_probs_dropout_prob)

extern const tx_fixed_key tx_bert_fixed[];
/* classifier_dropout and position_embedding_type, then tx_bert_read_rest. */
tx_status tx_bert_read(const tx_json *json, tx_config *config);
tx_status tx_bert_write(const tx_config *config, tx_json *json);
/* The labels, and the sizes that follow from keys. */
tx_status tx_bert_read_rest(const tx_json *json, tx_config *config);

/* ---- Parameters -------------------------------------------------------------------------------------- */

/* Symbolic sizes of dimensions. */
enum {
    TX_BERT_POSITIONS = TX_EXTENT_OWN,
    TX_BERT_TYPES,
    TX_BERT_EMBEDDING,
    TX_BERT_QKV,
    TX_BERT_INNER,
    TX_BERT_LABELS,
    TX_BERT_ONE,
    TX_BERT_BUCKETS,
    TX_BERT_HEADS,
    TX_BERT_TWO,
    TX_BERT_QK,
    TX_BERT_GATED
};

/* Parameter slots; a bias follows its weight. */
enum {
    TX_BERT_WORD_TABLE,
    TX_BERT_POSITION_TABLE,
    TX_BERT_TYPE_TABLE,
    TX_BERT_EMBED_NORM,
    TX_BERT_PROJECT = TX_BERT_EMBED_NORM + 2,
    TX_BERT_QKV_PROJ = TX_BERT_PROJECT + 2,
    TX_BERT_O_PROJ = TX_BERT_QKV_PROJ + 2,
    TX_BERT_ATTN_NORM = TX_BERT_O_PROJ + 2,
    TX_BERT_UP_PROJ = TX_BERT_ATTN_NORM + 2,
    TX_BERT_DOWN_PROJ = TX_BERT_UP_PROJ + 2,
    TX_BERT_MLP_NORM = TX_BERT_DOWN_PROJ + 2,
    TX_BERT_HEAD_DENSE = TX_BERT_MLP_NORM + 2,
    TX_BERT_HEAD_NORM = TX_BERT_HEAD_DENSE + 2,
    TX_BERT_HEAD_OUT = TX_BERT_HEAD_NORM + 2,
    TX_BERT_HEAD_BIAS = TX_BERT_HEAD_OUT + 2,
    TX_BERT_DISTANCE_TABLE,
    TX_BERT_DISTANCE_NORM,
    TX_BERT_DISTANCE_PROJ = TX_BERT_DISTANCE_NORM + 2,
    TX_BERT_FINAL_NORM = TX_BERT_DISTANCE_PROJ + 2,
    TX_BERT_QUERY_BIAS = TX_BERT_FINAL_NORM + 2,
    TX_BERT_VALUE_BIAS,
    TX_BERT_DISTANCE_BIAS
};

/* Rows of a weight and its bias. Names separated by bars are the tensors of the sections in files. */
#define TX_BERT_LINEAR(slot, name, out, in, of_weight, of_bias)                         \
    {TX_BERT_##slot, name "weight", {out, in}, .split = of_weight},                     \
    {                                                                                   \
        TX_BERT_##slot + 1, name "bias", {out}, .init = TX_STACK_ZERO, .split = of_bias \
    }
#define TX_BERT_NORM(slot, name, width)                                 \
    {TX_BERT_##slot, name "weight", {width}, .init = TX_STACK_ONE},     \
    {                                                                   \
        TX_BERT_##slot + 1, name "bias", {width}, .init = TX_STACK_ZERO \
    }
#define TX_BERT_WORDS "embeddings.word_embeddings.weight"
#define TX_BERT_TABLES(prefix)                                                                    \
    {TX_BERT_WORD_TABLE, prefix TX_BERT_WORDS, {TX_EXTENT_VOCAB, TX_BERT_EMBEDDING}, .split = 1}, \
        TX_BERT_TABLE(POSITION_TABLE, prefix "embeddings.position_embeddings.weight", TX_BERT_POSITIONS)
#define TX_BERT_TABLE(slot, name, rows)                                          \
    {                                                                            \
        TX_BERT_##slot, name, {rows, TX_BERT_EMBEDDING}, .init = TX_STACK_NORMAL \
    }
/* An encoder under BERT's names. */
#define TX_BERT_ENCODER(prefix)                                                                          \
    TX_BERT_TABLES(prefix),                                                                              \
        TX_BERT_TABLE(TYPE_TABLE, prefix "embeddings.token_type_embeddings.weight", TX_BERT_TYPES),      \
        TX_BERT_NORM(EMBED_NORM, prefix "embeddings.LayerNorm.", TX_BERT_EMBEDDING),                     \
        {TX_BERT_PROJECT,                                                                                \
         prefix "embeddings_project.weight",                                                             \
         {TX_EXTENT_WIDTH, TX_BERT_EMBEDDING},                                                           \
         .with = offsetof(tx_bert_config, projects)},                                                    \
        {TX_BERT_PROJECT + 1,                                                                            \
         prefix "embeddings_project.bias",                                                               \
         {TX_EXTENT_WIDTH},                                                                              \
         .init = TX_STACK_ZERO,                                                                          \
         .with = offsetof(tx_bert_config, projects)},                                                    \
        TX_BERT_LINEAR(QKV_PROJ, prefix "encoder.layer.%d.attention.self.query|key|value.", TX_BERT_QKV, \
                       TX_EXTENT_WIDTH, 1, 1),                                                           \
        TX_BERT_REST(prefix)
/* What follows attention in its blocks. */
#define TX_BERT_REST(prefix)                                                                                           \
    TX_BERT_LINEAR(O_PROJ, prefix "encoder.layer.%d.attention.output.dense.", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH, 2, 0), \
        TX_BERT_NORM(ATTN_NORM, prefix "encoder.layer.%d.attention.output.LayerNorm.", TX_EXTENT_WIDTH),               \
        TX_BERT_LINEAR(UP_PROJ, prefix "encoder.layer.%d.intermediate.dense.", TX_BERT_INNER, TX_EXTENT_WIDTH, 1, 1),  \
        TX_BERT_LINEAR(DOWN_PROJ, prefix "encoder.layer.%d.output.dense.", TX_EXTENT_WIDTH, TX_BERT_INNER, 2, 0),      \
        TX_BERT_NORM(MLP_NORM, prefix "encoder.layer.%d.output.LayerNorm.", TX_EXTENT_WIDTH)
/* The rows of the heads. `bias` is the decoder's; its weight is the word table. */
#define TX_BERT_MASKED_HEAD(dense, norm, bias)                                           \
    TX_BERT_LINEAR(HEAD_DENSE, dense, TX_BERT_EMBEDDING, TX_EXTENT_WIDTH, 0, 0),         \
        TX_BERT_NORM(HEAD_NORM, norm, TX_BERT_EMBEDDING),                                \
        {TX_BERT_HEAD_BIAS, bias, {TX_EXTENT_VOCAB}, .init = TX_STACK_ZERO, .split = 1}, \
    {                                                                                    \
        .name = NULL                                                                     \
    }
#define TX_BERT_TEXT_HEAD(dense, out) \
    TX_BERT_LINEAR(HEAD_DENSE, dense, TX_EXTENT_WIDTH, TX_EXTENT_WIDTH, 0, 0), TX_BERT_TOKEN_HEAD(out)
#define TX_BERT_TOKEN_HEAD(out)                                           \
    TX_BERT_LINEAR(HEAD_OUT, out, TX_BERT_LABELS, TX_EXTENT_WIDTH, 0, 0), \
    {                                                                     \
        .name = NULL                                                      \
    }

#define TX_BERT_CHOICE_HEAD(dense, out)                                        \
    TX_BERT_LINEAR(HEAD_DENSE, dense, TX_EXTENT_WIDTH, TX_EXTENT_WIDTH, 0, 0), \
        TX_BERT_LINEAR(HEAD_OUT, out, TX_BERT_ONE, TX_EXTENT_WIDTH, 0, 0),     \
    {                                                                          \
        .name = NULL                                                           \
    }
#define TX_BERT_QUESTION_HEAD                                                    \
    TX_BERT_LINEAR(HEAD_OUT, "qa_outputs.", TX_BERT_TWO, TX_EXTENT_WIDTH, 0, 0), \
    {                                                                            \
        .name = NULL                                                             \
    }

tx_tensor *tx_bert_norm(const tx_stack *stack, tx_tensor *x, int32_t slot);
tx_tensor *tx_bert_linear(const tx_stack *stack, tx_tensor *x, int32_t slot);
/* Selects the first position of each row, [CLS] or <s>: x [B, T, C] -> [B, C]. */
tx_tensor *tx_bert_first_of(const tx_stack *stack, tx_tensor *x);

int32_t tx_bert_params(const tx_config *config);
tx_status tx_bert_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);
int64_t tx_bert_embeddings(const tx_config *config);

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define TX_BERT_GGUF_KEY(key, field, kind) TX_GGUF_MEMBER(key, offsetof(tx_bert_config, field), kind, NOTHING)
#define TX_BERT_GGUF_KEYS                                                                                         \
    TX_BERT_GGUF_KEY("context_length", max_position_embeddings, INT),                                             \
        TX_BERT_GGUF_KEY("embedding_length", base.width, INT), TX_BERT_GGUF_KEY("block_count", base.layers, INT), \
        TX_BERT_GGUF_KEY("feed_forward_length", intermediate_size, INT),                                          \
        TX_BERT_GGUF_KEY(TX_GGUF_HEAD_COUNT, base.heads, INT),                                                    \
        TX_BERT_GGUF_KEY("attention.layer_norm_epsilon", layer_norm_eps, NUMBER),                                 \
    {                                                                                                             \
        .key = "attention.causal", .kind = TX_GGUF_BOOL, .otherwise = TX_GGUF_CONSTANT                            \
    }
extern const tx_gguf_scheme tx_bert_gguf; /* for BERT's blocks under any names */
/* The table of tensors, for other schemes. */
const tx_stack_row *tx_bert_rows(const tx_config *config);

/* ---- The architectures ------------------------------------------------------------------------------- */

tx_status tx_bert_check(const tx_config *config);
tx_tensor *tx_bert_masked_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
/* [B, labels] of texts, [B, 1] of choices, [B, T, labels] of tokens, [B, T, 2] of answers. */
tx_tensor *tx_bert_label_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
tx_tensor *tx_bert_states(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
/* Files of the bare encoder usually lack the prefix. Files from TensorFlow call a norm's weight gamma and its bias
 * beta. */
void tx_bert_rename(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME]);
bool tx_bert_is_of_head(const char *param);
tx_status tx_bert_check_ties(const tx_config *config, const tx_weights *weights);

#define TX_BERT_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Defines the six architectures of a family, with the module `answers` for questions. The rest initializes type,
 * defaults, keys, reading and lora_targets. */
#define TX_BERT_FAMILY(name, CLASS, ...) TX_BERT_FAMILY_OF(name, CLASS, "qa_outputs", __VA_ARGS__)
#define TX_BERT_FAMILY_OF(name, CLASS, answers, ...)                                                                 \
    TX_BERT_ROW(name##_masked_lm, CLASS "ForMaskedLM", MASKED_LM, tx_bert_masked_logits,                             \
                .check_weights = tx_bert_check_ties, __VA_ARGS__);                                                   \
    TX_BERT_ROW(name##_classifier, CLASS "ForSequenceClassification", SEQUENCE_CLASSIFICATION, tx_bert_label_logits, \
                .lora_saved = "classifier", __VA_ARGS__);                                                            \
    TX_BERT_ROW(name##_token_classifier, CLASS "ForTokenClassification", TOKEN_CLASSIFICATION, tx_bert_label_logits, \
                .lora_saved = "classifier", __VA_ARGS__);                                                            \
    TX_BERT_ROW(name##_choice, CLASS "ForMultipleChoice", MULTIPLE_CHOICE, tx_bert_label_logits,                     \
                .lora_saved = "classifier", __VA_ARGS__);                                                            \
    TX_BERT_ROW(name##_question, CLASS "ForQuestionAnswering", QUESTION_ANSWERING, tx_bert_label_logits,             \
                .lora_saved = answers, __VA_ARGS__);                                                                 \
    TX_BERT_ROW(name##_base, CLASS "Model", STATES, tx_bert_states, __VA_ARGS__)
#define TX_BERT_ROW(name, class, HEAD, build, ...)                        \
    const tx_architecture name = {.class_name = class,                    \
                                  .head = TX_HEAD_##HEAD,                 \
                                  .logits = build,                        \
                                  .config_bytes = sizeof(tx_bert_config), \
                                  .check = tx_bert_check,                 \
                                  .params = tx_bert_params,               \
                                  .param = tx_bert_param,                 \
                                  .embeddings = tx_bert_embeddings,       \
                                  .rename = tx_bert_rename,               \
                                  .is_of_head = tx_bert_is_of_head,       \
                                  __VA_ARGS__}

/* transformers' defaults that families share: sizes, and the rest of all but ModernBERT. */
#define TX_BERT_SIZES(row, differs, vocab, embedding, hidden, depth, count, inner, types, eps, bos, eos)         \
    .base = {.architecture = &(row),                                                                             \
             .vocab_size = (vocab),                                                                              \
             .width = (hidden),                                                                                  \
             .layers = (depth),                                                                                  \
             .heads = (count),                                                                                   \
             .labels = TX_LABELS_DEFAULT,                                                                        \
             .bos_token_id = (bos),                                                                              \
             .eos_token_id = (eos)},                                                                             \
    .kind = &(differs), .embedding_size = (embedding), .intermediate_size = (inner), .type_vocab_size = (types), \
    .layer_norm_eps = (eps), .initializer_range = 0.02
#define TX_BERT_DEFAULTS(...)                                                               \
    TX_BERT_SIZES(__VA_ARGS__), .max_position_embeddings = 512, .hidden_dropout_prob = 0.1, \
                                .attention_probs_dropout_prob = 0.1

#endif
