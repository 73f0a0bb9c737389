/* SPDX-License-Identifier: Apache-2.0
 * The best evaluation of a run: its checkpoint, and loading its weights at the end. */
#include "models/files/folder.h"
#include "models/names.h"
#include "models/train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A member of run_state.json: the name of a checkpoint in the same folder, so that the folder can be moved, or the
 * absolute path of a checkpoint in another folder. */
#define BEST "best_checkpoint"

bool tx_run_state_judge(tx_run_state *state, double metric, bool greater_is_better)
{
    const bool better = !state->has_best || (greater_is_better ? metric > state->best : metric < state->best);
    if (isnan(metric) || !better)
        return false;
    state->has_best = true;
    state->best = metric;
    state->best_step = state->step;
    return true;
}

tx_status tx_run_state_set_best(tx_run_state *state, const char *checkpoint)
{
    char *copy;
    TX_TRY(tx_copy_text(checkpoint, &copy));
    free(state->best_checkpoint);
    state->best_checkpoint = copy;
    return TX_OK;
}

tx_status tx_run_state_best(const tx_run_state *state, const char *output_dir, char **path)
{
    const char *best = state->best_checkpoint;
    if (!best)
        return tx_fail(TX_NOT_FOUND, "no checkpoint of the best evaluation was written");
    return tx_copy_text(strchr(best, '/') ? best : TX_PATH(output_dir, best), path);
}

/* ---- Files ------------------------------------------------------------------------------------------ */

tx_status tx_best_write(const tx_run_state *state, tx_json *json)
{
    return state->best_checkpoint ? tx_json_set_string(json, BEST, state->best_checkpoint) : TX_OK;
}

/* Keeps only the name of a checkpoint in output_dir. `path` is absolute. */
static tx_status set_path(tx_run_state *state, const char *path, const char *output_dir)
{
    const char *name = strrchr(path, '/') + 1;
    char folder[TX_PATH_ROOM];
    bool same = false;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    if (output_dir)
        TX_TRY(tx_folder_same(folder, output_dir, &same));
    return tx_run_state_set_best(state, same ? name : path);
}

/* The absolute path of checkpoint-STEP in the folder that contains `checkpoint`. */
static tx_status find_sibling(const char *checkpoint, int64_t step, char path[TX_PATH_ROOM])
{
    char name[64], folder[TX_PATH_ROOM];
    if (!realpath(checkpoint, folder))
        return tx_file_fail(checkpoint, "find the folder that contains it");
    *strrchr(folder, '/') = '\0';
    snprintf(name, sizeof name, TX_CHECKPOINT_PREFIX "%" PRId64, step);
    tx_path_in(path, *folder ? folder : "/", name);
    return TX_OK;
}

tx_status tx_best_read(const tx_json *json, const char *checkpoint, const char *output_dir, tx_run_state *state)
{
    const char *text;
    char sibling[TX_PATH_ROOM];
    if (!tx_json_has(json, BEST))
        return TX_OK;
    TX_TRY(tx_json_get_string(json, BEST, &text));
    const int64_t step = tx_checkpoint_step(text);
    if (step < 0 || step > state->best_step)
        return tx_fail(TX_FORMAT, BEST " \"%.200s\" is not a checkpoint up to the best step, %" PRId64, text,
                       state->best_step);
    if (*text == '/')
        return set_path(state, text, output_dir);
    TX_TRY(find_sibling(checkpoint, step, sibling));
    return set_path(state, sibling, output_dir);
}

/* ---- Weights ---------------------------------------------------------------------------------------- */

/* Copies all trained weights to `copy`, or back from there. Only counts them if `copy` is NULL. */
static tx_status copy_weights(tx_model *model, float *copy, bool back, int64_t *count)
{
    *count = 0;
    for (int32_t i = 0; i < tx_model_param_count(model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(model, i, &name, &spec));
        if (spec->frozen)
            continue;
        if (copy)
            TX_TRY(back ? tx_model_write(model, TX_PARAM_WEIGHT, i, copy + *count)
                        : tx_model_read(model, TX_PARAM_WEIGHT, i, copy + *count));
        *count += tx_shape_count(&spec->logical);
    }
    return TX_OK;
}

tx_status tx_run_replace_weights(tx_model *model, tx_comm *comm, tx_status (*load)(void *context), void *context,
                                 bool *replaced)
{
    int64_t count;
    tx_status status = copy_weights(model, NULL, false, &count);
    float *last = status ? NULL : malloc((size_t)count * sizeof *last);
    if (!status && !last)
        status = tx_fail(TX_MEMORY, "no memory for a copy of %" PRId64 " weights", count);
    TX_THEN(status, copy_weights(model, last, false, &count));
    const bool kept = status == TX_OK;
    if (kept)
        status = load(context);
    status = tx_comm_agree(comm, status, "load it");
    *replaced = status == TX_OK;
    status = TX_OK;
    if (!*replaced && kept) {
        char reason[1024];
        snprintf(reason, sizeof reason, "%s", tx_error());
        status = copy_weights(model, last, true, &count);
        if (!status)
            tx_fail(TX_OK, "%s", reason);
    }
    free(last);
    return status;
}
