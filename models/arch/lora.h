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
#define TX_LORA_WEIGHTS "adapter_model.safetensors"
/* The prefix that peft adds to tensor names. */
#define TX_LORA_PREFIX "base_model.model."
/* peft's task_type of language models, and of classifiers of texts and of tokens. */
#define TX_LORA_TEXTS "CAUSAL_LM"
#define TX_LORA_CLASSES "SEQ_CLS"
#define TX_LORA_TOKENS "TOKEN_CLS"
/* The value of target modules that selects every linear layer in the blocks, and outside those that are not outputs. */
#define TX_LORA_ALL "all-linear"

struct tx_lora {
    int64_t rank;
    double alpha, dropout;
    bool dora;            /* DoRA: train the magnitudes of outputs; W + scale B A only defines directions */
    bool rank_stabilised; /* scale alpha / sqrt(rank) (Kalajdzievski, rsLoRA, 2023); else alpha / rank */
    tx_dtype stored;      /* type of frozen matrices: F32, or the type that graphs compute in */
    char *targets;        /* last components of module names, separated by commas, or TX_LORA_ALL */
    char *saved;          /* modules that are trained fully, by the ends of their names; or NULL */
    char *base;           /* the name or path of the base model; or NULL */
    const char *task;     /* one of the three task types, as the adapter's file names it; NULL for others */
};

/* Makes a deep copy. */
tx_status tx_lora_copy(const tx_lora *lora, tx_lora **copy);
void tx_lora_free(tx_lora *lora); /* NULL is fine */
double tx_lora_scale(const tx_lora *lora);
/* peft's task_type for a model; NULL if it has none. */
const char *tx_lora_task(const tx_config *config);

/* Fails if a named module does not exist, and lists the modules of the architecture. Fails if a module to save cannot
 * be saved. Fails if the adapter belongs to a classifier but the model is a language model, or the other way round. */
tx_status tx_lora_check(const tx_lora *lora, const tx_config *config);

/* Sets whether a parameter is frozen, and its type. `name` and `spec` come from tx_arch_param. */
void tx_lora_freeze(const tx_lora *lora, const char *name, tx_param_spec *spec);
/* Returns true if a parameter of a model belongs to the adapter: A, B or magnitudes. */
bool tx_lora_adds(const char *param);
/* Returns true if a parameter belongs to a module to save. */
bool tx_lora_saves(const tx_lora *lora, const char *name);

/* The adapted modules of a parameter. */
typedef struct tx_lora_modules {
    int32_t count;                               /* may be 0 */
    bool divided;                                /* the parameter consists of several modules */
    int32_t section[TX_MAX_SECTIONS];            /* for each module, its section in a divided parameter */
    char name[TX_MAX_SECTIONS][TX_WEIGHTS_NAME]; /* "model.layers.0.self_attn.q_proj" */
    char joint[TX_WEIGHTS_NAME];                 /* of all modules: "model.layers.0.self_attn.q_proj|v_proj" */
} tx_lora_modules;
tx_status tx_lora_modules_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_modules *modules);

/* The linear layer with weight parameter `index`, `weight` and `bias` (may be NULL), plus the output of the adapter if
 * there is one: x [.., in] -> [.., out]. Declares one A for all modules of the parameter, and B and magnitudes for
 * each. NULL on error. */
tx_tensor *tx_lora_linear(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                          tx_tensor *x, tx_tensor *weight, tx_tensor *bias);

/* Initializes the adapter of a model whose base weights are loaded: DoRA magnitudes start as the norms of the weights.
 */
tx_status tx_lora_init(tx_model *model, const tx_config *config, uint64_t seed);

/* ---- Files (lora_files.c), as peft reads and writes them -------------------------------------------------- */

/* Returns true if the folder holds an adapter. */
bool tx_lora_is_folder(const char *folder);
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
/* Writes adapter_config.json and adapter_model.safetensors. */
tx_status tx_lora_save(tx_model *model, const tx_config *config, const char *folder);
/* Writes adapter_config.json. */
tx_status tx_lora_write(const tx_config *config, const char *path);
/* A tx_weights_names.rename for peft's names. */
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
