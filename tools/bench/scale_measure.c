/* SPDX-License-Identifier: Apache-2.0
 * What the layers of a model take on a device, by the profile of training steps. */
#include "api/base/clock.h"
#include "api/plan/plan.h"
#include "models/train/trainer.h"
#include "tools/bench/bench.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct measurement {
    const tx_config *config;
    const tx_bench_scale_options *options;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    int32_t *tokens, *labels; /* [batch, block] */
    uint64_t random;
} measurement;

static tx_status prepare(measurement *m)
{
    const tx_bench_scale_options *o = m->options;
    const tx_engine_options engine = {
        .size = sizeof engine, .device = o->device, .threads = o->threads, .profile = true};
    const tx_trainer_options trainer = tx_bench_training(o->batch, o->block);
    m->tokens = calloc((size_t)(o->batch * o->block), 2 * sizeof *m->tokens);
    if (!m->tokens)
        return tx_fail(TX_MEMORY, "no memory for a batch of %" PRId64 " x %" PRId64 " tokens", o->batch, o->block);
    m->labels = m->tokens + o->batch * o->block;
    tx_status status = tx_engine_create(&engine, &m->engine);
    if (!status)
        status = tx_model_create(m->engine, &m->model);
    if (!status)
        status = tx_trainer_create(m->model, m->config, &trainer, &m->trainer);
    return status ? status : tx_model_init(m->model, 1);
}

/* Runs steps one after the other, as a training run does. */
static tx_status run(measurement *m, int64_t steps, double *seconds)
{
    const tx_bench_scale_options *o = m->options;
    const tx_batch batch = {o->batch, {m->tokens, m->labels}};
    const double begin = tx_now();
    tx_results results;
    tx_status status = TX_OK;
    for (int64_t s = 0; s < steps && !status; s++) {
        tx_bench_tokens(&m->random, m->config->vocab_size, o->batch, o->block, m->tokens, m->labels);
        status = tx_trainer_step(m->trainer, &batch, o->batch * (o->block - 1), 5e-5);
        if (!status && s > 0)
            status = tx_trainer_results(m->trainer, &results);
    }
    if (!status)
        status = tx_trainer_results(m->trainer, &results);
    *seconds = (tx_now() - begin) / (double)steps;
    return status;
}

/* The layer of the parameter that an operand of arena WEIGHTS or GRADIENTS lies in. */
static int32_t layer_at(const measurement *m, const tx_operand *operand)
{
    const int64_t address = operand->chunk * m->model->arena[operand->arena].chunk_bytes + operand->offset;
    int32_t param = 0;
    while (param + 1 < m->model->params && m->model->param[param + 1].offset <= address)
        param++;
    return tx_scale_layer_of(m->config, m->model->param[param].name);
}

/* The latest layer whose weights a command reads; `layer` where it reads none. The head reads the embedding's table. */
static int32_t layer_forward(const measurement *m, const tx_command *command, int32_t layer)
{
    for (int i = 0; i < TX_MAX_IN; i++) {
        const tx_operand *in = &command->in[i];
        if (tx_present(in) && in->arena == TX_ARENA_WEIGHTS && layer_at(m, in) > layer)
            layer = layer_at(m, in);
    }
    return layer;
}

/* A forward operation belongs to the layer whose weights were read last. A layer's backward ends when the last of its
 * gradients is written; `end` is scratch, one a layer. Returns the seconds of all operations. */
static double divide(const measurement *m, tx_scale_layer *layers, double *end)
{
    int64_t runs;
    const tx_plan *plan = tx_trainer_plan(m->trainer, TX_TRAINER_TRAIN, &runs);
    const int32_t count = tx_scale_layers(m->config);
    double forward = 0.0, backward = 0.0;
    for (int32_t i = 0, layer = 0; i < tx_plan_length(plan); i++) {
        const tx_command *command = &plan->commands[i];
        const double seconds = plan->seconds[i] / (double)runs;
        if (command->direction == TX_FORWARD) {
            layer = layer_forward(m, command, layer);
            layers[layer].forward += seconds;
            forward += seconds;
            continue;
        }
        backward += seconds;
        for (int k = 0; k < TX_MAX_OUT; k++)
            if (tx_present(&command->out[k]) && command->out[k].arena == TX_ARENA_GRADIENTS)
                end[layer_at(m, &command->out[k])] = backward;
    }
    end[0] = backward;
    double before = 0.0;
    for (int32_t i = count - 1; i >= 0; i--) {
        layers[i].backward = end[i] > before ? end[i] - before : 0.0;
        before += layers[i].backward;
    }
    return forward + backward;
}

static double update_seconds(const measurement *m)
{
    int64_t runs;
    const tx_plan *plan = tx_trainer_plan(m->trainer, TX_TRAINER_UPDATE, &runs);
    double seconds = 0.0;
    for (int32_t i = 0; i < tx_plan_length(plan); i++)
        seconds += plan->seconds[i];
    return seconds / (double)runs;
}

/* Steps without a profile give the time, steps with one its shares, since timing each operation costs some itself. */
static tx_status measure(measurement *m, tx_scale_layer *layers, double *update)
{
    double seconds, ignored;
    const int32_t count = tx_scale_layers(m->config);
    double *end = calloc((size_t)count, sizeof *end);
    if (!end)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " layers", count);
    tx_status status = run(m, 2, &ignored);
    if (!status)
        status = run(m, m->options->steps, &seconds);
    if (!status)
        status = tx_trainer_profile(m->trainer);
    if (!status)
        status = run(m, m->options->steps, &ignored);
    if (!status) {
        *update = update_seconds(m);
        const double share = seconds / (divide(m, layers, end) + *update);
        for (int32_t i = 0; i < count; i++)
            layers[i] = (tx_scale_layer){share * layers[i].forward, share * layers[i].backward};
        *update *= share;
    }
    free(end);
    return status;
}

tx_status tx_bench_scale_measure(const tx_config *config, const tx_bench_scale_options *options, tx_scale_layer *layers,
                                 double *update)
{
    measurement m = {.config = config, .options = options, .random = 1};
    tx_status status = prepare(&m);
    if (!status)
        status = measure(&m, layers, update);
    tx_trainer_free(m.trainer);
    tx_model_free(m.model);
    tx_engine_free(m.engine);
    free(m.tokens);
    return status;
}
