/* SPDX-License-Identifier: Apache-2.0
 *
 * TX's side of bert.py and t5.py: trains an encoder, or one with a decoder, on given batches and prints the loss of
 * every step. Writes to OUT the model as it was read, and first.safetensors with the logits of the first batch and the
 * gradients of its loss. Writes to OUT/trained the model after the last step.
 *
 *     bert_steps FOLDER DATA OUT STEPS BATCH BLOCK RATE [DEVICE]
 *
 * DATA holds, for every step, int32 input_ids and token_type_ids [BATCH, BLOCK], attention_lengths [BATCH], and labels.
 * Labels are [BATCH] for sequence classification and [BATCH, BLOCK] for other heads. A decoder has decoder_input_ids
 * instead of types; these and its labels are [BATCH, BLOCK / 2]. */
#include "api/base/file.h"
#include "models/arch/find.h"
#include "models/files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS, TYPES, LENGTHS, LABELS, FIELDS };

typedef struct side {
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *field[FIELDS], *logits, *loss;
    tx_plan *train, *update;
} side;

static tx_status build(side *s, int64_t batch, int64_t block)
{
    const bool texts = s->config->architecture->head == TX_HEAD_SEQUENCE_CLASSIFICATION;
    const bool decodes = s->config->architecture->head == TX_HEAD_SEQ2SEQ;
    const char *const names[FIELDS] = {"input_ids", decodes ? "decoder_input_ids" : "token_type_ids",
                                       "attention_lengths", "labels"};
    const tx_shape rows = TX_SHAPE(batch), all = TX_SHAPE(batch, block), half = TX_SHAPE(batch, block / 2);
    const tx_arch_options options = {.size = sizeof options, .train = true};
    const tx_optimizer_options optimizer = {.size = sizeof optimizer,
                                            .kind = TX_ADAMW,
                                            .beta1 = 0.9f,
                                            .beta2 = 0.999f,
                                            .eps = 1e-8f,
                                            .weight_decay = 0.01f};
    TX_TRY(tx_graph_create(s->model, &s->graph));
    for (int f = 0; f < FIELDS; f++)
        s->field[f] = tx_input(s->graph, names[f], TX_I32,
                               f == LENGTHS || (f == LABELS && texts)   ? rows
                               : decodes && (f == TYPES || f == LABELS) ? half
                                                                        : all);
    s->logits = tx_output(tx_arch_logits(s->graph, s->config, &options));
    s->loss = tx_mean_loss(tx_cross_entropy(s->logits, s->field[LABELS], tx_arch_columns(s->config)));
    TX_TRY(tx_backward(s->graph, s->loss));
    TX_TRY(tx_plan_create(s->graph, "train", &s->train));
    return tx_optimizer_create(s->model, &optimizer, &s->update);
}

/* Appends `count` rows of `width` numbers, `stride` apart. */
static tx_status append_rows(tx_st_writer *writer, const float *data, int64_t count, int64_t width, int64_t stride)
{
    for (int64_t r = 0; r < count; r++)
        TX_TRY(tx_st_append(writer, data + r * stride, (size_t)width * sizeof *data));
    return TX_OK;
}

static tx_status write_values(side *s, tx_st_writer *writer, float *values)
{
    const tx_shape *shape = tx_tensor_shape(s->logits);
    TX_TRY(tx_plan_read(s->train, s->logits, values, (size_t)tx_shape_count(shape) * sizeof *values));
    TX_TRY(append_rows(writer, values, tx_shape_rows(shape), tx_arch_columns(s->config), tx_shape_last(shape)));
    for (int32_t i = 0; i < tx_model_param_count(s->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        TX_TRY(tx_model_read(s->model, TX_PARAM_GRADIENT, i, values));
        TX_TRY(
            tx_st_append(writer, values,
                         (size_t)tx_shape_count(spec->logical.rank ? &spec->logical : &spec->shape) * sizeof *values));
    }
    return TX_OK;
}

static tx_st_tensor describe(const char *name, const tx_shape *shape)
{
    tx_st_tensor tensor = {.name = name, .dtype = TX_ST_F32, .rank = shape->rank};
    memcpy(tensor.dim, shape->dim, sizeof shape->dim);
    return tensor;
}

static tx_status write_first(side *s, const char *folder)
{
    const int32_t params = tx_model_param_count(s->model);
    char *path = tx_path_join(folder, "first.safetensors");
    tx_st_tensor *tensors = calloc((size_t)params + 1, sizeof *tensors);
    tx_st_writer *writer = NULL;
    tx_shape shape = *tx_tensor_shape(s->logits);
    int64_t most = tx_shape_count(&shape);
    shape.dim[shape.rank - 1] = tx_arch_columns(s->config);
    tensors[0] = describe("logits", &shape);
    for (int32_t i = 0; i < params; i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        tensors[1 + i] = describe(name, spec->logical.rank ? &spec->logical : &spec->shape);
        most = tx_shape_count(&spec->shape) > most ? tx_shape_count(&spec->shape) : most;
    }
    float *values = malloc((size_t)most * sizeof *values);
    tx_status status = tx_st_create(path, tensors, params + 1, &writer);
    TX_THEN(status, write_values(s, writer, values));
    TX_THEN(status, tx_st_commit(writer));
    free(values);
    free(tensors);
    return status;
}

static tx_status step(side *s, FILE *data, int64_t number, double rate, const char *out)
{
    tx_results results;
    int64_t labels = 0;
    for (int f = 0; f < FIELDS; f++) {
        const size_t count = (size_t)tx_shape_count(tx_tensor_shape(s->field[f]));
        int32_t *values = malloc(count * sizeof *values);
        if (!values || fread(values, sizeof *values, count, data) != count)
            return tx_fail(TX_IO, "the data end early");
        for (size_t i = 0; i < count && f == LABELS; i++)
            labels += values[i] != TX_IGNORE_LABEL;
        tx_status status = tx_plan_write(s->train, s->field[f], values, count * sizeof *values);
        free(values);
        TX_TRY(status);
    }
    TX_TRY(tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)labels));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_LEARNING_RATE, rate));
    TX_TRY(tx_plan_run(s->train));
    if (number == 0)
        TX_TRY(write_first(s, out));
    TX_TRY(tx_plan_run(s->update));
    TX_TRY(tx_model_fetch(s->model));
    TX_TRY(tx_model_results(s->model, &results));
    printf("%.9g\n", (double)results.value[TX_RESULT_LOSS]);
    return TX_OK;
}

static tx_status run(side *s, char **argv)
{
    const tx_engine_options options = {.size = sizeof options, .device = argv[8] ? argv[8] : "cpu"};
    char *trained = tx_path_join(argv[3], "trained");
    FILE *data = fopen(argv[2], "rb");
    tx_status status = data ? tx_config_of_folder(argv[1], &s->config) : tx_fail(TX_IO, "%s: cannot read", argv[2]);
    TX_THEN(status, tx_engine_create(&options, &s->engine));
    TX_THEN(status, tx_model_create(s->engine, &s->model));
    TX_THEN(status, build(s, atol(argv[5]), atol(argv[6])));
    TX_THEN(status, tx_arch_load(s->model, s->config, argv[1], NULL));
    TX_THEN(status, tx_arch_save(s->model, s->config, argv[3]));
    for (int64_t i = 0; i < atol(argv[4]); i++)
        TX_THEN(status, step(s, data, i, strtod(argv[7], NULL), argv[3]));
    TX_THEN(status, tx_arch_save(s->model, s->config, trained));
    if (data)
        fclose(data);
    free(trained);
    return status;
}

int main(int argc, char **argv)
{
    side s = {0};
    if (argc < 8 || argc > 9)
        return fprintf(stderr, "usage: bert_steps FOLDER DATA OUT STEPS BATCH BLOCK RATE [DEVICE]\n"), 2;
    const tx_status status = run(&s, argv);
    if (status)
        fprintf(stderr, "bert_steps: %s\n", tx_error());
    tx_plan_free(s.update);
    tx_plan_free(s.train);
    tx_graph_free(s.graph);
    tx_model_free(s.model);
    tx_engine_free(s.engine);
    tx_config_free(s.config);
    return status ? 1 : 0;
}
