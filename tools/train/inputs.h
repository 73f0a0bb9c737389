/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run of txtrain starts from: configuration, weights or checkpoint, tokenizer, data. */
#ifndef TX_TOOLS_TRAIN_INPUTS_H
#define TX_TOOLS_TRAIN_INPUTS_H

#include "models/arch/arch.h"
#include "models/text/dataset.h"
#include "models/text/tokenizer.h"
#include "models/train/state.h"
#include "tools/train/options.h"

typedef struct tx_train_inputs {
    char *checkpoint;   /* to go on from; NULL: none */
    char *model_folder; /* of the weights; NULL: new ones */
    tx_run_state state; /* the checkpoint's, or a new one */
    tx_config *config;
    char *train_path, *validation_path; /* NULL: none */
    bool shared;                        /* the validation data are a part of the training file */
    tx_tokenizer *tokenizer;            /* NULL: none is known, and the data are tokens */
    int64_t block;                      /* tokens in a block */
    tx_dataset *train, *validation;     /* NULL: none */
} tx_train_inputs;

/* Looks everything up and reads it, printing what was chosen. Release on any outcome. */
tx_status tx_train_open(const tx_train_settings *set, const tx_reporter *report, tx_train_inputs *inputs);
void tx_train_release(tx_train_inputs *inputs);

#endif
