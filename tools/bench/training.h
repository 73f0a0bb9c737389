/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer whose steps are measured, on random tokens and labels for the model's head. The gradient norm is clipped to
 * 1. The default is one micro-batch and AdamW without weight decay. */
#ifndef TX_TOOLS_BENCH_TRAINING_H
#define TX_TOOLS_BENCH_TRAINING_H

#include "models/train/pace.h"
#include "models/train/trainer.h"

typedef struct tx_bench_tokens {
    uint64_t random;          /* state of the generator, equal on all ranks */
    int64_t rows, block;      /* rows of all ranks; tokens of a row */
    int32_t *tokens, *labels; /* [rows, block] */
} tx_bench_tokens;

/* Allocates tokens and labels. The caller frees tokens->tokens. */
tx_status tx_bench_tokens_make(int64_t rows, int64_t block, tx_bench_tokens *tokens);
/* Fills in new random tokens below `vocab`. The label of a token is the next token. */
void tx_bench_tokens_next(int64_t vocab, tx_bench_tokens *tokens);

typedef struct tx_bench_training {
    const tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_pace *pace; /* NULL for a single rank */
    tx_bench_tokens data;
    void *memory;                         /* memory of the batch */
    tx_batch batch;                       /* the task's fields for the rows of all ranks */
    double rate;                          /* learning rate, TX_BENCH_LEARNING_RATE at first */
    bool repeats;                         /* all steps have the rows of the first one */
    double loss;                          /* loss of the last step */
    double open_seconds, compile_seconds; /* time of opening the device; of compiling plans and kernels */
} tx_bench_training;

#define TX_BENCH_LEARNING_RATE 5e-5
#define TX_BENCH_GRAD_NORM 1.0
/* Returns options of the trainer. The task is that of the model's head. */
tx_trainer_options tx_bench_trainer_options(const tx_config *config, int64_t batch, int64_t block);

/* Opens a device and compiles the plans, on all ranks of options->comm. The caller calls tx_model_init, which allocates
 * all memory. Frees everything on errors. */
tx_status tx_bench_training_open(const tx_engine_options *engine, const tx_config *config,
                                 const tx_trainer_options *options, tx_bench_training *training);
/* Allocates all memory, runs one step and waits for its results. */
tx_status tx_bench_training_first(tx_bench_training *training, double *seconds);
/* Runs steps as a training run does: it reads the results of a step after it has queued the next one. */
tx_status tx_bench_training_run(tx_bench_training *training, int64_t steps, double *seconds);
void tx_bench_training_close(tx_bench_training *training);

/* Finds the model's configuration, which must have positions for `block` tokens, and sets its dropout to 0. The caller
 * frees it, also after errors. */
tx_status tx_bench_config(const char *name, int64_t block, tx_config **config);

#endif
