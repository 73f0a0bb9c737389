/* SPDX-License-Identifier: Apache-2.0
 * Training steps on random tokens. */
#include "tools/bench/training.h"
#include "comm/comm.h"
#include "models/arch/find.h"
#include "models/task/causal_lm.h"
#include "models/task/seq2seq.h"
#include "models/task/sequence.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_bench_config(const char *name, int64_t block, tx_config **config)
{
    TX_TRY(tx_config_find(name, config));
    for (const tx_config_key *key = (*config)->architecture->keys; key->name; key++)
        if (key->kind == TX_KEY_NUMBER && strstr(key->name, "drop"))
            memcpy((char *)*config + key->offset, &(double){0.0}, sizeof(double));
    if (block <= (*config)->positions)
        return TX_OK;
    return tx_fail(TX_INVALID, "block %" PRId64 " is more than the model's %" PRId64 " positions", block,
                   (*config)->positions);
}

/* ---- Tokens --------------------------------------------------------------------------------------------- */

tx_status tx_bench_tokens_make(int64_t rows, int64_t block, tx_bench_tokens *tokens)
{
    *tokens = (tx_bench_tokens){.random = 1, .rows = rows, .block = block};
    tokens->tokens = calloc((size_t)(rows * block), 2 * sizeof *tokens->tokens);
    if (!tokens->tokens)
        return tx_fail(TX_MEMORY, "no memory for a batch of %" PRId64 " x %" PRId64 " tokens", rows, block);
    tokens->labels = tokens->tokens + rows * block;
    return TX_OK;
}

/* Knuth's linear congruential generator (MMIX). */
void tx_bench_tokens_next(int64_t vocab, tx_bench_tokens *tokens)
{
    const int64_t count = tokens->rows * tokens->block;
    for (int64_t i = 0; i < count; i++) {
        tokens->random = tokens->random * 6364136223846793005u + 1442695040888963407u;
        tokens->tokens[i] = (int32_t)((tokens->random >> 33) % (uint64_t)vocab);
    }
    for (int64_t i = 0; i < count; i++)
        tokens->labels[i] = (i + 1) % tokens->block ? tokens->tokens[i + 1] : TX_IGNORE_LABEL;
}

/* ---- Training ------------------------------------------------------------------------------------------- */

static tx_optimizer_options optimizer_options(void)
{
    return (tx_optimizer_options){sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f};
}

/* Heads with scores for each token use the same task: their labels have the same shape. */
static const tx_task *task_of(const tx_config *config)
{
    const tx_head head = config->architecture->head;
    return head == TX_HEAD_SEQUENCE_CLASSIFICATION ? &tx_sequence_classification.task
           : head == TX_HEAD_SEQ2SEQ               ? &tx_seq2seq
                                                   : &tx_causal_lm;
}

tx_trainer_options tx_bench_trainer_options(const tx_config *config, int64_t batch, int64_t block)
{
    return (tx_trainer_options){
        .size = sizeof(tx_trainer_options),
        .task = task_of(config),
        .batch = batch,
        .block = block,
        .accumulation = 1,
        .parallel = {.size = sizeof(tx_parallel_options)},
        .optimizer = optimizer_options(),
    };
}

static tx_status open_training(const tx_engine_options *engine, const tx_trainer_options *options, int64_t rows,
                               tx_bench_training *t)
{
    TX_TRY(tx_bench_tokens_make(rows, options->block, &t->data));
    t->memory = malloc((size_t)(rows * tx_task_row_bytes(options->task, options->block)));
    if (!t->memory)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " rows", rows);
    t->batch = tx_batch_of(options->task, options->block, rows, t->memory);
    const double begin = tx_now();
    TX_TRY(tx_engine_create(engine, &t->engine));
    const double opened = tx_now();
    TX_TRY(tx_model_create(t->engine, &t->model));
    TX_TRY(tx_trainer_create(t->model, t->config, options, &t->trainer));
    t->open_seconds = opened - begin;
    t->compile_seconds = tx_now() - opened;
    if (options->comm)
        TX_TRY(tx_pace_create(&(tx_pace_ranks){.all = options->comm}, TX_OVERLAP_AUTO, false, options->batch, rows,
                              &t->pace));
    return TX_OK;
}

tx_status tx_bench_training_open(const tx_engine_options *engine, const tx_config *config,
                                 const tx_trainer_options *options, tx_bench_training *training)
{
    tx_trainer_options all = *options;
    all.all_rows = all.batch * (all.comm ? all.comm->size : 1);
    all.rows_before = all.comm ? all.batch * all.comm->rank : 0;
    *training = (tx_bench_training){.config = config, .rate = TX_BENCH_LEARNING_RATE};
    tx_status status = open_training(engine, &all, all.all_rows * all.accumulation, training);
    if (status)
        tx_bench_training_close(training);
    return status;
}

void tx_bench_training_close(tx_bench_training *training)
{
    tx_pace_free(training->pace);
    tx_trainer_free(training->trainer);
    tx_model_free(training->model);
    tx_engine_free(training->engine);
    free(training->data.tokens);
    free(training->memory);
    *training = (tx_bench_training){0};
}

static tx_status take_results(tx_bench_training *t)
{
    tx_results results;
    TX_TRY(tx_trainer_results(t->trainer, &results));
    t->loss = (double)results.value[TX_RESULT_LOSS];
    /* With loss scaling the gradients may overflow. The update is then skipped, which takes the same time. */
    const bool scaled = tx_trainer_options_of(t->trainer)->set->fp16;
    return (results.value[TX_RESULT_FINITE] == 1.0f || scaled) && isfinite(t->loss)
               ? TX_OK
               : tx_fail(TX_DEVICE, "step %" PRId64 ": loss %g, and the gradient's norm is not finite",
                         tx_trainer_steps(t->trainer), t->loss);
}

/* Fills all rows with random tokens of full length, and with labels of tokens or of rows. Other fields are 0. */
static void fill(tx_bench_training *t, const tx_task *task)
{
    const int64_t count = t->data.rows * t->data.block, labels = tx_arch_columns(t->config);
    tx_bench_tokens_next(t->config->vocab_size, &t->data);
    for (int32_t f = 0; task->fields[f].name; f++) {
        const tx_field *field = &task->fields[f];
        int32_t *values = t->batch.field[f];
        const bool of_rows = field->width != TX_FIELD_BLOCK, labelled = strcmp(field->name, "labels") == 0;
        if (strcmp(field->name, "input_ids") == 0 || (labelled && !of_rows && !tx_arch_classifies(t->config)))
            memcpy(values, labelled ? t->data.labels : t->data.tokens, (size_t)count * sizeof *values);
        else
            for (int64_t i = 0; i < (of_rows ? t->data.rows : count); i++)
                values[i] = labelled                                     ? t->data.tokens[i] % (int32_t)labels
                            : strcmp(field->name, TX_FIELD_LENGTHS) == 0 ? (int32_t)t->data.block
                                                                         : 0;
    }
}

static tx_status step(tx_bench_training *t, bool first)
{
    const tx_trainer_options *options = tx_trainer_options_of(t->trainer);
    const tx_batch batch = tx_batch_rows(options->task, t->data.block, &t->batch, options->rows_before,
                                         options->batch * options->accumulation);
    tx_pace_news news;
    if (!t->repeats || tx_trainer_steps(t->trainer) == 0)
        fill(t, options->task);
    if (t->pace)
        TX_TRY(tx_pace_begin(t->pace, t->model));
    TX_TRY(tx_trainer_step(t->trainer, &batch, tx_batch_labels(options->task, t->data.block, &t->batch), t->rate));
    if (!first)
        TX_TRY(take_results(t));
    return t->pace ? tx_pace_end(t->pace, &news) : TX_OK;
}

tx_status tx_bench_training_first(tx_bench_training *training, double *seconds)
{
    TX_TRY(tx_model_init(training->model, 1));
    return tx_bench_training_run(training, 1, seconds);
}

tx_status tx_bench_training_run(tx_bench_training *training, int64_t steps, double *seconds)
{
    const double begin = tx_now();
    for (int64_t i = 0; i < steps; i++)
        TX_TRY(step(training, i == 0));
    if (steps > 0)
        TX_TRY(take_results(training));
    *seconds = tx_now() - begin;
    return TX_OK;
}
