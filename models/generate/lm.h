/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct of an opened language model, shared by the files of this folder. */
#ifndef TX_GENERATE_LM_H
#define TX_GENERATE_LM_H

#include "models/generate/generate.h"
#include "models/generate/slots.h"
#include "models/tx_text.h"

/* Maximum number of devices that a model is divided among. */
enum { TX_LM_DEVICES = 16 };

struct tx_lm {
    char *folder;
    tx_reporter progress; /* of compiling and loading */
    char *adapter;        /* the folder of an adapter to merge, with configuration `lora`; or NULL */
    tx_lora *lora;
    tx_config *config;
    tx_generation generation;
    bool has_generation;
    int64_t batch; /* prompts at once */
    bool keep;     /* keep caches from prompt to prompt */
    bool q8_0;     /* caches in blocks of Q8_0 */
    bool in_host;  /* the only device is the cpu, which compiles no programs for a plan */
    tx_offload_place offload_params;
    char *offload_folder; /* or NULL */
    tx_dtype dtype;       /* of the weights on the device */
    tx_engine *engine[TX_LM_DEVICES];
    int32_t asked[TX_LM_DEVICES];  /* requested blocks of each device; 0 means as many as fit */
    int32_t blocks[TX_LM_DEVICES]; /* blocks of each device in the compiled model; 0 leaves it out */
    int32_t devices;
    tx_comm *ranks, *alone;          /* ranks that divide the model, and this rank; or NULL */
    struct tx_watchdog *watch;       /* of the ranks, or NULL */
    bool generated;                  /* the last texts were generated */
    char placed[TX_LM_DEVICES * 48]; /* see tx_lm_device_map */
    char device[720];                /* see tx_lm_device */
    tx_model *model;                 /* NULL if nothing is compiled */
    bool loaded;                     /* its weights are read, */
    double load_seconds;             /* which took so long */
    tx_slots *slots;                 /* of an assistant; or NULL */
    tx_lm *assistant;                /* or NULL */
    tx_generator *generator;         /* of `model`, with sizes `compiled`; or NULL */
    tx_generator_options compiled;
    tx_tokenizer *tokenizer; /* NULL until it is needed, like the encoder */
    tx_encoder *encoder;
    tx_breakers *breakers; /* the default ones, NULL until they are needed */
};

#define TX_LM_DEVICE 64 /* bytes of a device's name */

/* The sizes for which a model is compiled: for texts, or for windows, or for one sequence of `tokens` tokens. */
typedef struct tx_lm_sizes {
    const tx_generator_options *texts;
    const tx_perplexity_options *windows;
    int64_t tokens;
} tx_lm_sizes;

/* The number of draft tokens that a pass with these settings verifies. Fails if they contradict each other. */
tx_status tx_lm_draft_tokens(const tx_lm *lm, const tx_generation *how, int64_t *draft_tokens);
/* Opens the tokenizer if it is not open. */
tx_status tx_lm_open_tokenizer(tx_lm *lm);
/* Finds the folders of model and adapter, and reads the configuration (lm_adapter.c). */
tx_status tx_lm_find(tx_lm *lm, const tx_lm_options *options);
#define TX_LM_GENERATION "generation_config.json"
/* The folder whose TX_LM_GENERATION applies: the adapter's if it has one, else the model's. */
const char *tx_lm_generation_folder(const tx_lm *lm);
/* Writes lm->device (device_map.c). */
void tx_lm_name_device(tx_lm *lm);
/* Opens the devices of a device map, and stores their requested blocks (device_map.c). */
tx_status tx_lm_open_devices(tx_lm *lm, const char *map, int32_t threads);
/* Checks the options of a model that ranks divide, and chooses this rank's device and threads among those of its host
 * (ranks.c). */
tx_status tx_lm_join(tx_lm *lm, tx_lm_options *options, char device[TX_LM_DEVICE]);
/* Reports to txlaunch how this rank has ended (ranks.c). */
void tx_lm_part(tx_lm *lm);
/* Chooses the blocks of each device for plans of these sizes. */
tx_status tx_lm_choose_devices(tx_lm *lm, const tx_lm_sizes *sizes);
/* Creates a model on the devices that have blocks; the caller frees it. */
tx_status tx_lm_divide(const tx_lm *lm, const int32_t blocks[TX_LM_DEVICES], bool only_plan, tx_model **model);
/* Creates the model if there is none. Building graphs declares its parameters, so plans must be made after this and
 * before the weights are loaded for the first time. */
tx_status tx_lm_create_model(tx_lm *lm, const tx_lm_sizes *sizes);
/* Loads the weights if they are not loaded. */
tx_status tx_lm_load(tx_lm *lm);
/* Makes sure that there is a generator of at least these sizes, and loads the weights. */
tx_status tx_lm_compile(tx_lm *lm, const tx_generator_options *sizes);

/* Creates slots for prompts of length sizes->prompt, loads the weights and proves the slots (slots.h). */
tx_status tx_lm_compile_slots(tx_lm *lm, const tx_generator_options *sizes, tx_slots **slots);
/* Frees the plans and the model with its weights; slots must be freed before. */
void tx_lm_drop(tx_lm *lm);

#endif
