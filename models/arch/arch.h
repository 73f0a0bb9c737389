/* SPDX-License-Identifier: Apache-2.0
 *
 * Architectures: the model types that TX knows. Each is a row, tx_architecture, filled by its own file (gpt2.c);
 * model_type in config.json selects the row. All other code (training, generation, files, programs) uses the fields
 * that all configurations share, and calls the row's functions for the rest. */
#ifndef TX_MODELS_ARCH_H
#define TX_MODELS_ARCH_H

#include "models/files/weights.h"
#include "tx.h"
#include "tx_json.h"

typedef struct tx_architecture tx_architecture;
typedef struct tx_lora tx_lora;               /* lora.h */
typedef struct tx_lora_bank tx_lora_bank;     /* bank.h */
typedef struct tx_wrapped tx_wrapped;         /* wrapper.h */
typedef struct tx_gguf_family tx_gguf_family; /* gguf_family.h */

/* The kind of a model's output. */
typedef enum tx_head {
    TX_HEAD_CAUSAL_LM,               /* logits of the next token at each position */
    TX_HEAD_MASKED_LM,               /* logits of the token at each position */
    TX_HEAD_SEQUENCE_CLASSIFICATION, /* logits of the labels of a text, or one number (regression) */
    TX_HEAD_TOKEN_CLASSIFICATION,    /* logits of the labels of the token at each position */
    TX_HEAD_MULTIPLE_CHOICE,         /* a number for each text, which are compared with those of other texts */
    TX_HEAD_QUESTION_ANSWERING,      /* logits of the first and the last token of the answer at each position */
    TX_HEAD_STATES,                  /* hidden states of each position: an encoder without a head */
    TX_HEAD_SEQ2SEQ,                 /* logits of the next token of a text that is written for another one */
    TX_HEAD_COUNT
} tx_head;

/* The problem of a classifier, problem_type in config.json. */
typedef enum tx_problem {
    TX_PROBLEM_CLASSES,     /* a text has one of the labels */
    TX_PROBLEM_MULTI_LABEL, /* a text has any of the labels (multi-label classification) */
    TX_PROBLEM_NUMBERS      /* a text has a number for each label (regression) */
} tx_problem;

/* The form of labels in data. */
typedef enum tx_label_form {
    TX_LABELS_UNREAD,
    TX_LABELS_IDS,
    TX_LABELS_NAMES,  /* also of numbers: later data have these names */
    TX_LABELS_VECTORS /* a 0 or 1 for each label */
} tx_label_form;

/* The common first part of every configuration; each architecture appends its own members. The architecture's keys map
 * to these members: in a GPT-2's config.json `width` is n_embd. */
typedef struct tx_config {
    const tx_architecture *architecture;
    int64_t vocab_size, positions, width, layers, heads;
    int64_t labels;                     /* of a classifier */
    tx_problem problem;                 /* that it solves */
    tx_label_form label_form;           /* in the data that were read first */
    const char *bound;                  /* the reason if `positions` are fewer than the file's; or NULL */
    bool unit_embeddings;               /* in training, embeddings are divided by their norms */
    int64_t bos_token_id, eos_token_id; /* -1 if there is none */
    bool new_head;                      /* the weights have another head: parameters that they lack are initialized */
    bool other_head_shape;              /* with new_head: parameters of another shape are initialized, too */
    bool stand_in;                      /* an output head that the weights lack begins as the embedding */
    int64_t grown_from;                 /* the vocabulary of the weights, if the configuration's is larger; or 0 */
    tx_json *source;                    /* the file it was read from, whose unknown keys are kept; or NULL */
    tx_wrapped *wrapped;                /* the folder that has the model as one of its parts; owned; or NULL */
    /* NF4, NF4_DOUBLE or Q8 to quantize the frozen matrices of blocks (without an adapter: all of them); F32 if not. */
    tx_dtype packed;
    tx_dtype packed_experts; /* the same for matrices of experts (tx_config_pack) */
    tx_dtype *blocks;        /* for each parameter the type of blocks that stores it, or F32; owned; or NULL */
    tx_rounding *rounding;   /* how training rounds each parameter; owned; or NULL */
    tx_lora *lora;           /* an adapter that freezes the base parameters (lora.h); owned; or NULL */
    tx_lora_bank *bank;      /* adapters of which each row of a batch uses one (bank.h); owned; or NULL */
    const char
        *teacher; /* of a frozen model next to the trained one: the beginning of its names (weights.h); or NULL */
    tx_dtype teacher_dtype; /* the storage type of its matrices */
} tx_config;

/* ---- Configuration (config.c) ------------------------------------------------------------------------ */

/* Makes the configuration of one of TX_PRESETS (tx_train.h). The caller frees it. */
tx_status tx_config_preset(const char *name, tx_config **config);
/* Reads config.json, whose model_type and architectures choose the architecture. Absent keys get transformers'
 * defaults. Fails with the name of the key if a type or value is wrong, or if the key selects mathematics that TX does
 * not implement. The caller frees it. */
tx_status tx_config_read(const char *path, tx_config **config);
/* The same from JSON. The configuration takes ownership of `json`, also on failure. */
tx_status tx_config_of_json(tx_json *json, tx_config **config);
/* Switches to another head of the same model type. TX_UNSUPPORTED if TX has none. */
tx_status tx_config_set_head(tx_config *config, tx_head head);
/* Copies a configuration without the file that it was read from, and without adapter. */
tx_status tx_config_copy(const tx_config *config, tx_config **copy);
/* Checks ranges and divisibility; the message names the key. */
tx_status tx_config_check(const tx_config *config);
/* Sets the type of frozen matrices: config->packed, and packed_experts. If the file's matrices of experts are MXFP4, 4
 * bits keep them so. */
void tx_config_pack(tx_config *config, tx_dtype packed);
/* Keeps the matrices of experts in MXFP4 if the file has them so. */
void tx_config_keep_experts(tx_config *config);
/* Changes keys, given as "n_layer=4,n_embd=64,activation_function=gelu". If a key is unknown, or a value is wrong or
 * does not fit the others, it fails with the name of the key and changes nothing. */
tx_status tx_config_override(tx_config *config, const char *text);
/* Writes config.json, with the unknown keys of the file it was read from, and the other parts of a wrapper. */
tx_status tx_config_write(const tx_config *config, tx_dtype dtype, const char *path);
/* The type of the weights in config.json: its key dtype, or torch_dtype from before transformers 5, or "float32". */
tx_status tx_config_dtype(const tx_config *config, const char **name);
/* Makes the JSON of the model itself. The caller frees it. */
tx_status tx_config_json(const tx_config *config, tx_json **json);
void tx_config_free(tx_config *config); /* NULL is fine */

/* ---- Parameters and graph (arch.c) ------------------------------------------------------------------- */

#define TX_ARCH_NAME 96
/* In memory the vocabulary is padded to a multiple of this: 50257 -> 50304. */
#define TX_VOCAB_MULTIPLE 128
int64_t tx_arch_padded_vocab(const tx_config *config);

/* The number of parameters (named arrays), and name and spec of each, in layer order. */
int32_t tx_arch_params(const tx_config *config);
tx_status tx_arch_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);
/* Whether the matrix of a linear layer is [in, out]. Those of output heads are [out, in] in every model. `spec` is as
 * tx_arch_param returns it. */
bool tx_arch_inputs_first(const tx_config *config, const tx_param_spec *spec);
/* Lists the pieces of all parameters; each has the index of its parameter. The caller frees `*pieces`. */
tx_status tx_arch_pieces(const tx_config *config, tx_weights_piece **pieces, int32_t *count);
/* The number of scalar weights, tied ones counted once, without padding: 124,439,808 for gpt2. */
int64_t tx_arch_param_count(const tx_config *config);
/* The valid columns of the logits: the size of the vocabulary, a classifier's number of labels, or the width of hidden
 * states. */
int64_t tx_arch_columns(const tx_config *config);
/* For messages about too few positions: " (the reason)", or "". */
const char *tx_config_bound(const tx_config *config, char text[TX_ARCH_NAME]);
/* The number of rotary frequencies that depend on the length of the text (tx_architecture.rates), or 0. */
int64_t tx_arch_pairs(const tx_config *config);
/* Writes those for `length` tokens to rates. Returns true if they change. */
bool tx_arch_set_rates(const tx_config *config, int64_t length, float *rates);
/* Whether the model has recurrent layers (tx_architecture.recurs). */
bool tx_arch_recurs(const tx_config *config);
/* FLOPs of the training step per token, as transformers counts them (total_flos): 6 per weight outside the embeddings.
 * Only the experts that a token is routed to count. */
double tx_arch_flops(const tx_config *config);

/* The names of the states of recurrent layers begin with this. */
#define TX_ARCH_STATES "state."

/* Receives the inputs x [.., in] of each product with a matrix of a block (models/generate/inputs.c), and the index of
 * its parameter. Inputs of experts [R, in] come with their offsets (tx_grouped_linear), others with NULL. */
typedef struct tx_arch_inputs {
    void (*add)(void *context, int32_t param, tx_tensor *x, tx_tensor *offsets);
    void *context;
} tx_arch_inputs;

typedef struct tx_arch_options {
    size_t size;          /* sizeof(tx_arch_options) */
    bool train;           /* apply dropout as configured */
    bool no_dropout;      /* not even in training */
    bool base;            /* leave the adapter out: the logits of its base model, as a reference */
    float noise;          /* NEFTune alpha for training, see tx_arch_noise; 0 disables it */
    int64_t cache;        /* positions of the KV caches, states "cache.h.<layer>.key" and ".value"; 0 means no caches */
    int64_t cache_rows;   /* rows of the KV caches, with the input `slots`; 0 means B */
    int64_t spare_states; /* more rows of the states of recurrent layers (TX_ARCH_STATES), which no sample has */
    bool cache_q8_0;      /* the KV caches hold blocks of Q8_0, not the type of activations; not for T5 */
    /* For models with experts. Capacity factor: an expert accepts at most ceil(capacity times the average number of
     * tokens per expert) of a graph's tokens. 0 means no limit. */
    float capacity;
    float z_loss; /* weight of the routers' z-loss (Zoph et al., ST-MoE, 2022) */
    /* Receives the model's auxiliary loss, a scalar weighted by this rank's share of the global batch (tx_share_loss):
     * the z-loss, and the load-balancing loss if the configuration sets output_router_logits. It receives NULL if there
     * is no such loss. Pass NULL to compute none. */
    tx_tensor **own_loss;
    const tx_arch_inputs *inputs; /* or NULL */
} tx_arch_options;

/* Builds the model and returns its logits, or NULL on error. The inputs of the graph are found by their names. A
 * language model uses:
 *
 *     I32 input_ids [B, T]       Tokens; negative ids are padding, whose embedding is 0.
 *     I32 attention_lengths [B]  Optional: keys from position lengths[b] on are masked.
 *     I32 attention_starts [B, T] Optional, without caches: the first visible position for each position, default 0.
 *                                With several samples in a row it is the start of the position's sample.
 *     I32 position_ids [B, T]    Optional, without caches: default 0, 1, ..
 *     I32 positions [B]          Only with caches: the position of each row's first token.
 *     F32 rope_rates [B, n]      Only with caches, if `rates` of the row returns a number n: the frequencies.
 *     I32 sources [B]            Optional, with caches: the row whose cache each row continues (beam search).
 *     I32 spans [B, 3]           Only with caches of recurrent layers: row, position and number of tokens of each row
 *                                (tx_short_conv_cached). Tokens after them change no state.
 *     I32 slots [B]              Optional, with caches: the row of the caches that each row uses, all different.
 *     F32 last_token [B, T]      Only of a decoder's classifier: 1 for the token whose output is classified, else 0.
 *     I32 decoder_input_ids [B, T'] Only of an encoder with a decoder: the decoder's tokens. Logits are [B, T', V'].
 *     I32 rows [R]               Optional: indices into the B * T positions. Only their logits are computed, [R, V'].
 *     I32 sequences [R, L]       Optional, without caches and recurrent layers: the tokens of R sequences, as indices
 *                                into the B * T positions, negative after them. Sequences may share tokens, so that
 *                                these are computed once. Attention is within sequences, whose lengths
 *                                attention_lengths [R] then are. Needs position_ids.
 *     I32 places [B, T]          With `sequences`: an index into the R * L for each position, whose attention it has.
 *
 * The logits are [B, T, V'], where V' is the padded vocabulary; columns from vocab_size on are meaningless. With a
 * tensor-parallel vocabulary they hold this rank's columns, as tx_cross_entropy expects them. Other heads have no
 * caches. A classifier returns [B, labels], an encoder without a head its hidden states [B, T, C]. Additional inputs
 * are described in the architecture's header. Parameters that are not yet declared are declared. Each layer is a block
 * of the graph (tx_graph_block). Pass NULL as `options` for evaluation without caches. */
tx_tensor *tx_arch_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
/* Adds NEFTune noise to embeddings x [B, T, C]: uniform in +-noise / sqrt(T C), different for each row (Jain et al.,
 * NEFTune, 2023). Returns x if noise is disabled. For use by architectures. */
tx_tensor *tx_arch_noise(tx_graph *graph, tx_tensor *x, const tx_arch_options *options);

/* ---- Files (files.c) --------------------------------------------------------------------------------- */

/* Reads the weights of a folder (tx_weights_open) or a GGUF file into a model whose graph has been built; `options` may
 * be NULL. Accepts the names of published files, as the architecture defines them. With a new head, parameters of the
 * head that the file lacks keep their values (tx_model_init). */
tx_status tx_arch_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options);
/* Opens the files that tx_arch_load reads. */
tx_status tx_arch_open_weights(const char *folder, tx_weights **weights);
/* Checks, without a model, that tx_arch_load would succeed, including all values. */
tx_status tx_arch_check(const tx_config *config, const char *folder);
/* Writes config.json and model.safetensors (shards above TX_WEIGHTS_SHARD bytes), as transformers' AutoModel classes
 * load them, in the form of its folder (wrapper.h). */
tx_status tx_arch_save(tx_model *model, const tx_config *config, const char *folder);

/* The map from tensor names in files to parameter names of this configuration. */
tx_weights_names tx_arch_names(const tx_config *config);

/* For architectures with tied embeddings: if the file has both tensors, the output head must equal the embedding bit by
 * bit, compared in fp32. */
tx_status tx_arch_check_tied(const tx_weights *weights, const char *head, const char *embedding);

/* ---- The row of an architecture ------------------------------------------------------------------------- */

/* X(NAME): kinds of keys in config.json. A CHOICE is an int32_t in memory and one of `words` in the file. */
typedef enum tx_key_kind { TX_KEY_INT, TX_KEY_INT_OR_NULL, TX_KEY_NUMBER, TX_KEY_BOOL, TX_KEY_CHOICE } tx_key_kind;

typedef struct tx_config_key {
    const char *name;
    size_t offset; /* in the configuration: int64_t, double, bool or int32_t */
    tx_key_kind kind;
    double min, max;
    int64_t null;             /* the value in memory for null */
    const char *second;       /* another name that transformers accepts, or NULL */
    const char *const *words; /* of a CHOICE; `max` is the index of the last one */
} tx_config_key;

/* A pointer to a key's value in a configuration; the member to use follows from the key's kind. */
typedef union tx_config_value {
    const void *at;
    const int64_t *whole;
    const double *number;
    const bool *flag;
    const int32_t *choice;
} tx_config_value;

static inline tx_config_value tx_config_value_of(const tx_config *config, const tx_config_key *key)
{
    return (tx_config_value){.at = (const char *)config + key->offset};
}

/* The key with this name or this offset in the configuration, or NULL (config.c). */
const tx_config_key *tx_config_key_named(const tx_architecture *type, const char *name);
const tx_config_key *tx_config_key_at(const tx_architecture *type, size_t offset);

/* A key that selects mathematics of which TX implements only one variant. The value is "true", "false" or a word. */
typedef struct tx_fixed_key {
    const char *name, *value, *why;
} tx_fixed_key;

/* A row of absent.def. */
typedef struct tx_absent_type {
    const char *type, *lacks;
} tx_absent_type;

extern const tx_absent_type tx_absent_types[]; /* ended by a NULL type */

typedef struct tx_preset {
    const char *name, *overrides; /* changes to the defaults, in tx_config_override's format, with any key */
} tx_preset;

struct tx_architecture {
    const char *type;       /* model_type in config.json */
    const char *class_name; /* in "architectures" */
    tx_head head;           /* the rows of one type differ only in their heads; the first row is the default */
    size_t config_bytes;
    const tx_config *defaults; /* transformers' */
    const tx_config_key *keys; /* ends with a NULL name, like the next two, which may be NULL */
    const tx_fixed_key *fixed;
    const tx_preset *presets;
    /* Reading and writing of keys that `keys` cannot describe. May be NULL. */
    tx_status (*read)(const tx_json *json, tx_config *config);
    tx_status (*write)(const tx_config *config, tx_json *json);
    tx_status (*check)(const tx_config *config); /* conditions that involve several keys */
    int32_t (*params)(const tx_config *config);
    tx_status (*param)(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);
    int64_t (*embeddings)(const tx_config *config); /* number of embedding weights, tied ones included; may be NULL */
    int64_t (*inactive)(const tx_config *config); /* number of expert weights that a token does not use; may be NULL */
    tx_tensor *(*logits)(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
    /* For rotary frequencies that depend on the length of the text (dynamic NTK scaling, LongRoPE); may be NULL. Writes
     * those for `length` tokens to `rates`, unless it is NULL, and returns their number, or 0 if they do not depend on
     * the length. */
    int64_t (*rates)(const tx_config *config, int64_t length, float *rates);
    /* Whether layers have states instead of caches, which cannot go back; may be NULL. */
    bool (*recurs)(const tx_config *config);
    bool restarts;     /* if the frequencies change during generation, transformers computes the caches again */
    bool reads_last;   /* a decoder's classifier, which classifies the output of the last token */
    bool decodes;      /* a decoder without a head: hidden states of causal attention */
    bool inputs_first; /* the weights of linear layers are [in, out], else [out, in] */
    /* peft's default target modules, and the modules that it trains fully (modules_to_save). NULL if there are none. */
    const char *lora_targets, *lora_saved;
    /* The beginning of tensor names in files, and in transformers' class, which names adapters, if they differ; or
     * NULL. */
    const char *file_root, *class_root;
    /* Maps tensor names in files to parameter names (tx_weights_rename). */
    void (*rename)(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME]);
    /* Returns true for tensors in files that TX does not read, which a warning reports. NULL if there are none. */
    bool (*leaves_out)(const tx_config *config, const char *tensor);
    /* Returns true if a parameter belongs to the head. NULL if the type has only one head. */
    bool (*is_of_head)(const char *param);
    /* Completes a configuration that its file leaves open, by the tensors of the weights. May be NULL. */
    void (*settle)(tx_config *config, const tx_weights *weights);
    const tx_gguf_family *gguf; /* how GGUF files store the type; NULL if they cannot */
    /* Checks values of the weights, such as tied tensors. May be NULL. */
    tx_status (*check_weights)(const tx_config *config, const tx_weights *weights);
};

/* Returns true if the outputs are not logits of tokens of the vocabulary, and not hidden states. */
static inline bool tx_arch_classifies(const tx_config *config)
{
    const tx_head head = config->architecture->head;
    return head != TX_HEAD_CAUSAL_LM && head != TX_HEAD_MASKED_LM && head != TX_HEAD_STATES;
}

/* All architectures, ended by NULL (table.c). */
extern const tx_architecture *const tx_architectures[];
/* Finds the first row of a model type. TX_UNSUPPORTED names the known types. */
tx_status tx_architecture_find(const char *type, const tx_architecture **architecture);

/* ---- class.c --------------------------------------------------------------------------------- */

/* Selects the architecture of a configuration: that of its model_type, or without one that of its class, with the head
 * of the class. */
tx_status tx_class_choose(const tx_json *json, const tx_architecture **architecture);
/* Returns true for a base encoder, such as BertModel: the head of its type is new. */
bool tx_class_has_no_head(const tx_json *json, const tx_architecture *architecture);

#endif
