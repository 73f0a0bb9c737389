/* SPDX-License-Identifier: Apache-2.0
 * The outer optimizer of local steps (outer.h). */
#include "models/train/outer.h"

#include "api/base/arithmetic.h"
#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "models/files/weights.h"
#include "models/train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOMENTUM_FILE "outer.safetensors"
#define ROOM (INT64_C(1) << 24) /* elements that are averaged at a time, unless a parameter has more */

/* A trained parameter. */
typedef struct outer_param {
    int32_t index;
    int64_t first, count; /* its elements in `weights` and `momentum` */
    char name[TX_WEIGHTS_NAME];
    tx_shape shape;
} outer_param;

struct tx_outer {
    tx_model *model;
    tx_comm *comm;
    float rate, decay; /* learning rate and momentum */
    tx_dtype wire;     /* type in which differences are sent between hosts */
    outer_param *param;
    int32_t params;
    int64_t room;
    float *weights; /* of the last synchronization */
    float *momentum;
    float *difference; /* `room` elements in a window, which the ranks of a host sum without messages */
};

int64_t tx_outer_bytes(int64_t weights)
{
    return (int64_t)sizeof(float) * (2 * weights + tx_min(weights, ROOM));
}

/* ---- Creation ----------------------------------------------------------------------------------------- */

static tx_status list_params(tx_outer *o)
{
    const int32_t count = tx_model_param_count(o->model);
    int64_t elements = 0, most = 0;
    o->param = calloc((size_t)count + 1, sizeof *o->param);
    if (!o->param)
        return tx_fail(TX_MEMORY, "no memory for the outer optimizer");
    for (int32_t i = 0; i < count; i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(o->model, i, &name, &spec));
        if (spec->frozen)
            continue;
        outer_param *p = &o->param[o->params++];
        *p = (outer_param){
            .index = i, .first = elements, .count = tx_shape_count(&spec->logical), .shape = spec->logical};
        snprintf(p->name, sizeof p->name, "%.240s.momentum", name);
        elements += p->count;
        most = tx_max(most, p->count);
    }
    o->room = tx_max(most, tx_min(elements, ROOM));
    o->weights = malloc((size_t)elements * sizeof *o->weights + 1);
    o->momentum = calloc((size_t)elements + 1, sizeof *o->momentum);
    return o->weights && o->momentum
               ? TX_OK
               : tx_fail(TX_MEMORY, "no memory for the outer optimizer of %" PRId64 " weights", elements);
}

static tx_status load(tx_outer *o, const char *path)
{
    tx_st_file *file = NULL;
    tx_status status = tx_st_open(path, &file);
    for (int32_t i = 0; i < o->params && !status; i++) {
        const outer_param *p = &o->param[i];
        int32_t index;
        status = tx_st_find(file, p->name, &index);
        if (!status && tx_st_elements(tx_st_tensor_at(file, index)) != p->count)
            status = tx_fail(TX_FORMAT, "%s: tensor %s has another size than the model's", path, p->name);
        TX_THEN(status, tx_st_read_f32(file, index, 0, p->count, o->momentum + p->first));
    }
    tx_st_close(file);
    return status;
}

static tx_status prepare(tx_outer *o, const char *checkpoint)
{
    void *window = NULL;
    tx_status status = list_params(o);
    if (!status && checkpoint && tx_file_exists(TX_PATH(checkpoint, MOMENTUM_FILE))) /* else of a run without it */
        status = load(o, TX_PATH(checkpoint, MOMENTUM_FILE));
    for (int32_t i = 0; i < o->params && !status; i++)
        status = tx_model_read(o->model, TX_PARAM_WEIGHT, o->param[i].index, o->weights + o->param[i].first);
    TX_TRY(tx_comm_agree(o->comm, status, "prepare the outer optimizer"));
    TX_TRY(o->comm->table->window(o->comm, tx_max(o->room, 1) * (int64_t)sizeof *o->difference, &window));
    o->difference = window;
    return TX_OK;
}

tx_status tx_outer_create(tx_model *model, tx_comm *comm, const tx_job_settings *set, const char *checkpoint,
                          tx_outer **outer)
{
    tx_outer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for the outer optimizer");
    *created = (tx_outer){.model = model,
                          .comm = comm,
                          .rate = (float)set->outer_rate,
                          .decay = (float)set->outer_momentum,
                          .wire = tx_job_wire(set)};
    tx_status status = prepare(created, checkpoint);
    return TX_RETURN(status, created, outer, tx_outer_free);
}

void tx_outer_free(tx_outer *o)
{
    if (!o)
        return;
    free(o->param);
    free(o->weights);
    free(o->momentum);
    free(o);
}

/* ---- Synchronization ---------------------------------------------------------------------------------- */

/* Writes how far the weights of a parameter moved, against the direction of the steps. */
static tx_status subtract(const tx_outer *o, const outer_param *p, float *difference)
{
    const float *before = o->weights + p->first;
    TX_TRY(tx_model_read(o->model, TX_PARAM_WEIGHT, p->index, difference));
    for (int64_t k = 0; k < p->count; k++)
        difference[k] = before[k] - difference[k];
    return TX_OK;
}

/* Updates a parameter by the sum of the ranks' differences. Weights of 16 bits are read back, so that a resumed run
 * continues from the same numbers. */
static tx_status update(const tx_outer *o, const outer_param *p, const float *sum)
{
    float *weights = o->weights + p->first, *momentum = o->momentum + p->first;
    const float share = 1.0f / (float)o->comm->size;
    for (int64_t k = 0; k < p->count; k++) {
        const float mean = sum[k] * share;
        momentum[k] = o->decay * momentum[k] + mean;
        weights[k] -= o->rate * (mean + o->decay * momentum[k]);
    }
    TX_TRY(tx_model_write(o->model, TX_PARAM_WEIGHT, p->index, weights));
    return tx_model_read(o->model, TX_PARAM_WEIGHT, p->index, weights);
}

/* Averages parameters first .. end - 1, which have `count` elements. */
static tx_status average(const tx_outer *o, int32_t first, int32_t end, int64_t count)
{
    const tx_transfer sum = {
        .kind = TX_ALL_REDUCE, .dtype = TX_F32, .wire = o->wire, .bucket = -1, .data = o->difference, .count = count};
    const int64_t before = o->param[first].first;
    tx_status status = TX_OK;
    for (int32_t i = first; i < end && !status; i++)
        status = subtract(o, &o->param[i], o->difference + o->param[i].first - before);
    TX_TRY(status);
    TX_TRY(tx_comm_run(o->comm, &sum));
    for (int32_t i = first; i < end && !status; i++)
        status = update(o, &o->param[i], o->difference + o->param[i].first - before);
    return status;
}

tx_status tx_outer_synchronize(tx_outer *o, float *vote)
{
    for (int32_t first = 0, end; first < o->params; first = end) {
        int64_t count = 0;
        for (end = first; end < o->params && count + o->param[end].count <= o->room; end++)
            count += o->param[end].count;
        TX_TRY(average(o, first, end, count));
    }
    return tx_comm_collect(o->comm, TX_ALL_REDUCE, vote, 1, TX_F32, 0);
}

/* ---- Checkpoints -------------------------------------------------------------------------------------- */

char *tx_outer_states_name(int32_t rank, char name[64])
{
    snprintf(name, 64, "optimizer-%" PRId32 ".safetensors", rank);
    return name;
}

static tx_status save_momentum(const tx_outer *o, const char *path)
{
    tx_st_writer *writer = NULL;
    tx_st_tensor *tensor = calloc((size_t)o->params + 1, sizeof *tensor);
    if (!tensor)
        return tx_fail(TX_MEMORY, "no memory for a list of tensors");
    for (int32_t i = 0; i < o->params; i++)
        tensor[i] = tx_weights_part(o->param[i].name, TX_F32, &o->param[i].shape);
    tx_status status = tx_st_create(path, tensor, o->params, &writer);
    for (int32_t i = 0; i < o->params && !status; i++)
        status = tx_st_append(writer, o->momentum + o->param[i].first, (size_t)o->param[i].count * sizeof(float));
    status = tx_st_end(writer, status);
    free(tensor);
    return status;
}

tx_status tx_outer_save(const tx_outer *o, const char *folder)
{
    char name[64];
    return o->comm->rank == 0 ? save_momentum(o, TX_PATH(folder, MOMENTUM_FILE))
                              : tx_optimizer_save(o->model, TX_PATH(folder, tx_outer_states_name(o->comm->rank, name)));
}
