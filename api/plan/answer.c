/* SPDX-License-Identifier: Apache-2.0
 * Reading what is spread over the ranks on rank 0's own account: it asks, and the others answer. */
#include "api/parallel/parallel.h"

#include "api/base/needs.h"
#include "api/plan/answer.h"

#include <inttypes.h>
#include <stdlib.h>

/* Elements that are asked for at once. */
#define MOST (INT64_C(1) << 20)

typedef struct question {
    int64_t first, count;
    int32_t part, param; /* -1: there is no further question */
} question;

static tx_status pass_on(const tx_parallel *p, question *q)
{
    return tx_comm_collect(p->comm, TX_BROADCAST, q, (int64_t)(sizeof *q / sizeof(int32_t)), TX_I32, 0);
}

/* Nobody begins unless all can. */
static tx_status meet(tx_model *model, tx_status own)
{
    const tx_comm *comm = model->parallel->comm;
    int32_t *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "no memory for a list of the ranks");
    all[comm->rank] = own != TX_OK;
    tx_status status = tx_comm_share(model->parallel->comm, all, sizeof *all);
    for (int32_t r = 0; r < comm->size && !status && !own; r++)
        if (all[r])
            status = tx_fail(TX_MEMORY, "rank %" PRId32 " has no memory to read what is spread over the ranks", r);
    free(all);
    return own ? own : status;
}

tx_status tx_model_ask(tx_model *model, bool on)
{
    TX_NEEDS(model, TX_INVALID);
    tx_parallel *p = model->parallel;
    question none = {.param = -1};
    if (!tx_parallel_sharded(p) || p->asks == on)
        return TX_OK;
    if (!on) {
        p->asks = false;
        return pass_on(p, &none);
    }
    TX_TRY(tx_model_settle(model));
    TX_TRY(meet(model, TX_OK));
    p->asks = true;
    return TX_OK;
}

tx_status tx_model_answer(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    const tx_parallel *p = model->parallel;
    if (!tx_parallel_sharded(p))
        return TX_OK;
    TX_TRY(tx_model_settle(model));
    float *answer = malloc((size_t)MOST * sizeof *answer);
    tx_status status = meet(model, answer ? TX_OK : tx_fail(TX_MEMORY, "no memory to answer what rank 0 reads")), read;
    question q = {0};
    for (bool more = status == TX_OK; more;) {
        read = pass_on(p, &q);
        more = !read && q.param >= 0;
        if (more)
            read = tx_model_read_range(model, (tx_part)q.part, q.param, q.first, q.count, answer);
        status = status ? status : read;
    }
    free(answer);
    return status;
}

tx_status tx_answered_read(tx_model *model, tx_part part, int32_t param, int64_t first, int64_t count, float *data)
{
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    for (int64_t at = 0; at < count && !status; at += MOST) {
        question q = {first + at, count - at < MOST ? count - at : MOST, (int32_t)part, param};
        status = pass_on(p, &q);
        p->asks = false; /* so that the question is not asked again */
        if (!status)
            status = tx_model_read_range(model, part, param, q.first, q.count, data + at);
        p->asks = true;
    }
    return status;
}
