/* SPDX-License-Identifier: Apache-2.0
 * The small copies of every step: inputs (through a ring of host memory) and controls. */
#include "api/model/model.h"

#include "api/base/needs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The ring ------------------------------------------------------------------------------- */

/* Allocates a piece of the ring. Waits for the device if the ring is full. */
static tx_status take_piece(tx_model *model, int64_t bytes, void **piece)
{
    const tx_engine *e = model->engine;
    tx_ring *s = &model->ring;
    int64_t wanted = tx_aligned(bytes), at = s->taken % s->bytes;
    if (at + wanted > s->bytes)
        s->taken += s->bytes - at;
    if (s->taken + wanted - s->freed > s->bytes) {
        TX_TRY(e->backend->finish(e->context));
        s->freed = s->taken;
    }
    *piece = (char *)e->backend->map(s->buffer) + s->taken % s->bytes;
    s->taken += wanted;
    return TX_OK;
}

tx_status tx_model_send(tx_model *model, tx_arena_id id, int64_t address, const void *data, int64_t bytes)
{
    if (!model->engine->backend->host_memory) {
        void *piece = NULL;
        TX_TRY(take_piece(model, bytes, &piece));
        memcpy(piece, data, (size_t)bytes);
        data = piece;
    }
    return tx_model_write_at(model, id, address, data, bytes);
}

/* ---- controls -------------------------------------------------------------------------------- */

tx_status tx_model_set(tx_model *model, tx_control control, double value)
{
    TX_NEEDS(model, TX_INVALID);
    static const bool whole[] = {
#define f32 false
#define u32 true
#define X(name, type) type,
        TX_CONTROL_MAP(X)
#undef X
#undef f32
#undef u32
    };
    if ((unsigned)control >= TX_CONTROL_COUNT)
        return tx_fail(TX_INVALID, "no control number %d", (int)control);
    if (whole[control] && !(value >= 0 && value <= UINT32_MAX && value == floor(value)))
        return tx_fail(TX_INVALID, "control %d must be a whole number from 0 to 2^32 - 1, not %g", (int)control, value);
    tx_word word = {.f32 = (float)value};
    if (whole[control])
        word.u32 = (uint32_t)value;
    for (; model; model = model->following)
        if (word.u32 != model->controls.word[control].u32) {
            model->controls.word[control] = word;
            model->later.changed = true;
        }
    return TX_OK;
}

tx_status tx_model_set_seed(tx_model *model, uint64_t seed)
{
    TX_NEEDS(model, TX_INVALID);
    tx_status status = tx_model_set(model, TX_CONTROL_SEED_LO, (double)(seed & UINT32_MAX));
    return status == TX_OK ? tx_model_set(model, TX_CONTROL_SEED_HI, (double)(seed >> 32)) : status;
}

tx_status tx_model_keep_controls(tx_model *model, int32_t micro_batch)
{
    TX_NEEDS(model, TX_INVALID);
    if (micro_batch < 0)
        return tx_fail(TX_INVALID, "there is no micro-batch number %d", micro_batch);
    if (micro_batch >= model->later.count) {
        tx_controls *more = realloc(model->later.controls, ((size_t)micro_batch + 1) * sizeof *more);
        if (!more)
            return tx_fail(TX_MEMORY, "no memory for the controls of %d micro-batches", micro_batch + 1);
        for (int32_t i = model->later.count; i < micro_batch; i++)
            more[i] = model->controls;
        model->later.controls = more;
        model->later.count = micro_batch + 1;
    }
    model->later.controls[micro_batch] = model->controls;
    return TX_OK;
}

tx_status tx_model_begin_micro_batch(tx_model *model, int32_t micro_batch)
{
    if (micro_batch >= model->later.count)
        return tx_fail(TX_INVALID, "the controls of micro-batch %d are not set: call tx_model_keep_controls first",
                       micro_batch);
    model->controls = model->later.controls[micro_batch];
    model->later.changed = true;
    return tx_model_send_controls(model);
}

tx_status tx_model_send_controls(tx_model *model)
{
    if (!model->later.changed)
        return TX_OK;
    tx_status status = tx_model_send(model, TX_ARENA_CONTROL, 0, &model->controls, TX_CONTROL_BYTES);
    model->later.changed = status != TX_OK;
    return status;
}
