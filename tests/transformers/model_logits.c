/* SPDX-License-Identifier: Apache-2.0
 *
 * TX's side of the comparison with transformers (gpt2.py, llama.py, experts.py). It reads a model folder and writes the
 * logits of fixed tokens to OUT/logits.safetensors. It also writes the model and its tokenizer to OUT, or the byte
 * vocabulary if there is none. With SHARD_BYTES the weights are written as shards of that size. If it is -1, the
 * gradients of the mean next-token loss are written instead of the weights, and the loss is printed.
 *
 *     model_logits FOLDER OUT [DEVICE [SHARD_BYTES]] */
#include "api/base/file.h"
#include "models/arch/arch.h"
#include "models/files/safetensors.h"
#include "models/tx_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, LENGTH = 24 };

/* Writes columns 0..vocab-1 of logits [ROWS, LENGTH, padded]. */
static tx_status write_logits(const char *folder, const float *logits, int64_t vocab, int64_t padded)
{
    tx_st_tensor tensor = {.name = "logits", .dtype = TX_ST_F32, .rank = 3, .dim = {ROWS, LENGTH, vocab}};
    tx_st_writer *writer;
    char *path = tx_path_join(folder, "logits.safetensors");
    tx_status status = path ? tx_st_create(path, &tensor, 1, NULL, &writer) : TX_MEMORY;
    free(path);
    if (status)
        return status;
    for (int row = 0; row < ROWS * LENGTH && !status; row++)
        status = tx_st_append(writer, logits + row * padded, (size_t)vocab * sizeof *logits);
    if (!status)
        return tx_st_commit(writer);
    tx_st_discard(writer);
    return status;
}

static tx_status copy_tokenizer(const char *folder, const char *out, int64_t positions)
{
    tx_tokenizer *tokenizer;
    tx_status status = tx_tokenizer_open(folder, &tokenizer);
    if (status == TX_NOT_FOUND)
        TX_TRY(tx_tokenizer_bytes(&tokenizer));
    status = tx_tokenizer_save(tokenizer, out, positions);
    tx_tokenizer_free(tokenizer);
    return status;
}

/* The model's weights become the gradients of the loss that `plan` leaves. */
static tx_status take_gradients(tx_model *model, tx_plan *plan)
{
    tx_results results = {{0}};
    tx_status status = tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (ROWS * (LENGTH - 1)));
    TX_THEN(status, tx_model_set(model, TX_CONTROL_LABEL_SHARE, 1.0));
    TX_THEN(status, tx_plan_run(plan));
    TX_THEN(status, tx_model_fetch(model));
    TX_THEN(status, tx_model_results(model, &results));
    if (!status)
        printf("%.9g\n", (double)results.value[TX_RESULT_LOSS]);
    for (int32_t i = 0; !status && i < tx_model_param_count(model); i++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(model, i, &name, &spec);
        float *gradient = status ? NULL : malloc((size_t)tx_shape_count(&spec->shape) * sizeof *gradient);
        if (!status && !gradient)
            status = tx_fail(TX_MEMORY, "no memory for a gradient");
        TX_THEN(status, tx_model_read(model, TX_PARAM_GRADIENT, i, gradient));
        TX_THEN(status, tx_model_write(model, TX_PARAM_WEIGHT, i, gradient));
        free(gradient);
    }
    return status;
}

/* Everything between the configuration and the files in `out`. */
static tx_status run(tx_model *model, const tx_config *config, const char *folder, const char *out, long shard_bytes)
{
    int32_t ids[ROWS][LENGTH], next[ROWS][LENGTH];
    int64_t padded = tx_arch_padded_vocab(config);
    size_t bytes = ROWS * LENGTH * (size_t)padded * sizeof(float);
    float *logits = malloc(bytes);
    tx_graph *graph = NULL;
    tx_plan *plan = NULL;
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t t = 0; t < LENGTH; t++)
            ids[b][t] = (int32_t)((b * 101 + t * 37) % config->vocab_size);
    for (int64_t i = 0; i < ROWS * LENGTH; i++)
        next[i / LENGTH][i % LENGTH] = i % LENGTH < LENGTH - 1 ? ids[i / LENGTH][i % LENGTH + 1] : TX_IGNORE_LABEL;
    tx_status status = logits ? tx_graph_create(model, &graph) : tx_fail(TX_MEMORY, "no memory for the logits");
    if (!status) {
        tx_tensor *tokens = tx_input(graph, "input_ids", TX_I32, TX_SHAPE(ROWS, LENGTH));
        tx_tensor *own = NULL;
        const tx_arch_options options = {.size = sizeof options, .own_loss = &own};
        tx_tensor *output = tx_output(tx_arch_logits(graph, config, &options));
        tx_tensor *labels = shard_bytes < 0 ? tx_input(graph, "labels", TX_I32, TX_SHAPE(ROWS, LENGTH)) : NULL;
        tx_tensor *loss = labels ? tx_mean_loss(tx_cross_entropy(output, labels, config->vocab_size)) : NULL;
        if (labels)
            status = tx_backward(graph, own ? tx_add(loss, own) : loss);
        TX_THEN(status, tx_plan_create(graph, "logits", &plan));
        TX_THEN(status, tx_arch_load(model, config, folder, NULL));
        TX_THEN(status, tx_plan_write(plan, tokens, ids, sizeof ids));
        if (!status && labels)
            status = tx_plan_write(plan, labels, next, sizeof next);
        if (!status)
            status = labels ? take_gradients(model, plan) : tx_plan_run(plan);
        TX_THEN(status, tx_plan_read(plan, output, logits, bytes));
    }
    TX_THEN(status, tx_arch_save(model, config, out));
    if (!status && shard_bytes > 0)
        status = tx_weights_save(model, out, shard_bytes);
    TX_THEN(status, copy_tokenizer(folder, out, config->positions));
    TX_THEN(status, write_logits(out, logits, config->vocab_size, padded));
    tx_plan_free(plan);
    tx_graph_free(graph);
    free(logits);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5)
        return fprintf(stderr, "usage: model_logits FOLDER OUT [DEVICE [SHARD_BYTES]]\n"), 2;
    tx_engine_options options = {.size = sizeof options, .device = argc > 3 ? argv[3] : "cpu"};
    tx_config *config = NULL;
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    char *path = tx_path_join(argv[1], "config.json");
    tx_status status = path ? tx_config_read(path, &config) : TX_MEMORY;
    TX_THEN(status, tx_engine_create(&options, &engine));
    TX_THEN(status, tx_model_create(engine, &model));
    if (!status)
        status = run(model, config, argv[1], argv[2], argc > 4 ? strtol(argv[4], NULL, 10) : 0);
    if (status)
        fprintf(stderr, "model_logits: %s\n", tx_error());
    tx_model_free(model);
    if (engine)
        tx_engine_free(engine);
    tx_config_free(config);
    free(path);
    return status ? 1 : 0;
}
