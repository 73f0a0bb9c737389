/* SPDX-License-Identifier: Apache-2.0
 * Trains as PyTorch's DataParallel does: one process with a replica on each device, the first of which is the master. A
 * step scatters the rows to the replicas and copies the master's weights to the others. The master gathers the outputs,
 * loss and logits. Then the gradient of the outputs is scattered, and the gradients of the replicas are reduced to the
 * master, which makes the update.
 *
 * The replicas compute the loss, as in the Hugging Face guide, which passes labels to the model. So only the gradient
 * of each replica's loss is scattered (control INVERSE_LABELS, constant), not that of the logits. This is the cheapest
 * case of DataParallel. A device is here an engine of the cpu backend with its share of the cores. Copies between
 * devices use a small buffer that stays in the cache. */
#include "api/base/cores.h"
#include "api/base/thread.h"
#include "models/task/causal_lm.h"
#include "tools/research/ddp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (1 << 16) /* elements */

typedef struct replica {
    const struct replicas *all;
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *tokens, *labels, *logits, *loss;
    tx_plan *train;
    float loss_value;
    /* The replica's thread. */
    pthread_t thread;
    tx_status status;
    char error[512];
} replica;

typedef struct replicas {
    int32_t ranks;
    const tx_ddp_settings *set;
    const tx_config *config;
    int64_t logits; /* number of logits of a replica */
    tx_bench_tokens data;
    replica replica[TX_DDP_RANKS_MAX];
    tx_plan *update; /* update plan of the master */
    float *piece;    /* copy buffer, PIECE elements for each replica */
    float *gathered; /* logits of all replicas */
} replicas;

int32_t tx_ddp_threads(int64_t devices)
{
    const int64_t cores = tx_cores();
    return cores > devices ? (int32_t)(cores / devices) : 1;
}

/* ---- A replica ----------------------------------------------------------------------------------------- */

static tx_status build(const replicas *all, replica *r)
{
    const tx_shape shape = TX_SHAPE(all->set->batch, all->set->block);
    const tx_arch_options options = {.size = sizeof options, .train = true};
    r->tokens = tx_input(r->graph, "input_ids", TX_I32, shape);
    r->labels = tx_input(r->graph, "labels", TX_I32, shape);
    r->logits = tx_output(tx_arch_logits(r->graph, all->config, &options));
    r->loss = tx_output(tx_causal_lm.loss(r->graph, all->config, r->logits, 0.0f));
    TX_TRY(tx_backward(r->graph, r->loss));
    return tx_plan_create(r->graph, "train", &r->train);
}

static tx_status prepare(replicas *all, replica *r)
{
    const tx_engine_options engine = {.size = sizeof engine, .threads = tx_ddp_threads(all->ranks)};
    const tx_optimizer_options optimizer = tx_bench_optimizer();
    r->all = all;
    TX_TRY(tx_engine_create(&engine, &r->engine));
    TX_TRY(tx_model_create(r->engine, &r->model));
    TX_TRY(tx_graph_create(r->model, &r->graph));
    TX_TRY(build(all, r));
    if (r == all->replica)
        TX_TRY(tx_optimizer_create(r->model, &optimizer, &all->update));
    TX_TRY(tx_model_set(r->model, TX_CONTROL_MAX_GRAD_NORM, TX_BENCH_GRAD_NORM));
    TX_TRY(tx_model_set(r->model, TX_CONTROL_LEARNING_RATE, TX_BENCH_LEARNING_RATE));
    TX_TRY(tx_model_set(r->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)(all->data.rows * (all->data.block - 1))));
    return tx_model_allocate(r->model);
}

static tx_status forward_backward(replica *r)
{
    const replicas *all = r->all;
    const int64_t each = all->set->batch * all->set->block, at = r - all->replica;
    TX_TRY(tx_plan_write(r->train, r->tokens, all->data.tokens + at * each, (size_t)each * sizeof(int32_t)));
    TX_TRY(tx_plan_write(r->train, r->labels, all->data.labels + at * each, (size_t)each * sizeof(int32_t)));
    TX_TRY(tx_plan_run(r->train));
    TX_TRY(tx_plan_read(r->train, r->logits, all->gathered + at * all->logits, (size_t)all->logits * sizeof(float)));
    return tx_plan_read(r->train, r->loss, &r->loss_value, sizeof r->loss_value);
}

static void *work(void *argument)
{
    replica *r = argument;
    r->status = forward_backward(r);
    if (r->status)
        snprintf(r->error, sizeof r->error, "%s", tx_error());
    return NULL;
}

/* ---- All ------------------------------------------------------------------------------------------------- */

/* Runs each replica in a thread. DataParallel's parallel_apply also starts new threads for every batch. The first
 * replica runs in this thread. */
static tx_status run_replicas(replicas *all)
{
    int32_t started = 1;
    while (started < all->ranks && tx_thread_start(&all->replica[started].thread, work, &all->replica[started]))
        started++;
    tx_status status = TX_OK;
    if (started < all->ranks)
        status = tx_fail(TX_MEMORY, "no thread for replica %d: %s", (int)started, strerror(errno));
    else
        work(&all->replica[0]);
    for (int32_t i = 1; i < started; i++)
        pthread_join(all->replica[i].thread, NULL);
    for (int32_t i = 0; i < started && !status; i++)
        if (all->replica[i].status)
            status = tx_fail(all->replica[i].status, "replica %d: %s", (int)i, all->replica[i].error);
    return status;
}

/* Copies elements first .. first + n - 1 of a weight from the master to the others, or sums the gradients into the
 * master. The order of the sum is that of ranks (comm.h), so the bits are the same. */
static tx_status move_piece(const replicas *all, tx_param_role part, int32_t param, int64_t first, int64_t n)
{
    const bool sum = part == TX_PARAM_GRADIENT;
    const int32_t ranks = all->ranks;
    for (int32_t i = 0; i < (sum ? ranks : 1); i++)
        TX_TRY(tx_model_read_range(all->replica[i].model, part, param, first, n, all->piece + (int64_t)i * PIECE));
    for (int32_t gap = 1; sum && gap < ranks; gap *= 2)
        for (int32_t i = 0; i + gap < ranks; i += 2 * gap) {
            float *restrict to = all->piece + (int64_t)i * PIECE;
            const float *restrict from = to + (int64_t)gap * PIECE;
            for (int64_t k = 0; k < n; k++)
                to[k] += from[k];
        }
    for (int32_t i = sum ? 0 : 1; i < (sum ? 1 : ranks); i++)
        TX_TRY(tx_model_write_range(all->replica[i].model, part, param, first, n, all->piece));
    return TX_OK;
}

static tx_status move(const replicas *all, tx_param_role part)
{
    const tx_model *master = all->replica[0].model;
    for (int32_t p = 0; p < tx_model_param_count(master); p++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(master, p, &name, &spec));
        const int64_t elements = tx_shape_count(&spec->logical);
        for (int64_t first = 0; first < elements; first += PIECE)
            TX_TRY(move_piece(all, part, p, first, elements - first < PIECE ? elements - first : PIECE));
    }
    return TX_OK;
}

static tx_status run_step(replicas *all)
{
    tx_bench_tokens_next(all->config->vocab_size, &all->data);
    TX_TRY(move(all, TX_PARAM_WEIGHT));
    TX_TRY(run_replicas(all));
    TX_TRY(move(all, TX_PARAM_GRADIENT));
    return tx_plan_run(all->update);
}

static tx_status make(replicas *all)
{
    const tx_ddp_settings *set = all->set;
    all->piece = malloc((size_t)all->ranks * PIECE * sizeof *all->piece);
    all->gathered = malloc((size_t)(all->ranks * all->logits) * sizeof *all->gathered);
    if (!all->piece || !all->gathered)
        return tx_fail(TX_MEMORY, "no memory for %d replicas and their logits", (int)all->ranks);
    TX_TRY(tx_bench_tokens_make(all->ranks * set->batch, set->block, &all->data));
    for (int32_t i = 0; i < all->ranks; i++)
        TX_TRY(prepare(all, &all->replica[i]));
    return tx_model_init(all->replica[0].model, 1);
}

static void discard(replicas *all)
{
    tx_plan_free(all->update);
    for (int32_t i = 0; i < all->ranks; i++) {
        tx_plan_free(all->replica[i].train);
        tx_graph_free(all->replica[i].graph);
        tx_model_free(all->replica[i].model);
        tx_engine_free(all->replica[i].engine);
    }
    free(all->data.tokens);
    free(all->gathered);
    free(all->piece);
}

tx_status tx_ddp_replicas(const tx_ddp_settings *set, const tx_config *config, tx_ddp_result *result)
{
    const int64_t tokens = set->batch * set->block, weights = tx_arch_param_count(config);
    replicas all = {(int32_t)set->ranks, set, config, .logits = tokens * tx_arch_padded_vocab(config)};
    double begin = 0.0;
    float loss = 0.0f;
    tx_status status = make(&all);
    for (int64_t s = 0; s < TX_DDP_WARMUP + set->steps && !status; s++) {
        if (s == TX_DDP_WARMUP)
            begin = tx_now();
        status = run_step(&all);
    }
    for (int32_t i = 0; i < all.ranks && !status; i++)
        loss += all.replica[i].loss_value;
    /* Tokens and labels, weights and gradients, logits, the loss and its gradient, except those of the master. */
    const int64_t moved = (set->ranks - 1) * (2 * tokens + 2 * weights + all.logits + 2) * (int64_t)sizeof(float);
    if (!status)
        *result = (tx_ddp_result){all.ranks, tx_now() - begin, (double)moved, (double)loss};
    discard(&all);
    return status;
}
