/* SPDX-License-Identifier: Apache-2.0
 *
 * Some steps of a tiny GPT-2 on constant tokens, for tests of devices that change the course of a training. */
#ifndef TX_TESTS_TINY_TRAINING_H
#define TX_TESTS_TINY_TRAINING_H

#include "models/arch/arch.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"

enum { TINY_STEPS = 5, TINY_TOKENS = 192 }; /* at most */

typedef struct tiny_training {
    const char *config; /* overrides of gpt2's */
    int64_t rows, block, vocab;
    int32_t steps;
    double rate;
    /* The objects of the training; the caller releases them by tiny_free. */
    tx_config *made;
    tx_model *model;
    tx_trainer *trainer;
    double loss[TINY_STEPS], norm[TINY_STEPS];
} tiny_training;

/* The training of tests that compare runs bit by bit. */
static inline tiny_training tiny_without_dropout(int32_t steps)
{
    return (tiny_training){.config = "n_layer=1,n_embd=32,n_head=2,vocab_size=64,n_positions=20,"
                                     "attn_pdrop=0,embd_pdrop=0,resid_pdrop=0",
                           .rows = 2,
                           .block = 20,
                           .vocab = 64,
                           .steps = steps,
                           .rate = 1e-2};
}

static inline tx_status tiny_steps(tiny_training *t)
{
    int32_t tokens[TINY_TOKENS], labels[TINY_TOKENS];
    const int64_t count = t->rows * t->block;
    tx_status status = TX_OK;
    for (int i = 0; i < count; i++) {
        tokens[i] = (int32_t)(i * 7 % t->vocab);
        labels[i] = (int32_t)(i * 11 % t->vocab);
    }
    for (int step = 0; step < t->steps && !status; step++) {
        tx_results r;
        status = tx_trainer_step(t->trainer, &(tx_batch){.rows = t->rows, .field = {tokens, labels}}, count, t->rate);
        TX_THEN(status, tx_trainer_results(t->trainer, &r));
        if (!status) {
            t->loss[step] = (double)r.value[TX_RESULT_LOSS];
            t->norm[step] = (double)r.value[TX_RESULT_GRAD_NORM];
        }
    }
    return status;
}

static inline tx_status tiny_train(tx_engine *engine, tiny_training *t)
{
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_causal_lm,
        .batch = t->rows,
        .block = t->block,
        .accumulation = 1,
        .optimizer = {.size = sizeof options.optimizer, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}};
    tx_status status = tx_config_preset("gpt2", &t->made);
    TX_THEN(status, tx_config_override(t->made, t->config));
    TX_THEN(status, tx_model_create(engine, &t->model));
    TX_THEN(status, tx_trainer_create(t->model, t->made, &options, &t->trainer));
    TX_THEN(status, tx_model_init(t->model, 1));
    return status ? status : tiny_steps(t);
}

static inline void tiny_free(tiny_training *t)
{
    tx_trainer_free(t->trainer);
    tx_model_free(t->model);
    tx_config_free(t->made);
}

#endif
