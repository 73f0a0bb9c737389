/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks, with three rows and one row and different numbers of labels. Their gradient is that of the whole batch on
 * one rank, dropout included. The rank with three rows computes its classifier in chunks, the whole batch does not. The
 * model has graphs of two lengths, which run in turn. With 16 bits stage 3 gathers 2 bytes of a weight that products
 * read.
 *   test_gradient DEVICE|mixed ZERO_STAGE[:bf16]...  mixed: rank 0 on the cpu, rank 1 on OpenCL */
#include "api/passes/passes.h"
#include "comm/comm.h"
#include "models/task/causal_lm.h"
#include "tests/parallel/beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, BLOCK = 200, SHORT = 150, VOCAB = 1997, PADDED = 2048, CHUNK_ROWS = 256 };

#define RATE 1e3 /* the update is all that is left of the weights */

/* A training graph of a number of tokens a row. */
typedef struct length {
    int32_t block;
    tx_graph *graph;
    tx_plan *plan;
    tx_tensor *tokens, *labels;
} length;

typedef struct trained {
    tx_model *model;
    tx_dtype dtype; /* that products read */
    length length[2];
    tx_plan *update;
    tx_results results;
} trained;

/* Row r has labels at its first block - 5 r tokens. */
static int64_t fill(int32_t block, int32_t *tokens, int32_t *labels)
{
    int64_t counted = 0;
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t t = 0; t < block; t++) {
            tokens[r * block + t] = (r * 31 + t * t * 7) % VOCAB;
            labels[r * block + t] = t < block - 5 * r ? (r * 17 + t * 5 + 3) % VOCAB : TX_IGNORE_LABEL;
            counted += t < block - 5 * r;
        }
    return counted;
}

/* The graph of a number of rows, in chunks of at most `bytes` of logits. */
static tx_status build(const tx_config *config, int64_t rows, int64_t bytes, tx_dtype dtype, tx_model *model, length *l)
{
    const tx_arch_options graph = {.size = sizeof graph, .train = true};
    TX_TRY(tx_graph_create(model, &l->graph));
    TX_TRY(tx_graph_autocast(l->graph, dtype));
    l->tokens = tx_input(l->graph, "input_ids", TX_I32, TX_SHAPE(rows, l->block));
    l->labels = tx_input(l->graph, "labels", TX_I32, TX_SHAPE(rows, l->block));
    tx_tensor *loss = tx_label_loss(l->graph, config, tx_arch_logits(l->graph, config, &graph), 0.0f);
    TX_TRY(tx_model_init(model, 1)); /* weights that are there before any gradient is asked for */
    TX_TRY(tx_backward(l->graph, loss));
    l->graph->chunk_bytes = bytes;
    return tx_plan_create(l->graph, "train", &l->plan);
}

static tx_status set_scalars(tx_model *model, int64_t first, int64_t counted)
{
    TX_TRY(tx_model_init(model, 5));
    TX_TRY(tx_model_set_seed(model, 9));
    TX_TRY(tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)counted));
    TX_TRY(tx_model_set(model, TX_CONTROL_LEARNING_RATE, RATE));
    return tx_model_set(model, TX_CONTROL_SAMPLE, (double)first);
}

/* A step of one length with rows first .. first + rows - 1. */
static tx_status step(trained *s, int used, int64_t first, int64_t rows)
{
    const length *l = &s->length[used];
    int32_t tokens[ROWS * BLOCK], labels[ROWS * BLOCK];
    const int64_t counted = fill(l->block, tokens, labels);
    const size_t bytes = (size_t)(rows * l->block) * sizeof *tokens;
    TX_TRY(set_scalars(s->model, first, counted));
    TX_TRY(tx_plan_write(l->plan, l->tokens, tokens + first * l->block, bytes));
    TX_TRY(tx_plan_write(l->plan, l->labels, labels + first * l->block, bytes));
    TX_TRY(tx_plan_run(l->plan));
    TX_TRY(tx_plan_run(s->update));
    TX_TRY(tx_model_fetch(s->model));
    TX_TRY(tx_model_results(s->model, &s->results));
    return tx_model_wait(s->model);
}

/* A model with graphs of two lengths; without `comm` it is of one rank. */
static tx_status make(tx_engine *engine, tx_comm *comm, int32_t stage, const tx_config *config, int64_t rows,
                      trained *s)
{
    const tx_parallel_options options = {.size = sizeof options, .bucket_bytes = 20000, .zero_stage = stage};
    const tx_optimizer_options sgd = {.size = sizeof sgd, .kind = TX_SGD};
    const int64_t chunk = (int64_t)CHUNK_ROWS * PADDED * (int64_t)tx_dtype_size(s->dtype);
    s->length[0].block = BLOCK;
    s->length[1].block = SHORT;
    TX_TRY(tx_model_create(engine, &s->model));
    if (comm)
        TX_TRY(tx_model_parallel(s->model, comm, &options));
    for (int i = 0; i < 2; i++)
        TX_TRY(build(config, rows, comm ? chunk : TX_CHUNK_BYTES, s->dtype, s->model, &s->length[i]));
    return tx_optimizer_create(s->model, &sgd, &s->update);
}

static int32_t chunks_of(const trained *s)
{
    int32_t found = 0;
    for (int32_t i = 0; i < s->length[0].graph->nodes; i++)
        found += s->length[0].graph->node[i].op == TX_OP_FUSED_CLASSIFIER;
    return found;
}

/* Relative L2 distance of all weights of `a` from those of `b`: of the gradients, as the step was so long. */
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
        TX_THEN(status, tx_model_read(a, TX_PARAM_WEIGHT, i, x));
        TX_THEN(status, tx_model_read(b, TX_PARAM_WEIGHT, i, y));
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

/* Returns whether gradients were copied by the second queue of a device with its own memory: they are in several
 * buckets, each of which is copied to the host and back. */
static tx_status check_way(tx_engine *engine, bool own_memory)
{
    tx_traffic traffic;
    TX_TRY(tx_engine_traffic(engine, &traffic));
    if (own_memory ? traffic.transfers < 6 : traffic.transfers > 0)
        return tx_fail(TX_INTERNAL, "%lld copies by the second queue", (long long)traffic.transfers);
    return TX_OK;
}

static void discard(trained *s)
{
    tx_plan_free(s->update);
    for (int i = 0; i < 2; i++) {
        tx_plan_free(s->length[i].plan);
        tx_graph_free(s->length[i].graph);
    }
    tx_model_free(s->model);
}

/* Bytes that this rank has moved. */
static double moved(tx_comm *comm)
{
    tx_comm_traffic traffic;
    comm->table->traffic(comm, &traffic);
    return (double)(traffic.sent + traffic.shared);
}

/* Bytes of a weight that a step gathers in stage 3, once for each pass. Products read copies of matrices in 16 bits.
 * Rows of the embeddings are read in fp32, those of positions only in the forward pass. */
static int64_t gathered_bytes(const char *name, const tx_param_spec *spec, tx_dtype dtype)
{
    const int64_t full = (int64_t)sizeof(float), read = (int64_t)tx_dtype_size(dtype);
    if (strstr(name, "wpe"))
        return full;
    if (strstr(name, "wte"))
        return full + read;
    return spec->logical.rank == 2 ? 2 * read : 2 * full;
}

/* Each of two ranks sends half of the gradients, and half of the weights once. In stage 3 it sends each pass's
 * weights. */
static tx_status check_bytes(const trained *s, int32_t stage, double bytes)
{
    const double slack = 4096;
    int64_t most = 0;
    for (int32_t i = 0; i < tx_model_param_count(s->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        const int64_t elements = (tx_shape_count(&spec->shape) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK * TX_PARAM_BLOCK,
                      full = (int64_t)sizeof(float);
        most += elements * (full + (stage == 3 ? gathered_bytes(name, spec, s->dtype) : full)) / 2;
    }
    printf("%.0f bytes moved, at most %.0f\n", bytes, (double)most + slack);
    return bytes > 0 && bytes <= (double)most + slack ? TX_OK : tx_fail(TX_INTERNAL, "more bytes were moved");
}

/* Compares a step of one length on all ranks with that of the whole batch on this rank. */
static tx_status compare(trained *shared, trained *whole, int used, int32_t stage, tx_comm *comm)
{
    const int32_t rank = comm->rank;
    double off = (double)NAN;
    const double before = moved(comm);
    TX_TRY(step(shared, used, rank ? 3 : 0, rank ? 1 : 3));
    TX_TRY(check_bytes(shared, stage, moved(comm) - before));
    TX_TRY(step(whole, used, 0, ROWS));
    TX_TRY(distance(shared->model, whole->model, &off));
    const double sums = (double)shared->results.value[TX_RESULT_GRAD_SUMSQ],
                 wanted = (double)whole->results.value[TX_RESULT_GRAD_SUMSQ];
    printf("rank %d, %d tokens a row: relative L2 distance %.2e, sum of squares %g, wanted %g\n", (int)rank,
           (int)shared->length[used].block, off, sums, wanted);
    const double limit = shared->dtype == TX_F32 ? 1e-6 : 2e-2;
    return off <= limit && off > 0.0 && fabs(sums - wanted) <= 10.0 * limit * wanted
               ? TX_OK
               : tx_fail(TX_INTERNAL, "other gradients than those of the whole batch");
}

static tx_status compare_both(tx_engine *engine, tx_comm *comm, int32_t stage, const tx_config *config, trained *shared,
                              trained *whole)
{
    if (comm->size != 2)
        return tx_fail(TX_INVALID, "two ranks are wanted");
    TX_TRY(make(engine, comm, stage, config, comm->rank ? 1 : 3, shared));
    TX_TRY(make(engine, NULL, 0, config, ROWS, whole));
    if (chunks_of(shared) != (comm->rank == 0 ? 3 : 1) || chunks_of(whole) != 1)
        return tx_fail(TX_INTERNAL, "other chunks than meant");
    for (int used = 0; used < 2; used++)
        TX_TRY(compare(shared, whole, used, stage, comm));
    return TX_OK;
}

static tx_status run(const char *device, tx_comm *comm, int32_t stage, int rests, char **rest)
{
    if (strcmp(device, "mixed") == 0)
        device = comm->rank == 0 ? "cpu" : "opencl";
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    tx_config *config = NULL;
    tx_engine *engine = NULL;
    trained shared = {.dtype = rests > 0 && strcmp(rest[0], "bf16") == 0 ? TX_BF16 : TX_F32},
            whole = {.dtype = shared.dtype};
    tx_status status = tx_engine_create(&options, &engine);
    TX_THEN(status, tx_config_preset("gpt2", &config));
    TX_THEN(status, tx_config_override(config, "n_layer=3,n_head=2,n_embd=32,n_positions=200,vocab_size=1997"));
    TX_THEN(status, compare_both(engine, comm, stage, config, &shared, &whole));
    TX_THEN(status, check_way(engine, strcmp(device, "cpu") != 0));
    if (status)
        return status; /* the rank leaves */
    discard(&shared);
    discard(&whole);
    tx_engine_free(engine);
    tx_config_free(config);
    return TX_OK;
}

int main(int argc, char **argv)
{
    return beside_main(argc, argv, run);
}
