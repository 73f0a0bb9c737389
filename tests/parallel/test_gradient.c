/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks with three rows and one, whose rows have different numbers of labels: their gradient is that of the whole
 * batch on one rank, dropout included.
 *   test_gradient [DEVICE] */
#include "comm/comm.h"
#include "models/gpt2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, BLOCK = 24, VOCAB = 97 };

typedef struct side {
    tx_model *model;
    tx_graph *graph;
    tx_plan *plan;
} side;

/* Row r has labels at its first BLOCK - 5 r tokens. */
static int64_t fill(int32_t *tokens, int32_t *labels)
{
    int64_t counted = 0;
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t t = 0; t < BLOCK; t++) {
            tokens[r * BLOCK + t] = (r * 31 + t * t * 7) % VOCAB;
            labels[r * BLOCK + t] = t < BLOCK - 5 * r ? (r * 17 + t * 5 + 3) % VOCAB : TX_IGNORE_LABEL;
            counted += t < BLOCK - 5 * r;
        }
    return counted;
}

/* Forward and backward of rows first .. first + rows - 1; `comm` NULL: of this rank alone. */
static tx_status run(tx_engine *engine, tx_comm *comm, const tx_gpt2_config *config, int64_t first, int64_t rows, side *s)
{
    const tx_parallel_options options = {.size = sizeof options, .bucket_bytes = 20000};
    const tx_gpt2_options graph = {.size = sizeof graph, .train = true};
    int32_t tokens[ROWS * BLOCK], labels[ROWS * BLOCK];
    const int64_t counted = fill(tokens, labels);
    tx_status status = tx_model_create(engine, &s->model);
    if (!status && comm)
        status = tx_model_parallel(s->model, comm, &options);
    if (!status)
        status = tx_graph_create(s->model, &s->graph);
    if (status)
        return status;
    tx_tensor *in = tx_input(s->graph, "tokens", TX_I32, TX_SHAPE(rows, BLOCK));
    tx_tensor *out = tx_input(s->graph, "labels", TX_I32, TX_SHAPE(rows, BLOCK));
    status = tx_backward(s->graph, tx_gpt2_loss(tx_gpt2_logits(s->graph, config, in, &graph), config, out));
    if (!status)
        status = tx_plan_create(s->graph, "train", &s->plan);
    if (!status)
        status = tx_model_init(s->model, 5);
    if (!status)
        status = tx_model_set_seed(s->model, 9);
    if (!status)
        status = tx_model_set(s->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)counted);
    if (!status)
        status = tx_model_set(s->model, TX_CONTROL_SAMPLE, (double)first);
    const size_t bytes = (size_t)(rows * BLOCK) * sizeof *tokens;
    if (!status)
        status = tx_plan_write(s->plan, in, tokens + first * BLOCK, bytes);
    if (!status)
        status = tx_plan_write(s->plan, out, labels + first * BLOCK, bytes);
    if (!status)
        status = tx_plan_run(s->plan);
    return status ? status : tx_model_settle(s->model);
}

/* Relative L2 distance of all gradients of `a` from those of `b`. */
static tx_status distance(tx_model *a, tx_model *b, double *result)
{
    double difference = 0.0, norm = 0.0;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < tx_model_param_count(a) && !status; i++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(a, i, &name, &spec);
        size_t count = status ? 0 : (size_t)tx_shape_count(&spec->logical);
        float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
        status = status ? status : tx_model_read(a, TX_PART_GRADIENT, i, x);
        status = status ? status : tx_model_read(b, TX_PART_GRADIENT, i, y);
        for (size_t k = 0; k < count && !status; k++) {
            difference += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            norm += (double)y[k] * (double)y[k];
        }
        free(x);
        free(y);
    }
    *result = sqrt(difference / norm);
    return status;
}

static void discard(side *s)
{
    tx_plan_free(s->plan);
    tx_graph_free(s->graph);
    tx_model_free(s->model);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    tx_gpt2_config config;
    tx_comm *comm = NULL;
    tx_engine *engine = NULL;
    side shared = {0}, whole = {0};
    double off = (double)NAN;
    tx_status status = tx_comm_open(&argc, &argv, &comm);
    if (!status)
        status = tx_engine_create(&options, &engine);
    if (status == TX_NOT_FOUND) {
        printf("skipped: no device %s\n", device);
        return 77;
    }
    if (!status)
        status = tx_gpt2_config_preset("gpt2", &config);
    if (!status)
        status = tx_gpt2_config_override(&config, "n_layer=3,n_head=2,n_embd=32,n_positions=32,vocab_size=97");
    if (!status && comm->size != 2)
        status = tx_fail(TX_INVALID, "two ranks are wanted");
    if (!status)
        status = run(engine, comm, &config, comm->rank ? 3 : 0, comm->rank ? 1 : 3, &shared);
    if (!status)
        status = run(engine, NULL, &config, 0, ROWS, &whole);
    if (!status)
        status = distance(shared.model, whole.model, &off);
    if (status)
        fprintf(stderr, "test_gradient: %s\n", tx_error());
    else
        printf("rank %d: relative L2 distance %.2e\n", (int)comm->rank, off);
    discard(&shared);
    discard(&whole);
    tx_engine_free(engine);
    tx_comm_close(comm);
    return status || !(off <= 1e-6) || !(off > 0.0) ? 1 : 0;
}
