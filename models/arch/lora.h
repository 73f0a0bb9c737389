/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters (Hu et al., LoRA, 2022) as peft has them. A configuration with an adapter describes a model whose
 * own parameters are frozen, but for those of modules to save, and whose adapted linear layers give
 *
 *     y = x W^T + b + scale (dropout(x) A^T) B^T,  A [rank, in], B [out, rank]
 *
 * (Liu et al., DoRA, 2024, has y = m / |W + scale B A| (x (W + scale B A)^T) + b, m [out], norms by rows), where W
 * [out, in] is the layer's weight, or its transpose where the architecture stores it so. A begins as peft draws it,
 * evenly within +-1 / sqrt(in), B as zero. Modules go by the names of transformers: parts of one parameter whose names
 * stand between bars are modules of their own. */
#ifndef TX_MODELS_LORA_H
#define TX_MODELS_LORA_H

#include "models/arch/arch.h"

#define TX_LORA_CONFIG "adapter_config.json"
/* The name of a module's magnitudes, behind its own. */
#define TX_LORA_MAGNITUDE "lora_magnitude_vector"
#define TX_LORA_WEIGHTS "adapter_model.safetensors"
/* What peft puts before the names of the adapted model's tensors. */
#define TX_LORA_PREFIX "base_model.model."
/* peft's task_type of language models and of classifiers. */
#define TX_LORA_TEXTS "CAUSAL_LM"
#define TX_LORA_CLASSES "SEQ_CLS"
/* The names of modules that mean every linear layer in the blocks, and those outside that are not the output. */
#define TX_LORA_ALL "all-linear"

struct tx_lora {
    int64_t rank;
    double alpha, dropout;
    bool dora; /* outputs have magnitudes that are trained, and the sum of W and scale B A directions alone */
    bool rank_stabilised; /* scale alpha / sqrt(rank) (Kalajdzievski, rsLoRA, 2023); else alpha / rank */
    tx_dtype stored;      /* of frozen matrices: F32, or what graphs compute in */
    char *targets;        /* last parts of modules' names with commas between, or TX_LORA_ALL */
    char *saved;          /* modules that are trained whole, by the ends of their names. NULL if there are none */
    char *base;           /* the model that is adapted, as it was named; NULL: it has no name */
    const char *task; /* TX_LORA_TEXTS or TX_LORA_CLASSES, as the adapter's file names it. NULL if it names neither */
};

/* A copy, texts included. */
tx_status tx_lora_copy(const tx_lora *lora, tx_lora **copy);
void tx_lora_free(tx_lora *lora); /* NULL is fine */
double tx_lora_scale(const tx_lora *lora);

/* Refuses names of modules that the configuration's architecture does not have, and lists its modules; modules to save
 * that cannot be; and an adapter of a classifier for a language model, or the other way round. */
tx_status tx_lora_check(const tx_lora *lora, const tx_config *config);

/* What the adapter makes of a parameter: frozen, and in which type. `name` and `spec` as tx_arch_param gives them. */
void tx_lora_freeze(const tx_lora *lora, const char *name, tx_param_spec *spec);
/* Whether a parameter of a model is an A, a B or magnitudes. */
bool tx_lora_adds(const char *param);
/* Whether a parameter belongs to a module to save. */
bool tx_lora_saves(const tx_lora *lora, const char *name);

/* The modules of a parameter that are adapted. */
typedef struct tx_lora_modules {
    int32_t count;                               /* 0: none is */
    bool divided;                                /* the parameter is made of several modules */
    int32_t section[TX_MAX_SECTIONS];            /* of each: where the parameter is divided, which section it is */
    char name[TX_MAX_SECTIONS][TX_WEIGHTS_NAME]; /* "model.layers.0.self_attn.q_proj" */
    char joint[TX_WEIGHTS_NAME];                 /* of all: "model.layers.0.self_attn.q_proj|v_proj" */
} tx_lora_modules;
tx_status tx_lora_modules_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_modules *modules);

/* The linear layer of parameter `index`, `weight` and `bias` (or NULL), with what the configuration's adapter adds to
 * it, if anything: x [.., in] -> [.., out]. Declares A, of all modules of the parameter in one, B of each, and
 * magnitudes. NULL on error. */
tx_tensor *tx_lora_linear(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                          tx_tensor *x, tx_tensor *weight, tx_tensor *bias);

/* Draws the adapter of a model whose own weights are there: magnitudes begin as the norms of these. */
tx_status tx_lora_init(tx_model *model, const tx_config *config, uint64_t seed);

/* ---- Files (lora_files.c), as peft reads and writes them -------------------------------------------------- */

/* Whether the folder holds an adapter. */
bool tx_lora_is_folder(const char *folder);
/* Reads adapter_config.json (lora_config.c). Obeys every key, or refuses it by name. The caller frees. */
tx_status tx_lora_read(const char *folder, tx_lora **lora);
/* The folder of the model that an adapter in `folder` is of: by its name (tx_hub_model), or beside the adapter. The
 * caller frees `*base`. */
tx_status tx_lora_find_base(const tx_lora *lora, const char *folder, char **base);
/* Replaces the model's configuration by the one in the adapter's folder, if that has one (peft writes none): the head
 * may differ. Refuses the configuration of another model. */
tx_status tx_lora_adapted_config(const char *folder, tx_config **config);
/* Reads A, B and modules to save into a model that was built with the configuration's adapter; `options` may be NULL.
 */
tx_status tx_lora_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options);
/* Writes adapter_config.json and adapter_model.safetensors. */
tx_status tx_lora_save(tx_model *model, const tx_config *config, const char *folder);
/* Writes adapter_config.json. */
tx_status tx_lora_write(const tx_config *config, const char *path);
/* A tx_weights_names.rename for peft's names. */
void tx_lora_rename(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME]);

/* ---- Merging (lora_merge.c) ------------------------------------------------------------------------------- */

/* Refuses an adapter whose modules or tensors do not fit the configuration, or that holds NaN or infinity. */
tx_status tx_lora_check_files(const tx_lora *lora, const tx_config *config, const char *folder);
/* Adds the adapter in `folder` to the weights of a model without one, which `config` describes, and replaces modules to
 * save. Reads the weights of adapted modules from the base's files again, so that each sum is rounded once. */
tx_status tx_lora_merge(tx_model *model, const tx_config *config, const tx_lora *lora, const char *folder,
                        const char *base);

#endif
