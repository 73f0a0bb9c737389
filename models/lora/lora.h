/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters (Hu et al., LoRA, 2022) as in peft. A configuration with an adapter describes a model whose base
 * parameters are frozen, except those of modules to save. Its adapted linear layers compute
 *
 *     y = x W^T + b + scale (dropout(x) A^T) B^T,  A [rank, in], B [out, rank]
 *
 * or, with DoRA (Liu et al., 2024), y = m / |W + scale B A| (x (W + scale B A)^T) + b, with m [out] and norms of rows.
 * W [out, in] is the layer's weight; some architectures store its transpose. A is initialized as in peft, uniformly
 * within +-1 / sqrt(in), B with zeros. Modules have transformers' names. If a parameter's name lists several modules
 * between bars, each of them is a module. */
#ifndef TX_MODELS_LORA_H
#define TX_MODELS_LORA_H

#include "models/arch/arch.h"

#define TX_LORA_CONFIG "adapter_config.json"
/* The suffix of a module's DoRA magnitudes. */
#define TX_LORA_MAGNITUDE "lora_magnitude_vector"
/* The suffixes of an embedding's A and B. */
#define TX_LORA_EMBEDDING_A "lora_embedding_A"
#define TX_LORA_EMBEDDING_B "lora_embedding_B"
#define TX_LORA_WEIGHTS "adapter_model.safetensors"
/* The prefix that peft adds to tensor names. */
#define TX_LORA_PREFIX "base_model.model."
/* peft's task_type of language models, of classifiers of texts and of tokens, of models for question
 * answering, and of encoders without a head. */
#define TX_LORA_TEXTS "CAUSAL_LM"
#define TX_LORA_CLASSES "SEQ_CLS"
#define TX_LORA_TOKENS "TOKEN_CLS"
#define TX_LORA_ANSWERS "QUESTION_ANS"
#define TX_LORA_STATES "FEATURE_EXTRACTION"
/* The value of target modules that selects every linear layer in the blocks, and outside those that are not outputs. */
#define TX_LORA_ALL "all-linear"

struct tx_lora {
    int64_t rank;
    double alpha, dropout;
    bool dora;            /* DoRA: train the magnitudes of outputs; W + scale B A only defines directions */
    bool rank_stabilised; /* scale alpha / sqrt(rank) (Kalajdzievski, rsLoRA, 2023); else alpha / rank */
    tx_dtype stored;      /* type of frozen matrices: F32, or the type that graphs compute in */
    /* Last components of module names, separated by commas; or TX_LORA_ALL; or a regular expression of whole names. */
    char *targets;
    char *parameters; /* target_parameters: experts' matrices, names separated by commas; or NULL */
    char *saved;      /* modules that are trained fully, by the ends of their names; or NULL */
    char *base;       /* the name or path of the base model; or NULL */
    const char *task; /* one of the three task types, as the adapter's file names it; NULL for others */
    char *init;       /* init_lora_weights, if it is a text; or NULL */
    /* Factors of the learning rate (Hayou et al., LoRA+, 2024): of B, magnitudes and other vectors; of adapters of
     * embeddings. 0 means 1. */
    float rate_of_b, rate_of_embeddings;
    char *tokens;   /* trainable_token_indices, as JSON or without the brackets of a list; or NULL */
    tx_json *rules; /* those keys of tx_lora_rule_keys that the adapter's file sets; owned; or NULL */
};

/* Makes a deep copy. */
tx_status tx_lora_copy(const tx_lora *lora, tx_lora **copy);
void tx_lora_free(tx_lora *lora); /* NULL is fine */
double tx_lora_scale(const tx_lora *lora);

/* ---- Names of modules (lora_rules.c) ----------------------------------------------------------------------- */

/* Returns the length of the first name of a list, and moves `*list` to it. */
size_t tx_lora_first_name(const char **list);
/* Whether a name of a list, which has `length` characters, matches a module. */
typedef bool tx_lora_match(const char *module, const char *word, size_t length);
bool tx_lora_is_listed(const char *list, const char *module, tx_lora_match *match);
/* Whether the module's name, or its last components, equal the word. */
tx_lora_match tx_lora_ends_with;

/* ---- Rules (lora_rules.c): keys of adapter_config.json that treat modules differently ---------------------- */

extern const char *const tx_lora_rule_keys[];
/* Whether target modules are a regular expression. Names of modules have no special characters except dots. */
bool tx_lora_is_pattern(const char *names);
/* Whether a regular expression of target modules matches a module. */
tx_status tx_lora_fits_pattern(const tx_lora *lora, const char *module, bool *fit);
/* Whether the rules allow to adapt a module: false for excluded ones and those of other layers. */
tx_status tx_lora_rules_allow(const tx_lora *lora, const char *module, bool *allowed);
/* The rank of a module and the scale of its B A. */
tx_status tx_lora_rank_of(const tx_lora *lora, const char *module, int64_t *rank, double *scale);
/* The biases that are trained: "none", "all", or "lora_only" (those of adapted modules). */
const char *tx_lora_bias(const tx_lora *lora);
/* Whether a module's name is that of an output head that is tied to the embedding: files may store its weight, the
 * model does not. */
bool tx_lora_is_tied_head(const tx_config *config, const char *word, size_t length);
/* Whether an embedding that is also the output head stays so if it is adapted or saved (ensure_weight_tying). */
bool tx_lora_ties(const tx_lora *lora);

/* ---- Modules ----------------------------------------------------------------------------------------------- */
/* peft's task_type for a model; NULL if it has none. */
const char *tx_lora_task(const tx_config *config);

/* Fails if a named module does not exist, and lists the modules of the architecture. Fails if a module to save cannot
 * be saved. Fails if the adapter belongs to a classifier but the model is a language model, or the other way round. */
tx_status tx_lora_check(const tx_lora *lora, const tx_config *config);

/* Finds the module whose matrix is both embedding and output head, if the adapter changes only one of its uses, or each
 * differently; else "". */
tx_status tx_lora_find_tied(const tx_lora *lora, const tx_config *config, char tied[TX_ARCH_NAME]);
/* If the adapter changes an embedding or an output head that are one matrix, and does not tie them
 * (ensure_weight_tying), gives the configuration an output head of its own. Files of the base model may lack it: it
 * begins as the embedding. */
tx_status tx_lora_untie(const tx_lora *lora, tx_config *config);

/* Sets whether a parameter is frozen, and its type. `name` and `spec` come from tx_arch_param. */
void tx_lora_freeze(const tx_lora *lora, const char *name, tx_param_spec *spec);
/* Returns true if a parameter of a model belongs to the adapter: A, B or magnitudes. */
bool tx_lora_adds(const char *param);
/* Returns true if a parameter belongs to a module to save. */
bool tx_lora_saves(const tx_lora *lora, const char *name);

/* Returns true if a tensor is the bias of an adapted layer. */
bool tx_lora_biases(const tx_lora *lora, const char *piece);
/* Whether an adapter's file may lack a bias although its parameter is trained: peft saves only the biases of adapted
 * modules, and before version 0.21 none. */
bool tx_lora_may_lack(const tx_lora *lora, const char *piece);
/* Whether a bias is frozen although its parameter is trained. */
bool tx_lora_leaves(const tx_lora *lora, const char *piece);

/* The adapted modules of a parameter. */
typedef struct tx_lora_modules {
    int32_t count;                    /* may be 0 */
    bool divided;                     /* the parameter consists of several modules */
    bool embedding;                   /* a table of embeddings, [tokens, out] */
    int32_t section[TX_MAX_SECTIONS]; /* for each module, its section in a divided parameter */
    int64_t rank[TX_MAX_SECTIONS];
    double scale[TX_MAX_SECTIONS];
    char name[TX_MAX_SECTIONS][TX_WEIGHTS_NAME]; /* "model.layers.0.self_attn.q_proj" */
} tx_lora_modules;
tx_status tx_lora_modules_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_modules *modules);

/* The name of the parameter with the A of a module: "model.layers.0.self_attn.q_proj|v_proj.lora_A.weight". Modules of
 * one parameter with the same rank and scale share it. Returns the number of modules in it before this one. */
int32_t tx_lora_name_of_a(const tx_lora_modules *modules, int32_t number, char name[TX_WEIGHTS_NAME]);

/* Creates a graph that computes in the type of an adapter's frozen matrices, or without an adapter in `otherwise`. F32
 * leaves the types of the model. */
tx_status tx_lora_graph(tx_model *model, const tx_config *config, tx_dtype otherwise, tx_graph **graph);
/* The linear layer with weight parameter `index`, `weight` and `bias` (may be NULL), plus the output of the adapter if
 * there is one: x [.., in] -> [.., out]. Declares one A for all modules of the parameter, and B and magnitudes for
 * each. NULL on error. */
tx_tensor *tx_lora_linear(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                          tx_tensor *x, tx_tensor *weight, tx_tensor *bias);

/* ---- Experts (lora_experts.c): target_parameters --------------------------------------------------------------- */

/* What peft adds to the name of a module of which it adapts another parameter, too. */
#define TX_LORA_INSIDE ".base_layer"

/* The adapter of the experts' matrices in one parameter: y = x W^T + scale (x A^T) B^T for the rows of each expert. */
typedef struct tx_lora_experts {
    int64_t count; /* experts; 0 without an adapter */
    int64_t rank, in, out;
    double scale;
    bool inputs_first;       /* their matrices are [in, out] */
    char a[TX_WEIGHTS_NAME]; /* name of A [count * rank, in] */
    char b[TX_WEIGHTS_NAME]; /* name of B [out, rank * count]; column k * count + e is column k of expert e */
} tx_lora_experts;
tx_status tx_lora_experts_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_experts *experts);
/* Fails if a name matches no parameter, or if peft has no such adapters. Sets `*some` if there is a name. */
tx_status tx_lora_check_experts(const tx_lora *lora, const tx_config *config, bool *some);
/* Whether parameter `index` is the weight of a router, which is no linear module in transformers. */
bool tx_lora_is_router(const tx_config *config, int32_t index, const char *name);
/* tx_grouped_linear with weight parameter `index`, plus the output of the adapter if there is one. NULL on error. */
tx_tensor *tx_lora_grouped(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                           tx_tensor *x, tx_tensor *weight, tx_tensor *offsets, bool inputs_first);
/* Sorts B [out, rank * count] by expert: [count, rank, out]. */
void tx_lora_sort_experts(const tx_lora_experts *e, const float *b, float *sorted);
/* With B sorted so, adds scale B A of expert number `expert` to `count` elements of its matrix, from element `first` of
 * it on. */
void tx_lora_add_expert(const tx_lora_experts *e, const float *a, const float *b, int64_t expert, int64_t first,
                        int64_t count, float *weight);

/* Embeddings x [.., out] of `tokens` in table parameter `index`, plus the output of the adapter if there is one: column
 * `token` of A [rank, tokens], times B^T, B [out, rank]. NULL on error. */
tx_tensor *tx_lora_embedding(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                             tx_tensor *tokens, tx_tensor *x);

/* ---- Rows of single tokens (lora_tokens.c): trainable_token_indices ------------------------------------------ */

#define TX_LORA_TOKEN_INDICES "trainable_token_indices"
/* The suffix of a matrix's trained rows, a parameter [rows, columns]. */
#define TX_LORA_TOKEN_ADAPTER ".token_adapter"
#define TX_LORA_TOKENS_DELTA TX_LORA_TOKEN_ADAPTER ".trainable_tokens_delta"

typedef struct tx_lora_token {
    int64_t token, place; /* its row in the matrix, and that in the parameter */
} tx_lora_token;
/* The tokens of an embedding or an output head, sorted. */
typedef struct tx_lora_tokens {
    char module[TX_ARCH_NAME];
    int64_t count, columns; /* `count` may be 0 */
    tx_lora_token *row;
} tx_lora_tokens;
/* Reads the value of the option or of the adapter's file: a list of token ids (brackets may be left out), or an object
 * of such lists. */
tx_status tx_lora_parse_tokens(const char *text, tx_json **json);
/* Finds the tokens of parameter `index`. The caller frees. */
tx_status tx_lora_tokens_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_tokens *tokens);
void tx_lora_free_tokens(tx_lora_tokens *tokens);
void tx_lora_name_of_tokens(const tx_lora_tokens *tokens, char name[TX_WEIGHTS_NAME]);
/* Fails if a key names no embedding or output head, or one that is adapted or saved as a whole. */
tx_status tx_lora_check_tokens(const tx_lora *lora, const tx_config *config);
/* Whether an output head that is tied to the embedding has other tokens than the embedding. */
bool tx_lora_tokens_differ(const tx_lora *lora, const tx_config *config);
/* `weight` of parameter `index`, with the trained rows if it has any. NULL on error. */
tx_tensor *tx_lora_replace_rows(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                                tx_tensor *weight);
/* Copies the rows of the base weights, with which training begins. */
tx_status tx_lora_init_tokens(tx_model *model, const tx_config *config);
/* Writes trained rows to the matrix, parameter `param` of a model. */
tx_status tx_lora_write_rows(tx_model *model, const tx_lora_tokens *tokens, int32_t param, float *rows);

/* Initializes the adapter of a model whose base weights are loaded: DoRA magnitudes start as the norms of the weights.
 */
tx_status tx_lora_init(tx_model *model, const tx_config *config, uint64_t seed);

/* ---- PiSSA, OLoRA and LoftQ (lora_principal.c) -------------------------------------------------------------- */

/* Values of init_lora_weights with which the adapter begins as a part of the weight, and the base is the rest, or the
 * weight rounded to 4 bits. */
#define TX_LORA_PISSA "pissa" /* the greatest singular values and their vectors */
#define TX_LORA_OLORA "olora" /* the first columns of Q and rows of R of W = Q R */
#define TX_LORA_LOFTQ "loftq" /* as "pissa", of the error of rounding the weight to NF4 */
bool tx_lora_takes_principal(const tx_lora *lora);
/* Whether the base is rounded (LoftQ). */
bool tx_lora_rounds(const tx_lora *lora);
/* Rounds `count` weights, from the first of a block on, to NF4. */
void tx_lora_round(float *weight, int64_t count);
/* The weight of a module: [in, out] if `inputs_first`, else [out, in]. */
typedef struct tx_lora_weight {
    const float *data;
    int64_t out, in;
    bool inputs_first;
} tx_lora_weight;
/* Computes the initial A [rank, in] and B [out, rank]: the base is W - scale B A, or rounded. TX_UNSUPPORTED if the
 * rank is greater than that of the weight. */
tx_status tx_lora_principal(const tx_lora *lora, const tx_lora_weight *weight, int64_t rank, double scale, float *a,
                            float *b);

/* Does that for all modules of a model whose base weights are loaded: writes A and B, and the rest of the weights. If
 * the adapter does not take over a part of them, it does nothing. */
tx_status tx_lora_take_principal(tx_model *model, const tx_config *config);

/* ---- Files (lora_files.c), as peft reads and writes them -------------------------------------------------- */

/* Returns true if the folder holds an adapter. */
bool tx_lora_is_folder(const char *folder);
/* TX_NOT_FOUND if it does not. */
tx_status tx_lora_check_folder(const char *folder);
/* Reads adapter_config.json (lora_config.c). TX_UNSUPPORTED names a key that TX does not implement. The caller frees.
 */
tx_status tx_lora_read(const char *folder, tx_lora **lora);
/* Finds the folder of the adapter's base model: by its name (tx_hub_model), or relative to the adapter's folder. The
 * caller frees `*base`. */
tx_status tx_lora_find_base(const tx_lora *lora, const char *folder, char **base);
/* Replaces the model's configuration by the one in the adapter's folder if there is one (peft writes none). The heads
 * may differ. Fails if it is the configuration of another model. */
tx_status tx_lora_adapted_config(const char *folder, tx_config **config);
/* Reads A, B and modules to save into a model built with the configuration's adapter; `options` may be NULL. */
tx_status tx_lora_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options);
/* Opens adapter_model.safetensors, or adapter_model.bin of older versions of peft. */
tx_status tx_lora_open_weights(const char *folder, tx_weights **weights);
/* Writes adapter_config.json and adapter_model.safetensors. */
tx_status tx_lora_save(tx_model *model, const tx_config *config, const char *folder);
/* Writes adapter_config.json. */
tx_status tx_lora_write(const tx_config *config, const char *path);
/* A tx_weights_names.rename for peft's names; `context` is the model's configuration or NULL. */
void tx_lora_rename(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME]);

/* ---- Merging (lora_merge.c) ------------------------------------------------------------------------------- */

/* Fails if the adapter's modules or tensors do not match the configuration, or if it contains NaN or infinity. */
tx_status tx_lora_check_files(const tx_lora *lora, const tx_config *config, const char *folder);
/* Merges the adapter in `folder` into the weights of a model without adapter, which `config` describes, and replaces
 * modules to save. Reads the weights of adapted modules again from the base model's files, so that each sum is rounded
 * only once. */
tx_status tx_lora_merge(tx_model *model, const tx_config *config, const tx_lora *lora, const char *folder,
                        const char *base);

#endif
