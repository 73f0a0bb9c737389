/* SPDX-License-Identifier: Apache-2.0
 * Training as PyTorch's DataParallel does it: one process, a replica on each device, the first of them the master. A
 * batch makes five exchanges:
 *
 *     scatter      the batch's rows, to their replicas
 *     replicate    the weights, from the first replica to the others
 *     gather       the outputs, loss and logits, to the first
 *     scatter      the gradient of the outputs, to the replicas
 *     reduce       the replicas' gradients, to the first, which alone makes the update
 *
 * The replicas compute the loss, since a plan runs forward and backward in one; so do those of the Hugging Face guide,
 * whose model is given the labels. Then a gradient comes back for each replica's loss alone (control INVERSE_LABELS,
 * set before the run) and none for the logits, though these are gathered: DataParallel at its cheapest. Where the loss
 * is made on the first device of the gathered logits, as many bytes of gradients go back.
 *
 * A device is here an engine of the cpu with cores of its own, so a copy between devices goes through a piece of memory
 * that the core's cache holds. The first device's thread makes the copies. */
#include "api/base/clock.h"
#include "models/text/thread.h"
#include "tools/bench/ddp.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (1 << 16) /* elements */

typedef struct replica {
    struct replicas *all;
    int32_t index;
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *tokens, *labels, *logits, *loss;
    tx_plan *train;
    tx_plan *update; /* the first's */
    /* Of the thread that works for it. */
    pthread_t thread;
    tx_status (*task)(struct replica *r);
    tx_status status;
    char error[512];
} replica;

typedef struct replicas {
    const tx_ddp_job *job;
    tx_ddp_data data;
    tx_placement *placement;
    replica *replica;
    int64_t step, bytes;
    float *piece;    /* of each replica */
    float *gathered; /* logits of all */
    float loss;
} replicas;

/* ---- Work of the replicas, each in its thread ------------------------------------------------------------ */

static tx_status build(replica *r)
{
    const tx_ddp_job *job = r->all->job;
    const tx_shape shape = TX_SHAPE(job->batch, job->block);
    const tx_arch_options options = {.size = sizeof options, .train = true};
    tx_status status = tx_graph_create(r->model, &r->graph);
    if (status)
        return status;
    r->tokens = tx_input(r->graph, "input_ids", TX_I32, shape);
    r->labels = tx_input(r->graph, "labels", TX_I32, shape);
    r->logits = tx_output(tx_arch_logits(r->graph, job->config, &options));
    r->loss = tx_output(tx_causal_lm.loss(r->graph, job->config, r->logits));
    status = tx_backward(r->graph, r->loss);
    return status ? status : tx_plan_create(r->graph, "train", &r->train);
}

static tx_status prepare(replica *r)
{
    const replicas *all = r->all;
    tx_engine_options engine = {.size = sizeof engine, .device = "cpu"};
    const tx_optimizer_options optimizer = tx_ddp_optimizer();
    tx_status status = tx_ddp_take(all->placement, r->index, all->job->ranks, &engine.threads);
    if (!status)
        status = tx_engine_create(&engine, &r->engine);
    if (!status)
        status = tx_model_create(r->engine, &r->model);
    if (!status)
        status = build(r);
    if (!status && r->index == 0)
        status = tx_optimizer_create(r->model, &optimizer, &r->update);
    if (!status && r->index == 0)
        status = tx_model_set(r->model, TX_CONTROL_MAX_GRAD_NORM, TX_DDP_MAX_GRAD_NORM);
    if (!status)
        status = tx_model_set(r->model, TX_CONTROL_LEARNING_RATE, all->job->learning_rate);
    return status ? status : tx_model_allocate(r->model);
}

static tx_status forward_backward(replica *r)
{
    int32_t threads;
    tx_status status = tx_ddp_take(r->all->placement, r->index, r->all->job->ranks, &threads);
    if (!status)
        status = tx_plan_run(r->train);
    return status ? status : tx_engine_finish(r->engine);
}

static void *work(void *argument)
{
    replica *r = argument;
    r->status = r->task(r);
    if (r->status)
        snprintf(r->error, sizeof r->error, "%s", tx_error());
    return NULL;
}

/* Each replica's task in a thread of its own, which DataParallel's parallel_apply starts anew for every batch as well;
 * the first one's in this thread. */
static tx_status in_parallel(replicas *all, tx_status (*task)(replica *r))
{
    int32_t started = 1;
    int error = 0;
    for (int32_t i = 0; i < all->job->ranks; i++)
        all->replica[i].task = task;
    while (started < all->job->ranks && !error) {
        replica *r = &all->replica[started];
        error = tx_thread_start(&r->thread, work, r) ? 0 : errno;
        started += !error;
    }
    if (!error)
        work(&all->replica[0]);
    for (int32_t i = 1; i < started; i++)
        pthread_join(all->replica[i].thread, NULL);
    if (error)
        return tx_fail(TX_MEMORY, "no thread for replica %d: %s", (int)started, strerror(error));
    for (int32_t i = 0; i < all->job->ranks; i++)
        if (all->replica[i].status)
            return tx_fail(all->replica[i].status, "replica %d: %s", (int)i, all->replica[i].error);
    return TX_OK;
}

/* ---- Exchanges ----------------------------------------------------------------------------------------- */

/* What goes to a replica or comes from it; the first one's own bytes do not move. */
static void count(replicas *all, const replica *r, int64_t bytes)
{
    all->bytes += r->index > 0 ? bytes : 0;
}

static tx_status scatter(replicas *all)
{
    const int64_t each = all->job->batch * all->job->block, bytes = each * (int64_t)sizeof(int32_t);
    tx_status status = TX_OK;
    for (int32_t i = 0; i < all->job->ranks && !status; i++) {
        replica *r = &all->replica[i];
        status = tx_plan_write(r->train, r->tokens, all->data.tokens + i * each, (size_t)bytes);
        if (!status)
            status = tx_plan_write(r->train, r->labels, all->data.labels + i * each, (size_t)bytes);
        count(all, r, 2 * bytes);
    }
    return status;
}

/* Elements first .. first + n - 1 of the first replica's weights, to the others. */
static tx_status replicate_piece(replicas *all, int32_t param, int64_t first, int64_t n)
{
    tx_status status = tx_model_read_range(all->replica[0].model, TX_PART_WEIGHT, param, first, n, all->piece);
    for (int32_t i = 1; i < all->job->ranks && !status; i++) {
        status = tx_model_write_range(all->replica[i].model, TX_PART_WEIGHT, param, first, n, all->piece);
        count(all, &all->replica[i], n * (int64_t)sizeof(float));
    }
    return status;
}

/* Adds the pieces of all replicas up in the order in which ranks add theirs (comm.h): the bits are the same. */
static void add_pieces(const replicas *all, int64_t n)
{
    for (int32_t gap = 1; gap < all->job->ranks; gap *= 2)
        for (int32_t i = 0; i + gap < all->job->ranks; i += 2 * gap) {
            float *restrict sum = all->piece + (int64_t)i * PIECE;
            const float *restrict other = all->piece + (int64_t)(i + gap) * PIECE;
            for (int64_t k = 0; k < n; k++)
                sum[k] += other[k];
        }
}

/* The same elements of the gradients of all, summed, to the first. */
static tx_status reduce_piece(replicas *all, int32_t param, int64_t first, int64_t n)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < all->job->ranks && !status; i++) {
        const replica *r = &all->replica[i];
        status = tx_model_read_range(r->model, TX_PART_GRADIENT, param, first, n, all->piece + (int64_t)i * PIECE);
        count(all, r, n * (int64_t)sizeof(float));
    }
    if (status)
        return status;
    add_pieces(all, n);
    return tx_model_write_range(all->replica[0].model, TX_PART_GRADIENT, param, first, n, all->piece);
}

static tx_status by_pieces(replicas *all, tx_status (*move)(replicas *all, int32_t param, int64_t first, int64_t n))
{
    const tx_model *master = all->replica[0].model;
    tx_status status = TX_OK;
    for (int32_t p = 0; p < tx_model_param_count(master) && !status; p++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(master, p, &name, &spec);
        const int64_t elements = status ? 0 : tx_shape_count(&spec->logical);
        for (int64_t first = 0; first < elements && !status; first += PIECE)
            status = move(all, p, first, elements - first < PIECE ? elements - first : PIECE);
    }
    return status;
}

static tx_status gather(replicas *all)
{
    const int64_t each = tx_shape_count(tx_tensor_shape(all->replica[0].logits)), bytes = each * (int64_t)sizeof(float);
    tx_status status = TX_OK;
    all->loss = 0.0f;
    for (int32_t i = 0; i < all->job->ranks && !status; i++) {
        replica *r = &all->replica[i];
        float loss = 0.0f;
        status = tx_plan_read(r->train, r->logits, all->gathered + i * each, (size_t)bytes);
        if (!status)
            status = tx_plan_read(r->train, r->loss, &loss, sizeof loss);
        all->loss += loss;
        count(all, r, bytes + (int64_t)sizeof loss);
    }
    return status;
}

/* Of the outputs: each replica's loss counts by all labels of the batch. */
static tx_status scatter_gradient(replicas *all)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < all->job->ranks && !status; i++) {
        replica *r = &all->replica[i];
        status = tx_model_set(r->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)all->data.counted);
        count(all, r, (int64_t)sizeof(float));
    }
    return status;
}

/* ---- Training ------------------------------------------------------------------------------------------ */

static tx_status update(replicas *all)
{
    const replica *master = &all->replica[0];
    tx_results results = {0};
    tx_status status = tx_plan_run(master->update);
    if (!status)
        status = tx_model_fetch(master->model);
    if (!status)
        status = tx_model_results(master->model, &results);
    if (!status && !(results.value[TX_RESULT_FINITE] == 1.0f && isfinite(all->loss)))
        status = tx_fail(TX_DEVICE, "step %" PRId64 ": loss %g, and the gradient's norm is not finite", all->step,
                         (double)all->loss);
    return status;
}

static tx_status run_step(replicas *all)
{
    tx_ddp_data_next(all->job, &all->data);
    tx_status status = scatter(all);
    if (!status)
        status = by_pieces(all, replicate_piece);
    if (!status)
        status = scatter_gradient(all);
    if (!status)
        status = in_parallel(all, forward_backward);
    if (!status)
        status = gather(all);
    if (!status)
        status = by_pieces(all, reduce_piece);
    all->step++;
    return status ? status : update(all);
}

static tx_status make(replicas *all)
{
    const tx_ddp_job *job = all->job;
    const int64_t logits = job->ranks * job->batch * job->block * tx_arch_padded_vocab(job->config);
    all->replica = calloc((size_t)job->ranks, sizeof *all->replica);
    all->piece = malloc((size_t)job->ranks * PIECE * sizeof *all->piece);
    all->gathered = malloc((size_t)logits * sizeof *all->gathered);
    if (!all->replica || !all->piece || !all->gathered)
        return tx_fail(TX_MEMORY, "no memory for %d replicas and their logits", (int)job->ranks);
    for (int32_t i = 0; i < job->ranks; i++) {
        all->replica[i].all = all;
        all->replica[i].index = i;
    }
    tx_status status = tx_ddp_data_make(job, &all->data);
    if (!status)
        status = tx_ddp_places(job->ranks, &all->placement);
    if (!status)
        status = in_parallel(all, prepare);
    return status ? status : tx_model_init(all->replica[0].model, TX_DDP_SEED);
}

static void discard(replicas *all)
{
    for (int32_t i = 0; all->replica && i < all->job->ranks; i++) {
        replica *r = &all->replica[i];
        tx_plan_free(r->update);
        tx_plan_free(r->train);
        tx_graph_free(r->graph);
        tx_model_free(r->model);
        tx_engine_free(r->engine);
    }
    tx_placement_free(all->placement);
    tx_ddp_data_free(&all->data);
    free(all->gathered);
    free(all->piece);
    free(all->replica);
}

tx_status tx_ddp_replicas(const tx_ddp_job *job, tx_ddp_result *result)
{
    replicas all = {.job = job};
    double begin = 0.0;
    tx_status status = make(&all);
    for (int64_t s = 0; s < job->warmup + job->steps && !status; s++) {
        if (s == job->warmup) {
            all.bytes = 0;
            begin = tx_now();
        }
        status = run_step(&all);
    }
    if (!status)
        *result = (tx_ddp_result){tx_now() - begin, (double)all.loss, (double)all.bytes / (double)job->steps, false};
    discard(&all);
    return status;
}
