/* SPDX-License-Identifier: Apache-2.0
 * What the executor does at collective nodes: gradients, results and weights go between the device, the windows and the
 * communicator. The device is never waited for while it still has work: copies to the host are begun at the node and
 * taken when the plan has been given to it. They go by the device's transfer queue, beside what it computes. */
#include "api/parallel.h"

#include "api/graph.h"

#define SUMMED_RESULTS 2

static const int64_t element = (int64_t)sizeof(float);

/* Elements first .. first + count - 1 of a bucket, at `address` of an arena and at `host` in a window. */
typedef struct piece {
    tx_arena_id arena;
    int64_t address;
    char *host;
    int64_t first, count;
} piece;

static piece gradients_of(const tx_parallel *p, const tx_bucket *b)
{
    return (piece){tx_parallel_gradients(p), b->gradient, p->gradients + b->window, 0, b->count};
}

static piece weights_of(const tx_parallel *p, const tx_bucket *b)
{
    return (piece){TX_ARENA_WEIGHTS, b->address, p->weights + b->position * element, 0, b->count};
}

static tx_buffer *buffer_of(const tx_model *model, const piece *x, int64_t *offset)
{
    const tx_arena *arena = &model->arena[x->arena];
    int64_t address = x->address + x->first * element;
    *offset = address % arena->chunk_bytes;
    return arena->buffer[tx_arena_chunk(arena, address)];
}

static tx_status to_window(tx_model *model, const piece *x, tx_event **reading)
{
    int64_t offset = 0;
    tx_buffer *buffer = buffer_of(model, x, &offset);
    return model->engine->backend->read_begin(model->engine->context, TX_QUEUE_TRANSFER, buffer, offset,
                                              x->host + x->first * element, x->count * element, reading);
}

/* Follows the copy to the window that began the collective, in the same queue; the caller orders what is computed next
 * behind it. */
static tx_status from_window(tx_model *model, const piece *x)
{
    int64_t offset = 0;
    tx_buffer *buffer = buffer_of(model, x, &offset);
    if (x->count == 0)
        return TX_OK;
    return model->engine->backend->write(model->engine->context, TX_QUEUE_TRANSFER, buffer, offset,
                                         x->host + x->first * element, x->count * element);
}

static tx_status order(const tx_model *model, tx_queue_id first, tx_queue_id then)
{
    return tx_order(model->engine->backend, model->engine->context, first, then);
}

tx_status tx_parallel_begin(tx_parallel *p, tx_transfer transfer, int32_t *request)
{
    const bool rounds = p->options.half && transfer.dtype == TX_F32 && transfer.kind != TX_ALL_GATHER;
    transfer.wire = rounds ? TX_BF16 : transfer.dtype;
    return p->comm->table->begin(p->comm, &transfer, request);
}

static tx_status begin(tx_parallel *p, tx_bucket *b, tx_collective kind, char *data, int32_t *request)
{
    const tx_transfer transfer = {
        .kind = kind, .dtype = TX_F32, .bucket = (int32_t)(b - p->bucket), .data = data, .count = b->count};
    return tx_parallel_begin(p, transfer, request);
}

static bool has_late_rows(const tx_parallel *p, const tx_bucket *b)
{
    return b - p->bucket == p->rows.bucket;
}

static tx_status begin_reduce(tx_model *model, tx_bucket *b)
{
    tx_parallel *p = model->parallel;
    b->to_reduce = false;
    tx_status status = has_late_rows(p, b) ? tx_rows_keep(model) : TX_OK;
    if (status)
        return status;
    return begin(p, b, p->options.zero_stage > 0 ? TX_REDUCE_SCATTER : TX_ALL_REDUCE, p->gradients + b->window,
                 &b->reducing);
}

static tx_status begin_gather(tx_parallel *p, tx_bucket *b)
{
    b->to_gather = false;
    return begin(p, b, TX_ALL_GATHER, p->weights + b->position * element, &b->gathering);
}

/* Copies what a collective reads to the window, then begins it; where the window is the arena, at once. */
static tx_status start(tx_model *model, tx_bucket *b, bool reduce)
{
    tx_parallel *p = model->parallel;
    if (model->engine->backend->host_memory)
        return reduce ? begin_reduce(model, b) : begin_gather(p, b);
    piece x = reduce ? gradients_of(p, b) : weights_of(p, b);
    if (!reduce) {
        x.first = b->first;
        x.count = b->owned;
    }
    b->to_reduce = reduce;
    b->to_gather = !reduce;
    b->reading = NULL;
    tx_status status = order(model, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER);
    return x.count > 0 && !status ? to_window(model, &x, &b->reading) : status;
}

static tx_status arrive(tx_model *model, tx_bucket *b)
{
    const tx_engine *e = model->engine;
    tx_event *reading = b->reading;
    b->reading = NULL;
    tx_status status = e->backend->wait(e->context, reading);
    if (status)
        return status;
    return b->to_reduce ? begin_reduce(model, b) : begin_gather(model->parallel, b);
}

/* Requests are waited for in the order they began, so buckets are begun in theirs: reduced from the first to the last
 * and behind them the late rows, gathered from the last to the first. */
tx_status tx_parallel_flush(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < p->buckets && !status; i++)
        if (p->bucket[i].to_reduce)
            status = arrive(model, &p->bucket[i]);
    if (!status)
        status = tx_rows_begin(model);
    for (int32_t i = p->buckets - 1; i >= 0 && !status; i--)
        if (p->bucket[i].to_gather)
            status = arrive(model, &p->bucket[i]);
    return status;
}

/* What a bucket's sum left in the window goes to the device. */
static tx_status take_sum(tx_model *model, const tx_bucket *b)
{
    const tx_parallel *p = model->parallel;
    if (model->engine->backend->host_memory)
        return TX_OK;
    piece x = gradients_of(p, b);
    if (p->options.zero_stage > 0) {
        x.first = b->first;
        x.count = b->owned;
    }
    tx_status status = from_window(model, &x);
    return status ? status : order(model, TX_QUEUE_TRANSFER, TX_QUEUE_COMPUTE);
}

static tx_status wait_gradients(tx_model *model, tx_bucket *b)
{
    tx_parallel *p = model->parallel;
    tx_status status = b->to_reduce ? tx_parallel_flush(model) : TX_OK;
    if (status || b->reducing < 0)
        return status;
    status = p->comm->table->wait(p->comm, b->reducing);
    b->reducing = -1;
    if (!status && !has_late_rows(p, b))
        status = take_sum(model, b);
    if (status || b - p->bucket < p->buckets - 1 || p->rows.summing < 0)
        return status;
    status = tx_rows_replace(model); /* behind the last bucket */
    return status ? status : take_sum(model, &p->bucket[p->rows.bucket]);
}

static tx_status wait_weights(tx_model *model, tx_bucket *b)
{
    tx_parallel *p = model->parallel;
    tx_status status = b->to_gather ? tx_parallel_flush(model) : TX_OK;
    if (status || b->gathering < 0)
        return status;
    status = p->comm->table->wait(p->comm, b->gathering);
    b->gathering = -1;
    if (status || model->engine->backend->host_memory)
        return status;
    piece before = weights_of(p, b), behind = before;
    before.count = b->first;
    behind.first = b->first + b->owned;
    behind.count = b->count - behind.first;
    status = from_window(model, &before);
    if (!status)
        status = from_window(model, &behind);
    return status ? status : order(model, TX_QUEUE_TRANSFER, TX_QUEUE_COMPUTE);
}

/* LOSS and GRAD_SUMSQ are the first two results; the vote goes with them. */
static tx_status reduce_results(tx_model *model)
{
    _Static_assert(TX_RESULT_LOSS == 0 && TX_RESULT_GRAD_SUMSQ == 1, "what is summed lies together");
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    tx_buffer *results = model->arena[TX_ARENA_RESULT].buffer[0];
    tx_status status = e->backend->read(e->context, results, 0, p->results, SUMMED_RESULTS * element);
    p->results[SUMMED_RESULTS] = p->vote;
    if (!status)
        status = tx_comm_collect(p->comm, TX_ALL_REDUCE, p->results, SUMMED_RESULTS + 1, TX_F32, 0);
    p->votes = p->results[SUMMED_RESULTS];
    return status ? status
                  : e->backend->write(e->context, TX_QUEUE_COMPUTE, results, 0, p->results, SUMMED_RESULTS * element);
}

/* Requests are waited for in the order they began: those of higher buckets first. */
static tx_status wait_weights_from(tx_model *model, int32_t bucket)
{
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    for (int32_t i = p->buckets - 1; i >= bucket && !status; i--)
        status = wait_weights(model, &p->bucket[i]);
    return status;
}

tx_status tx_model_settle(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    for (int32_t i = 0; p && i < p->buckets && !status; i++)
        status = wait_gradients(model, &p->bucket[i]);
    return p && !status ? wait_weights_from(model, 0) : status;
}

tx_status tx_parallel_collective(tx_model *model, tx_op op, int32_t bucket)
{
    tx_parallel *p = model->parallel;
    if (p->comm->size == 1) {
        p->votes = p->vote;
        return TX_OK;
    }
    switch (op) {
    case TX_OP_REDUCE_GRADIENTS:
        return start(model, &p->bucket[bucket], true);
    case TX_OP_NAME_ROWS:
        return tx_rows_name(model);
    case TX_OP_WAIT_GRADIENTS:
        return wait_gradients(model, &p->bucket[bucket]);
    case TX_OP_REDUCE_RESULTS:
        return reduce_results(model);
    case TX_OP_GATHER_WEIGHTS:
        return start(model, &p->bucket[bucket], false);
    case TX_OP_WAIT_WEIGHTS:
        return wait_weights_from(model, bucket);
    default:
        return tx_fail(TX_INTERNAL, "%s is no collective", tx_op_info_of(op)->name);
    }
}
