/* SPDX-License-Identifier: Apache-2.0
 * Saves and loads the optimizer states as a safetensors file. */
#include "models/files/checkpoint.h"
#include "models/files/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An optimizer state of a parameter, in the order of the file. */
typedef struct state {
    char name[TX_WEIGHTS_NAME];
    int32_t param, number; /* its parameter, and its index among that parameter's states */
    int64_t first;         /* its first element among those of the parameter: a file may have a tensor for each piece */
    tx_state_info info;
} state;

typedef struct states {
    tx_model *model;
    state *at;
    size_t count, room;
    tx_st_tensor *tensor;
} states;

static void states_free(states *s)
{
    free(s->at);
    free(s->tensor);
}

static tx_param_role part_of(const states *s, size_t i)
{
    return (tx_param_role)(TX_PARAM_STATE + s->at[i].number);
}

static tx_status add_state(states *s, const char *name, state result)
{
    snprintf(result.name, sizeof result.name, "%.200s.%s", name, result.info.name);
    TX_TRY(tx_array_reserve(&s->at, &s->room, s->count + 1, sizeof result, "states of the optimizer"));
    s->at[s->count++] = result;
    return TX_OK;
}

/* Adds a state of each piece of a parameter. */
static tx_status add_pieces(states *s, const char *name, const tx_param_spec *spec, state of)
{
    const int32_t count = tx_weights_piece_count(name, spec);
    tx_weights_piece *piece = malloc((size_t)count * sizeof *piece);
    tx_status status = piece ? TX_OK : tx_fail(TX_MEMORY, "no memory for the states of the optimizer");
    if (piece)
        tx_weights_pieces(name, spec, of.param, count, piece);
    for (int32_t i = 0; i < count && !status; i++) {
        of.first = piece[i].first;
        of.info.shape = piece[i].shape;
        status = add_state(s, piece[i].name, of);
    }
    free(piece);
    return status;
}

/* Adds the states of a parameter: one tensor each, or in a file of another program that has not the first one, one for
 * each piece of the parameter. */
static tx_status add_states(states *s, int32_t param, const tx_st_file *file)
{
    const char *name;
    char whole[TX_WEIGHTS_NAME];
    const tx_param_spec *spec;
    int32_t index;
    TX_TRY(tx_model_param(s->model, param, &name, &spec));
    for (int32_t k = 0; k < tx_model_states(s->model, param); k++) {
        state result = {.param = param, .number = k};
        TX_TRY(tx_model_state(s->model, param, k, &result.info));
        snprintf(whole, sizeof whole, "%.200s.%s", name, result.info.name);
        const bool divides = file && tx_weights_piece_count(name, spec) > 1 && !spec->turned &&
                             tx_shape_equal(&result.info.shape, &spec->logical) && tx_st_find(file, whole, &index);
        TX_TRY(divides ? add_pieces(s, name, spec, result) : add_state(s, name, result));
    }
    return TX_OK;
}

/* Lists the states as tensors of a file, or of one that is written (NULL). */
static tx_status list_states(states *s, const tx_st_file *file)
{
    if (tx_model_param_count(s->model) == 0)
        return tx_fail(TX_INVALID, "the model has no parameters yet: build its graph first");
    for (int32_t p = 0; p < tx_model_param_count(s->model); p++)
        TX_TRY(add_states(s, p, file));
    s->tensor = calloc(s->count + 1, sizeof *s->tensor);
    if (!s->tensor)
        return tx_fail(TX_MEMORY, "no memory for a list of tensors");
    for (size_t i = 0; i < s->count; i++)
        s->tensor[i] = tx_weights_part(s->at[i].name, s->at[i].info.dtype, &s->at[i].info.shape);
    return TX_OK;
}

/* ---- Saving -------------------------------------------------------------------------------------- */

static tx_status write_states(const states *s, const char *path)
{
    tx_st_writer *writer = NULL;
    float *buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *buffer);
    tx_status status = buffer ? tx_st_create(path, s->tensor, (int32_t)s->count, &writer)
                              : tx_fail(TX_MEMORY, "%s: no memory for a tensor of the optimizer's states", path);
    for (size_t i = 0; i < s->count && !status; i++)
        status = tx_weights_append(s->model, part_of(s, i), s->at[i].param, 0, &s->tensor[i], buffer, writer);
    status = tx_st_end(writer, status);
    free(buffer);
    return status;
}

tx_status tx_optimizer_save(tx_model *model, const char *path)
{
    states s = {.model = model};
    tx_status status = tx_fail_in(list_states(&s, NULL), "%s", path);
    TX_THEN(status, write_states(&s, path));
    states_free(&s);
    return status;
}

/* ---- Loading ------------------------------------------------------------------------------------- */

/* Finds the tensor in the file for each tensor of `s`. */
static tx_status match(const tx_st_file *file, const states *s, int32_t *source)
{
    for (size_t i = 0; i < s->count; i++) {
        const tx_st_tensor *wanted = &s->tensor[i];
        char expected[160], found_text[160];
        const tx_shape shape = tx_st_shape(wanted);
        if (tx_st_find(file, wanted->name, &source[i]))
            return tx_fail(TX_FORMAT, "%s: has no tensor %s, which the optimizer of this model needs", tx_st_path(file),
                           wanted->name);
        const tx_st_tensor *found = tx_st_tensor_at(file, source[i]);
        const tx_shape other = tx_st_shape(found);
        if (found->dtype != wanted->dtype)
            return tx_fail(TX_FORMAT, "%s: tensor %s is %s, should be %s", tx_st_path(file), wanted->name,
                           tx_st_dtype_name(found->dtype), tx_st_dtype_name(wanted->dtype));
        if (found->rank != wanted->rank ||
            memcmp(found->dim, wanted->dim, (size_t)wanted->rank * sizeof wanted->dim[0]) != 0)
            return tx_fail(TX_FORMAT,
                           "%s: tensor %s is %s, the model's is %s: another model's or version's optimizer wrote it; "
                           "start a new run from the checkpoint's weights",
                           tx_st_path(file), wanted->name, tx_shape_text(&other, found_text, sizeof found_text),
                           tx_shape_text(&shape, expected, sizeof expected));
    }
    if ((size_t)tx_st_count(file) != s->count)
        return tx_fail(TX_FORMAT, "%s: has %d tensors, the optimizer of this model needs %d", tx_st_path(file),
                       (int)tx_st_count(file), (int)s->count);
    return TX_OK;
}

/* Checks elements first .. first + count - 1 of a state. Updates never produce values that are not finite, nor a
 * negative mean of squares, whose root the next update would take. */
static tx_status check_values(const tx_st_file *file, const state *of, int64_t first, int64_t count, const float *data)
{
    const float least = of->info.never_negative ? 0.0f : -INFINITY;
    for (int64_t k = 0; k < count; k++)
        if (!(isfinite(data[k]) && data[k] >= least))
            return tx_fail(TX_FORMAT,
                           "%s: tensor %s holds %g at element %" PRId64
                           ", which no update produces: the file is damaged; resume from another checkpoint",
                           tx_st_path(file), of->name, (double)data[k], first + k);
    return TX_OK;
}

static tx_status copy_in(const tx_st_file *file, const states *s, const int32_t *source, float *buffer)
{
    for (size_t i = 0; i < s->count; i++) {
        const int64_t count = tx_st_elements(&s->tensor[i]);
        for (int64_t at = 0; at < count; at += TX_WEIGHTS_CHUNK) {
            const int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
            TX_TRY(tx_st_read_f32(file, source[i], at, now, buffer));
            TX_TRY(check_values(file, &s->at[i], at, now, buffer));
            TX_TRY(tx_model_write_range(s->model, part_of(s, i), s->at[i].param, s->at[i].first + at, now, buffer));
        }
    }
    return TX_OK;
}

static tx_status load(const char *path, const states *s, const tx_st_file *file)
{
    int32_t *source = malloc((s->count + 1) * sizeof *source);
    float *buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *buffer);
    tx_status status = source && buffer ? match(file, s, source) : tx_fail(TX_MEMORY, "%s: no memory to read it", path);
    TX_THEN(status, copy_in(file, s, source, buffer));
    free(source);
    free(buffer);
    return status;
}

tx_status tx_optimizer_load(tx_model *model, const char *path)
{
    states s = {.model = model};
    tx_st_file *file = NULL;
    tx_status status = tx_st_open(path, &file);
    TX_THEN(status, tx_fail_in(list_states(&s, file), "%s", path));
    TX_THEN(status, load(path, &s, file));
    tx_st_close(file);
    states_free(&s);
    return status;
}
