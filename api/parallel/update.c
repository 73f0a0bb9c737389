/* SPDX-License-Identifier: Apache-2.0
 * Nodes of the update plan with several ranks: wait for the sums of gradients, sum their squares, and all-gather the
 * updated weights. */
#include "api/parallel/buckets.h"
#include "api/plan/plan.h"

tx_status tx_parallel_check_optimizer(const tx_model *model, const tx_optimizer *optimizer)
{
    const tx_mesh *mesh = &model->mesh;
    const tx_parallel *p = model->parallel;
    if (tx_parallel_sharded(p) && tx_optimizer_is_whole(optimizer->options.kind) && !p->options.whole)
        return tx_fail(TX_INVALID, "this optimizer works on whole parameters, but the ranks have shards: pass "
                                   "option `whole` to tx_model_parallel");
    if ((mesh->tensor.size > 1 || mesh->expert.size > 1 || mesh->stages > 1) && !tx_optimizer_divides(optimizer))
        return tx_fail(TX_UNSUPPORTED,
                       "this optimizer's states belong to blocks or whole parameters, but the ranks "
                       "of a tensor group, an expert group or a pipeline have shards: take AdamW, SGD or Lion");
    return TX_OK;
}

static void add_collective(tx_graph *graph, tx_op op, int32_t bucket, tx_tensor *in, tx_tensor *out)
{
    tx_emit(graph, &(tx_emit_args){.op = op, .attrs = TX_ATTRS(.exchange.bucket = bucket), .in = {in}, .out = {out}});
}

static void wait_for_gradients(tx_graph *graph, int32_t bucket)
{
    add_collective(graph, TX_OP_WAIT_GRADIENTS, bucket, tx_parallel_exchanged(graph, TX_ARENA_GRADIENTS, bucket),
                   tx_parallel_tensor(graph, TX_ARENA_GRADIENTS, bucket));
}

static void gather_weights(tx_graph *graph, int32_t bucket)
{
    add_collective(graph, TX_OP_GATHER_WEIGHTS, bucket, tx_parallel_tensor(graph, TX_ARENA_WEIGHTS, bucket),
                   tx_parallel_exchanged(graph, TX_ARENA_WEIGHTS, bucket));
}

#define SUMMED (TX_RESULT_TASK_9 + 1) /* results LOSS, GRAD_SUMSQ, DROPPED and those of the task come first */

/* Sums these results over the ranks. */
static void reduce_results(tx_graph *graph)
{
    _Static_assert(TX_RESULT_LOSS < SUMMED && TX_RESULT_GRAD_SUMSQ < SUMMED && TX_RESULT_DROPPED < TX_RESULT_TASK_0 &&
                       TX_RESULT_TASK_0 + 10 == SUMMED,
                   "summed results are contiguous");
    tx_tensor *x = tx_tensor_fixed(graph, TX_F32, TX_SHAPE(SUMMED), TX_ARENA_RESULT, 0);
    tx_tensor *w =
        tx_tensor_fixed(graph, TX_F32, TX_SHAPE(SUMMED + 1), TX_ARENA_EXCHANGE, graph->model->parallel->results);
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_REDUCE_RESULTS, .attrs = TX_PLAIN, .in = {x}, .out = {x, w}});
}

static void add_shards(tx_graph *graph, tx_op op, int32_t bucket)
{
    const tx_bucket *b = &graph->model->parallel->bucket[bucket];
    if (!b->replicate || b->owned == 0)
        return;
    const tx_node node = tx_parallel_shard_node(graph, op, bucket);
    add_collective(graph, op, bucket, node.in[0], node.out[0]);
}

/* In stages 2 and 3 the training plan has waited for the sums of `comm` and started those of `replicate`. */
void tx_parallel_add_waits(tx_graph *graph)
{
    const tx_parallel *p = graph->model->parallel;
    for (int32_t i = 0; i < p->buckets && !tx_parallel_keeps_shards(p); i++) {
        wait_for_gradients(graph, i);
        add_shards(graph, TX_OP_REDUCE_SHARDS, i);
    }
    for (int32_t i = 0; i < p->buckets; i++)
        add_shards(graph, TX_OP_WAIT_SHARDS, i);
}

/* Adds the squares of a parameter's stretches of which this rank is the first replica, within its shard of the bucket.
 */
static void add_param(tx_graph *graph, const tx_bucket *b, const tx_param_record *r)
{
    const int64_t gradients = tx_bucket_gradients(graph->model->parallel, b);
    const int64_t begin = b->address + b->first * b->element, own = begin + b->owned * b->element;
    tx_param_run s;
    for (int32_t run = 0; tx_own_stretch(r, &run, &s);) {
        const int64_t first = r->offset + s.own * b->element, end = first + s.count * b->element;
        const int64_t from = tx_max(first, begin), to = tx_min(end, own);
        if (s.replica == 0 && from < to)
            tx_update_add_squares(graph, gradients + from - begin, (to - from) / b->element);
    }
}

/* Adds the squares of this rank's shard of a bucket. Replicated parameters count only on the first rank of a tensor
 * group, divided ones on every rank, and tied ones only on one stage. */
static void add_bucket(tx_graph *graph, const tx_bucket *b)
{
    const tx_model *model = graph->model;
    const bool counted_elsewhere =
        model->mesh.stages > 1 &&
        tx_model_has_stage(model, model->mesh.stages - 1); /* tied parameters count on the first stage */
    if (model->mesh.tensor.rank == 0 && !counted_elsewhere) {
        tx_update_add_squares(graph, tx_bucket_gradients(model->parallel, b), b->owned);
        return;
    }
    for (int32_t i = 0; i < model->params; i++) {
        const bool counts =
            (model->mesh.tensor.rank == 0 || model->param[i].division.parts > 1) && tx_model_owns(model, i);
        if (counts && model->param[i].arena == TX_ARENA_WEIGHTS)
            add_param(graph, b, &model->param[i]);
    }
}

void tx_parallel_add_squares(tx_graph *graph)
{
    const tx_parallel *p = graph->model->parallel;
    for (int32_t i = 0; i < p->buckets; i++)
        if (!p->bucket[i].replicate || p->bucket[i].replicate->rank == 0) /* the same shard counts once */
            add_bucket(graph, &p->bucket[i]);
    reduce_results(graph);
}

/* Updates the pieces in order. A sharded bucket is gathered after the last of its own pieces was updated. */
void tx_parallel_add_updates(tx_graph *graph)
{
    const tx_optimizer *o = graph->model->optimizer;
    const tx_parallel *p = graph->model->parallel;
    int32_t done = 0;
    for (int32_t i = tx_parallel_sharded(p) ? p->buckets - 1 : -1; i >= 0; i--) {
        for (; done < o->pieces && tx_bucket_holds(&p->bucket[i], o->piece[done].address); done++)
            tx_update_add_piece(graph, &o->piece[done]);
        if (!tx_parallel_gathers(p)) /* otherwise its readers gather it */
            gather_weights(graph, i);
    }
    for (; done < o->pieces; done++)
        tx_update_add_piece(graph, &o->piece[done]);
}
