/* SPDX-License-Identifier: Apache-2.0
 * Declaring parameters and states, and the values of parameters. */
#include "api/parallel.h"

#include "backends/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_model_create(tx_engine *engine, tx_model **model)
{
    tx_model *m = calloc(1, sizeof *m);
    if (!m)
        return tx_fail(TX_MEMORY, "no memory for a model");
    int64_t most = engine->device.max_allocation;
    for (int i = 0; i < TX_ARENA_COUNT; i++) /* a span that any device's memory fits in when it names no limit */
        m->arena[i].chunk_bytes = most > 0 ? most / TX_ALIGNMENT * TX_ALIGNMENT : INT64_C(1) << 46;
    m->engine = engine;
    m->controls.word[TX_CONTROL_LOSS_SCALE].f32 = 1.0f;
    m->controls.word[TX_CONTROL_INVERSE_LABELS].f32 = 1.0f;
    m->controls_changed = true;
    *model = m;
    return TX_OK;
}

void tx_model_free(tx_model *model)
{
    if (!model)
        return;
    const tx_engine *e = model->engine;
    e->backend->finish(e->context);
    for (tx_results r; model->results_pending > 0;)
        if (tx_model_results(model, &r) != TX_OK)
            break;
    for (int i = 0; i < TX_ARENA_COUNT; i++)
        for (int32_t c = 0; c < TX_MAX_CHUNKS; c++)
            if (model->arena[i].buffer[c])
                e->backend->release(e->context, model->arena[i].buffer[c]);
    if (model->staging.buffer)
        e->backend->release(e->context, model->staging.buffer);
    if (model->results)
        e->backend->release(e->context, model->results);
    tx_parallel_free(model);
    for (int32_t i = 0; i < model->params; i++)
        free(model->param[i].name);
    for (int32_t i = 0; i < model->states; i++)
        free(model->state[i].name);
    free(model->param);
    free(model->state);
    free(model);
}

/* ---- declarations --------------------------------------------------------------------------- */

static tx_status check_spec(const char *name, const tx_param_spec *spec)
{
    const tx_shape *s = &spec->shape, *l = &spec->logical;
    bool good = l->rank == 0 || (l->rank == s->rank && l->dim[0] >= 1 && l->dim[0] <= s->dim[0]);
    for (int32_t i = 1; good && i < l->rank; i++)
        good = l->dim[i] == s->dim[i];
    return good ? TX_OK : tx_fail(TX_INVALID, "parameter %s: only the first dimension may be padded", name);
}

static bool same_spec(const tx_param_spec *a, const tx_param_spec *b)
{
    return tx_shape_equal(&a->shape, &b->shape) && a->decay == b->decay &&
           (b->logical.rank == 0 || tx_shape_equal(&a->logical, &b->logical));
}

static tx_status append_param(tx_model *model, const char *name, const tx_param_spec *spec)
{
    if (model->params == model->param_room) {
        int32_t room = model->param_room ? 2 * model->param_room : 64;
        tx_param_record *bigger = realloc(model->param, (size_t)room * sizeof *bigger);
        if (!bigger)
            return tx_fail(TX_MEMORY, "no memory for parameter %s", name);
        model->param = bigger;
        model->param_room = room;
    }
    tx_param_record record = {.name = strdup(name), .spec = *spec};
    if (!record.name)
        return tx_fail(TX_MEMORY, "no memory for parameter %s", name);
    if (spec->logical.rank == 0)
        record.spec.logical = spec->shape;
    int64_t bytes = tx_shape_count(&spec->shape) * (int64_t)sizeof(float);
    tx_status status = tx_arena_append(&model->arena[TX_ARENA_WEIGHTS], bytes, TX_PARAM_BLOCK * (int64_t)sizeof(float),
                                       &record.offset);
    if (status != TX_OK) {
        free(record.name);
        return tx_fail_in(status, "parameter %s", name);
    }
    model->param[model->params++] = record;
    return TX_OK;
}

tx_status tx_model_declare(tx_model *model, const char *name, const tx_param_spec *spec, int32_t *index)
{
    int32_t found = -1;
    for (int32_t i = 0; i < model->params && found < 0; i++)
        if (strcmp(model->param[i].name, name) == 0)
            found = i;
    if (found < 0 && !spec)
        return tx_fail(TX_NOT_FOUND, "parameter %s was not declared", name);
    if (found >= 0 && spec && !same_spec(&model->param[found].spec, spec))
        return tx_fail(TX_INVALID, "parameter %s was declared otherwise before", name);
    if (found < 0) {
        tx_status status = check_spec(name, spec);
        if (status == TX_OK && model->sealed)
            status = tx_fail(TX_INVALID,
                             "parameter %s comes too late: parameters are declared before the first one is read or "
                             "written and before the optimizer is made",
                             name);
        if (status == TX_OK)
            status = append_param(model, name, spec);
        if (status != TX_OK)
            return status;
        found = model->params - 1;
    }
    *index = found;
    return TX_OK;
}

static tx_status append_state(tx_model *model, const char *name, tx_dtype dtype, const tx_shape *shape, int64_t *offset)
{
    if (model->states == model->state_room) {
        int32_t room = model->state_room ? 2 * model->state_room : 16;
        tx_state_record *bigger = realloc(model->state, (size_t)room * sizeof *bigger);
        if (!bigger)
            return tx_fail(TX_MEMORY, "no memory for a state");
        model->state = bigger;
        model->state_room = room;
    }
    tx_state_record record = {.name = name ? strdup(name) : NULL, .dtype = dtype, .shape = *shape};
    if (name && !record.name)
        return tx_fail(TX_MEMORY, "no memory for state %s", name);
    tx_status status =
        tx_arena_append(&model->arena[TX_ARENA_STATE], tx_shape_count(shape) * (int64_t)tx_dtype_size(dtype),
                        TX_ALIGNMENT, &record.offset);
    if (status != TX_OK) {
        free(record.name);
        return status;
    }
    model->state[model->states++] = record;
    *offset = record.offset;
    return TX_OK;
}

tx_status tx_model_declare_state(tx_model *model, const char *name, tx_dtype dtype, const tx_shape *shape,
                                 int64_t *offset)
{
    for (int32_t i = 0; i < model->states; i++) {
        const tx_state_record *s = &model->state[i];
        if (!s->name || strcmp(s->name, name) != 0)
            continue;
        if (s->dtype != dtype || !tx_shape_equal(&s->shape, shape))
            return tx_fail(TX_INVALID, "state %s was declared otherwise before", name);
        *offset = s->offset;
        return TX_OK;
    }
    return append_state(model, name, dtype, shape, offset);
}

tx_status tx_model_declare_groups(tx_model *model, int64_t offset[TX_MAX_CHUNKS])
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    model->sealed = true;
    for (int32_t c = 0; c < weights->chunks; c++) {
        tx_shape blocks = TX_SHAPE(weights->used[c] / (TX_PARAM_BLOCK * (int64_t)sizeof(float)));
        tx_status status = append_state(model, NULL, TX_U8, &blocks, &offset[c]);
        if (status != TX_OK)
            return status;
    }
    return TX_OK;
}

int32_t tx_model_param_count(const tx_model *model)
{
    return model->params;
}

tx_status tx_model_param(const tx_model *model, int32_t index, const char **name, const tx_param_spec **spec)
{
    if (index < 0 || index >= model->params)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter number %d", index);
    *name = model->param[index].name;
    *spec = &model->param[index].spec;
    return TX_OK;
}

tx_status tx_model_find(const tx_model *model, const char *name, int32_t *index)
{
    for (int32_t i = 0; i < model->params; i++) {
        if (strcmp(model->param[i].name, name) == 0) {
            *index = i;
            return TX_OK;
        }
    }
    return tx_fail(TX_NOT_FOUND, "the model has no parameter %s", name);
}

/* ---- values --------------------------------------------------------------------------------- */

/* Moments of which each rank has its shards; their addresses are those of the weights. */
static bool spread(const tx_model *model, tx_part part)
{
    return tx_parallel_sharded(model->parallel) && (part == TX_PART_FIRST_MOMENT || part == TX_PART_SECOND_MOMENT);
}

/* Arena and address of a part of a parameter. */
static tx_status part_place(const tx_model *model, tx_part part, int32_t index, tx_arena_id *arena, int64_t *address)
{
    if (index < 0 || index >= model->params)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter number %d", index);
    int32_t moment = part == TX_PART_FIRST_MOMENT ? 1 : part == TX_PART_SECOND_MOMENT ? 2 : 0;
    if ((part == TX_PART_GRADIENT && !model->has_gradients) || moment > model->moments)
        return tx_fail(TX_NOT_FOUND, "the model has no gradients or no such optimizer state");
    if (part == TX_PART_GRADIENT && tx_parallel_sharded(model->parallel))
        return tx_fail(TX_NOT_FOUND, "no rank has all gradients: they are spread (zero_stage %d)",
                       (int)model->parallel->options.zero_stage);
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    *arena = moment ? TX_ARENA_OPTIMIZER : part == TX_PART_GRADIENT ? TX_ARENA_GRADIENTS : TX_ARENA_WEIGHTS;
    bool second = moment == 2 && !spread(model, part);
    *address = model->param[index].offset + (second ? weights->chunks * weights->chunk_bytes : 0);
    return TX_OK;
}

static tx_status write_now(tx_model *model, tx_arena_id id, int64_t address, const void *data, int64_t bytes)
{
    const tx_engine *e = model->engine;
    const tx_arena *arena = &model->arena[id];
    tx_status status = e->backend->write(e->context, TX_QUEUE_COMPUTE, arena->buffer[tx_arena_chunk(arena, address)],
                                         address % arena->chunk_bytes, data, bytes);
    return status == TX_OK ? e->backend->finish(e->context) : status;
}

/* Makes the model ready for a copy of elements of a part, and tells where the first of them lies. */
static tx_status copy_place(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                            tx_arena_id *arena, int64_t *address)
{
    model->sealed = true;
    tx_status status = part_place(model, part, index, arena, address);
    if (status != TX_OK)
        return status;
    int64_t elements = tx_shape_count(&model->param[index].spec.logical);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return tx_fail(TX_INVALID,
                       "parameter %s has %" PRId64 " elements, %" PRId64 " from %" PRId64 " on were asked for",
                       model->param[index].name, elements, count, first);
    *address += first * (int64_t)sizeof(float);
    status = tx_model_ready(model);
    return status == TX_OK ? tx_model_settle(model) : status;
}

tx_status tx_model_write_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                               const float *data)
{
    tx_arena_id arena = TX_ARENA_WEIGHTS;
    int64_t address = 0;
    tx_status status = copy_place(model, part, index, first, count, &arena, &address);
    if (status != TX_OK)
        return status;
    if (spread(model, part))
        return tx_parallel_write_moment(model, (int32_t)(part - TX_PART_FIRST_MOMENT), address, count, data);
    return write_now(model, arena, address, data, count * (int64_t)sizeof(float));
}

tx_status tx_model_read_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, float *data)
{
    tx_arena_id id = TX_ARENA_WEIGHTS;
    int64_t address = 0;
    tx_status status = copy_place(model, part, index, first, count, &id, &address);
    if (status != TX_OK)
        return status;
    if (spread(model, part))
        return tx_parallel_read_moment(model, (int32_t)(part - TX_PART_FIRST_MOMENT), address, count, data);
    const tx_engine *e = model->engine;
    const tx_arena *arena = &model->arena[id];
    return e->backend->read(e->context, arena->buffer[tx_arena_chunk(arena, address)], address % arena->chunk_bytes,
                            data, count * (int64_t)sizeof(float));
}

/* Elements of parameter `index`; 0 for a number that there is not, which the copy then refuses. */
static int64_t elements_of(const tx_model *model, int32_t index)
{
    return index >= 0 && index < model->params ? tx_shape_count(&model->param[index].spec.logical) : 0;
}

tx_status tx_model_write(tx_model *model, tx_part part, int32_t index, const float *data)
{
    return tx_model_write_range(model, part, index, 0, elements_of(model, index), data);
}

tx_status tx_model_read(tx_model *model, tx_part part, int32_t index, float *data)
{
    return tx_model_read_range(model, part, index, 0, elements_of(model, index), data);
}

static uint64_t hash_name(const char *name) /* FNV-1a */
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    return h;
}

/* Elements 4 * block .. 4 * block + 3 of a parameter; normal numbers by Box and Muller. */
static void draw_block(const tx_param_spec *spec, uint64_t hash, uint64_t seed, int64_t block, float out[4])
{
    tx_random r = tx_philox((tx_u32)block, (tx_u32)((uint64_t)block >> 32), (tx_u32)hash, (tx_u32)(hash >> 32),
                            (tx_u32)seed, (tx_u32)(seed >> 32));
    for (int i = 0; i < 4; i += 2) {
        float u = ((float)(r.word[i] >> 8) + 0.5f) * 0x1p-24f, v = ((float)(r.word[i + 1] >> 8) + 0.5f) * 0x1p-24f;
        if (spec->init == TX_INIT_NORMAL) {
            float radius = spec->scale * sqrtf(-2.0f * logf(u)), angle = 6.28318530717958648f * v;
            out[i] = radius * cosf(angle);
            out[i + 1] = radius * sinf(angle);
        } else {
            out[i] = spec->scale * (2.0f * u - 1.0f);
            out[i + 1] = spec->scale * (2.0f * v - 1.0f);
        }
    }
}

static tx_status init_param(tx_model *model, const tx_param_record *p, uint64_t seed, float *slice, int64_t room)
{
    int64_t count = tx_shape_count(&p->spec.logical);
    uint64_t hash = hash_name(p->name);
    for (int64_t first = 0; first < count; first += room) {
        int64_t n = count - first < room ? count - first : room;
        for (int64_t i = 0; i < n; i += 4) {
            if (p->spec.init == TX_INIT_NORMAL || p->spec.init == TX_INIT_UNIFORM)
                draw_block(&p->spec, hash, seed, (first + i) / 4, slice + i);
            else
                for (int64_t k = i; k < i + 4; k++)
                    slice[k] = p->spec.init == TX_INIT_ONE ? 1.0f : 0.0f;
        }
        tx_status status = write_now(model, TX_ARENA_WEIGHTS, p->offset + first * (int64_t)sizeof(float), slice,
                                     n * (int64_t)sizeof(float));
        if (status != TX_OK)
            return status;
    }
    return TX_OK;
}

tx_status tx_model_init(tx_model *model, uint64_t seed)
{
    const int64_t room = 1 << 16;
    model->sealed = true;
    tx_status status = tx_model_ready(model);
    float *slice = malloc((size_t)(room + 4) * sizeof *slice);
    if (status == TX_OK && !slice)
        status = tx_fail(TX_MEMORY, "no memory to draw parameters");
    for (int32_t i = 0; i < model->params && status == TX_OK; i++)
        status = init_param(model, &model->param[i], seed, slice, room);
    free(slice);
    return status;
}
