/* SPDX-License-Identifier: Apache-2.0
 * Places arenas outside the device's memory: in host memory or in a file. Defines the extension's hooks. */
#include "api/base/needs.h"
#include "api/residency/hooks.h"
#include "api/residency/residency.h"
#include "api/residency/swap.h"

#include <string.h>

/* ---- The file --------------------------------------------------------------------------------------------- */

static tx_status move(const tx_model *model, const tx_arena *arena, bool out, int64_t address, void *data,
                      int64_t bytes)
{
    const int64_t at = arena->filed[tx_arena_chunk(arena, address)] + address % arena->chunk_bytes;
    TX_TRY(tx_swap_begin(model->file.swap, out, at, data, bytes));
    return tx_swap_wait(model->file.swap, data, bytes);
}

static tx_status wait(const tx_model *model, const void *memory, int64_t bytes)
{
    return model->file.swap ? tx_swap_wait(model->file.swap, memory, bytes) : TX_OK;
}

/* Reserves zeroed space in the file for arenas. Their chunks have the full size from the start. */
static tx_status reserve(tx_model *model)
{
    if (model->file.folder && !model->file.swap)
        TX_TRY(tx_swap_create(model->file.folder, &model->file.swap));
    for (int i = 0; i < TX_ARENA_COUNT; i++) {
        tx_arena *arena = &model->arena[i];
        for (int32_t c = 0; c < arena->chunks && arena->space == TX_SPACE_FILE; c++) {
            if (arena->used[c] <= arena->held[c])
                continue;
            if (arena->held[c] > 0)
                return tx_fail(TX_INTERNAL, "an arena in a file cannot grow");
            TX_TRY(tx_swap_reserve(model->file.swap, arena->used[c], &arena->filed[c]));
            arena->held[c] = arena->used[c];
            model->copies.half_stale = model->copies.half_stale || i == TX_ARENA_HALF;
        }
    }
    return TX_OK;
}

static void close(tx_model *model)
{
    tx_swap_free(model->file.swap);
}

static const tx_residency_hooks hooks = {
    .free = close,
    .prepare = tx_residency_prepare,
    .reserve = reserve,
    .move = move,
    .wait = wait,
    .cast = tx_residency_cast,
    .renew = tx_residency_renew,
};

/* ---- Places ----------------------------------------------------------------------------------------------- */

/* Places an arena in the model's file in this folder, which must outlive the model. */
static tx_status place_in_file(tx_model *model, tx_arena_id arena, const char *folder)
{
    if (model->file.folder && strcmp(model->file.folder, folder) != 0)
        return tx_fail(TX_INVALID, "the model's offload file is in %s: use that folder instead of %s",
                       model->file.folder, folder);
    model->file.folder = folder;
    model->arena[arena].space = TX_SPACE_FILE;
    model->arena[TX_ARENA_STAGING].space = TX_SPACE_PINNED;
    return TX_OK;
}

/* Checks that parameters can still be offloaded. */
static tx_status check_offload(const tx_model *model)
{
    if (model->params > 0)
        return tx_fail(TX_INVALID, "parameters have been declared: offload them before the first declaration");
    if (tx_model_is_divided(model))
        return tx_fail(TX_UNSUPPORTED, "weights cannot be offloaded if the model is divided among devices");
    return TX_OK;
}

static bool is_exchanged(const tx_model *model)
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    return weights->space != TX_SPACE_DEVICE || model->arena[TX_ARENA_WEIGHTS_WINDOW].space == TX_SPACE_WINDOW;
}

tx_status tx_model_offload_weights(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    TX_TRY(check_offload(model));
    if (is_exchanged(model) || model->arena[TX_ARENA_WEIGHTS].addresses)
        return tx_fail(TX_UNSUPPORTED, "weights that ranks exchange cannot be offloaded: use zero_stage 0");
    model->residency = &hooks;
    model->arena[TX_ARENA_WEIGHTS].space = TX_SPACE_PINNED;
    return TX_OK;
}

tx_status tx_model_offload_params(tx_model *model, tx_offload_place place, const char *folder, bool frozen_alone)
{
    TX_NEEDS(model, TX_INVALID);
    TX_TRY(check_offload(model));
    if (place != TX_OFFLOAD_HOST && place != TX_OFFLOAD_FILE)
        return tx_fail(TX_INVALID, "%d is not a place for offloaded parameters", (int)place);
    if (place == TX_OFFLOAD_FILE && !folder)
        return tx_fail(TX_INVALID, "offload to a file needs a folder");
    tx_arena_id storage[3] = {tx_model_frozen(model)};
    int count = 1;
    if (!frozen_alone && model->arena[TX_ARENA_WEIGHTS].addresses) {
        storage[count++] = TX_ARENA_SHARDS;
        storage[count++] = TX_ARENA_HALF;
    } else if (!frozen_alone && is_exchanged(model)) {
        return tx_fail(TX_UNSUPPORTED, "whole weights that ranks exchange cannot be offloaded: use zero_stage 0 or 3");
    } else if (!frozen_alone) {
        storage[count++] = TX_ARENA_WEIGHTS;
        storage[count++] = TX_ARENA_HALF;
    }
    model->residency = &hooks;
    for (int i = 0; i < count; i++)
        if (place == TX_OFFLOAD_FILE)
            TX_TRY(place_in_file(model, storage[i], folder));
        else
            model->arena[storage[i]].space = TX_SPACE_PINNED;
    return TX_OK;
}

/* A file does not limit the size of a piece. */
tx_status tx_model_offload_states(tx_model *model, const tx_optimizer_options *o)
{
    model->residency = &hooks;
    tx_arena *states = &model->arena[TX_ARENA_OPTIMIZER];
    if (o->offload == TX_OFFLOAD_HOST)
        states->space = TX_SPACE_PINNED;
    if (o->offload != TX_OFFLOAD_FILE)
        return TX_OK;
    states->chunk_bytes = INT64_C(1) << 46;
    return place_in_file(model, TX_ARENA_OPTIMIZER, o->offload_folder);
}
