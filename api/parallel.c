/* SPDX-License-Identifier: Apache-2.0
 * Buckets and shards: where they lie, and the memory that they are exchanged through. */
#include "api/parallel.h"

#include "api/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's DistributedDataParallel has the same: a small first bucket begins to move early. */
#define BUCKET_BYTES (INT64_C(25) << 20)
#define FIRST_BUCKET_BYTES (INT64_C(1) << 20)
#define RESULTS_BYTES 4096
#define NEVER INT32_MAX

static const int64_t element = (int64_t)sizeof(float);

/* ---- Joining ---------------------------------------------------------------------------------------- */

static tx_status check_options(const tx_model *model, const tx_parallel_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "parallel: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (o->zero_stage < 0 || o->zero_stage > 2 || o->bucket_bytes < 0)
        return tx_fail(TX_INVALID,
                       "parallel: zero_stage %" PRId32 " must be 0, 1 or 2, bucket_bytes %" PRId64 " not negative",
                       o->zero_stage, o->bucket_bytes);
    if (model->params > 0 || model->parallel)
        return tx_fail(TX_INVALID, "parallel: the model has parameters already, or was made parallel before");
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
    static const tx_arena_id alike[] = {TX_ARENA_WEIGHTS, TX_ARENA_GRADIENTS, TX_ARENA_OPTIMIZER, TX_ARENA_BUCKETS};
    for (size_t i = 0; i < sizeof alike / sizeof alike[0] && !status; i++)
        model->arena[alike[i]].chunk_bytes = least;
    return status;
}

tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options)
{
    tx_status status = check_options(model, options);
    if (!status)
        status = agree_on_chunks(model, comm);
    if (status)
        return status;
    tx_parallel *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "parallel: out of memory");
    *made = (tx_parallel){.comm = comm, .options = *options, .synchronize = true};
    made->rows.bucket = made->rows.naming = made->rows.summing = -1;
    model->parallel = made;
    return TX_OK;
}

tx_status tx_model_synchronize(tx_model *model, bool on)
{
    if (model->parallel)
        model->parallel->synchronize = on;
    return TX_OK;
}

bool tx_model_spreads(const tx_model *model)
{
    return tx_parallel_sharded(model->parallel);
}

void tx_model_vote(tx_model *model, float mine)
{
    if (model->parallel)
        model->parallel->vote = mine;
}

float tx_model_votes(const tx_model *model)
{
    return model->parallel ? model->parallel->votes : 0.0f;
}

int32_t tx_model_bucket_count(const tx_model *model)
{
    return model->parallel ? model->parallel->buckets : 0;
}

int64_t tx_model_bucket_elements(const tx_model *model, int32_t index)
{
    return index >= 0 && index < tx_model_bucket_count(model) ? model->parallel->bucket[index].count : 0;
}

int64_t tx_model_late_rows(const tx_model *model)
{
    return model->parallel && model->parallel->rows.bucket >= 0 ? model->parallel->rows.most : 0;
}

/* ---- Buckets ---------------------------------------------------------------------------------------- */

/* Bytes of an arena below its chunk `c`. */
static int64_t bytes_below(const tx_arena *arena, int32_t c)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c; i++)
        bytes += arena->used[i];
    return bytes;
}

/* Where an address of an arena lies in a window that holds the arena's chunks one behind the other. */
static int64_t window_of(const tx_arena *arena, int64_t address)
{
    return bytes_below(arena, tx_arena_chunk(arena, address)) + address % arena->chunk_bytes;
}

static int64_t rounded_bytes(const tx_param_record *param)
{
    const int64_t block = TX_PARAM_BLOCK * element;
    return (tx_shape_count(&param->spec.shape) * element + block - 1) / block * block;
}

/* The lowest bucket takes one more parameter, or a new one begins. */
static void add_param(tx_model *model, const tx_param_record *param, bool *full)
{
    tx_parallel *p = model->parallel;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    int64_t bytes = rounded_bytes(param), most = p->options.bucket_bytes ? p->options.bucket_bytes : BUCKET_BYTES;
    tx_bucket *last = p->buckets ? &p->bucket[p->buckets - 1] : NULL;
    if (!last || *full || bytes > most ||
        tx_arena_chunk(weights, last->address) != tx_arena_chunk(weights, param->offset)) {
        last = &p->bucket[p->buckets++];
        *last = (tx_bucket){.reducing = -1, .gathering = -1};
    }
    last->address = param->offset;
    last->position = window_of(weights, param->offset) / element;
    last->count += bytes / element;
    if (p->buckets == 1 && !p->options.bucket_bytes)
        most = FIRST_BUCKET_BYTES;
    *full = last->count * element >= most;
}

static tx_status make_buckets(tx_model *model)
{
    tx_parallel *p = model->parallel;
    p->bucket = calloc((size_t)model->params, sizeof *p->bucket);
    if (!p->bucket)
        return tx_fail(TX_MEMORY, "no memory for the list of buckets");
    bool full = false;
    for (int32_t i = model->params - 1; i >= 0; i--) /* the backward pass comes from the end */
        add_param(model, &model->param[i], &full);
    for (int32_t i = 0; i < p->buckets; i++) {
        tx_bucket *b = &p->bucket[i];
        b->first = tx_comm_shard(b->count, p->comm->size, p->comm->rank);
        b->owned = tx_comm_shard(b->count, p->comm->size, p->comm->rank + 1) - b->first;
    }
    return TX_OK;
}

static tx_bucket *bucket_at(tx_parallel *p, int64_t address)
{
    for (int32_t i = 0; i < p->buckets; i++)
        if (tx_bucket_holds(&p->bucket[i], address))
            return &p->bucket[i];
    return NULL;
}

/* Finds the nodes that write gradients; a bucket that none writes is ready from the start. */
static void find_writers(tx_parallel *p, const tx_graph *graph)
{
    for (int32_t i = 0; i < p->buckets; i++) {
        p->bucket[i].begin = NEVER;
        p->bucket[i].ready = -1;
    }
    for (int32_t n = 0; n < graph->nodes; n++)
        for (int k = 0; k < TX_MAX_OUT; k++) {
            tx_tensor *t = graph->node[n].out[k];
            tx_tensor *root = t ? tx_tensor_root(t) : NULL;
            tx_bucket *b = root && root->arena == TX_ARENA_GRADIENTS ? bucket_at(p, root->offset) : NULL;
            if (!b)
                continue;
            b->begin = n < b->begin ? n : b->begin;
            b->ready = n;
        }
}

static int compare_ready(const void *left, const void *right)
{
    const tx_bucket *a = left, *b = right;
    if (a->ready != b->ready)
        return a->ready < b->ready ? -1 : 1;
    return (a->address < b->address) - (a->address > b->address);
}

/* ---- Places ------------------------------------------------------------------------------------------ */

/* Puts bucket `index` of stage 2 at the lowest address that none alive with it takes; those before it in `placed` have
 * their places, sorted by address. */
static tx_status place(tx_model *model, const int32_t *last, int32_t *placed, int32_t count, int32_t index)
{
    tx_parallel *p = model->parallel;
    tx_arena *arena = &model->arena[TX_ARENA_BUCKETS];
    tx_bucket *b = &p->bucket[index];
    int64_t bytes = b->count * element, address = 0;
    for (int32_t i = 0; i < count; i++) {
        const tx_bucket *o = &p->bucket[placed[i]];
        if (last[placed[i]] < b->begin || o->begin > last[index])
            continue;
        if (address + bytes <= o->gradient)
            break;
        if (o->gradient + o->count * element > address)
            address = tx_arena_fit(arena->chunk_bytes, o->gradient + o->count * element, bytes);
    }
    b->gradient = address;
    int32_t at = count;
    for (; at > 0 && p->bucket[placed[at - 1]].gradient > address; at--)
        placed[at] = placed[at - 1];
    placed[at] = index;
    return tx_arena_use(arena, address, bytes);
}

/* Stage 2: buckets share memory as their lifetimes allow, the shards of the gradients lie one behind the other. */
static tx_status place_stage_2(tx_model *model)
{
    tx_parallel *p = model->parallel;
    int32_t *last = calloc((size_t)p->buckets, 2 * sizeof *last), *placed = last ? last + p->buckets : NULL;
    tx_status status = last ? TX_OK : tx_fail(TX_MEMORY, "no memory to place the buckets");
    for (int32_t i = 0; i < p->buckets && !status; i++)
        last[i] = i + TX_BUCKETS_IN_FLIGHT < p->buckets ? p->bucket[i + TX_BUCKETS_IN_FLIGHT].ready : NEVER;
    for (int32_t i = 0; i < p->buckets && !status; i++)
        status = place(model, last, placed, i, i);
    for (int32_t i = 0; i < p->buckets && !status; i++)
        if (p->bucket[i].owned > 0)
            status = tx_arena_append(&model->arena[TX_ARENA_GRADIENTS], p->bucket[i].owned * element,
                                     TX_PARAM_BLOCK * element, &p->bucket[i].kept);
    for (int32_t i = 0; i < p->buckets && !status; i++)
        p->bucket[i].window = window_of(&model->arena[TX_ARENA_BUCKETS], p->bucket[i].gradient);
    free(last);
    return status;
}

tx_status tx_parallel_buckets(tx_model *model, tx_graph *graph)
{
    tx_parallel *p = model->parallel;
    bool first = p->buckets == 0;
    model->sealed = true;
    tx_status status = first ? make_buckets(model) : TX_OK;
    if (status)
        return status;
    find_writers(p, graph);
    status = tx_rows_find(model, graph, first);
    if (status || !first)
        return status;
    qsort(p->bucket, (size_t)p->buckets, sizeof *p->bucket, compare_ready);
    if (p->rows.bucket >= 0)
        p->rows.bucket = (int32_t)(bucket_at(p, p->rows.address) - p->bucket);
    if (p->options.zero_stage == 2)
        return place_stage_2(model);
    for (int32_t i = 0; i < p->buckets; i++) {
        p->bucket[i].gradient = p->bucket[i].address;
        p->bucket[i].window = p->bucket[i].position * element;
    }
    return TX_OK;
}

tx_status tx_parallel_moments(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_status status = TX_OK;
    for (int32_t k = 0; k < model->moments; k++)
        for (int32_t i = p->buckets - 1; i >= 0 && !status; i--)
            if (p->bucket[i].owned > 0)
                status = tx_arena_append(&model->arena[TX_ARENA_OPTIMIZER], p->bucket[i].owned * element,
                                         TX_PARAM_BLOCK * element, &p->bucket[i].moment[k]);
    return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

/* Counts `bytes` of a window as the backend's memory, and pins them where it pins. */
static tx_status stage(tx_model *model, void *memory, int64_t bytes)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    tx_buffer **grown = realloc(p->staged, (size_t)(p->stages + 1) * sizeof(tx_buffer *));
    if (!grown)
        return tx_fail(TX_MEMORY, "no memory for a list of buffers");
    p->staged = grown;
    tx_status status = e->backend->adopt(e->context, TX_MEMORY_FUNCTIONALITY, memory, bytes, &p->staged[p->stages]);
    p->stages += status == TX_OK;
    return status;
}

/* A window that lies as the chunks of an arena do. */
static tx_status take_window(tx_model *model, tx_arena_id id, int64_t extra, char **window, int64_t *bytes)
{
    const tx_arena *arena = &model->arena[id];
    const tx_comm_table *table = model->parallel->comm->table;
    void *memory = NULL;
    *bytes = bytes_below(arena, arena->chunks);
    tx_status status = table->window(model->parallel->comm, *bytes + extra, &memory);
    *window = memory;
    if (model->engine->backend->host_memory)
        return status;
    for (int32_t c = 0; c < arena->chunks && !status; c++)
        status = stage(model, *window + bytes_below(arena, c), arena->used[c]);
    return status;
}

tx_status tx_parallel_allocate(tx_model *model)
{
    tx_parallel *p = model->parallel;
    if (!p || p->comm->size == 1 || !model->has_gradients)
        return TX_OK;
    if (p->gradients)
        return tx_rows_allocate(model);
    tx_status status = take_window(model, tx_parallel_gradients(p), RESULTS_BYTES, &p->gradients, &p->gradient_bytes);
    if (!status) {
        p->results = (float *)(void *)(p->gradients + p->gradient_bytes);
        status = stage(model, p->results, RESULTS_BYTES);
    }
    if (!status && p->options.zero_stage > 0)
        status = take_window(model, TX_ARENA_WEIGHTS, 0, &p->weights, &p->weight_bytes);
    return status ? status : tx_rows_allocate(model);
}

void *tx_parallel_place(const tx_model *model, tx_arena_id id, int32_t c)
{
    const tx_parallel *p = model->parallel;
    if (!p || !p->gradients || !model->engine->backend->host_memory)
        return NULL;
    if (id == tx_parallel_gradients(p))
        return p->gradients + bytes_below(&model->arena[id], c);
    return id == TX_ARENA_WEIGHTS && p->weights ? p->weights + bytes_below(&model->arena[id], c) : NULL;
}

int64_t tx_parallel_bytes(const tx_model *model)
{
    const tx_parallel *p = model->parallel;
    if (!p || p->comm->size == 1 || !model->has_gradients)
        return 0;
    const int64_t bytes = RESULTS_BYTES + tx_rows_bytes(model);
    if (model->engine->backend->host_memory)
        return bytes;
    return bytes + tx_arena_bytes(&model->arena[tx_parallel_gradients(p)]) +
           (p->options.zero_stage > 0 ? tx_arena_bytes(&model->arena[TX_ARENA_WEIGHTS]) : 0);
}

void tx_parallel_free(tx_model *model)
{
    tx_parallel *p = model->parallel;
    if (!p)
        return;
    for (int32_t i = 0; i < p->stages; i++)
        model->engine->backend->release(model->engine->context, p->staged[i]);
    tx_rows_free(model);
    free(p->staged);
    free(p->bucket);
    free(p);
    model->parallel = NULL;
}

/* ---- Moments in shards ------------------------------------------------------------------------------- */

/* The part of a range of weights that lies in this rank's shard of a bucket. */
typedef struct part {
    int64_t at;      /* elements from the begin of the range */
    int64_t count;   /* may be none */
    int64_t address; /* in OPTIMIZER */
} part;

static part part_of(const tx_bucket *b, int32_t moment, int64_t address, int64_t count)
{
    int64_t begin = (b->address - address) / element + b->first, end = begin + b->owned;
    int64_t at = begin > 0 ? begin : 0, stop = end < count ? end : count;
    return (part){at, stop > at ? stop - at : 0, b->moment[moment] + (at - begin) * element};
}

tx_status tx_parallel_read_moment(tx_model *model, int32_t moment, int64_t address, int64_t count, float *data)
{
    const tx_engine *e = model->engine;
    const tx_parallel *p = model->parallel;
    const tx_arena *arena = &model->arena[TX_ARENA_OPTIMIZER];
    tx_status status = TX_OK;
    memset(data, 0, (size_t)(count * element));
    for (int32_t i = 0; i < p->buckets && !status; i++) {
        part own = part_of(&p->bucket[i], moment, address, count);
        if (own.count > 0)
            status = e->backend->read(e->context, arena->buffer[tx_arena_chunk(arena, own.address)],
                                      own.address % arena->chunk_bytes, data + own.at, own.count * element);
    }
    /* As whole numbers: the others' zeros change no bit. */
    return status ? status : tx_comm_collect(p->comm, TX_ALL_REDUCE, data, count, TX_I32, 0);
}

tx_status tx_parallel_write_moment(tx_model *model, int32_t moment, int64_t address, int64_t count, const float *data)
{
    const tx_engine *e = model->engine;
    const tx_parallel *p = model->parallel;
    const tx_arena *arena = &model->arena[TX_ARENA_OPTIMIZER];
    tx_status status = TX_OK;
    for (int32_t i = 0; i < p->buckets && !status; i++) {
        part own = part_of(&p->bucket[i], moment, address, count);
        if (own.count > 0)
            status = e->backend->write(e->context, TX_QUEUE_COMPUTE, arena->buffer[tx_arena_chunk(arena, own.address)],
                                       own.address % arena->chunk_bytes, data + own.at, own.count * element);
    }
    return status ? status : e->backend->finish(e->context);
}
