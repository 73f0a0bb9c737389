/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes values that ranks, or devices of this process, divide. A read is a collective call of all ranks, or
 * rank 0 requests it while the others are in tx_model_serve_reads. */
#include "api/parallel/buckets.h"

#include "api/base/hash.h"
#include "api/base/needs.h"
#include "api/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Returns the ranks that have shards of a part, or NULL if this rank has all of it. */
static tx_comm *shard_group(const tx_model *model, tx_param_role part, int32_t index)
{
    const tx_param_record *r = &model->param[index];
    const bool shards =
        part == TX_PARAM_WEIGHT ? model->arena[r->arena].addresses : tx_parallel_sharded(model->parallel);
    return shards ? tx_parallel_summers(model, &r->spec) : NULL;
}

/* Whether ranks have only shards of a parameter, so that reads are collective. */
static bool is_divided(const tx_model *model, tx_param_role part, int32_t index)
{
    return index >= 0 && index < model->params &&
           (tx_model_splits(model, index) || tx_model_has_pipeline(model) || shard_group(model, part, index));
}

/* Sums words over the ranks. Only one rank has read each word; the zeros of the others change no bit. A rank that
 * failed takes part too. */
static tx_status sum_words(tx_comm *comm, void *to, int64_t words, tx_status status)
{
    const tx_status added = tx_comm_collect(comm, TX_ALL_REDUCE, to, words, TX_I32, 0);
    return status ? status : added;
}

tx_status tx_parallel_complete(const tx_model *model, tx_param_role part, int32_t index, int32_t *words, int64_t count,
                               tx_status status)
{
    tx_comm *group = shard_group(model, part, index);
    return group ? sum_words(group, words, count, status) : status;
}

/* ---- Copies ------------------------------------------------------------------------------------------- */

/* Copies this rank's runs of a divided parameter. A read is a collective call of its groups. */
static tx_status copy_runs(tx_model *model, const tx_value_copy *c)
{
    const tx_param_record *r = &model->param[c->index];
    if (c->blocks)
        return tx_fail(TX_UNSUPPORTED,
                       "parameter %s: ranks cannot divide the blocks of a GGUF file: convert it with "
                       "txconvert",
                       r->name);
    const int64_t begin = tx_own_before(r, c->first), own = tx_own_before(r, c->first + c->count) - begin;
    float *mine = malloc((size_t)own * sizeof *mine + 1);
    tx_status status = mine ? TX_OK : tx_fail(TX_MEMORY, "no memory for parameter %s", r->name);
    if (c->from && mine)
        tx_own_take(r, c->first, c->count, c->from, mine);
    if (own > 0)
        TX_THEN(status,
                tx_values_copy_own(model, &(tx_value_copy){c->part, c->index, begin, own, .from = c->from ? mine : NULL,
                                                           .to = c->from ? NULL : mine}));
    if (c->to) {
        memset(c->to, 0, (size_t)c->count * sizeof *c->to);
        if (!status)
            tx_own_put(r, c->first, c->count, mine, c->to);
        if (r->division.parts > 1)
            status = sum_words(model->mesh.tensor.comm, c->to, c->count, status);
        if (r->experts.parts > 1)
            status = sum_words(model->mesh.expert.comm, c->to, c->count, status);
    }
    free(mine);
    return status;
}

static tx_status prepare(tx_model *model, const tx_value_copy *c)
{
    TX_TRY(tx_values_prepare(model, c));
    return c->part == TX_PARAM_GRADIENT && tx_parallel_sharded(model->parallel)
               ? tx_fail(TX_NOT_FOUND, "no rank has all gradients: they are divided (zero_stage %d)",
                         (int)model->parallel->options.zero_stage)
               : TX_OK;
}

/* Every stage that has a parameter writes it, and the stage that owns it reads it. A stage is a device of this process,
 * or a rank of a pipeline, in which all ranks read collectively. */
static tx_status copy_values(tx_model *model, const tx_value_copy *c)
{
    tx_status status = TX_OK;
    TX_TRY(prepare(model, c));
    if (c->from && c->part == TX_PARAM_WEIGHT &&
        shard_group(model, c->part, c->index)) /* all values, also those of other ranks */
        model->parallel->written = tx_hash_words(model->parallel->written, c->from, c->count);
    if (c->to && tx_model_has_pipeline(model))
        memset(c->to, 0, (size_t)c->count * sizeof *c->to);
    for (tx_model *m = model; m && !status; m = m->following) {
        if (c->from ? m->param[c->index].absent : !tx_model_owns(m, c->index))
            continue;
        if (m != model)
            status = prepare(m, c);
        TX_THEN(status, (tx_model_splits(m, c->index) ? copy_runs : tx_values_copy_own)(m, c));
    }
    return c->to && tx_model_has_pipeline(model) ? sum_words(model->mesh.pipeline.comm, c->to, c->count, status)
                                                 : status;
}

/* ---- Requests of rank 0 ------------------------------------------------------------------------------ */

typedef struct request {
    int64_t first, count;
    int32_t part, param; /* -1 ends the requests */
} request;

/* Broadcasts to all ranks: first in rank 0's tensor group, then along the data axis, then to the other stages. */
static tx_status broadcast(const tx_mesh *mesh, request *q)
{
    const int64_t words = (int64_t)(sizeof *q / sizeof(int32_t));
    tx_comm *const axes[] = {mesh->tensor.comm, mesh->data.comm, mesh->pipeline.comm};
    for (int i = 0; i < 3; i++)
        if (axes[i])
            TX_TRY(tx_comm_collect(axes[i], TX_BROADCAST, q, words, TX_I32, 0));
    return TX_OK;
}

bool tx_model_gathers(const tx_model *model)
{
    TX_NEEDS(model, false);
    return tx_parallel_gathers(model->parallel) || model->mesh.tensor.size > 1 || model->mesh.expert.size > 1 ||
           tx_model_has_pipeline(model);
}

/* Whether ranks have shards of the weights or of the optimizer states. */
static bool divides(const tx_model *model)
{
    return tx_parallel_sharded(model->parallel) || tx_model_gathers(model);
}

tx_status tx_model_read_within(tx_model *model, tx_comm *comm)
{
    TX_NEEDS(model && comm, TX_INVALID);
    if (!model->parallel || comm->size != model->mesh.shards.size)
        return tx_fail(TX_INVALID, "parallel: these ranks do not have all shards");
    if (model->parallel->torn)
        return tx_fail(TX_IO, "this rank has not received all weights of the last step");
    model->mesh.data = model->mesh.shards = (tx_mesh_axis){comm->rank, comm->size, comm};
    return TX_OK;
}

tx_status tx_model_read_alone(tx_model *model, bool on)
{
    TX_NEEDS(model, TX_INVALID);
    tx_parallel *p = model->parallel;
    request none = {.param = -1};
    if (!divides(model) || p->asks == on)
        return TX_OK;
    if (!on) {
        p->asks = false;
        return broadcast(&model->mesh, &none);
    }
    TX_TRY(tx_model_wait(model));
    p->asks = true;
    return TX_OK;
}

tx_status tx_model_serve_reads(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    if (!divides(model))
        return TX_OK;
    TX_TRY(tx_model_wait(model));
    float *answer = model->parallel->answer;
    tx_status status = TX_OK, read;
    request q = {0};
    for (bool more = true; more;) {
        read = broadcast(&model->mesh, &q);
        more = !read && q.param >= 0;
        if (more)
            read = copy_values(model, &(tx_value_copy){(tx_param_role)q.part, q.param, q.first, q.count, .to = answer});
        status = status ? status : read;
    }
    return status;
}

tx_status tx_parallel_copy(tx_model *model, const tx_value_copy *c)
{
    if (c->from || !is_divided(model, c->part, c->index) || !model->parallel->asks)
        return copy_values(model, c);
    for (int64_t at = 0; at < c->count; at += TX_ANSWER) {
        request q = {c->first + at, c->count - at < TX_ANSWER ? c->count - at : TX_ANSWER, (int32_t)c->part, c->index};
        TX_TRY(broadcast(&model->mesh, &q));
        TX_TRY(copy_values(model, &(tx_value_copy){c->part, c->index, q.first, q.count, .to = c->to + at}));
    }
    return TX_OK;
}
