/* SPDX-License-Identifier: Apache-2.0
 *
 * A language model opened: lm.c has its parts and measures, texts.c its texts. */
#ifndef TX_GENERATE_LM_H
#define TX_GENERATE_LM_H

#include "models/generate/generate.h"
#include "models/tx_text.h"

/* Devices that a model is divided among, at most. */
enum { TX_LM_DEVICES = 16 };

struct tx_lm {
    char *folder;
    tx_reporter progress; /* of what is compiled and read */
    char *adapter;        /* the folder of one that is added to the weights, as `lora` says; NULL: none */
    tx_lora *lora;
    tx_config *config;
    tx_generation generation;
    int64_t batch; /* prompts at once */
    bool keep;     /* caches from prompt to prompt */
    tx_offload_place offload_params;
    char *offload_folder; /* NULL: none */
    tx_dtype dtype;       /* of the weights on the device */
    tx_engine *engine[TX_LM_DEVICES];
    int32_t asked[TX_LM_DEVICES];  /* blocks that each is to have, where there are several; 0: what it can take */
    int32_t blocks[TX_LM_DEVICES]; /* that each has in what is compiled; 0: it is left out */
    int32_t devices;
    char placed[TX_LM_DEVICES * 48]; /* see tx_lm_device_map */
    tx_model *model;                 /* NULL: nothing is compiled */
    bool loaded;                     /* its weights are read */
    tx_generator *generator;         /* of `model`, as `compiled` says; NULL: none */
    tx_generator_options compiled;
    tx_tokenizer *tokenizer; /* NULL, as the encoder: no text so far */
    tx_encoder *encoder;
};

/* What a model is compiled for: texts, or windows, or one sequence of so many tokens. */
typedef struct tx_lm_sizes {
    const tx_generator_options *texts;
    const tx_perplexity_options *windows;
    int64_t tokens;
} tx_lm_sizes;

/* Opens the tokenizer, unless it is. */
tx_status tx_lm_open_tokenizer(tx_lm *lm);
/* Chooses the folders of model and adapter, and reads the configuration (lm_adapter.c). */
tx_status tx_lm_find(tx_lm *lm, const tx_lm_options *options);
#define TX_LM_GENERATION "generation_config.json"
/* The folder whose TX_LM_GENERATION applies: the adapter's if that has one, else the model's. */
const char *tx_lm_generation_folder(const tx_lm *lm);
/* Opens the devices that `map` names, with the blocks that it gives them (device_map.c). */
tx_status tx_lm_open_devices(tx_lm *lm, const char *map, int32_t threads);
/* Chooses the blocks of each device for plans of these sizes. */
tx_status tx_lm_place(tx_lm *lm, const tx_lm_sizes *sizes);
/* A model of the opened devices that have blocks, each with its own; the caller frees it. */
tx_status tx_lm_divide(const tx_lm *lm, const int32_t blocks[TX_LM_DEVICES], bool only_plan, tx_model **model);
/* A generator of at least these sizes, the weights read. */
tx_status tx_lm_compile(tx_lm *lm, const tx_generator_options *sizes);

#endif
