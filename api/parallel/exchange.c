/* SPDX-License-Identifier: Apache-2.0
 * Host ops of collectives: transfer gradients, results and weights between the device, the windows and the
 * communicator. The host never waits for the device while it still has work to submit. Copies to the host start at the
 * node, use the device's transfer queue during computation, and complete after the whole plan was submitted. */
#include "api/parallel/buckets.h"

#include <math.h>
#include <string.h>

/* ---- Between the device and the window -------------------------------------------------------------- */

/* Returns the ranks of a transfer. */
static tx_comm *ranks_of(const tx_parallel *p, const tx_command *c)
{
    const tx_bucket *b = &p->bucket[c->attrs.exchange.bucket];
    return c->op == TX_OP_REDUCE_SHARDS ? b->replicate : b->comm;
}

/* Elements of a bucket. */
typedef struct piece {
    int64_t first, count;
} piece;

/* Returns the elements that a command transfers: a bucket, a packing of it, or this rank's shard. */
static tx_packing moved_by(const tx_parallel *p, const tx_command *c)
{
    const tx_bucket *b = &p->bucket[c->attrs.exchange.bucket];
    if (c->op == TX_OP_REDUCE_SHARDS)
        return (tx_packing){.count = b->owned, .owned = b->owned};
    return c->attrs.exchange.packing ? p->packing[c->attrs.exchange.packing - 1]
                                     : (tx_packing){.count = b->count, .first = b->first, .owned = b->owned};
}

/* Whether the ranks exchange the device's memory directly. */
static bool is_in_place(const tx_command *c)
{
    const tx_operand *x = &c->in[0], *w = &c->out[0];
    return x->arena == w->arena && x->chunk == w->chunk && x->offset == w->offset;
}

static tx_status to_window(const tx_model *model, const tx_command *c, piece p, tx_event **arrived)
{
    const tx_engine *e = model->engine;
    const int64_t element = (int64_t)tx_dtype_size(c->in[0].dtype);
    return e->backend->read_begin(e->context, TX_QUEUE_TRANSFER, tx_operand_buffer(model, &c->in[0]),
                                  c->in[0].offset + p.first * element,
                                  tx_operand_host(model, &c->out[0]) + p.first * element, p.count * element, arrived);
}

/* Runs after the copy to the window, in the same queue. The caller orders later computation after it. */
static tx_status from_window(const tx_model *model, const tx_command *c, piece p)
{
    const tx_engine *e = model->engine;
    const int64_t element = (int64_t)tx_dtype_size(c->in[0].dtype);
    if (p.count == 0)
        return TX_OK;
    return e->backend->write(e->context, TX_QUEUE_TRANSFER, tx_operand_buffer(model, &c->in[0]),
                             c->in[0].offset + p.first * element,
                             tx_operand_host(model, &c->out[0]) + p.first * element, p.count * element);
}

/* ---- Start ---------------------------------------------------------------------------------------- */

static tx_status begin(const tx_model *model, tx_moving *m)
{
    const tx_parallel *p = model->parallel;
    const tx_command *c = &m->command;
    const int32_t owner = p->bucket[c->attrs.exchange.bucket].owner;
    tx_comm *comm = ranks_of(p, c);
    const bool whole = c->op == TX_OP_REDUCE_SHARDS, sums = c->op == TX_OP_REDUCE_GRADIENTS || whole,
               sharded = tx_parallel_sharded(p) && owner < 0;
    const tx_dtype dtype =
        c->in[0].dtype == TX_F16 ? TX_BF16 : c->in[0].dtype; /* of weights, whose bits are only copied */
    const tx_transfer transfer = {
        .kind =
            sums ? (sharded && !whole ? TX_REDUCE_SCATTER : TX_ALL_REDUCE) : (sharded ? TX_ALL_GATHER : TX_BROADCAST),
        .root = owner,
        .dtype = dtype,
        .wire = sums && p->options.wire ? p->options.wire : dtype,
        .bucket = c->attrs.exchange.bucket,
        .data = tx_operand_host(model, &c->out[0]),
        .count = tx_operand_count(&c->out[0]),
        .shard = moved_by(p, c).shard,
    };
    return comm->table->begin(comm, &transfer, &m->request);
}

tx_status tx_parallel_flush(tx_model *model)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    for (int32_t i = 0; p && i < p->movings && !status; i++) {
        tx_moving *m = &p->moving[i];
        tx_event *arrived = m->arrived;
        m->arrived = NULL;
        status = e->backend->wait(e->context, arrived);
        if (!status && m->request < 0)
            status = begin(model, m);
    }
    return status;
}

/* ---- Completion ------------------------------------------------------------------------------------------- */

/* Copies the elements that this rank did not have from the window to the device. */
static tx_status copy_received(const tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    const tx_packing m = moved_by(model->parallel, c);
    const piece all = {0, m.count}, own = {m.first, m.owned}, before = {0, m.first},
                after = {m.first + m.owned, m.count - m.first - m.owned};
    tx_status status = TX_OK;
    if (is_in_place(c))
        return TX_OK;
    if (c->op == TX_OP_REDUCE_SHARDS)
        status = from_window(model, c, all);
    else if (c->op == TX_OP_REDUCE_GRADIENTS)
        status = from_window(model, c, tx_parallel_sharded(model->parallel) ? own : all);
    else {
        status = from_window(model, c, before);
        TX_THEN(status, from_window(model, c, after));
    }
    return status ? status : tx_order(e->backend, e->context, TX_QUEUE_TRANSFER, TX_QUEUE_COMPUTE);
}

/* Marks the copies of gathered weights for casting. */
static void note_gathered(tx_model *model, const tx_command *c)
{
    if (c->op == TX_OP_GATHER_WEIGHTS && model->copies.range)
        model->copies.range[c->attrs.exchange.bucket].stale = true;
}

/* Waits for the oldest transfer. Requests are waited for in the order of their start. */
static tx_status complete(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_status status = p->moving[0].request < 0 ? tx_parallel_flush(model) : TX_OK;
    const tx_moving oldest = p->moving[0];
    p->movings--;
    memmove(p->moving, p->moving + 1, (size_t)p->movings * sizeof *p->moving);
    tx_comm *comm = ranks_of(p, &oldest.command);
    TX_THEN(status, comm->table->wait(comm, oldest.request));
    p->torn = p->torn || (status && oldest.command.op == TX_OP_GATHER_WEIGHTS && !tx_parallel_gathers(p));
    note_gathered(model, &oldest.command);
    return status ? status : copy_received(model, &oldest.command);
}

/* Whether a command starts or waits for this transfer. */
static bool is_transfer_of(const tx_moving *m, tx_op op, const tx_command *c)
{
    const tx_attrs *a = &m->command.attrs;
    return m->command.op == op && a->exchange.bucket == c->attrs.exchange.bucket &&
           a->exchange.packing == c->attrs.exchange.packing;
}

/* Waits until no transfer of this op and the command's bucket, or packing of it, is outstanding. */
static tx_status wait_for(tx_model *model, tx_op op, const tx_command *c)
{
    tx_parallel *p = model->parallel;
    int32_t found = p->movings - 1;
    while (found >= 0 && !is_transfer_of(&p->moving[found], op, c))
        found--;
    tx_status status = TX_OK;
    for (; found >= 0 && !status; found--)
        status = complete(model);
    return status;
}

tx_status tx_parallel_wait(tx_model *model)
{
    tx_status status = TX_OK;
    while (model->parallel && model->parallel->movings > 0) { /* after a failure too, so that none is left */
        const tx_status completed = complete(model);
        status = status ? status : completed;
    }
    return status;
}

/* ---- Collectives --------------------------------------------------------------------------------------- */

/* If the data are in the window, the transfer starts at once. Otherwise the rank's part is copied there first. With one
 * rank nothing is transferred. */
tx_status tx_host_begin_transfer(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    const tx_bucket *b = &p->bucket[c->attrs.exchange.bucket];
    if (c->op == TX_OP_REDUCE_SHARDS && p->more)
        return TX_OK;
    if (b->comm->size == 1) {
        note_gathered(model, c);
        return TX_OK;
    }
    const tx_packing packing = moved_by(p, c);
    const piece own = c->op == TX_OP_REDUCE_GRADIENTS ? (piece){0, b->count} : (piece){packing.first, packing.owned};
    tx_status status = wait_for(model, c->op, c);
    tx_moving m = {.command = *c, .request = -1};
    if (!status && is_in_place(c))
        status = begin(model, &m);
    else if (!status) {
        if (own.count == 0) /* data arrive where copies of earlier ones may still read */
            status = e->backend->mark(e->context, TX_QUEUE_TRANSFER, &m.arrived);
        /* Copies in both directions follow the computation so far. */
        TX_THEN(status, tx_order(e->backend, e->context, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER));
        if (!status && own.count > 0)
            status = to_window(model, c, own, &m.arrived);
    }
    if (!status)
        p->moving[p->movings++] = m;
    return status;
}

tx_status tx_host_wait_transfer(tx_model *model, const tx_command *c)
{
    return wait_for(model,
                    c->op == TX_OP_WAIT_GRADIENTS ? TX_OP_REDUCE_GRADIENTS
                    : c->op == TX_OP_WAIT_SHARDS  ? TX_OP_REDUCE_SHARDS
                                                  : TX_OP_GATHER_WEIGHTS,
                    c);
}

/* Sums x over the tensor group into y through the window. If the host can access the device's memory, y is x and no
 * window is needed. Gradients of tied parameters are summed over the first and the last stage. The host waits for the
 * device. */
tx_status tx_host_sum(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    const tx_operand *x = &c->in[TX_IN(tp_all_reduce, x)], *y = &c->out[TX_OUT(tp_all_reduce, y)],
                     *w = &c->out[TX_OUT(tp_all_reduce, w)];
    tx_comm *group = c->op == TX_OP_SUM_TIED        ? model->mesh.ends
                     : c->op == TX_OP_DP_ALL_REDUCE ? model->mesh.peers
                                                    : model->mesh.tensor.comm;
    const bool in_place = w->dtype == TX_DTYPE_COUNT;
    char *sum = tx_operand_host(model, in_place ? x : w);
    TX_TRY(in_place ? e->backend->finish(e->context) : tx_operand_read(model, x, 0, sum, tx_operand_bytes(x)));
    TX_TRY(tx_comm_collect(group, TX_ALL_REDUCE, sum, tx_operand_count(x), x->dtype, 0));
    return in_place ? TX_OK : tx_operand_write(model, y, 0, sum, tx_operand_bytes(y));
}

/* Every replicated section has a slot in the window. Ranks without it contribute zeros, so all ranks compute the same
 * sums, in rank order. The host waits for the device, so that earlier copies from the window are complete. */
tx_status tx_host_sum_replicas(tx_model *model, const tx_command *c)
{
    const tx_operand *x = &c->in[TX_IN(sum_replicas, x)], *w = &c->out[TX_OUT(sum_replicas, w)];
    const int64_t bytes = tx_operand_bytes(x), before = c->attrs.first * (int64_t)tx_dtype_size(x->dtype);
    char *all = tx_operand_host(model, w), *own = all + before;
    TX_TRY(tx_operand_read(model, x, 0, own, bytes));
    memset(all, 0, (size_t)before);
    memset(own + bytes, 0, (size_t)(tx_operand_bytes(w) - before - bytes));
    TX_TRY(tx_comm_collect(model->mesh.tensor.comm, TX_ALL_REDUCE, all, tx_operand_count(w), w->dtype, 0));
    return tx_operand_write(model, x, 0, own, bytes);
}

/* Combines the CROSS_ENTROPY of each rank's columns to that over all columns, using the ranks' log-sum-exps. `number`
 * has for each rank the losses of `rows` rows, then their log-sum-exps. The result replaces that of the first rank. lse
 * - loss of a rank is its share of the terms that the loss subtracts: the label's logit, and with smoothing the mean.
 */
static void join_rows(float *number, int64_t rows, int32_t ranks, const int32_t *label)
{
    for (int64_t i = 0; i < rows; i++) {
        double greatest = (double)number[rows + i], sum = 0.0, off = 0.0;
        for (int32_t r = 0; r < ranks; r++)
            greatest = fmax(greatest, (double)number[(2 * r + 1) * rows + i]);
        for (int32_t r = 0; r < ranks; r++) {
            const double lse = (double)number[(2 * r + 1) * rows + i];
            sum += exp(lse - greatest);
            off += lse - (double)number[2 * r * rows + i];
        }
        const double lse = greatest + log(sum);
        number[i] = label[i] == TX_IGNORE_LABEL ? 0.0f : (float)(lse - off);
        number[rows + i] = (float)lse;
    }
}

/* Every rank combines the same numbers in the same order. The host waits for the device. */
tx_status tx_host_join_losses(tx_model *model, const tx_command *c)
{
    const tx_mesh_axis *tensor = &model->mesh.tensor;
    const tx_operand *labels = &c->in[TX_IN(tp_cross_entropy, labels)],
                     *losses = &c->in[TX_IN(tp_cross_entropy, losses)], *lse = &c->in[TX_IN(tp_cross_entropy, lse)];
    const int64_t rows = tx_operand_count(losses), bytes = tx_operand_bytes(losses), count = 2 * rows * tensor->size;
    float *all = (float *)(void *)tx_operand_host(model, &c->out[TX_OUT(tp_cross_entropy, w)]),
          *own = all + 2 * rows * tensor->rank;
    int32_t *label = (int32_t *)(void *)(all + count);
    TX_TRY(tx_operand_read(model, losses, 0, own, bytes));
    TX_TRY(tx_operand_read(model, lse, 0, own + rows, bytes));
    TX_TRY(tx_operand_read(model, labels, 0, label, bytes));
    memset(all, 0, (size_t)(own - all) * sizeof *all);
    memset(own + 2 * rows, 0, (size_t)(all + count - own - 2 * rows) * sizeof *all);
    /* Summed as integers, so that the zeros of other ranks change no bit. */
    TX_TRY(tx_comm_collect(model->mesh.tensor.comm, TX_ALL_REDUCE, all, count, TX_I32, 0));
    join_rows(all, rows, tensor->size, label);
    losses = &c->out[TX_OUT(tp_cross_entropy, all_losses)];
    lse = &c->out[TX_OUT(tp_cross_entropy, all_lse)];
    TX_TRY(tx_operand_write(model, losses, 0, all, bytes));
    return tx_operand_write(model, lse, 0, all + rows, bytes);
}

/* ---- Messages --------------------------------------------------------------------------------------------- */

/* Returns the communicator of a message. */
static tx_comm *messengers_of(const tx_mesh *mesh, const tx_command *c)
{
    return c->attrs.exchange.around ? mesh->context.comm : mesh->pipeline.comm;
}

/* Returns the message number, which is unique among messages in progress. */
static int32_t number_of(const tx_model *model, const tx_command *c)
{
    const int64_t of_micro_batch = (int64_t)(model->mesh.stages / model->mesh.pipeline.size) * TX_CROSSINGS * 2;
    return (int32_t)((c->attrs.exchange.micro_batch * of_micro_batch + c->attrs.exchange.bucket) % TX_MESSAGE_NUMBERS);
}

/* Starts a message. Data to send are copied from the device first, which the host waits for. */
tx_status tx_host_begin_message(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    const bool out = c->op == TX_OP_SEND;
    const tx_operand *x = &c->in[TX_IN(send, x)], *w = &c->out[TX_OUT(send, w)];
    const tx_operand *place = w->dtype == TX_DTYPE_COUNT ? x : w;
    if (place->arena == TX_ARENA_OFFLOADED) /* an activation that was here may still be on its way to the device */
        TX_TRY(tx_finish_copies(e));
    if (out && place == x)
        TX_TRY(e->backend->finish(e->context));
    else if (out)
        TX_TRY(tx_operand_read(model, x, 0, tx_operand_host(model, w), tx_operand_bytes(x)));
    const tx_message message = {.out = out,
                                .other = c->attrs.exchange.peer,
                                .number = number_of(model, c),
                                .data = tx_operand_host(model, place),
                                .count = tx_operand_count(place),
                                .dtype = place->dtype};
    tx_message_on_way begun = {messengers_of(&model->mesh, c), c->op, message.other, message.number, -1};
    TX_TRY(begun.comm->table->begin_message(begun.comm, &message, &begun.request));
    p->message[p->messages++] = begun;
    return TX_OK;
}

tx_status tx_host_wait_message(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    const tx_op op = c->op == TX_OP_WAIT_SENT ? TX_OP_SEND : TX_OP_RECEIVE;
    const int32_t number = number_of(model, c);
    tx_comm *comm = messengers_of(&model->mesh, c);
    int32_t i = 0;
    while (i < p->messages && !(p->message[i].comm == comm && p->message[i].op == op &&
                                p->message[i].peer == c->attrs.exchange.peer && p->message[i].number == number))
        i++;
    if (i == p->messages)
        return tx_fail(TX_INTERNAL, "a plan waits for a message that was not started");
    const int32_t request = p->message[i].request;
    p->message[i] = p->message[--p->messages];
    TX_TRY(comm->table->wait_message(comm, request));
    const tx_operand *w = &c->in[TX_IN(wait_received, w)], *x = &c->out[TX_OUT(wait_received, x)];
    if (op == TX_OP_SEND || is_in_place(c))
        return TX_OK;
    TX_TRY(tx_operand_write(model, x, 0, tx_operand_host(model, w), tx_operand_bytes(x)));
    return e->backend->finish(e->context); /* other tensors may reuse the message's memory */
}

/* ---- Results ---------------------------------------------------------------------------------------------- */

/* The vote is summed together with the results. */
tx_status tx_host_reduce_results(tx_model *model, const tx_command *c)
{
    const tx_mesh *mesh = &model->mesh;
    tx_parallel *p = model->parallel;
    p->votes = p->vote;
    if (tx_mesh_is_one_rank(mesh))
        return TX_OK;
    const int64_t count = tx_operand_count(&c->in[0]), bytes = tx_operand_bytes(&c->in[0]);
    float *sum = (float *)(void *)tx_operand_host(model, &c->out[TX_OUT(reduce_results, w)]);
    tx_status status = tx_operand_read(model, &c->in[0], 0, sum, bytes);
    sum[count] = p->vote;
    /* All ranks of a tensor group have the same results. Only the last pipeline stage has current ones. */
    if (mesh->tensor.rank > 0 || mesh->pipeline.rank < mesh->pipeline.size - 1)
        for (int64_t i = 0; i < count; i++)
            sum[i] = i == TX_RESULT_GRAD_SUMSQ ? sum[i] : 0.0f;
    tx_comm *const groups[] = {mesh->data.comm, mesh->tensor.comm, mesh->pipeline.comm};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i])
            TX_THEN(status, tx_comm_collect(groups[i], TX_ALL_REDUCE, sum, count + 1, TX_F32, 0));
    p->votes = sum[count];
    return status ? status : tx_operand_write(model, &c->in[0], 0, sum, bytes);
}

tx_status tx_host_begin_micro_batch(tx_model *model, const tx_command *c)
{
    return tx_model_begin_micro_batch(model, c->attrs.exchange.micro_batch);
}
