/* SPDX-License-Identifier: Apache-2.0
 * The model of the checkpoint tests. */
#include "tests/checkpoint/tiny.h"

#include "api/base/file.h"
#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "models/files/weights.h"

#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 2,
    LENGTH = 8,
    VOCAB = 50,
    PADDED = 64,
    WIDTH = 24,
    HIDDEN = 172
}; /* up and down have over 4096 elements */

/* ---- The model ----------------------------------------------------------------------------------- */

static tx_tensor *linear(tx_graph *g, tx_tensor *x, const char *weight, const char *bias, int64_t in, int64_t out)
{
    tx_param_spec w = {.shape = TX_SHAPE(in, out), .init = TX_INIT_NORMAL, .scale = 0.2f, .decay = true};
    if (in == HIDDEN) { /* two tensors in files */
        w.sections = (tx_param_sections){2, 0, {100, HIDDEN - 100}, {0}};
        w.apart = true;
    }
    const tx_param_spec b = {.shape = TX_SHAPE(out), .init = TX_INIT_ZERO};
    return tx_linear(x, tx_param(g, weight, &w), tx_param(g, bias, &b), false);
}

static tx_status build(tiny *t)
{
    tx_graph *g = t->graph;
    const tx_param_spec table = {.shape = TX_SHAPE(PADDED, WIDTH),
                                 .logical = TX_SHAPE(VOCAB, WIDTH),
                                 .init = TX_INIT_NORMAL,
                                 .scale = 0.3f,
                                 .decay = true,
                                 .table = true};
    t->tokens = tx_input(g, "tokens", TX_I32, TX_SHAPE(BATCH, LENGTH));
    t->labels = tx_input(g, "labels", TX_I32, TX_SHAPE(BATCH, LENGTH));
    tx_tensor *e = tx_param(g, "table", &table);
    tx_tensor *x = tx_embedding(t->tokens, e, NULL, false);
    x = tx_dropout(x, 0.1f, 1);
    tx_tensor *h = tx_gelu(linear(g, x, "up.weight", "up.bias", WIDTH, HIDDEN), false);
    x = tx_add(x, linear(g, h, "down.weight", "down.bias", HIDDEN, WIDTH));
    tx_tensor *logits = tx_linear(x, e, NULL, true);
    return tx_backward(g, tx_mean_loss(tx_cross_entropy(logits, t->labels, VOCAB)));
}

tx_status tiny_create(const char *device, const tx_optimizer_options *optimizer, const char *choices, tiny *t)
{
    const tx_engine_options options = {.size = sizeof options, .device = device};
    *t = (tiny){0};
    TX_TRY(tx_engine_create(&options, &t->engine));
    if (choices)
        TX_TRY(tx_engine_choose(t->engine, choices));
    TX_TRY(tx_model_create(t->engine, &t->model));
    TX_TRY(tx_graph_create(t->model, &t->graph));
    TX_TRY(build(t));
    TX_TRY(tx_plan_create(t->graph, "train", &t->train));
    TX_TRY(tx_optimizer_create(t->model, optimizer, &t->update));
    return tx_model_init(t->model, 1);
}

void tiny_free(tiny *t)
{
    tx_plan_free(t->update);
    tx_plan_free(t->train);
    tx_graph_free(t->graph);
    tx_model_free(t->model);
    tx_engine_free(t->engine);
    *t = (tiny){0};
}

/* ---- The loop ------------------------------------------------------------------------------------ */

static tx_status step(tiny *t, int number)
{
    int32_t tokens[BATCH * LENGTH], labels[BATCH * LENGTH];
    for (int i = 0; i < BATCH * LENGTH; i++) {
        tokens[i] = (i * 7 + number * 13) % VOCAB;
        labels[i] = (i * 11 + number * 3) % VOCAB;
    }
    TX_TRY(tx_model_set(t->model, TX_CONTROL_STEP, number));
    TX_TRY(tx_model_set(t->model, TX_CONTROL_SAMPLE, number * BATCH));
    TX_TRY(tx_model_set(t->model, TX_CONTROL_LEARNING_RATE, 1e-2 / (1 + number)));
    TX_TRY(tx_plan_write(t->train, t->tokens, tokens, sizeof tokens));
    TX_TRY(tx_plan_write(t->train, t->labels, labels, sizeof labels));
    TX_TRY(tx_plan_run(t->train));
    return tx_plan_run(t->update);
}

static tx_status fetch(tiny *t, tx_results *results)
{
    TX_TRY(tx_model_fetch(t->model));
    return tx_model_results(t->model, results);
}

tx_status tiny_train(tiny *t, int first, int last, tx_results *results)
{
    TX_TRY(tx_model_set(t->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (BATCH * LENGTH)));
    TX_TRY(tx_model_set(t->model, TX_CONTROL_MAX_GRAD_NORM, 1.0));
    TX_TRY(tx_model_set_seed(t->model, 7));
    for (int i = first; i < last; i++)
        TX_TRY(step(t, i));
    return results ? fetch(t, results) : TX_OK;
}

/* ---- Files --------------------------------------------------------------------------------------- */

tx_status tiny_save(tiny *t, const char *folder)
{
    tx_results results;
    TX_TRY(tx_weights_save(t->model, folder, TX_WEIGHTS_SHARD));
    TX_TRY(tx_optimizer_save(t->model, TX_PATH(folder, "optimizer.safetensors")));
    TX_TRY(fetch(t, &results));
    return tx_file_write(TX_PATH(folder, "results"), &results, sizeof results);
}

static void same_name(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    (void)context;
    strcpy(param, tensor); /* the names of this model are short */
}

static tx_status load_results(tiny *t, const char *path)
{
    tx_results results;
    char *data = NULL;
    size_t size = 0;
    tx_status status = tx_file_read(path, sizeof results, &data, &size);
    if (!status && size != sizeof results)
        status = tx_fail(TX_FORMAT, "%s: %zu bytes", path, size);
    if (!status) {
        memcpy(&results, data, sizeof results);
        status = tx_model_restore(t->model, &results);
    }
    free(data);
    return status;
}

tx_status tiny_load(tiny *t, const char *folder)
{
    tx_weights *weights = NULL;
    TX_TRY(tx_weights_open(folder, &weights));
    tx_status status = tx_weights_load(weights, t->model, &(tx_weights_names){.rename = same_name}, NULL);
    TX_THEN(status, tx_optimizer_load(t->model, TX_PATH(folder, "optimizer.safetensors")));
    TX_THEN(status, load_results(t, TX_PATH(folder, "results")));
    tx_weights_close(weights);
    return status;
}

/* Of state `k` of a parameter; -1: of the parameter. */
static int64_t numbers_of(const tx_model *model, int32_t param, int32_t k)
{
    const char *name;
    const tx_param_spec *spec;
    tx_state_info info;
    if (tx_model_param(model, param, &name, &spec) || (k >= 0 && tx_model_state(model, param, k, &info)))
        return 0;
    return tx_shape_count(k < 0 ? &spec->logical : &info.shape);
}

float *tiny_read(tiny *t, int64_t *count)
{
    *count = 0;
    for (int32_t p = 0; p < tx_model_param_count(t->model); p++)
        for (int32_t k = -1; k < tx_model_states(t->model, p); k++)
            *count += numbers_of(t->model, p, k);
    float *all = calloc((size_t)*count + 1, sizeof *all), *next = all;
    for (int32_t p = 0; all && p < tx_model_param_count(t->model); p++)
        for (int32_t k = -1; k < tx_model_states(t->model, p); k++) {
            const tx_param_role part = k < 0 ? TX_PARAM_WEIGHT : (tx_param_role)(TX_PARAM_STATE + k);
            if (tx_model_read(t->model, part, p, next)) {
                free(all);
                return NULL;
            }
            next += numbers_of(t->model, p, k);
        }
    return all;
}
