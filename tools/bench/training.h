/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer of this process whose steps are measured: random tokens, and labels of whatever the model is for; clip 1;
 * by default one micro-batch, and AdamW without decay. */
#ifndef TX_TOOLS_BENCH_TRAINING_H
#define TX_TOOLS_BENCH_TRAINING_H

#include "models/train/pace.h"
#include "models/train/trainer.h"

typedef struct tx_bench_tokens {
    uint64_t random;          /* the state; the same everywhere */
    int64_t rows, block;      /* of all ranks */
    int32_t *tokens, *labels; /* [rows, block] */
} tx_bench_tokens;

/* The caller frees tokens->tokens. */
tx_status tx_bench_tokens_make(int64_t rows, int64_t block, tx_bench_tokens *tokens);
/* Random tokens below `vocab`, each the label of the one before. */
void tx_bench_tokens_next(int64_t vocab, tx_bench_tokens *tokens);

typedef struct tx_bench_training {
    const tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_pace *pace; /* of several ranks */
    tx_bench_tokens data;
    void *memory;                         /* of the batch */
    tx_batch batch;                       /* of all ranks' rows: the fields of the model's task */
    double loss;                          /* of the last step */
    double open_seconds, compile_seconds; /* until the device was opened; for plans and kernels */
} tx_bench_training;

#define TX_BENCH_LEARNING_RATE 5e-5
#define TX_BENCH_GRAD_NORM 1.0
tx_optimizer_options tx_bench_optimizer(void);
/* Options of the trainer: the task is that of the model's head. */
tx_trainer_options tx_bench_trainer_options(const tx_config *config, int64_t batch, int64_t block);

/* Opens a device and compiles the plans, of all ranks of options->comm alike; tx_model_init is left to the caller,
 * since it takes all memory. Frees itself where it fails. */
tx_status tx_bench_training_open(const tx_engine_options *engine, const tx_config *config,
                                 const tx_trainer_options *options, tx_bench_training *training);
/* One step, whose results are waited for: the first one allocates all memory. */
tx_status tx_bench_training_first(tx_bench_training *training, double *seconds);
/* Runs steps as a training run does, which takes a step's results after the next was given. */
tx_status tx_bench_training_run(tx_bench_training *training, int64_t steps, double *seconds);
void tx_bench_training_close(tx_bench_training *training);

/* Finds the model's configuration, which must have positions for `block` tokens, and takes its dropout out. The caller
 * frees it in any case. */
tx_status tx_bench_config(const char *name, int64_t block, tx_config **config);

#endif
