/* SPDX-License-Identifier: Apache-2.0
 * Makes a model parallel: creates the mesh, sets the spaces of arenas, and defines the hooks for the core. */
#include "api/parallel/buckets.h"

#include "api/base/needs.h"
#include "api/graph/graph.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- Options ---------------------------------------------------------------------------------------- */

/* Checks the blocks of each stage. */
static tx_status check_stages(const tx_parallel_options *o, int32_t stages)
{
    int64_t sum = 0;
    if (!o->stage_blocks)
        return tx_fail(TX_INVALID, "parallel: a pipeline needs the blocks of each stage (stage_blocks)");
    for (int32_t s = 0; s < stages; s++) {
        if (o->stage_blocks[s] < 1)
            return tx_fail(TX_INVALID, "parallel: stage %" PRId32 " has %" PRId32 " blocks: it needs 1 or more", s + 1,
                           o->stage_blocks[s]);
        sum += o->stage_blocks[s];
    }
    return sum == o->blocks ? TX_OK
                            : tx_fail(TX_INVALID, "parallel: the stages have %" PRId64 " blocks, the model %" PRId32,
                                      sum, o->blocks);
}

/* Checks the groups of hybrid sharding. */
static tx_status check_shards(const tx_parallel_options *o, int32_t ranks)
{
    if (!o->shards && !o->replicate)
        return TX_OK;
    if (!o->shards || !o->replicate || (int64_t)o->shards->size * o->replicate->size != ranks || o->zero_stage == 0)
        return tx_fail(
            TX_INVALID,
            "parallel: hybrid sharding needs `shards` and `replicate`, with together as many ranks as `comm`, "
            "and zero_stage 1, 2 or 3");
    return TX_OK;
}

static tx_status check_options(const tx_model *model, const tx_parallel_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "parallel: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (o->zero_stage < 0 || o->zero_stage > 3 || o->bucket_bytes < 0)
        return tx_fail(TX_INVALID,
                       "parallel: zero_stage %" PRId32 " must be 0, 1, 2 or 3, bucket_bytes %" PRId64 " not negative",
                       o->zero_stage, o->bucket_bytes);
    if (o->wire != TX_F32 && o->wire != TX_BF16 && o->wire != TX_U8)
        return tx_fail(TX_INVALID, "parallel: wire is %s, not F32, BF16 or U8", tx_dtype_name(o->wire));
    const tx_comm *pipeline = o->pipeline && o->pipeline->size > 1 ? o->pipeline : NULL;
    if (pipeline && o->zero_stage > 1)
        return tx_fail(TX_UNSUPPORTED, "parallel: with a pipeline zero_stage must be 0 or 1, not %" PRId32,
                       o->zero_stage);
    const int32_t chunks = o->chunks > 1 ? o->chunks : 1;
    if (pipeline && (o->schedule == TX_PIPELINE_INTERLEAVED) != (chunks > 1))
        return tx_fail(TX_INVALID, "parallel: an interleaved pipeline needs 2 chunks or more a rank, any other 0 or 1");
    if (pipeline && chunks > 1 && o->micro_batches % pipeline->size != 0)
        return tx_fail(TX_INVALID,
                       "parallel: an interleaved pipeline of %" PRId32 " ranks needs a multiple of as many "
                       "micro-batches, not %" PRId32,
                       pipeline->size, o->micro_batches);
    if (pipeline && (o->blocks < pipeline->size * chunks || o->micro_batches < 1 || !o->ends))
        return tx_fail(TX_INVALID,
                       "parallel: a pipeline of %" PRId32 " stages needs at least as many blocks, not %" PRId32
                       ", at least one micro-batch, and a group of its ends",
                       pipeline->size * chunks, o->blocks);
    if (pipeline)
        TX_TRY(check_stages(o, pipeline->size * chunks));
    const bool divides = o->expert && o->expert->size > 1;
    if (divides && !o->replicas)
        return tx_fail(TX_INVALID, "parallel: an expert group needs `replicas`, the ranks with the same experts");
    if (divides && o->whole)
        return tx_fail(TX_UNSUPPORTED, "parallel: an expert group cannot be combined with `whole` updates: take AdamW, "
                                       "SGD or Lion");
    if (divides && o->shards)
        return tx_fail(TX_UNSUPPORTED, "parallel: hybrid sharding cannot be combined with an expert group");
    const bool context = o->context && o->context->size > 1;
    if (context && o->sequence)
        return tx_fail(TX_UNSUPPORTED, "parallel: sequence parallelism cannot be combined with context parallelism");
    if (model->params > 0 || model->parallel || model->following)
        return tx_fail(TX_INVALID, "parallel: the model has parameters, or is parallel or divided already");
    return TX_OK;
}

/* All ranks need arenas with the same layout. The chunks therefore have the size of the device with the least. */
static tx_status agree_on_chunks(tx_model *model, tx_comm *comm)
{
    int64_t *bytes = calloc((size_t)comm->size, sizeof *bytes);
    if (!bytes)
        return tx_fail(TX_MEMORY, "parallel: out of memory");
    bytes[comm->rank] = model->arena[TX_ARENA_WEIGHTS].chunk_bytes;
    tx_status status = tx_comm_share(comm, bytes, sizeof *bytes);
    int64_t smallest = bytes[0];
    for (int32_t r = 1; r < comm->size; r++)
        smallest = tx_min(bytes[r], smallest);
    free(bytes);
    for (tx_arena_id i = 0; i < TX_ARENA_COUNT && !status; i++)
        if (tx_arena_info_of(i)->alike)
            model->arena[i].chunk_bytes = smallest;
    return status;
}

/* Creates the mesh from the options. */
static tx_status set_mesh(tx_model *model, tx_comm *comm, const tx_parallel_options *options)
{
    const tx_mesh_axis pipeline = tx_mesh_along(options->pipeline);
    tx_mesh *mesh = &model->mesh;
    if (pipeline.size > 1)
        TX_TRY(tx_model_set_stage(model, pipeline, pipeline.size * (options->chunks > 1 ? options->chunks : 1),
                                  options->stage_blocks));
    mesh->data = mesh->shards = (tx_mesh_axis){comm->rank, comm->size, comm};
    if (options->replicate && options->replicate->size > 1) {
        mesh->shards = (tx_mesh_axis){options->shards->rank, options->shards->size, options->shards};
        mesh->replicate = options->replicate;
    }
    mesh->tensor = tx_mesh_along(options->tensor);
    mesh->context = tx_mesh_along(options->context);
    mesh->expert = tx_mesh_along(options->expert);
    mesh->replicas = mesh->expert.comm ? options->replicas : NULL;
    mesh->ends = mesh->pipeline.comm ? options->ends : NULL;
    mesh->peers = options->peers && options->peers->size > 1 ? options->peers : NULL;
    mesh->sequence = mesh->tensor.comm && options->sequence;
    return TX_OK;
}

/* Arenas through which the ranks exchange data are windows. Arenas of which each rank has shards are addresses only. */
static void set_spaces(tx_model *model)
{
    const tx_parallel *p = model->parallel;
    const bool in_place = model->engine->backend->host_memory;
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        model->arena[i].comm = i == TX_ARENA_TP ? model->mesh.tensor.comm : model->mesh.shards.comm;
    model->exchange.weights = tx_parallel_gathers(p) ? TX_ARENA_SHARDS : TX_ARENA_WEIGHTS;
    model->exchange.gradients_as =
        tx_parallel_keeps_shards(p) && !tx_parallel_gathers(p) ? TX_ARENA_GRADIENTS : model->exchange.weights;
    if (model->mesh.tensor.comm)
        model->arena[TX_ARENA_TP].space = TX_SPACE_WINDOW;
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

static tx_status prepare(tx_model *model)
{
    return tx_parallel_gathers(model->parallel) ? tx_parallel_need_buckets(model) : TX_OK;
}

const tx_parallel_hooks tx_parallel_table = {.free = tx_parallel_free,
                                             .divide = tx_parallel_divide,
                                             .prepare = prepare,
                                             .flush = tx_parallel_flush,
                                             .settle = tx_parallel_wait,
                                             .places = tx_parallel_places,
                                             .attention = tx_parallel_attention,
                                             .divides = tx_parallel_divides,
                                             .embed = tx_parallel_embed,
                                             .loss = tx_parallel_loss,
                                             .gather = tx_parallel_gather,
                                             .copy = tx_parallel_copy,
                                             .complete = tx_parallel_complete,
                                             .check_optimizer = tx_parallel_check_optimizer,
                                             .add_waits = tx_parallel_add_waits,
                                             .add_squares = tx_parallel_add_squares,
                                             .add_updates = tx_parallel_add_updates};

tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options)
{
    TX_NEEDS(model && comm && options, TX_INVALID);
    TX_TRY(check_options(model, options));
    TX_TRY(check_shards(options, comm->size));
    TX_TRY(agree_on_chunks(model, comm));
    if (tx_mesh_along(options->tensor).comm)
        TX_TRY(agree_on_chunks(model, options->tensor));
    const int32_t experts = tx_mesh_along(options->expert).size, chunks = tx_mesh_along(options->context).size;
    tx_parallel *made = calloc(1, sizeof *made);
    int64_t *block = calloc(2 * (size_t)(experts > chunks ? experts : chunks), sizeof *block);
    float *answer = malloc((size_t)TX_ANSWER * sizeof *answer);
    tx_status status = made && block && answer ? TX_OK : tx_fail(TX_MEMORY, "parallel: out of memory");
    TX_THEN(status, set_mesh(model, comm, options));
    if (status) {
        free(made);
        free(block);
        free(answer);
        return status;
    }
    *made = (tx_parallel){.options = *options, .block = block, .answer = answer};
    made->options.stage_blocks = NULL; /* it belongs to the caller */
    if (comm->size == 1)
        made->options.zero_stage = 0; /* one rank has everything */
    model->parallel = made;
    model->hooks = &tx_parallel_table;
    set_spaces(model);
    return TX_OK;
}

tx_status tx_model_synchronize(tx_model *model, bool on)
{
    TX_NEEDS(model, TX_INVALID);
    model->exchange.keeps_gradients = !on && model->parallel && !tx_parallel_keeps_shards(model->parallel);
    if (model->parallel)
        model->parallel->more = !on;
    return TX_OK;
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

void tx_parallel_free(tx_model *model)
{
    tx_parallel *p = model->parallel;
    free(model->mesh.last_block);
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
    free(p->answer);
    free(p);
    model->parallel = NULL;
}
