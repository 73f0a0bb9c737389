/* SPDX-License-Identifier: Apache-2.0
 * A model's memory: computes its size, and allocates, grows and binds it. */
#include "api/base/memory_left.h"
#include "api/base/needs.h"
#include "api/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Runs whose inputs and controls fit in the ring before the host must wait for one. */
#define RING_RUNS 16

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Computes the sizes of arenas that depend on others. */
static tx_status size_arenas(tx_model *model)
{
    tx_arena *arena = model->arena;
    const tx_arena *weights = &arena[TX_ARENA_WEIGHTS];
    if (model->has_gradients)
        tx_arena_cover(&arena[TX_ARENA_GRADIENTS], &arena[model->exchange.gradients_as]);
    if (arena[TX_ARENA_WEIGHTS_WINDOW].space == TX_SPACE_WINDOW)
        tx_arena_cover(&arena[TX_ARENA_WEIGHTS_WINDOW], weights);
    if (model->has_gradients && arena[TX_ARENA_GRADIENTS_WINDOW].space == TX_SPACE_WINDOW)
        tx_arena_cover(&arena[TX_ARENA_GRADIENTS_WINDOW], weights);
    if (model->residency)
        TX_TRY(model->residency->prepare(model));
    const tx_arena *own = &arena[model->exchange.weights];
    for (int32_t c = 0; c < own->chunks && tx_model_keeps_copies(model); c++)
        TX_TRY(tx_arena_use(&arena[TX_ARENA_HALF], c * arena[TX_ARENA_HALF].chunk_bytes, own->used[c] / 2));
    TX_TRY(tx_arena_use(&arena[TX_ARENA_CONTROL], 0, tx_aligned(TX_CONTROL_BYTES)));
    return tx_arena_use(&arena[TX_ARENA_RESULT], 0, tx_aligned(TX_RESULT_BYTES));
}

static int64_t ring_bytes(const tx_model *model)
{
    if (model->engine->backend->host_memory)
        return 0;
    return RING_RUNS * (model->input_bytes + tx_aligned(TX_CONTROL_BYTES));
}

static int64_t results_bytes(void)
{
    return TX_RESULTS_PENDING * tx_aligned(TX_RESULT_BYTES);
}

/* Offloaded arenas are in pinned memory. */
static tx_memory_kind kind_of(const tx_model *model, tx_arena_id arena)
{
    return model->arena[arena].space == TX_SPACE_PINNED ? TX_MEMORY_OFFLOADED : tx_arena_info_of(arena)->kind;
}

static tx_status memory_of(const tx_model *model, tx_memory *planned)
{
    tx_model sized = *model; /* computes only sizes and allocates nothing */
    tx_memory m = {0};
    TX_TRY(size_arenas(&sized));
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        m.bytes[kind_of(&sized, (tx_arena_id)i)] += tx_arena_bytes(&sized.arena[i]);
    m.bytes[TX_MEMORY_TEMPORARY] = m.bytes[TX_MEMORY_ACTIVATIONS] - model->saved;
    m.bytes[TX_MEMORY_ACTIVATIONS] = model->saved;
    m.bytes[TX_MEMORY_FUNCTIONALITY] += ring_bytes(model) + results_bytes();
    *planned = m;
    return TX_OK;
}

tx_status tx_model_memory(const tx_model *model, tx_memory *planned)
{
    TX_NEEDS(model && planned, TX_INVALID);
    tx_memory sum = {0};
    for (const tx_model *m = model; m; m = m->following) {
        tx_memory own;
        TX_TRY(memory_of(m, &own));
        for (int i = 0; i < TX_MEMORY_COUNT; i++)
            sum.bytes[i] += own.bytes[i];
    }
    *planned = sum;
    return TX_OK;
}

tx_status tx_model_memory_on(const tx_model *model, int32_t device, tx_memory *planned)
{
    TX_NEEDS(model && planned, TX_INVALID);
    const tx_model *m = model;
    while (m && m->mesh.pipeline.rank != device)
        m = m->following;
    return m ? memory_of(m, planned) : tx_fail(TX_NOT_FOUND, "the model is on no device number %d", (int)device);
}

int64_t tx_model_file_bytes(const tx_model *model)
{
    TX_NEEDS(model, 0);
    tx_model sized = *model;
    int64_t bytes = 0;
    if (!model->file.folder || size_arenas(&sized) != TX_OK)
        return 0;
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        for (int32_t c = 0; c < sized.arena[i].chunks; c++)
            bytes += sized.arena[i].space == TX_SPACE_FILE ? tx_file_blocks(sized.arena[i].used[c]) : 0;
    return bytes;
}

/* ---- allocation ----------------------------------------------------------------------------- */

static tx_status release_chunk(const tx_engine *e, tx_arena *arena, int32_t c)
{
    if (!arena->buffer[c])
        return TX_OK;
    TX_TRY(e->backend->finish(e->context));
    e->backend->release(e->context, arena->buffer[c]);
    arena->buffer[c] = NULL;
    arena->held[c] = 0;
    return TX_OK;
}

/* Inputs of plans in a chunk of arena PLANNED. Their values must survive the chunk. */
typedef struct saved_inputs {
    char *data;
    int64_t bytes;
} saved_inputs;

/* Copies the inputs in the first `held` bytes from the device to `kept` (`out`) or back. With `kept` NULL it only
 * counts their bytes. */
static tx_status move_inputs(tx_model *model, int32_t c, int64_t held, char *kept, bool out, int64_t *bytes)
{
    const tx_engine *e = model->engine;
    const tx_arena *arena = &model->arena[TX_ARENA_PLANNED];
    tx_status status = TX_OK;
    *bytes = 0;
    for (tx_plan *p = model->plans; p; p = p->next)
        for (int32_t i = 0; i < p->graph->tensors && status == TX_OK; i++) {
            const tx_tensor *t = p->graph->tensor[i];
            const int64_t size = tx_tensor_bytes(t), at = t->offset % arena->chunk_bytes;
            if (!t->is_input || tx_arena_chunk(arena, t->offset) != c || at + size > held)
                continue;
            if (kept)
                status =
                    out ? e->backend->read(e->context, arena->buffer[c], at, kept + *bytes, size)
                        : e->backend->write(e->context, TX_QUEUE_COMPUTE, arena->buffer[c], at, kept + *bytes, size);
            *bytes += size;
        }
    return status == TX_OK && kept && !out ? e->backend->finish(e->context) : status;
}

static tx_status save_inputs(tx_model *model, int32_t c, saved_inputs *kept)
{
    const int64_t held = model->arena[TX_ARENA_PLANNED].held[c];
    move_inputs(model, c, held, NULL, true, &kept->bytes);
    kept->data = malloc((size_t)kept->bytes + 1);
    return kept->data ? move_inputs(model, c, held, kept->data, true, &kept->bytes)
                      : tx_fail(TX_MEMORY, "no memory to save the inputs of plans");
}

/* Allocates a chunk at its required size. A window is a collective call of all its ranks. */
static tx_status allocate_chunk(tx_model *model, tx_arena_id id, int32_t c, tx_buffer **buffer)
{
    const tx_engine *e = model->engine;
    const tx_arena *arena = &model->arena[id];
    if (arena->space != TX_SPACE_WINDOW)
        return e->backend->allocate(e->context, kind_of(model, id), arena->space, arena->used[c], buffer);
    void *memory = NULL;
    tx_status status = arena->comm->table->window(arena->comm, arena->used[c], &memory);
    return status ? status : e->backend->adopt(e->context, kind_of(model, id), memory, arena->used[c], buffer);
}

/* Replaces a chunk by a larger one. Arenas PLANNED and SCRATCH are released first, as plans do not rely on their
 * contents except for inputs. Other arenas keep their contents, also if the larger chunk cannot be allocated. */
static tx_status grow_chunk(tx_model *model, tx_arena_id id, int32_t c)
{
    const tx_engine *e = model->engine;
    tx_arena *arena = &model->arena[id];
    const bool keep = id != TX_ARENA_PLANNED && id != TX_ARENA_SCRATCH;
    tx_buffer *larger = NULL;
    if (arena->space == TX_SPACE_WINDOW) /* no transfer of its contents may be in progress */
        TX_TRY(tx_model_wait(model));
    if (model->residency && arena->held[c] > 0 && e->backend->map(arena->buffer[c]))
        TX_TRY(model->residency->wait(model, e->backend->map(arena->buffer[c]), arena->held[c]));
    if (!keep)
        TX_TRY(release_chunk(e, arena, c));
    TX_TRY(allocate_chunk(model, id, c, &larger));
    const int64_t old = arena->held[c];
    tx_status status =
        old > 0 ? e->backend->copy(e->context, TX_QUEUE_COMPUTE, arena->buffer[c], 0, larger, 0, old) : TX_OK;
    /* Not cleared again: the threads that read weights from a file touch the pages first. */
    const bool zero = e->backend->host_memory && !arena->comm && kind_of(model, id) == TX_MEMORY_WEIGHTS;
    if (keep && !zero && old < arena->used[c])
        TX_THEN(status, e->backend->fill(e->context, larger, old, 0, arena->used[c] - old));
    TX_THEN(status, release_chunk(e, arena, c));
    if (status != TX_OK) {
        e->backend->release(e->context, larger);
        return status;
    }
    arena->buffer[c] = larger;
    arena->held[c] = arena->used[c];
    return TX_OK;
}

static tx_status grow_planned(tx_model *model, int32_t c)
{
    const int64_t held = model->arena[TX_ARENA_PLANNED].held[c];
    saved_inputs kept = {0};
    tx_status status = save_inputs(model, c, &kept);
    TX_THEN(status, grow_chunk(model, TX_ARENA_PLANNED, c));
    TX_THEN(status, move_inputs(model, c, held, kept.data, false, &kept.bytes)); /* at the same addresses */
    free(kept.data);
    return status;
}

static tx_status grow_host(tx_model *model, tx_buffer **buffer, int64_t bytes)
{
    const tx_engine *e = model->engine;
    if (*buffer) {
        TX_TRY(e->backend->finish(e->context));
        e->backend->release(e->context, *buffer);
        *buffer = NULL;
    }
    return e->backend->allocate(e->context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, bytes, buffer);
}

static tx_status write_groups(tx_model *model)
{
    const tx_engine *e = model->engine;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    const int64_t block = TX_PARAM_BLOCK * tx_model_element(model);
    int32_t chunk = 0;
    for (int32_t i = 0; i < model->states; i++) {
        const tx_state_record *s = &model->state[i];
        if (s->name)
            continue;
        int64_t blocks = tx_shape_count(&s->shape);
        uint8_t *bytes = calloc((size_t)blocks, 1);
        if (!bytes)
            return tx_fail(TX_MEMORY, "no memory for optimizer groups");
        for (int32_t p = 0; p < model->params; p++) {
            const tx_param_record *r = &model->param[p];
            int64_t first = r->offset % weights->chunk_bytes / block;
            int64_t count = tx_param_blocks(tx_shape_count(&r->spec.shape));
            const int group = r->spec.decay | (tx_optimizer_keeps_zeros(model->optimizer, &r->spec) << 1);
            if (!r->absent && r->arena == TX_ARENA_WEIGHTS && tx_arena_chunk(weights, r->offset) == chunk)
                memset(bytes + first, group, (size_t)count);
        }
        tx_status status = tx_model_write_at(model, TX_ARENA_STATE, s->offset, bytes, blocks);
        TX_THEN(status, e->backend->finish(e->context));
        free(bytes);
        TX_TRY(status);
        chunk++;
        model->groups_written = true;
    }
    return TX_OK;
}

static tx_status write_results(tx_model *model)
{
    const tx_engine *e = model->engine;
    TX_TRY(tx_model_write_at(model, TX_ARENA_RESULT, 0, &model->results.begin, TX_RESULT_BYTES));
    TX_TRY(e->backend->finish(e->context)); /* `begin` may change afterwards */
    model->results.written = true;
    return TX_OK;
}

/* Fails before it allocates if the device or the host does not have enough memory. Otherwise a driver might fail
 * half-way or the system kill the process. */
static tx_status check_room(const tx_model *model)
{
    const tx_device_info *device = &model->engine->device;
    const double gib = (double)((int64_t)1 << 30);
    char owner[120];
    int64_t missing[2] = {0, 0},
            planned = 0; /* bytes to allocate on the device and on the host; all bytes planned on the device */
    for (int i = 0; i < TX_ARENA_COUNT; i++) {
        const tx_arena *arena = &model->arena[i];
        const bool host = device->type == TX_DEVICE_CPU || arena->space != TX_SPACE_DEVICE;
        const bool own =
            arena->space == TX_SPACE_DEVICE || (device->type == TX_DEVICE_CPU && arena->space != TX_SPACE_PINNED);
        for (int32_t c = 0; c < arena->chunks; c++) {
            const int64_t wanted = tx_arena_wanted(arena, c);
            missing[host] += wanted > arena->held[c] ? wanted - arena->held[c] : 0;
            planned += own ? wanted : 0;
        }
    }
    if (device->memory && planned > device->memory)
        return tx_fail(TX_MEMORY, "the model does not fit: %.2f GiB are planned, %s has %.2f GiB",
                       (double)planned / gib, device->id, (double)device->memory / gib);
    const int64_t left = missing[1] ? tx_memory_left("", owner, sizeof owner) : INT64_MAX;
    if (missing[1] > left)
        return tx_fail(TX_MEMORY, "the model does not fit: %.2f GiB are planned, %s has %.2f GiB left",
                       (double)missing[1] / gib, owner, (double)left / gib);
    return TX_OK;
}

static tx_status allocate_arenas(tx_model *model, bool *moved)
{
    TX_TRY(check_room(model));
    for (int i = 0; i < TX_ARENA_COUNT; i++) {
        for (int32_t c = 0; c < model->arena[i].chunks; c++) {
            const tx_arena_id id = (tx_arena_id)i;
            if (tx_arena_wanted(&model->arena[i], c) <= model->arena[i].held[c])
                continue;
            *moved = true;
            model->copies.half_stale = model->copies.half_stale || id == TX_ARENA_HALF;
            model->copies.kept_stale = model->copies.kept_stale || id == TX_ARENA_KEPT;
            tx_status status = id == TX_ARENA_PLANNED ? grow_planned(model, c) : grow_chunk(model, id, c);
            if (status != TX_OK)
                return tx_fail_in(status, "%s", tx_memory_name(kind_of(model, (tx_arena_id)i)));
        }
    }
    return TX_OK;
}

tx_status tx_model_ready(tx_model *model)
{
    bool moved = false;
    if (model->only_plans)
        return tx_fail(TX_INVALID, "the model is a dry run (tx_model_only_plan): it has no memory");
    if (model->hooks)
        TX_TRY(model->hooks->prepare(model));
    TX_TRY(tx_copies_make(model));
    TX_TRY(size_arenas(model));
    if (model->residency)
        TX_TRY(model->residency->reserve(model));
    const tx_status status = allocate_arenas(model, &moved);
    /* First, because the rest may fail and be tried again. */
    for (tx_plan *p = model->plans; p && moved; p = p->next)
        p->bound = false;
    model->later.changed = model->later.changed || moved;
    TX_TRY(status);
    if (ring_bytes(model) > model->ring.bytes) {
        TX_TRY(grow_host(model, &model->ring.buffer, ring_bytes(model)));
        model->ring = (tx_ring){.buffer = model->ring.buffer, .bytes = ring_bytes(model)};
    }
    if (!model->results.buffer)
        TX_TRY(grow_host(model, &model->results.buffer, results_bytes()));
    if (!model->results.written)
        TX_TRY(write_results(model));
    if (!model->groups_written)
        TX_TRY(write_groups(model));
    for (tx_plan *p = model->plans; p; p = p->next) {
        if (!p->bound)
            TX_TRY(tx_plan_bind(p));
        p->bound = true;
    }
    return TX_OK;
}

tx_status tx_model_allocate(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    tx_status status = TX_OK;
    for (; model && !status; model = model->following) {
        model->sealed = true;
        status = tx_model_ready(model);
    }
    return status;
}

/* Fills the memory of states with zeros. */
static tx_status clear(const tx_model *model, tx_arena_id states)
{
    const tx_arena *arena = &model->arena[states], *memory = &model->arena[tx_arena_memory(states)];
    const tx_engine *e = model->engine;
    for (int32_t c = 0; c < arena->chunks; c++)
        TX_TRY(e->backend->fill(e->context, memory->buffer[c], 0, 0, arena->used[c]));
    return TX_OK;
}

tx_status tx_model_clear_states(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    TX_TRY(tx_model_allocate(model));
    for (; model; model = model->following) {
        TX_TRY(clear(model, TX_ARENA_SHARED_STATE));
        TX_TRY(clear(model, TX_ARENA_LENT_STATE));
    }
    return TX_OK;
}

tx_status tx_model_return_states(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    for (; model; model = model->following)
        TX_TRY(clear(model, TX_ARENA_LENT_STATE));
    return TX_OK;
}
