/* SPDX-License-Identifier: Apache-2.0
 * The plans of a model in training, and one optimizer step. */
#include "models/train/trainer.h"

#include <inttypes.h>
#include <stdlib.h>

/* A compiled graph over a batch of tokens and labels. */
typedef struct batch_plan {
    tx_graph *graph;
    tx_tensor *tokens, *labels, *loss;
    tx_plan *plan;
    int64_t runs; /* since profiling began */
} batch_plan;

struct tx_trainer {
    tx_model *model;
    const tx_config *config;
    tx_trainer_options options;
    batch_plan train, evaluate;
    tx_plan *update;
    int64_t updates; /* runs of the update plan since profiling began */
    int64_t step;
    float (*vote)(void *context);
    void *vote_context;
};

static tx_status build(tx_trainer *trainer, bool train, int64_t batch, batch_plan *made)
{
    tx_status status = tx_graph_create(trainer->model, &made->graph);
    if (status)
        return status;
    tx_shape shape = TX_SHAPE(batch, trainer->options.block);
    made->tokens = tx_input(made->graph, "input_ids", TX_I32, shape);
    made->labels = tx_input(made->graph, "labels", TX_I32, shape);
    const tx_arch_options options = {.size = sizeof options, .train = train};
    tx_tensor *logits = tx_arch_logits(made->graph, trainer->config, &options);
    made->loss = tx_arch_loss(logits, trainer->config, made->labels);
    if (train)
        status = tx_backward(made->graph, made->loss);
    else
        made->loss = tx_output(made->loss);
    if (!status)
        status = tx_plan_create(made->graph, train ? "train" : "evaluate", &made->plan);
    return status;
}

static void discard(batch_plan *plan)
{
    tx_plan_free(plan->plan);
    tx_graph_free(plan->graph);
    *plan = (batch_plan){0};
}

static tx_status check(const tx_trainer_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "trainer: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (o->batch < 1 || o->block < 1 || o->accumulation < 1 || o->eval_batch < 0)
        return tx_fail(TX_INVALID,
                       "trainer: batch %" PRId64 ", block %" PRId64 ", accumulation %" PRId64
                       " must be at least 1, evaluation batch %" PRId64 " at least 0",
                       o->batch, o->block, o->accumulation, o->eval_batch);
    if (o->rows_before < 0 || (o->all_rows && o->all_rows - o->rows_before < o->batch))
        return tx_fail(TX_INVALID, "trainer: rows %" PRId64 " to %" PRId64 " of a micro-batch of %" PRId64,
                       o->rows_before, o->rows_before + o->batch, o->all_rows);
    if (!(o->max_grad_norm >= 0.0))
        return tx_fail(TX_INVALID, "trainer: max_grad_norm %g must be 0 (off) or more", o->max_grad_norm);
    return TX_OK;
}

static tx_status prepare(tx_trainer *trainer)
{
    const tx_trainer_options *o = &trainer->options;
    tx_status status = o->comm ? tx_model_parallel(trainer->model, o->comm, &o->parallel) : TX_OK;
    if (!status)
        status = build(trainer, true, o->batch, &trainer->train);
    if (!status)
        status = tx_optimizer_create(trainer->model, &o->optimizer, &trainer->update);
    if (!status && o->eval_batch)
        status = build(trainer, false, o->eval_batch, &trainer->evaluate);
    if (!status)
        status = tx_model_set_seed(trainer->model, o->seed);
    if (!status)
        status = tx_model_set(trainer->model, TX_CONTROL_MAX_GRAD_NORM, o->max_grad_norm);
    if (!status)
        status = tx_model_set(trainer->model, TX_CONTROL_LOSS_SCALE, 1.0);
    return status;
}

tx_status tx_trainer_create(tx_model *model, const tx_config *config, const tx_trainer_options *options,
                            tx_trainer **trainer)
{
    tx_status status = check(options);
    if (status)
        return status;
    tx_trainer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "trainer: out of memory");
    made->model = model;
    made->config = config;
    made->options = *options;
    if (!made->options.all_rows)
        made->options.all_rows = options->batch;
    status = prepare(made);
    if (status) {
        tx_trainer_free(made);
        return status;
    }
    *trainer = made;
    return TX_OK;
}

void tx_trainer_free(tx_trainer *trainer)
{
    if (!trainer)
        return;
    discard(&trainer->evaluate);
    tx_plan_free(trainer->update);
    discard(&trainer->train);
    free(trainer);
}

void tx_trainer_ask(tx_trainer *trainer, float (*vote)(void *context), void *context)
{
    trainer->vote = vote;
    trainer->vote_context = context;
}

tx_status tx_trainer_share(tx_trainer *trainer, int64_t batch, int64_t rows_before)
{
    tx_trainer_options changed = trainer->options;
    changed.batch = batch;
    changed.rows_before = rows_before;
    tx_status status = check(&changed);
    if (status || batch == trainer->options.batch) {
        trainer->options = status ? trainer->options : changed;
        return status;
    }
    batch_plan made = {0};
    status = build(trainer, true, batch, &made);
    if (status) {
        discard(&made);
        return status;
    }
    discard(&trainer->train);
    trainer->train = made;
    trainer->options = changed;
    return TX_OK;
}

const tx_trainer_options *tx_trainer_options_of(const tx_trainer *trainer)
{
    return &trainer->options;
}

int64_t tx_trainer_steps(const tx_trainer *trainer)
{
    return trainer->step;
}

void tx_trainer_set_steps(tx_trainer *trainer, int64_t steps)
{
    trainer->step = steps;
}

int64_t tx_count_labels(const int32_t *labels, int64_t count)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += labels[i] != TX_IGNORE_LABEL;
    return counted;
}

/* Sets several scalars; stops at the first failure. */
static tx_status set_all(tx_model *model, const tx_control control[], const double value[], int32_t count)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < count && !status; i++)
        status = tx_model_set(model, control[i], value[i]);
    return status;
}

/* Gives `count` tokens and labels to a plan and runs it. */
static tx_status run_batch(batch_plan *plan, const int32_t *tokens, const int32_t *labels, int64_t count)
{
    size_t bytes = (size_t)count * sizeof *tokens;
    tx_status status = tx_plan_write(plan->plan, plan->tokens, tokens, bytes);
    if (!status)
        status = tx_plan_write(plan->plan, plan->labels, labels, bytes);
    if (!status)
        status = tx_plan_run(plan->plan);
    plan->runs++;
    return status;
}

tx_status tx_trainer_step(tx_trainer *trainer, const int32_t *tokens, const int32_t *labels, int64_t counted,
                          int64_t micro_batches, double learning_rate)
{
    const tx_trainer_options *o = &trainer->options;
    if (micro_batches < 1 || micro_batches > o->accumulation)
        return tx_fail(TX_INVALID, "trainer: a step of %" PRId64 " micro-batches; 1 to %" PRId64 " were planned",
                       micro_batches, o->accumulation);
    int64_t count = o->batch * o->block;
    if (counted == 0)
        return tx_fail(TX_INVALID, "trainer: a step without a single label");
    const tx_control once[] = {TX_CONTROL_LEARNING_RATE, TX_CONTROL_INVERSE_LABELS, TX_CONTROL_STEP};
    const double value[] = {learning_rate, 1.0 / (double)counted, (double)(trainer->step & UINT32_MAX)};
    tx_status status = set_all(trainer->model, once, value, 3);
    for (int64_t i = 0; i < micro_batches && !status; i++) {
        const tx_control each[] = {TX_CONTROL_ACCUMULATE, TX_CONTROL_SAMPLE};
        const double of_batch[] = {i > 0 ? 1.0 : 0.0, (double)(i * o->all_rows + o->rows_before)};
        status = set_all(trainer->model, each, of_batch, 2);
        if (!status)
            status = tx_model_synchronize(trainer->model, i == micro_batches - 1);
        if (!status)
            status = run_batch(&trainer->train, tokens + i * count, labels + i * count, count);
    }
    if (trainer->vote)
        tx_model_vote(trainer->model, trainer->vote(trainer->vote_context));
    if (!status)
        status = tx_plan_run(trainer->update);
    trainer->updates++;
    trainer->step++;
    return status ? status : tx_model_fetch(trainer->model);
}

tx_status tx_trainer_results(tx_trainer *trainer, tx_results *results)
{
    return tx_model_results(trainer->model, results);
}

tx_status tx_trainer_evaluate(tx_trainer *trainer, const int32_t *tokens, const int32_t *labels, double *sum,
                              int64_t *labels_counted)
{
    if (!trainer->evaluate.plan)
        return tx_fail(TX_INVALID, "trainer: no evaluation was planned");
    int64_t count = trainer->options.eval_batch * trainer->options.block;
    int64_t counted = tx_count_labels(labels, count);
    if (counted == 0)
        return TX_OK;
    float mean = 0.0f;
    tx_status status = tx_model_set(trainer->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)counted);
    if (!status)
        status = run_batch(&trainer->evaluate, tokens, labels, count);
    if (!status)
        status = tx_plan_read(trainer->evaluate.plan, trainer->evaluate.loss, &mean, sizeof mean);
    if (status)
        return status;
    *sum += (double)mean * (double)counted;
    *labels_counted += counted;
    return TX_OK;
}

tx_status tx_trainer_profile(tx_trainer *trainer)
{
    trainer->train.runs = 0;
    trainer->updates = 0;
    tx_status status = tx_plan_profile(trainer->train.plan, true);
    return status ? status : tx_plan_profile(trainer->update, true);
}

const tx_plan *tx_trainer_plan(const tx_trainer *trainer, int32_t which, int64_t *runs)
{
    *runs = which == TX_TRAINER_TRAIN ? trainer->train.runs : trainer->updates;
    return which == TX_TRAINER_TRAIN ? trainer->train.plan : trainer->update;
}
