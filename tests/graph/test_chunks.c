/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that gives only small allocations: arenas of many chunks train to the same bits as arenas of one.
 *
 *     test_chunks [DEVICE]      exit status 77: there is no such device */
#include "api/model/model.h"
#include "models/task/causal_lm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) \
    if (call)       \
    return fprintf(stderr, "test_chunks: %s\n", tx_error()), false

enum { BATCH = 2, LENGTH = 32, STEPS = 4, LIMIT = 256 << 10 };

typedef struct trained {
    float *weights; /* of all parameters and their optimizer states, one after the other; the caller frees it */
    int64_t count;
    int32_t chunks[TX_ARENA_COUNT];
} trained;

static bool run_steps(tx_model *model, tx_plan *train, tx_plan *update, tx_tensor *tokens, tx_tensor *labels)
{
    int32_t x[BATCH * LENGTH], y[BATCH * LENGTH];
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH * LENGTH; i++) {
            x[i] = (i * 7 + step * 13) % 256;
            y[i] = (i * 11 + step * 3) % 256;
        }
        CHECK(tx_model_set(model, TX_CONTROL_STEP, step));
        CHECK(tx_plan_write(train, tokens, x, sizeof x));
        CHECK(tx_plan_write(train, labels, y, sizeof y));
        CHECK(tx_plan_run(train));
        CHECK(tx_plan_run(update));
    }
    return true;
}

static bool read_weights(tx_model *model, trained *out)
{
    const char *name;
    const tx_param_spec *spec;
    const int32_t states = tx_model_states(model, 0);
    out->count = 0;
    for (int32_t p = 0; p < tx_model_param_count(model); p++) {
        CHECK(tx_model_param(model, p, &name, &spec));
        out->count += tx_shape_count(&spec->logical) * (1 + states);
    }
    out->weights = malloc((size_t)out->count * sizeof *out->weights);
    float *next = out->weights;
    for (int32_t p = 0; next && p < tx_model_param_count(model); p++) {
        CHECK(tx_model_param(model, p, &name, &spec));
        for (int32_t k = -1; k < states; k++, next += tx_shape_count(&spec->logical))
            CHECK(tx_model_read(model, k < 0 ? TX_PARAM_WEIGHT : (tx_param_role)(TX_PARAM_STATE + k), p, next));
    }
    return next != NULL;
}

/* Trains with no allocation over `limit` bytes. The norm is not clipped: its sum goes chunk by chunk, and rounds so. */
static bool train(tx_engine *engine, int64_t limit, trained *out)
{
    tx_config *config = NULL;
    tx_model *model;
    tx_graph *graph;
    tx_plan *train, *update;
    tx_optimizer_options adamw = {
        .size = sizeof adamw, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    tx_arch_options options = {.size = sizeof options, .train = true};
    engine->device.max_allocation = limit;
    CHECK(tx_config_preset("gpt2", &config));
    config->vocab_size = config->positions = 256;
    config->width = 64;
    config->layers = config->heads = 4;
    CHECK(tx_model_create(engine, &model));
    CHECK(tx_graph_create(model, &graph));
    tx_tensor *tokens = tx_input(graph, "input_ids", TX_I32, TX_SHAPE(BATCH, LENGTH));
    tx_tensor *labels = tx_input(graph, "labels", TX_I32, TX_SHAPE(BATCH, LENGTH));
    CHECK(tx_backward(graph, tx_label_loss(graph, config, tx_arch_logits(graph, config, &options), 0.0f)));
    CHECK(tx_plan_create(graph, "train", &train));
    CHECK(tx_optimizer_create(model, &adamw, &update));
    CHECK(tx_model_init(model, 1));
    CHECK(tx_model_set(model, TX_CONTROL_LEARNING_RATE, 1e-3));
    CHECK(tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (BATCH * LENGTH)));
    bool good = run_steps(model, train, update, tokens, labels) && read_weights(model, out);
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        out->chunks[i] = model->arena[i].chunks;
    tx_plan_free(update);
    tx_plan_free(train);
    tx_graph_free(graph);
    tx_model_free(model);
    tx_config_free(config);
    return good;
}

int main(int argc, char **argv)
{
    tx_engine_options options = {.size = sizeof options, .device = argc > 1 ? argv[1] : "cpu"};
    tx_engine *engine;
    tx_status status = tx_engine_create(&options, &engine);
    if (status)
        return fprintf(stderr, "test_chunks: %s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    int64_t whole_limit = engine->device.max_allocation;
    trained whole = {0}, parts = {0};
    bool good = train(engine, whole_limit, &whole) && train(engine, LIMIT, &parts);
    bool same = good && memcmp(whole.weights, parts.weights, (size_t)whole.count * sizeof *whole.weights) == 0;
    bool many = parts.chunks[TX_ARENA_WEIGHTS] > 2 && parts.chunks[TX_ARENA_OPTIMIZER] > 4 &&
                parts.chunks[TX_ARENA_PLANNED] > 2 && whole.chunks[TX_ARENA_WEIGHTS] == 1;
    printf("%d, %d and %d chunks of parameters, optimizer states and activations: %s\n", parts.chunks[TX_ARENA_WEIGHTS],
           parts.chunks[TX_ARENA_OPTIMIZER], parts.chunks[TX_ARENA_PLANNED],
           same ? "the same bits" : "other bits than in one chunk");
    free(whole.weights);
    free(parts.weights);
    tx_engine_free(engine);
    return same && many ? 0 : 1;
}
