/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPT-2 of two layers over bytes and a little text, for tests of trainers that need no learning. */
#ifndef TX_TESTS_SMALL_GPT2_H
#define TX_TESTS_SMALL_GPT2_H

#include "models/arch/arch.h"
#include "models/task/causal_lm.h"
#include "models/train/run.h"

#include <stdlib.h>
#include <unistd.h>

enum { SMALL_BLOCK = 16 };

static inline tx_status small_config(tx_config **config)
{
    TX_TRY(tx_config_preset("gpt2", config));
    tx_config *c = *config;
    c->vocab_size = TX_BYTES_VOCAB;
    c->bos_token_id = c->eos_token_id = TX_BYTES_VOCAB - 1;
    c->positions = SMALL_BLOCK;
    c->width = 24;
    c->layers = c->heads = 2;
    return TX_OK;
}

static inline tx_trainer_options small_options(void)
{
    return (tx_trainer_options){
        .size = sizeof(tx_trainer_options),
        .task = &tx_causal_lm,
        .batch = 2,
        .block = SMALL_BLOCK,
        .accumulation = 2,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f},
    };
}

/* A dataset of so many blocks. */
static inline tx_status small_data(size_t blocks, tx_dataset **data)
{
    char path[] = "/tmp/tx_small_XXXXXX";
    const size_t size = blocks * SMALL_BLOCK;
    char *text = malloc(size);
    int file = text ? mkstemp(path) : -1;
    for (size_t i = 0; text && i < size; i++)
        text[i] = (char)('a' + i * i % 23);
    const bool written = file >= 0 && write(file, text, size) == (ssize_t)size && close(file) == 0;
    free(text);
    if (!written)
        return tx_fail(TX_IO, "%s: cannot be written", path);
    tx_tokenizer *bytes = NULL;
    tx_status status = tx_tokenizer_bytes(&bytes);
    tx_dataset_options options = {.size = sizeof options,
                                  .tokenizer = bytes,
                                  .vocab = TX_BYTES_VOCAB,
                                  .block = SMALL_BLOCK,
                                  .to = 100.0,
                                  .threads = 1};
    TX_THEN(status, tx_dataset_open(path, &options, data));
    tx_tokenizer_free(bytes);
    unlink(path);
    return status;
}

#endif
