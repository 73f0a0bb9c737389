/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of models in which a text model is one of several parts, such as Gemma 3 and Qwen3-VL, which also read
 * images. The configuration of the text is in text_config, and prefixes stand before the names of its tensors. TX reads
 * the text model, and writes it back into a folder of the same form, in which the other parts are copied. */
#ifndef TX_MODELS_WRAPPER_H
#define TX_MODELS_WRAPPER_H

#include "models/arch/arch.h"

/* A row of wrappers.def. */
typedef struct tx_wrapper {
    const char *type, *text, *alias;
    bool tied, stacked, outer;
    const char *others, *defaults;
} tx_wrapper;

/* All rows, ended by a NULL type. */
extern const tx_wrapper tx_wrappers[];

/* The settings of processors of images. */
enum { TX_WRAPPED_FILES = 3 };
extern const char *const tx_wrapped_names[TX_WRAPPED_FILES];

/* The wrapper of a configuration. */
struct tx_wrapped {
    const tx_wrapper *row;
    tx_json *json;       /* the whole config.json */
    tx_weights *weights; /* the folder's, kept open because the folder may be removed during a run; or NULL */
    char prefix[64];     /* replaces "model." in the names of these files */
    struct {
        char *data; /* NULL if the folder lacks it */
        size_t size;
    } file[TX_WRAPPED_FILES];
    bool text_only; /* save only the text model */
};

/* If config.json is a wrapper's, replaces *json by the configuration of its text, and sets *wrapped, which then owns
 * the whole; else sets it to NULL. On failure nothing changes. */
tx_status tx_wrapper_open_json(tx_json **json, tx_wrapped **wrapped);
/* Whether this is the configuration of a wrapper whose files have stacked experts. */
bool tx_wrapper_stacks(const tx_json *json);
/* Keeps the weights and files of the folder of a configuration. An output head in the weights that differs from the
 * embedding unties them. */
tx_status tx_wrapper_open_folder(tx_config *config, const char *folder);
void tx_wrapped_free(tx_wrapped *wrapped); /* NULL is fine */

/* Writes the name that a tensor of the folder has in a text model. Returns false if it belongs to another part. */
bool tx_wrapper_rename(const tx_wrapped *wrapped, const char *tensor, char text[TX_WEIGHTS_NAME]);
/* Writes the name of a module or tensor of a text model in transformers' class of the wrapper. */
void tx_wrapper_module(const tx_wrapped *wrapped, const char *text, char name[TX_WEIGHTS_NAME]);
/* Writes a regular expression for the modules of the other parts. */
void tx_wrapper_pattern(const tx_wrapped *wrapped, char *pattern, size_t room);

/* Whether the model is saved in the wrapper's form. */
bool tx_wrapper_keeps(const tx_config *config);
/* TX_UNSUPPORTED if the wrapper's form cannot be saved, because other parts are quantized. */
tx_status tx_wrapper_check(const tx_config *config);
/* Replaces the text's settings, of which it takes ownership also on failure, by the whole config.json with them. */
tx_status tx_wrapper_close_json(const tx_wrapped *wrapped, tx_json **json);
/* Writes the weights, those of other parts included, and the files of processors. */
tx_status tx_wrapper_save(tx_model *model, const tx_wrapped *wrapped, const char *folder);

#endif
