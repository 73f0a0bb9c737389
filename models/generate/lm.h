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
    char *adapter; /* the folder of one that is added to the weights, as `lora` says; NULL: none */
    tx_lora *lora;
    tx_config *config;
    tx_generation generation;
    int64_t batch;  /* prompts at once */
    bool keep;      /* caches from prompt to prompt */
    tx_dtype dtype; /* of the weights on the device */
    tx_engine *engine[TX_LM_DEVICES];
    int32_t blocks[TX_LM_DEVICES]; /* of each, where there are several */
    int32_t devices;
    tx_model *model;         /* NULL: nothing is compiled */
    bool loaded;             /* its weights are read */
    tx_generator *generator; /* of `model`, as `compiled` says; NULL: none */
    tx_generator_options compiled;
    tx_tokenizer *tokenizer; /* NULL, as the encoder: no text so far */
    tx_encoder *encoder;
};

/* Opens the tokenizer, unless it is. */
tx_status tx_lm_open_tokenizer(tx_lm *lm);
/* Chooses the folders of model and adapter, and reads the configuration (lm_adapter.c). */
tx_status tx_lm_find(tx_lm *lm, const tx_lm_options *options);
/* Opens the devices that `map` names, with the blocks that it gives them: all of the model's (device_map.c). */
tx_status tx_lm_open_devices(tx_lm *lm, const char *map, int32_t threads);
/* Compiles the least, if nothing is compiled, and reads the weights. */
tx_status tx_lm_load(tx_lm *lm);
/* A generator of at least these sizes, the weights read. */
tx_status tx_lm_compile(tx_lm *lm, const tx_generator_options *sizes);
/* Whether max_length limits each prompt with its text: it is said, and the model has positions for so many. */
bool tx_lm_is_limited(const tx_lm *lm, const tx_generation *how);

#endif
