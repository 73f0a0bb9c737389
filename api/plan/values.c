/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing parameters, their gradients and their optimizer states: whole and ranges of them, by the table of
 * ownership (own.h). All ranks read a spread value together, or rank 0 asks for it and the others answer. */
#include "api/parallel/buckets.h"
#include "api/plan/plan.h"

#include "api/base/half.h"
#include "api/base/hash.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Elements that are converted, or asked for, at once: whole words. */
#define SLICE (INT64_C(1) << 20)

/* The shape of a part; fails, naming it, if there is none. */
static tx_status shape_of(const tx_model *model, tx_part part, int32_t index, tx_shape *shape)
{
    if (index < 0 || index >= model->params)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter number %d", index);
    if (part != TX_PART_WEIGHT && model->param[index].spec.frozen)
        return tx_fail(TX_NOT_FOUND, "parameter %s is frozen: it has no gradient and no optimizer state",
                       model->param[index].name);
    *shape = model->param[index].whole.logical;
    if (part < TX_PART_STATE)
        return TX_OK;
    tx_state_info info;
    TX_TRY(tx_model_state(model, index, (int32_t)part - TX_PART_STATE, &info));
    *shape = info.shape;
    return TX_OK;
}

/* Makes the model ready for a copy of elements of a part. */
static tx_status prepare_copy(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count)
{
    tx_shape shape;
    model->sealed = true;
    TX_TRY(shape_of(model, part, index, &shape));
    const int64_t elements = tx_shape_count(&shape);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return tx_fail(TX_INVALID,
                       "parameter %s has %" PRId64 " elements, %" PRId64 " from %" PRId64 " on were asked for",
                       model->param[index].name, elements, count, first);
    TX_TRY(tx_model_ready(model));
    TX_TRY(tx_model_settle(model));
    if (part == TX_PART_GRADIENT && !model->has_gradients)
        return tx_fail(TX_NOT_FOUND, "the model has no gradients");
    if (part == TX_PART_GRADIENT && tx_parallel_sharded(model->parallel))
        return tx_fail(TX_NOT_FOUND, "no rank has all gradients: they are spread (zero_stage %d)",
                       (int)model->parallel->options.zero_stage);
    return TX_OK;
}

/* ---- The own array ------------------------------------------------------------------------------------ */

static void narrow(tx_dtype dtype, const float *from, void *to, int64_t count)
{
    uint8_t *byte = to;
    uint16_t *half = to;
    for (int64_t i = 0; i < count; i++)
        if (dtype == TX_U8)
            byte[i] = (uint8_t)from[i];
        else
            half[i] = dtype == TX_BF16 ? tx_f32_to_bf16(from[i]) : tx_f32_to_f16(from[i]);
}

static void widen(tx_dtype dtype, const void *from, float *to, int64_t count)
{
    const uint8_t *byte = from;
    const uint16_t *half = from;
    for (int64_t i = 0; i < count; i++)
        if (dtype == TX_U8)
            to[i] = byte[i];
        else
            to[i] = dtype == TX_BF16 ? tx_bf16_to_f32(half[i]) : tx_f16_to_f32(half[i]);
}

/* Moves numbers of a part as they are stored. One of `from` and `to` is NULL, as in all that follows. */
static tx_status move(tx_model *model, tx_part part, int32_t index, int64_t at, const void *from, void *to,
                      int64_t bytes)
{
    const tx_engine *e = model->engine;
    if (to)
        return tx_stored_read(model, part, index, at, to, bytes);
    TX_TRY(tx_stored_write(model, part, index, at, from, bytes));
    return e->backend->finish(e->context);
}

/* Converts slice by slice. Slices after a failure are moved all the same, as ranks that have shards move them together.
 */
static tx_status convert(tx_model *model, tx_part part, int32_t index, tx_dtype dtype, int64_t first, int64_t count,
                         const float *from, float *to)
{
    const int64_t size = (int64_t)tx_dtype_size(dtype);
    void *slice = malloc((size_t)((count < SLICE ? count : SLICE) * size) + sizeof(int32_t));
    if (!slice)
        return tx_fail(TX_MEMORY, "no memory to convert a parameter");
    tx_status status = TX_OK;
    for (int64_t i = 0; i < count; i += SLICE) {
        const int64_t n = count - i < SLICE ? count - i : SLICE;
        if (from)
            narrow(dtype, from + i, slice, n);
        const tx_status moved =
            move(model, part, index, (first + i) * size, from ? slice : NULL, from ? NULL : slice, n * size);
        status = status ? status : moved;
        if (to && status == TX_OK)
            widen(dtype, slice, to + i, n);
    }
    free(slice);
    return status;
}

static tx_status copy_own(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, const float *from,
                          float *to)
{
    const int64_t word = (int64_t)sizeof(float);
    tx_state_info info = {.dtype = model->param[index].spec.dtype};
    if (part >= TX_PART_STATE)
        TX_TRY(tx_model_state(model, index, (int32_t)part - TX_PART_STATE, &info));
    if (tx_dtype_packed(info.dtype))
        return from ? tx_packed_write(model, index, first, count, from)
                    : tx_packed_read(model, index, first, count, to);
    if (info.dtype != TX_F32)
        return convert(model, part, index, info.dtype, first, count, from, to);
    return move(model, part, index, first * word, from, to, count * word);
}

/* ---- The whole ---------------------------------------------------------------------------------------- */

/* Whether ranks have parts of it: all read it together. */
static bool is_spread(const tx_model *model, tx_part part, int32_t index)
{
    return index >= 0 && index < model->params &&
           (tx_model_splits(model, index) || tx_model_has_pipeline(model) || tx_stored_sharers(model, part, index));
}

/* This rank's runs of a parameter that its groups divide; all ranks of these read together. */
static tx_status copy_runs(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                           const float *from, float *to)
{
    const tx_param_record *r = &model->param[index];
    const int64_t begin = tx_own_before(r, first), own = tx_own_before(r, first + count) - begin;
    float *mine = malloc((size_t)own * sizeof *mine + 1);
    tx_status status = mine ? TX_OK : tx_fail(TX_MEMORY, "no memory for parameter %s", r->name);
    if (from && mine)
        tx_own_take(r, first, count, from, mine);
    if (own > 0)
        TX_THEN(status, copy_own(model, part, index, begin, own, from ? mine : NULL, from ? NULL : mine));
    if (to) {
        memset(to, 0, (size_t)count * sizeof *to);
        if (!status)
            tx_own_put(r, first, count, mine, to);
        if (r->division.parts > 1)
            status = tx_stored_add_up(model->mesh.tensor.comm, to, count, status);
        if (r->experts.parts > 1)
            status = tx_stored_add_up(model->mesh.expert.comm, to, count, status);
    }
    free(mine);
    return status;
}

/* Each stage that has a parameter writes it, and its own stage reads it: a device of this process, or a rank of a
 * pipeline, of which all ranks read together. */
static tx_status copy_values(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                             const float *from, float *to)
{
    tx_status status = TX_OK;
    TX_TRY(prepare_copy(model, part, index, first, count));
    if (from && part == TX_PART_WEIGHT && tx_stored_sharers(model, part, index)) /* all, whatever this rank has of it */
        model->parallel->written = tx_hash_words(model->parallel->written, from, count);
    if (to && tx_model_has_pipeline(model))
        memset(to, 0, (size_t)count * sizeof *to);
    for (tx_model *m = model; m && !status; m = m->following) {
        if (from ? m->param[index].absent : !tx_model_owns(m, index))
            continue;
        if (m != model)
            status = prepare_copy(m, part, index, first, count);
        TX_THEN(status, (tx_model_splits(m, index) ? copy_runs : copy_own)(m, part, index, first, count, from, to));
    }
    return to && tx_model_has_pipeline(model) ? tx_stored_add_up(model->mesh.pipeline.comm, to, count, status) : status;
}

/* ---- Asking and answering ------------------------------------------------------------------------------ */

typedef struct question {
    int64_t first, count;
    int32_t part, param; /* -1: there is no further question */
} question;

/* To all ranks: to those of rank 0's tensor group, from each of these to the others of its part, and from these to the
 * other stages. */
static tx_status pass_on(const tx_mesh *mesh, question *q)
{
    const int64_t words = (int64_t)(sizeof *q / sizeof(int32_t));
    tx_comm *const axes[] = {mesh->tensor.comm, mesh->data.comm, mesh->pipeline.comm};
    for (int i = 0; i < 3; i++)
        if (axes[i])
            TX_TRY(tx_comm_collect(axes[i], TX_BROADCAST, q, words, TX_I32, 0));
    return TX_OK;
}

/* Whether ranks have parts of the weights or of the optimizer states. */
static bool spreads(const tx_model *model)
{
    return tx_parallel_sharded(model->parallel) || tx_model_gathers(model);
}

/* Nobody begins unless all can. */
static tx_status meet(tx_model *model, tx_status own)
{
    const tx_mesh *mesh = &model->mesh;
    const int32_t size = mesh->data.size;
    int32_t *all = calloc((size_t)size, sizeof *all), lack = own != TX_OK;
    if (!all)
        return tx_fail(TX_MEMORY, "no memory for a list of the ranks");
    all[mesh->data.rank] = lack;
    tx_status status = tx_comm_share(mesh->data.comm, all, sizeof *all);
    for (int32_t r = 0; r < size && !status && !own; r++)
        if (all[r])
            status = tx_fail(TX_MEMORY, "rank %" PRId32 " has no memory to read what is spread over the ranks",
                             r * mesh->tensor.size + mesh->tensor.rank);
    free(all);
    tx_comm *const others[] = {mesh->tensor.comm, mesh->pipeline.comm};
    for (int i = 0; i < 2; i++) {
        if (!others[i])
            continue;
        lack = own || status;
        const tx_status told = tx_comm_collect(others[i], TX_ALL_REDUCE, &lack, 1, TX_I32, 0);
        if (!own && !status)
            status = told   ? told
                     : lack ? tx_fail(TX_MEMORY, "a rank has no memory to read what the ranks have parts of")
                            : TX_OK;
    }
    return own ? own : status;
}

tx_status tx_model_ask(tx_model *model, bool on)
{
    TX_NEEDS(model, TX_INVALID);
    tx_parallel *p = model->parallel;
    question none = {.param = -1};
    if (!spreads(model) || p->asks == on)
        return TX_OK;
    if (!on) {
        p->asks = false;
        return pass_on(&model->mesh, &none);
    }
    TX_TRY(tx_model_settle(model));
    TX_TRY(meet(model, TX_OK));
    p->asks = true;
    return TX_OK;
}

tx_status tx_model_answer(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    if (!spreads(model))
        return TX_OK;
    TX_TRY(tx_model_settle(model));
    float *answer = malloc((size_t)SLICE * sizeof *answer);
    tx_status status = meet(model, answer ? TX_OK : tx_fail(TX_MEMORY, "no memory to answer what rank 0 reads")), read;
    question q = {0};
    for (bool more = status == TX_OK; more;) {
        read = pass_on(&model->mesh, &q);
        more = !read && q.param >= 0;
        if (more)
            read = copy_values(model, (tx_part)q.part, q.param, q.first, q.count, NULL, answer);
        status = status ? status : read;
    }
    free(answer);
    return status;
}

/* ---- Ranges -------------------------------------------------------------------------------------------- */

tx_status tx_model_write_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                               const float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return copy_values(model, part, index, first, count, data, NULL);
}

tx_status tx_model_read_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    if (!is_spread(model, part, index) || !model->parallel->asks)
        return copy_values(model, part, index, first, count, NULL, data);
    for (int64_t at = 0; at < count; at += SLICE) {
        question q = {first + at, count - at < SLICE ? count - at : SLICE, (int32_t)part, index};
        TX_TRY(pass_on(&model->mesh, &q));
        TX_TRY(copy_values(model, part, index, q.first, q.count, NULL, data + at));
    }
    return TX_OK;
}

/* Elements of a part; 0 for one that there is not, which the copy then refuses. */
static int64_t elements_of(const tx_model *model, tx_part part, int32_t index)
{
    tx_shape shape;
    return shape_of(model, part, index, &shape) == TX_OK ? tx_shape_count(&shape) : 0;
}

tx_status tx_model_write(tx_model *model, tx_part part, int32_t index, const float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_model_write_range(model, part, index, 0, elements_of(model, part, index), data);
}

tx_status tx_model_read(tx_model *model, tx_part part, int32_t index, float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_model_read_range(model, part, index, 0, elements_of(model, part, index), data);
}
