/* SPDX-License-Identifier: Apache-2.0
 * Creates and places buckets and shards, and the windows through which they are exchanged. */
#include "api/parallel/buckets.h"

#include <stdlib.h>
#include <string.h>

/* As in PyTorch's DistributedDataParallel: transfers of a small first bucket start early. */
#define FIRST_BUCKET_BYTES (INT64_C(1) << 20)
#define RESULTS_BYTES 4096

/* ---- Buckets ---------------------------------------------------------------------------------------- */

/* Adds a parameter to the last bucket of an arena, or to a new one. */
static void add_param(const tx_model *model, const tx_param_record *param, tx_bucket *bucket, int32_t *buckets,
                      bool *full)
{
    tx_parallel *p = model->parallel;
    const tx_arena *arena = &model->arena[param->arena];
    const bool frozen = param->arena == TX_ARENA_FROZEN;
    const tx_dtype dtype = frozen ? TX_I32 : model->stored;
    tx_comm *comm = tx_parallel_summers(model, &param->spec);
    const tx_bucket empty = {.comm = comm,
                             .replicate = frozen ? NULL : model->mesh.replicate,
                             .arena = param->arena,
                             .dtype = dtype,
                             .element = (int64_t)tx_dtype_size(dtype)};
    const int64_t count =
        tx_bucket_elements(&empty, tx_dtype_bytes(param->spec.dtype, tx_shape_count(&param->spec.shape)));
    int64_t limit = p->options.bucket_bytes ? p->options.bucket_bytes : TX_BUCKET_BYTES;
    tx_bucket *last = *buckets ? &bucket[*buckets - 1] : NULL;
    if (!last || *full || count * empty.element > limit || last->comm != comm ||
        tx_arena_chunk(arena, last->address) != tx_arena_chunk(arena, param->offset)) {
        last = &bucket[(*buckets)++];
        *last = empty;
    }
    last->address = param->offset;
    last->count += count;
    if (*buckets == 1 && !frozen && !p->options.bucket_bytes)
        limit = FIRST_BUCKET_BYTES;
    *full = last->count * last->element >= limit;
}

/* Creates the buckets of an arena and returns their number. */
static int32_t add_params(const tx_model *model, tx_arena_id arena, tx_bucket *bucket)
{
    int32_t buckets = 0;
    bool full = false;
    for (int32_t i = model->params - 1; i >= 0; i--) /* in the order of the backward pass */
        if (model->param[i].arena == arena && !model->param[i].absent)
            add_param(model, &model->param[i], bucket, &buckets, &full);
    return buckets;
}

/* Assigns each rank a shard of each bucket. If updates need whole buckets, each goes to the rank with the least so far.
 */
static tx_status assign_buckets(const tx_mesh_axis *shards, tx_parallel *p)
{
    int64_t *load = calloc((size_t)shards->size, sizeof *load);
    if (!load)
        return tx_fail(TX_MEMORY, "no memory for the ranks' shards");
    for (int32_t i = 0; i < p->buckets + p->frozen; i++) {
        tx_bucket *b = &p->bucket[i];
        b->owner = -1;
        b->first = tx_comm_shard(b->count, b->comm->size, b->comm->rank);
        b->owned = tx_comm_shard(b->count, b->comm->size, b->comm->rank + 1) - b->first;
        if (!p->options.whole || b->arena == TX_ARENA_FROZEN)
            continue;
        b->owner = 0;
        for (int32_t r = 1; r < shards->size; r++)
            b->owner = load[r] < load[b->owner] ? r : b->owner;
        load[b->owner] += b->count;
        b->first = 0;
        b->owned = b->owner == shards->rank ? b->count : 0;
    }
    free(load);
    return TX_OK;
}

tx_status tx_parallel_make_buckets(tx_model *model)
{
    tx_parallel *p = model->parallel;
    model->sealed = true;
    p->bucket = calloc((size_t)model->params + 1, sizeof *p->bucket);
    p->moving = calloc(4 * (size_t)model->params + 1, sizeof *p->moving);
    if (!p->bucket || !p->moving)
        return tx_fail(TX_MEMORY, "no memory for the list of buckets");
    p->buckets = add_params(model, TX_ARENA_WEIGHTS, p->bucket);
    p->frozen = tx_parallel_gathers(p) ? add_params(model, TX_ARENA_FROZEN, p->bucket + p->buckets) : 0;
    return assign_buckets(&model->mesh.shards, p);
}

/* Shrinks the holdings of the bucket's parameters to this rank's shard, for parts that ranks divide. */
static void shrink_holdings(tx_model *model, const tx_bucket *b)
{
    const tx_parallel *p = model->parallel;
    const int64_t shard = b->address + b->first * b->element, last = shard + b->owned * b->element;
    for (int32_t i = 0; i < model->holdings; i++) {
        tx_param_slice *h = &model->holding[i];
        const tx_param_record *r = &model->param[h->param];
        const bool weights = h->part == TX_PARAM_WEIGHT;
        if (r->arena != b->arena || !tx_bucket_holds(b, r->offset) || (weights && !tx_parallel_gathers(p)))
            continue;
        const int64_t begin = tx_max(r->offset, shard), stop = r->offset + h->bytes, end = tx_min(stop, last);
        h->at = begin - r->offset;
        h->bytes = begin < end ? end - begin : 0;
        h->arena = weights ? tx_bucket_keeper(p, b) : TX_ARENA_GRADIENTS;
        h->address = tx_parallel_keeps_shards(p) ? b->kept + begin - shard : begin;
    }
}

/* Sorts the holdings in the order of updates. A sharded update starts with the lowest layers, which the next forward
 * pass needs first. */
static tx_status order_holdings(tx_model *model)
{
    const tx_parallel *p = model->parallel;
    tx_param_slice *ordered = calloc((size_t)model->holdings + 1, sizeof *ordered);
    int32_t count = 0;
    if (!ordered)
        return tx_fail(TX_MEMORY, "no memory for the table of ownership");
    for (int32_t b = p->buckets - 1; b >= -1; b--) /* -1 stands for frozen parameters */
        for (int32_t i = 0; i < model->holdings; i++) {
            const tx_param_record *r = &model->param[model->holding[i].param];
            if ((r->spec.frozen ? -1 : tx_parallel_bucket_at(p, TX_ARENA_WEIGHTS, r->offset)) == b)
                ordered[count++] = model->holding[i];
        }
    memcpy(model->holding, ordered, (size_t)count * sizeof *ordered);
    free(ordered);
    return TX_OK;
}

/* Copies of weights that ranks gather after an update are cast bucket by bucket. */
static tx_status make_copy_ranges(tx_model *model)
{
    const tx_parallel *p = model->parallel;
    tx_copy_range *range = calloc((size_t)p->buckets + 1, sizeof *range);
    if (!range)
        return tx_fail(TX_MEMORY, "no memory for a list of buckets");
    for (int32_t i = 0; i < p->buckets; i++)
        range[i] = (tx_copy_range){.address = p->bucket[i].address, .count = p->bucket[i].count};
    model->copies.range = range;
    model->copies.ranges = p->buckets;
    return TX_OK;
}

/* Allocates the buffer in which a device with its own memory sums its shard over `replicate`. In stage 1 that is the
 * window. All ranks allocate the size of the largest shard, so that their arenas have the same layout. */
static tx_status place_sent(tx_model *model, tx_bucket *b)
{
    const tx_parallel *p = model->parallel;
    int64_t most = b->owner < 0 ? 0 : b->count;
    if (!b->replicate || !tx_parallel_keeps_shards(p) || model->engine->backend->host_memory)
        return TX_OK;
    for (int32_t r = 0; r < b->comm->size && b->owner < 0; r++)
        most = tx_max(most, tx_comm_shard(b->count, b->comm->size, r + 1) - tx_comm_shard(b->count, b->comm->size, r));
    return tx_arena_append(&model->arena[TX_ARENA_EXCHANGE], most * b->element, TX_ALIGNMENT, &b->sent);
}

tx_status tx_parallel_place_buckets(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_arena *exchange = &model->arena[TX_ARENA_EXCHANGE];
    tx_status status = TX_OK;
    if (!tx_mesh_is_one_rank(&model->mesh))
        status = tx_arena_append(exchange, RESULTS_BYTES, TX_ALIGNMENT, &p->results);
    for (int32_t i = 0; i < p->buckets + p->frozen && !status; i++) {
        tx_bucket *b = &p->bucket[i];
        if (tx_parallel_keeps_shards(p) && b->owned > 0)
            status = tx_arena_append(&model->arena[tx_bucket_keeper(p, b)], b->owned * b->element,
                                     TX_PARAM_BLOCK * b->element, &b->kept);
        TX_THEN(status, place_sent(model, b));
        if (tx_parallel_sharded(p))
            shrink_holdings(model, b);
    }
    model->exchange.exchanged = tx_arena_end(exchange);
    if (tx_parallel_sharded(p))
        TX_THEN(status, order_holdings(model));
    if (tx_parallel_sharded(p) && !tx_parallel_gathers(p))
        TX_THEN(status, make_copy_ranges(model));
    return status;
}

tx_status tx_parallel_need_buckets(tx_model *model)
{
    if (model->parallel->bucket)
        return TX_OK;
    TX_TRY(tx_parallel_make_buckets(model));
    return tx_parallel_place_buckets(model);
}

int32_t tx_parallel_bucket_at(const tx_parallel *parallel, tx_arena_id arena, int64_t address)
{
    for (int32_t i = 0; i < parallel->buckets + parallel->frozen; i++)
        if (parallel->bucket[i].arena == arena && tx_bucket_holds(&parallel->bucket[i], address))
            return i;
    return -1;
}

/* ---- Packings --------------------------------------------------------------------------------------- */

int64_t tx_parallel_packed(const tx_bucket_range *range, int32_t ranges, int64_t element)
{
    int64_t before = 0;
    for (int32_t i = 0; i < ranges && range[i].begin < element; i++)
        before += tx_min(range[i].end, element) - range[i].begin;
    return before;
}

tx_status tx_parallel_pack(tx_model *model, int32_t bucket, const tx_bucket_range *range, int32_t ranges,
                           int32_t *number)
{
    tx_parallel *p = model->parallel;
    const tx_bucket *b = &p->bucket[bucket];
    tx_packing *more = realloc(p->packing, (size_t)(p->packings + 1) * sizeof *more);
    int64_t *shard = more ? calloc((size_t)b->comm->size + 1, sizeof *shard) : NULL;
    p->packing = more ? more : p->packing;
    if (!shard)
        return tx_fail(TX_MEMORY, "no memory for the list of packings");
    for (int32_t r = 0; r <= b->comm->size; r++)
        shard[r] = tx_parallel_packed(range, ranges, tx_comm_shard(b->count, b->comm->size, r));
    const int64_t first = tx_parallel_packed(range, ranges, b->first);
    more[p->packings++] = (tx_packing){.count = tx_parallel_packed(range, ranges, b->count),
                                       .first = first,
                                       .owned = tx_parallel_packed(range, ranges, b->first + b->owned) - first,
                                       .shard = shard};
    *number = p->packings;
    return TX_OK;
}

/* ---- Tensors ---------------------------------------------------------------------------------------- */

tx_tensor *tx_parallel_tensor(tx_graph *graph, tx_arena_id arena, int32_t bucket)
{
    const tx_bucket *b = &graph->model->parallel->bucket[bucket];
    return tx_tensor_fixed(graph, graph->model->stored, TX_SHAPE(b->count), arena, b->address);
}

tx_tensor *tx_parallel_exchanged(tx_graph *graph, tx_arena_id arena, int32_t bucket)
{
    const tx_arena_id window = arena == TX_ARENA_WEIGHTS ? TX_ARENA_WEIGHTS_WINDOW : TX_ARENA_GRADIENTS_WINDOW;
    const bool copied = graph->model->arena[window].space == TX_SPACE_WINDOW;
    return tx_parallel_tensor(graph, copied ? window : arena, bucket);
}

tx_node tx_parallel_shard_node(tx_graph *graph, tx_op op, int32_t bucket)
{
    const tx_model *model = graph->model;
    const tx_parallel *p = model->parallel;
    const tx_bucket *b = &p->bucket[bucket];
    const int64_t gradients = tx_bucket_gradients(p, b);
    const tx_shape shape = TX_SHAPE(b->owned);
    tx_node node = {.op = op, .direction = TX_BACKWARD, .attrs = TX_ATTRS(.exchange.bucket = bucket)};
    tx_tensor *x = tx_tensor_fixed(graph, model->stored, shape, TX_ARENA_GRADIENTS, gradients), *w = x;
    if (!model->engine->backend->host_memory)
        w = tx_parallel_keeps_shards(p)
                ? tx_tensor_fixed(graph, model->stored, shape, TX_ARENA_EXCHANGE, b->sent)
                : tx_tensor_fixed(graph, model->stored, shape, TX_ARENA_GRADIENTS_WINDOW, gradients);
    node.in[0] = op == TX_OP_REDUCE_SHARDS ? x : w;
    node.out[0] = op == TX_OP_REDUCE_SHARDS ? w : x;
    return node;
}
