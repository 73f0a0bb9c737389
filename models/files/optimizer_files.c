/* SPDX-License-Identifier: Apache-2.0
 * The optimizer's moments as a safetensors file. */
#include "models/files/checkpoint.h"
#include "models/files/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MOMENTS 2

static const struct {
    tx_part part;
    const char *suffix;
} moment[MAX_MOMENTS] = {{TX_PART_FIRST_MOMENT, ".exp_avg"}, {TX_PART_SECOND_MOMENT, ".exp_avg_sq"}};

/* The tensors that a model's optimizer has, in the order of the file; their names are one allocation. */
typedef struct moments {
    tx_model *model;
    int32_t each, count; /* of a parameter, of all */
    tx_st_tensor *tensor;
    char *names;
} moments;

static void moments_free(moments *m)
{
    free(m->tensor);
    free(m->names);
}

/* How many moments the optimizer keeps: copying nothing of one that there is not fails. */
static tx_status count_moments(tx_model *model, int32_t *each)
{
    float none;
    for (int32_t k = 0; k < MAX_MOMENTS; k++) {
        tx_status status = tx_model_read_range(model, moment[k].part, 0, 0, 0, &none);
        if (status == TX_NOT_FOUND)
            break;
        if (status)
            return status;
        *each = k + 1;
    }
    return TX_OK;
}

static tx_status fill(moments *m, int32_t params, size_t name_bytes)
{
    char *name = m->names;
    for (int32_t p = 0; p < params; p++) {
        const char *param;
        const tx_param_spec *spec;
        tx_status status = tx_model_param(m->model, p, &param, &spec);
        if (status)
            return status;
        for (int32_t k = 0; k < m->each; k++) {
            int length = snprintf(name, name_bytes, "%s%s", param, moment[k].suffix);
            m->tensor[m->count++] = tx_weights_of_param(name, spec);
            name += length + 1;
            name_bytes -= (size_t)length + 1;
        }
    }
    return TX_OK;
}

static tx_status list_moments(tx_model *model, moments *m)
{
    const int32_t params = tx_model_param_count(model);
    *m = (moments){.model = model};
    if (params == 0)
        return tx_fail(TX_INVALID, "the model has no parameters yet: build its graph first");
    tx_status status = count_moments(model, &m->each);
    size_t bytes = 1;
    for (int32_t p = 0; p < params && !status; p++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(model, p, &name, &spec);
        if (!status)
            bytes += MAX_MOMENTS * (strlen(name) + sizeof ".exp_avg_sq");
    }
    if (status)
        return status;
    m->tensor = calloc((size_t)(uint32_t)params * MAX_MOMENTS, sizeof *m->tensor);
    m->names = malloc(bytes);
    status = m->tensor && m->names ? fill(m, params, bytes) : tx_fail(TX_MEMORY, "no memory for a list of tensors");
    if (status)
        moments_free(m);
    return status;
}

/* ---- Saving -------------------------------------------------------------------------------------- */

tx_status tx_optimizer_save(tx_model *model, const char *path)
{
    moments m;
    tx_st_writer *writer = NULL;
    tx_status status = list_moments(model, &m);
    if (status)
        return tx_fail_in(status, "%s", path ? path : "optimizer states");
    float *buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *buffer);
    if (!buffer)
        status = tx_fail(TX_MEMORY, "%s: no memory for a tensor", path ? path : "optimizer states");
    else if (path)
        status = tx_st_create(path, m.tensor, m.count, NULL, &writer);
    /* After a failure as well: other ranks take part to the end. */
    for (int32_t i = 0; i < m.count && buffer; i++) {
        tx_status appended = tx_weights_append(model, moment[i % m.each].part, i / m.each, tx_st_elements(&m.tensor[i]),
                                               buffer, status ? NULL : writer);
        status = status ? status : appended;
    }
    if (writer && status)
        tx_st_discard(writer);
    else if (writer)
        status = tx_st_commit(writer);
    free(buffer);
    moments_free(&m);
    return status;
}

/* ---- Loading ------------------------------------------------------------------------------------- */

/* Text of a shape of either kind. */
static const char *shape_text(const tx_st_tensor *t, char text[160])
{
    tx_shape shape = {.rank = t->rank < TX_MAX_RANK ? t->rank : TX_MAX_RANK};
    memcpy(shape.dim, t->dim, (size_t)shape.rank * sizeof shape.dim[0]);
    return tx_shape_text(&shape, text, 160);
}

/* Where in the file each tensor of `m` is. */
static tx_status match(const tx_st_file *file, const moments *m, int32_t *source)
{
    for (int32_t i = 0; i < m->count; i++) {
        const tx_st_tensor *wanted = &m->tensor[i];
        char here[160], there[160];
        tx_status status = tx_st_find(file, wanted->name, &source[i]);
        if (status)
            return tx_fail(TX_FORMAT, "%s: has no tensor %s, which the optimizer of this model keeps", tx_st_path(file),
                           wanted->name);
        const tx_st_tensor *found = tx_st_tensor_at(file, source[i]);
        if (found->dtype != TX_ST_F32)
            return tx_fail(TX_FORMAT, "%s: tensor %s is %s, should be F32", tx_st_path(file), wanted->name,
                           tx_st_dtype_name(found->dtype));
        if (found->rank != wanted->rank ||
            memcmp(found->dim, wanted->dim, (size_t)wanted->rank * sizeof wanted->dim[0]) != 0)
            return tx_fail(TX_FORMAT, "%s: tensor %s is %s, the model's is %s", tx_st_path(file), wanted->name,
                           shape_text(found, there), shape_text(wanted, here));
    }
    if (tx_st_count(file) != m->count)
        return tx_fail(TX_FORMAT, "%s: has %d tensors, the optimizer of this model keeps %d", tx_st_path(file),
                       (int)tx_st_count(file), (int)m->count);
    return TX_OK;
}

/* Looks at elements first .. first + count - 1 of a moment. No update of TX makes one that is not finite, nor a mean of
 * squares below 0, of which the next update would take the root. */
static tx_status check_values(const tx_st_file *file, const moments *m, int32_t i, int64_t first, int64_t count,
                              const float *data)
{
    const float least = moment[i % m->each].part == TX_PART_SECOND_MOMENT ? 0.0f : -INFINITY;
    for (int64_t k = 0; k < count; k++)
        if (!(isfinite(data[k]) && data[k] >= least))
            return tx_fail(TX_FORMAT,
                           "%s: tensor %s holds %g at element %" PRId64
                           ", which no update makes: the file is damaged; go on from another checkpoint",
                           tx_st_path(file), m->tensor[i].name, (double)data[k], first + k);
    return TX_OK;
}

static tx_status copy_in(const tx_st_file *file, const moments *m, const int32_t *source, float *buffer)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < m->count && !status; i++) {
        const int64_t count = tx_st_elements(&m->tensor[i]);
        for (int64_t at = 0; at < count && !status; at += TX_WEIGHTS_CHUNK) {
            const int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
            status = tx_st_read_f32(file, source[i], at, now, buffer);
            if (!status)
                status = check_values(file, m, i, at, now, buffer);
            if (!status)
                status = tx_model_write_range(m->model, moment[i % m->each].part, i / m->each, at, now, buffer);
        }
    }
    return status;
}

tx_status tx_optimizer_load(tx_model *model, const char *path)
{
    moments m;
    tx_st_file *file = NULL;
    tx_status status = list_moments(model, &m);
    if (status)
        return tx_fail_in(status, "%s", path);
    int32_t *source = malloc(((size_t)m.count + 1) * sizeof *source);
    float *buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *buffer);
    status = source && buffer ? tx_st_open(path, &file) : tx_fail(TX_MEMORY, "%s: no memory to read it", path);
    if (!status) {
        status = match(file, &m, source);
        if (!status)
            status = copy_in(file, &m, source, buffer);
        tx_st_close(file);
    }
    free(source);
    free(buffer);
    moments_free(&m);
    return status;
}
