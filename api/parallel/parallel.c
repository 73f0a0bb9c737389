/* SPDX-License-Identifier: Apache-2.0
 * Buckets and shards: where they lie, and the memory that they are exchanged through. */
#include "api/parallel/buckets.h"

#include "api/base/needs.h"
#include "api/graph/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's DistributedDataParallel has the same: a small first bucket begins to move early. */
#define BUCKET_BYTES (INT64_C(25) << 20)
#define FIRST_BUCKET_BYTES (INT64_C(1) << 20)
#define RESULTS_BYTES 4096

/* ---- Joining ---------------------------------------------------------------------------------------- */

/* The blocks of each stage, where they are said. */
static tx_status check_stages(const tx_parallel_options *o, int32_t stages)
{
    int64_t sum = 0;
    if (!o->stage_blocks)
        return tx_fail(TX_INVALID, "parallel: a pipeline needs the blocks of each stage");
    for (int32_t s = 0; s < stages; s++) {
        if (o->stage_blocks[s] < 1)
            return tx_fail(TX_INVALID, "parallel: stage %" PRId32 " has %" PRId32 " blocks: it takes 1 or more", s + 1,
                           o->stage_blocks[s]);
        sum += o->stage_blocks[s];
    }
    return sum == o->blocks ? TX_OK
                            : tx_fail(TX_INVALID, "parallel: the stages have %" PRId64 " blocks, the model %" PRId32,
                                      sum, o->blocks);
}

static tx_status check_options(const tx_model *model, const tx_parallel_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "parallel: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (o->zero_stage < 0 || o->zero_stage > 3 || o->bucket_bytes < 0)
        return tx_fail(TX_INVALID,
                       "parallel: zero_stage %" PRId32 " must be 0, 1, 2 or 3, bucket_bytes %" PRId64 " not negative",
                       o->zero_stage, o->bucket_bytes);
    const tx_comm *pipeline = o->pipeline && o->pipeline->size > 1 ? o->pipeline : NULL;
    if (pipeline && o->zero_stage > 1)
        return tx_fail(TX_UNSUPPORTED, "parallel: with a pipeline zero_stage is 0 or 1, not %" PRId32, o->zero_stage);
    const int32_t chunks = o->chunks > 1 ? o->chunks : 1;
    if (pipeline && (o->schedule == TX_PIPELINE_INTERLEAVED) != (chunks > 1))
        return tx_fail(TX_INVALID,
                       "parallel: ranks of an interleaved pipeline, and of no other, have 2 chunks or more");
    if (pipeline && chunks > 1 && o->micro_batches % pipeline->size != 0)
        return tx_fail(TX_INVALID,
                       "parallel: an interleaved pipeline of %" PRId32 " ranks takes a multiple of so many "
                       "micro-batches, not %" PRId32,
                       pipeline->size, o->micro_batches);
    if (pipeline && (o->blocks < pipeline->size * chunks || o->micro_batches < 1 || !o->ends))
        return tx_fail(TX_INVALID,
                       "parallel: a pipeline of %" PRId32 " stages has as many blocks, not %" PRId32
                       ", at least one micro-batch, and a group of its ends",
                       pipeline->size * chunks, o->blocks);
    if (pipeline)
        TX_TRY(check_stages(o, pipeline->size * chunks));
    const bool divides = o->expert && o->expert->size > 1;
    if (divides && !o->replicas)
        return tx_fail(TX_INVALID, "parallel: an expert group goes with ranks that have the same experts");
    if (divides && o->whole)
        return tx_fail(TX_UNSUPPORTED,
                       "parallel: an expert group has no whole parameters for this optimizer: take AdamW, "
                       "SGD or Lion");
    const bool context = o->context && o->context->size > 1;
    if (context && o->sequence)
        return tx_fail(
            TX_UNSUPPORTED,
            "parallel: a tensor group does not divide the positions (sequence) of chunks of a context group");
    if (model->params > 0 || model->parallel || model->following)
        return tx_fail(TX_INVALID,
                       "parallel: the model has parameters already, or was made parallel or divided before");
    return TX_OK;
}

/* The ranks' arenas are to be alike, so their chunks are as large as the device that gives least allows. */
static tx_status agree_on_chunks(tx_model *model, tx_comm *comm)
{
    int64_t *bytes = calloc((size_t)comm->size, sizeof *bytes);
    if (!bytes)
        return tx_fail(TX_MEMORY, "parallel: out of memory");
    bytes[comm->rank] = model->arena[TX_ARENA_WEIGHTS].chunk_bytes;
    tx_status status = tx_comm_share(comm, bytes, sizeof *bytes);
    int64_t least = bytes[0];
    for (int32_t r = 1; r < comm->size; r++)
        least = bytes[r] < least ? bytes[r] : least;
    free(bytes);
    static const tx_arena_id alike[] = {TX_ARENA_FROZEN,           TX_ARENA_FROZEN_SHARDS,  TX_ARENA_WEIGHTS,
                                        TX_ARENA_SHARDS,           TX_ARENA_HALF,           TX_ARENA_GRADIENTS,
                                        TX_ARENA_OPTIMIZER,        TX_ARENA_WEIGHTS_WINDOW, TX_ARENA_EXCHANGE,
                                        TX_ARENA_GRADIENTS_WINDOW, TX_ARENA_PARTS};
    for (size_t i = 0; i < sizeof alike / sizeof alike[0] && !status; i++)
        model->arena[alike[i]].chunk_bytes = least;
    return status;
}

/* The mesh that the options describe. */
static tx_status set_mesh(tx_model *model, tx_comm *comm, const tx_parallel_options *options)
{
    const tx_mesh_axis pipeline = tx_mesh_along(options->pipeline);
    tx_mesh *mesh = &model->mesh;
    if (pipeline.size > 1)
        TX_TRY(tx_model_set_stage(model, pipeline, pipeline.size * (options->chunks > 1 ? options->chunks : 1),
                                  options->stage_blocks));
    mesh->data = (tx_mesh_axis){comm->rank, comm->size, comm};
    mesh->tensor = tx_mesh_along(options->tensor);
    mesh->context = tx_mesh_along(options->context);
    mesh->expert = tx_mesh_along(options->expert);
    mesh->replicas = mesh->expert.comm ? options->replicas : NULL;
    mesh->ends = mesh->pipeline.comm ? options->ends : NULL;
    mesh->sequence = mesh->tensor.comm && options->sequence;
    return TX_OK;
}

/* Arenas through which the ranks exchange data are windows; arenas of which each rank has shards are addresses only. */
static void set_spaces(tx_model *model)
{
    const tx_parallel *p = model->parallel;
    const bool in_place = model->engine->backend->host_memory;
    if (model->mesh.tensor.comm)
        model->arena[TX_ARENA_PARTS].space = TX_SPACE_WINDOW;
    if (!tx_mesh_is_one_rank(&model->mesh))
        model->arena[TX_ARENA_EXCHANGE].space = TX_SPACE_WINDOW;
    if (model->mesh.data.size == 1)
        return;
    model->arena[TX_ARENA_WEIGHTS].addresses = model->arena[TX_ARENA_FROZEN].addresses = tx_parallel_gathers(p);
    if (!tx_parallel_keeps_shards(p))
        model->arena[in_place ? TX_ARENA_GRADIENTS : TX_ARENA_GRADIENTS_WINDOW].space = TX_SPACE_WINDOW;
    if (tx_parallel_sharded(p) && !tx_parallel_gathers(p))
        model->arena[in_place ? TX_ARENA_WEIGHTS : TX_ARENA_WEIGHTS_WINDOW].space = TX_SPACE_WINDOW;
}

tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options)
{
    TX_NEEDS(model && comm && options, TX_INVALID);
    TX_TRY(check_options(model, options));
    TX_TRY(agree_on_chunks(model, comm));
    if (tx_mesh_along(options->tensor).comm)
        TX_TRY(agree_on_chunks(model, options->tensor));
    const int32_t experts = tx_mesh_along(options->expert).size;
    tx_parallel *made = calloc(1, sizeof *made);
    int64_t *block = calloc(2 * (size_t)experts, sizeof *block);
    tx_status status = made && block ? TX_OK : tx_fail(TX_MEMORY, "parallel: out of memory");
    TX_THEN(status, set_mesh(model, comm, options));
    if (status) {
        free(made);
        free(block);
        return status;
    }
    *made = (tx_parallel){.options = *options, .synchronize = true, .block = block};
    made->options.stage_blocks = NULL; /* the caller's, and read now */
    if (comm->size == 1)
        made->options.zero_stage = 0; /* its shards are all there is */
    model->parallel = made;
    set_spaces(model);
    return TX_OK;
}

tx_status tx_model_synchronize(tx_model *model, bool on)
{
    TX_NEEDS(model, TX_INVALID);
    if (model->parallel)
        model->parallel->synchronize = on;
    return TX_OK;
}

bool tx_model_gathers(const tx_model *model)
{
    TX_NEEDS(model, false);
    return tx_parallel_gathers(model->parallel) || model->mesh.tensor.size > 1 || model->mesh.expert.size > 1 ||
           tx_model_has_pipeline(model);
}

uint64_t tx_model_written(const tx_model *model)
{
    TX_NEEDS(model, 0);
    return model->parallel ? model->parallel->written : 0;
}

void tx_model_vote(tx_model *model, float mine)
{
    TX_NEEDS(model, );
    if (model->parallel)
        model->parallel->vote = mine;
}

float tx_model_votes(const tx_model *model)
{
    TX_NEEDS(model, 0);
    return model->parallel ? model->parallel->votes : 0.0f;
}

int32_t tx_model_bucket_count(const tx_model *model)
{
    TX_NEEDS(model, 0);
    return model->parallel ? model->parallel->buckets : 0;
}

int64_t tx_model_bucket_elements(const tx_model *model, int32_t index)
{
    TX_NEEDS(model, 0);
    return index >= 0 && index < tx_model_bucket_count(model) ? model->parallel->bucket[index].count : 0;
}

/* ---- Buckets ---------------------------------------------------------------------------------------- */

/* The lowest of `buckets` buckets of an arena takes one more parameter, or a new one begins. */
static void add_param(const tx_model *model, const tx_param_record *param, tx_bucket *bucket, int32_t *buckets,
                      bool *full)
{
    tx_parallel *p = model->parallel;
    const tx_arena *arena = &model->arena[param->arena];
    const bool frozen = param->arena == TX_ARENA_FROZEN;
    const tx_dtype dtype = frozen ? TX_I32 : model->stored;
    tx_comm *comm = tx_parallel_summers(model, &param->spec);
    const tx_bucket empty = {
        .comm = comm, .arena = param->arena, .dtype = dtype, .element = (int64_t)tx_dtype_size(dtype)};
    const int64_t count =
        tx_bucket_elements(&empty, tx_dtype_bytes(param->spec.dtype, tx_shape_count(&param->spec.shape)));
    int64_t most = p->options.bucket_bytes ? p->options.bucket_bytes : BUCKET_BYTES;
    tx_bucket *last = *buckets ? &bucket[*buckets - 1] : NULL;
    if (!last || *full || count * empty.element > most || last->comm != comm ||
        tx_arena_chunk(arena, last->address) != tx_arena_chunk(arena, param->offset)) {
        last = &bucket[(*buckets)++];
        *last = empty;
    }
    last->address = param->offset;
    last->count += count;
    if (*buckets == 1 && !frozen && !p->options.bucket_bytes)
        most = FIRST_BUCKET_BYTES;
    *full = last->count * last->element >= most;
}

/* Makes the buckets of an arena; tells how many they are. */
static int32_t add_params(const tx_model *model, tx_arena_id arena, tx_bucket *bucket)
{
    int32_t buckets = 0;
    bool full = false;
    for (int32_t i = model->params - 1; i >= 0; i--) /* the backward pass comes from the end */
        if (model->param[i].arena == arena && !model->param[i].absent)
            add_param(model, &model->param[i], bucket, &buckets, &full);
    return buckets;
}

/* Each rank has a shard of each bucket; or, of whole ones, which are to be updated, those that come when it has least.
 */
static tx_status share_buckets(const tx_mesh_axis *data, tx_parallel *p)
{
    int64_t *load = calloc((size_t)data->size, sizeof *load);
    if (!load)
        return tx_fail(TX_MEMORY, "no memory for the ranks' shares");
    for (int32_t i = 0; i < p->buckets + p->frozen; i++) {
        tx_bucket *b = &p->bucket[i];
        b->owner = -1;
        b->first = tx_comm_shard(b->count, b->comm->size, b->comm->rank);
        b->owned = tx_comm_shard(b->count, b->comm->size, b->comm->rank + 1) - b->first;
        if (!p->options.whole || b->arena == TX_ARENA_FROZEN)
            continue;
        b->owner = 0;
        for (int32_t r = 1; r < data->size; r++)
            b->owner = load[r] < load[b->owner] ? r : b->owner;
        load[b->owner] += b->count;
        b->first = 0;
        b->owned = b->owner == data->rank ? b->count : 0;
    }
    free(load);
    return TX_OK;
}

tx_status tx_parallel_make_buckets(tx_model *model)
{
    tx_parallel *p = model->parallel;
    model->sealed = true;
    p->bucket = calloc((size_t)model->params + 1, sizeof *p->bucket);
    p->moving = calloc(3 * (size_t)model->params + 1, sizeof *p->moving);
    if (!p->bucket || !p->moving)
        return tx_fail(TX_MEMORY, "no memory for the list of buckets");
    p->buckets = add_params(model, TX_ARENA_WEIGHTS, p->bucket);
    p->frozen = tx_parallel_gathers(p) ? add_params(model, TX_ARENA_FROZEN, p->bucket + p->buckets) : 0;
    return share_buckets(&model->mesh.data, p);
}

/* Shrinks holdings of the bucket's parameters to this rank's shard, of the parts that the ranks have shards of. */
static void shrink_holdings(tx_model *model, const tx_bucket *b)
{
    const tx_parallel *p = model->parallel;
    const int64_t shard = b->address + b->first * b->element, last = shard + b->owned * b->element;
    for (int32_t i = 0; i < model->holdings; i++) {
        tx_holding *h = &model->holding[i];
        const tx_param_record *r = &model->param[h->param];
        const bool weights = h->part == TX_PART_WEIGHT;
        if (r->arena != b->arena || !tx_bucket_holds(b, r->offset) || (weights && !tx_parallel_gathers(p)))
            continue;
        const int64_t begin = r->offset > shard ? r->offset : shard, stop = r->offset + h->bytes,
                      end = stop < last ? stop : last;
        h->at = begin - r->offset;
        h->bytes = begin < end ? end - begin : 0;
        h->arena = weights ? tx_bucket_keeper(p, b) : TX_ARENA_GRADIENTS;
        h->address = tx_parallel_keeps_shards(p) ? b->kept + begin - shard : begin;
    }
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
        if (tx_parallel_sharded(p))
            shrink_holdings(model, b);
    }
    p->exchanged = tx_arena_end(exchange);
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
        before += (range[i].end < element ? range[i].end : element) - range[i].begin;
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
        return tx_fail(TX_MEMORY, "no memory for the list of what is gathered");
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

void tx_parallel_free(tx_model *model)
{
    tx_parallel *p = model->parallel;
    if (!p)
        return;
    for (int32_t i = 0; i < p->movings; i++)
        model->engine->backend->forget(model->engine->context, p->moving[i].arrived);
    for (int32_t i = 0; i < p->packings; i++)
        free(p->packing[i].shard);
    free(p->packing);
    free(p->bucket);
    free(p->moving);
    free(p->block);
    free(p);
    model->parallel = NULL;
}
