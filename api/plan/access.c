/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing parameters, their gradients and their optimizer states: whole and ranges of them. What
 * is spread over the ranks all read together, or rank 0 asks for it and the others answer. */
#include "api/parallel/parallel.h"
#include "api/plan/values.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- Asking and answering ------------------------------------------------------------------------------ */

/* Elements that are asked for at once. */
#define MOST (INT64_C(1) << 20)

typedef struct question {
    int64_t first, count;
    int32_t part, param; /* -1: there is no further question */
} question;

/* To all ranks: to those of rank 0's tensor group, from each of these to the others of its part, and from these to the
 * other stages. */
static tx_status pass_on(const tx_mesh *mesh, question *q)
{
    const int64_t words = (int64_t)(sizeof *q / sizeof(int32_t));
    tx_comm *const axes[] = {mesh->tensor.comm, mesh->data.comm, mesh->pipeline.comm};
    for (int i = 0; i < 3; i++)
        if (axes[i])
            TX_TRY(tx_comm_collect(axes[i], TX_BROADCAST, q, words, TX_I32, 0));
    return TX_OK;
}

/* Whether ranks have parts of the weights or of the optimizer states. */
static bool spreads(const tx_model *model)
{
    return tx_parallel_sharded(model->parallel) || tx_model_gathers(model);
}

/* Nobody begins unless all can. */
static tx_status meet(tx_model *model, tx_status own)
{
    const tx_mesh *mesh = &model->mesh;
    const int32_t size = mesh->data.size;
    int32_t *all = calloc((size_t)size, sizeof *all), lack = own != TX_OK;
    if (!all)
        return tx_fail(TX_MEMORY, "no memory for a list of the ranks");
    all[mesh->data.rank] = lack;
    tx_status status = tx_comm_share(mesh->data.comm, all, sizeof *all);
    for (int32_t r = 0; r < size && !status && !own; r++)
        if (all[r])
            status = tx_fail(TX_MEMORY, "rank %" PRId32 " has no memory to read what is spread over the ranks",
                             r * mesh->tensor.size + mesh->tensor.rank);
    free(all);
    tx_comm *const others[] = {mesh->tensor.comm, mesh->pipeline.comm};
    for (int i = 0; i < 2; i++) {
        if (!others[i])
            continue;
        lack = own || status;
        const tx_status told = tx_comm_collect(others[i], TX_ALL_REDUCE, &lack, 1, TX_I32, 0);
        if (!own && !status)
            status = told   ? told
                     : lack ? tx_fail(TX_MEMORY, "a rank has no memory to read what the ranks have parts of")
                            : TX_OK;
    }
    return own ? own : status;
}

tx_status tx_model_ask(tx_model *model, bool on)
{
    TX_NEEDS(model, TX_INVALID);
    tx_parallel *p = model->parallel;
    question none = {.param = -1};
    if (!spreads(model) || p->asks == on)
        return TX_OK;
    if (!on) {
        p->asks = false;
        return pass_on(&model->mesh, &none);
    }
    TX_TRY(tx_model_settle(model));
    TX_TRY(meet(model, TX_OK));
    p->asks = true;
    return TX_OK;
}

tx_status tx_model_answer(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    if (!spreads(model))
        return TX_OK;
    TX_TRY(tx_model_settle(model));
    float *answer = malloc((size_t)MOST * sizeof *answer);
    tx_status status = meet(model, answer ? TX_OK : tx_fail(TX_MEMORY, "no memory to answer what rank 0 reads")), read;
    question q = {0};
    for (bool more = status == TX_OK; more;) {
        read = pass_on(&model->mesh, &q);
        more = !read && q.param >= 0;
        if (more)
            read = tx_values_copy(model, (tx_part)q.part, q.param, q.first, q.count, NULL, answer);
        status = status ? status : read;
    }
    free(answer);
    return status;
}

/* ---- Ranges -------------------------------------------------------------------------------------------- */

tx_status tx_model_write_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                               const float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_values_copy(model, part, index, first, count, data, NULL);
}

tx_status tx_model_read_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    if (!tx_values_spread(model, part, index) || !model->parallel->asks)
        return tx_values_copy(model, part, index, first, count, NULL, data);
    for (int64_t at = 0; at < count; at += MOST) {
        question q = {first + at, count - at < MOST ? count - at : MOST, (int32_t)part, index};
        TX_TRY(pass_on(&model->mesh, &q));
        TX_TRY(tx_values_copy(model, part, index, q.first, q.count, NULL, data + at));
    }
    return TX_OK;
}

/* Elements of a part; 0 for one that there is not, which the copy then refuses. */
static int64_t elements_of(const tx_model *model, tx_part part, int32_t index)
{
    tx_shape shape;
    return tx_values_shape(model, part, index, &shape) == TX_OK ? tx_shape_count(&shape) : 0;
}

tx_status tx_model_write(tx_model *model, tx_part part, int32_t index, const float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_model_write_range(model, part, index, 0, elements_of(model, part, index), data);
}

tx_status tx_model_read(tx_model *model, tx_part part, int32_t index, float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_model_read_range(model, part, index, 0, elements_of(model, part, index), data);
}
