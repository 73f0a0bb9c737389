/* SPDX-License-Identifier: Apache-2.0
 * Loads the tensors of weight files into the parameters of a model. */
#include "api/base/arithmetic.h"
#include "models/files/safetensors_header.h"
#include "models/files/stacked.h"
#include "models/files/weights_match.h"

#include "api/base/blocks.h"
#include "api/base/thread.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Data -------------------------------------------------------------------------------------------- */

/* The type of a parameter, or F32 if there is no model. */
static tx_dtype type_of(const tx_model *model, int32_t param)
{
    const char *name;
    const tx_param_spec *spec;
    return model && tx_model_param(model, param, &name, &spec) == TX_OK ? spec->dtype : TX_F32;
}

float tx_weights_limit(const tx_model *model, int32_t param)
{
    return type_of(model, param) == TX_F16 ? 65520.0f : INFINITY;
}

/* Whether all absolute values are less than `limit`, which only F32 can exceed without being infinite. */
static bool is_below(tx_dtype dtype, const void *data, int64_t count, float limit)
{
    const float *value = data;
    const uint16_t *half = data;
    const int infinity = dtype == TX_BF16 ? 0x7F80 : 0x7C00; /* the exponent of infinities and NaN */
    int above = 0;
    for (int64_t i = 0; i < count; i++)
        above |= dtype == TX_F32 ? !(fabsf(value[i]) < limit) : (half[i] & infinity) == infinity;
    return !above;
}

/* Checks that absolute values of elements first .. first + count - 1 are less than `limit`. */
static tx_status check_values(const tx_weights *w, int32_t index, int64_t first, int64_t count, const float *data,
                              float limit)
{
    const tx_st_tensor *t = tx_weights_tensor_at(w, index);
    if (is_below(TX_F32, data, count, limit))
        return TX_OK;
    for (; fabsf(*data) < limit; first++)
        data++;
    return tx_fail(TX_FORMAT, "%s: tensor %s (%s) holds %f at element %" PRId64 ": %s", tx_weights_path(w), t->name,
                   tx_st_dtype_name(t->dtype), (double)*data, first,
                   isfinite(*data) ? "too large for float16: use bfloat16 or float32"
                                   : "weights must be finite unless allow_nonfinite is set");
}

/* A tensor and the memory of its parameter, to which threads read it. */
typedef struct target {
    int64_t begin; /* the number of its first part, counted from the first tensor on */
    int64_t count; /* elements */
    int32_t index;
    tx_dtype from, to;
    uint8_t *data;
    float limit;
} target;

/* A call of tx_weights_load, or of tx_weights_check without a model. */
typedef struct loading {
    const tx_weights *weights;
    tx_model *model;
    const tx_reporter *report;
    tx_digest *digest;
    bool check;
    float *values;   /* a chunk in fp32 */
    uint8_t *blocks; /* a chunk of a tensor that the model holds in blocks */
    target *target;  /* the last one only has the number of parts */
    int32_t targets;
    atomic_llong next; /* the next part of the targets */
    atomic_bool failed;
} loading;

/* ---- Reading by threads ------------------------------------------------------------------------------------- */

/* Elements that a thread reads and converts at a time, few enough for its cache. Whole blocks of every type. */
#define PART ((int64_t)1 << 16)
/* Most threads that read. */
#define THREADS 16

/* Reads elements from number `at` on, at most a part. `scratch` has room for two parts in fp32. */
static tx_status read_part(const loading *l, const target *t, int64_t at, float *scratch)
{
    const int64_t count = t->count - at < PART ? t->count - at : PART;
    void *const to = t->data + at * (int64_t)tx_dtype_size(t->to), *const stored = t->from == t->to ? to : scratch;
    float *const values = t->from == TX_F32 ? stored : t->to == TX_F32 ? to : scratch + PART;
    TX_TRY(tx_weights_read_stored(l->weights, t->index, at, count, stored));
    if (t->from == t->to && (!l->check || is_below(t->from, stored, count, t->limit)))
        return TX_OK;
    if (t->from != TX_F32)
        tx_to_f32(t->from, stored, count, values);
    if (l->check)
        TX_TRY(check_values(l->weights, t->index, at, count, values, t->limit));
    if (t->to != TX_F32)
        tx_from_f32(t->to, values, count, to);
    return TX_OK;
}

/* Reads parts until none is left. `report` may be NULL. */
static tx_status read_parts(loading *l, const tx_reporter *report)
{
    const target *t = l->target;
    const int64_t parts = l->target[l->targets].begin;
    float *scratch = malloc(2 * PART * sizeof *scratch);
    tx_status status = scratch ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(l->weights));
    for (int64_t part; !status && !l->failed && (part = atomic_fetch_add(&l->next, 1)) < parts;) {
        while (part >= t[1].begin)
            t++;
        status = read_part(l, t, (part - t->begin) * PART, scratch);
        tx_report_progress(report, tx_weights_path(l->weights), part + 1, parts);
    }
    free(scratch);
    return status;
}

static void *serve(void *argument)
{
    loading *l = argument;
    if (read_parts(l, NULL))
        l->failed = true;
    return NULL;
}

/* Reads the targets in several threads. After a failure this thread repeats all in order, for the message of the
 * first. */
static tx_status read_targets(loading *l)
{
    const int32_t cores = tx_cores(), threads = cores < THREADS ? cores : THREADS;
    pthread_t thread[THREADS];
    int32_t started = 0;
    while (started + 1 < threads && started + 1 < l->target[l->targets].begin &&
           tx_thread_start(&thread[started], serve, l))
        started++;
    const tx_status status = read_parts(l, l->report);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    if (!status && !l->failed)
        return TX_OK;
    l->failed = false;
    l->next = 0;
    return read_parts(l, l->report);
}

/* Lists a tensor as a target if all of it can be read to the memory of its parameter. */
static tx_status list_target(loading *l, const tx_weights_piece *piece, int32_t index)
{
    const tx_dtype from = tx_weights_stored(l->weights, index, piece->turned), to = type_of(l->model, piece->param);
    const int64_t count = tx_st_elements(tx_weights_tensor_at(l->weights, index));
    target *t = &l->target[l->targets];
    void *memory = NULL;
    if (l->model && !l->digest && from != TX_DTYPE_COUNT && !tx_dtype_packed(to) &&
        count == tx_shape_count(&piece->shape))
        TX_TRY(tx_model_map(l->model, piece->param, &memory));
    if (!memory)
        return TX_OK;
    *t = (target){.begin = t->begin, .count = count, .index = index, .from = from, .to = to};
    t->data = (uint8_t *)memory + piece->first * (int64_t)tx_dtype_size(to);
    t->limit = tx_weights_limit(l->model, piece->param);
    t[1].begin = t->begin + tx_ceil_div(count, PART);
    l->targets++;
    return TX_OK;
}

/* ---- Reading in chunks ------------------------------------------------------------------------------------- */

/* Checks elements if `check`, and adds them to the digest. */
static tx_status examine(const loading *l, const tx_weights_piece *piece, int32_t index, int64_t at, int64_t now,
                         bool check, const float *values)
{
    if (check)
        TX_TRY(check_values(l->weights, index, at, now, values, tx_weights_limit(l->model, piece->param)));
    return l->digest ? tx_digest_add(l->digest, values, (size_t)now * sizeof *values) : TX_OK;
}

/* Reads elements as fp32, and examines them. */
static tx_status read_values(const loading *l, const tx_weights_piece *piece, int32_t index, int64_t at, int64_t now,
                             float *values)
{
    TX_TRY(tx_weights_read_f32(l->weights, index, at, now, values));
    return examine(l, piece, index, at, now, l->check, values);
}

static tx_status write_values(const loading *l, const tx_weights_piece *piece, int64_t at, int64_t now,
                              const float *values)
{
    return l->model ? tx_model_write_range(l->model, TX_PARAM_WEIGHT, piece->param, piece->first + at, now, values)
                    : TX_OK;
}

/* Reads elements and checks them, and copies them if there is a model. */
static tx_status read_chunk(const loading *l, const tx_weights_piece *piece, int32_t index, int64_t at, int64_t now)
{
    const tx_dtype type = type_of(l->model, piece->param);
    const tx_dtype stored = tx_weights_stored(l->weights, index, piece->turned);
    const tx_dtype blocks = tx_block_values(type) > 0 || (type == TX_Q8 && stored == TX_Q8_0) ? stored : TX_F32;
    if (blocks == TX_F32) {
        TX_TRY(read_values(l, piece, index, at, now, l->values));
        return write_values(l, piece, at, now, l->values);
    }
    TX_TRY(tx_weights_read_stored(l->weights, index, at, now, l->blocks));
    const bool check = l->check && !tx_block_finite(blocks, l->blocks, now);
    if (check || l->digest)
        tx_to_f32(blocks, l->blocks, now, l->values);
    TX_TRY(examine(l, piece, index, at, now, check, l->values));
    return l->model ? tx_model_write_blocks(l->model, piece->param, piece->first + at, now, blocks, l->blocks) : TX_OK;
}

/* The mean of the rows of a matrix that has grown. */
typedef struct row_mean {
    int64_t columns, rows; /* `rows` are missing; 0 if the matrix is whole */
    double *sum;
} row_mean;

static tx_status begin_mean(const tx_weights_piece *piece, int64_t elements, row_mean *mean)
{
    *mean = (row_mean){.columns = piece->shape.dim[1]};
    if (elements == 0 || elements == tx_shape_count(&piece->shape))
        return TX_OK;
    mean->rows = piece->shape.dim[0] - elements / mean->columns;
    mean->sum = calloc((size_t)mean->columns, sizeof *mean->sum);
    return mean->sum ? TX_OK : tx_fail(TX_MEMORY, "no memory for new rows");
}

static void add_to_mean(row_mean *mean, int64_t first, int64_t count, const float *data)
{
    for (int64_t i = 0; i < count && mean->rows; i++)
        mean->sum[(first + i) % mean->columns] += (double)data[i];
}

/* Writes the missing rows. `buffer` has room for a row. */
static tx_status write_mean(tx_model *model, const tx_weights_piece *piece, const row_mean *mean, float *buffer)
{
    const int64_t before = piece->shape.dim[0] - mean->rows;
    tx_status status = TX_OK;
    for (int64_t c = 0; c < mean->columns && mean->rows; c++)
        buffer[c] = (float)(mean->sum[c] / (double)before);
    for (int64_t row = before; row < before + mean->rows && model && !status; row++)
        status = tx_model_write_range(model, TX_PARAM_WEIGHT, piece->param, piece->first + row * mean->columns,
                                      mean->columns, buffer);
    return status;
}

/* Reads and checks a matrix, or those of experts one by one, and writes the transpose if there is a model. */
static tx_status read_turned(const loading *l, const tx_weights_piece *piece, int32_t index)
{
    const tx_shape *shape = &piece->shape;
    const int64_t rows = shape->dim[shape->rank - 2], columns = tx_shape_last(shape), count = rows * columns;
    float *matrix = malloc((size_t)count * sizeof *matrix), *turned = malloc((size_t)count * sizeof *turned);
    tx_status status =
        matrix && turned ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for a matrix", tx_weights_path(l->weights));
    for (int64_t e = 0; e < tx_shape_count(shape) / count && !status; e++) {
        status = read_values(l, piece, index, e * count, count, matrix);
        if (!status)
            tx_stacked_transpose(matrix, rows, columns, turned);
        TX_THEN(status, write_values(l, piece, e * count, count, turned));
    }
    free(matrix);
    free(turned);
    return status;
}

/* Reads and checks the data of a piece, and copies them if there is a model. */
static tx_status read_piece(const loading *l, const tx_weights_piece *piece, int32_t index)
{
    const int64_t elements = tx_st_elements(tx_weights_tensor_at(l->weights, index));
    row_mean mean;
    if (piece->turned && tx_weights_stored(l->weights, index, true) == TX_DTYPE_COUNT)
        return read_turned(l, piece, index);
    tx_status status = begin_mean(piece, elements, &mean);
    if (!status && mean.rows && tx_dtype_packed(type_of(l->model, piece->param)))
        status = tx_fail(TX_UNSUPPORTED, "%s: rows cannot be added to %s, which is quantized",
                         tx_weights_path(l->weights), piece->name);
    for (int64_t at = 0; at < elements && !status; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = elements - at < TX_WEIGHTS_CHUNK ? elements - at : TX_WEIGHTS_CHUNK;
        status = read_chunk(l, piece, index, at, now);
        if (!status)
            add_to_mean(&mean, at, now, l->values);
    }
    TX_THEN(status, write_mean(l->model, piece, &mean, l->values));
    free(mean.sum);
    return status;
}

/* Reads and checks the data of all pieces, and copies them if there is a model. */
static tx_status read_data(loading *l, const tx_weights_piece *pieces, const int32_t *source, int32_t count)
{
    const char *path = tx_weights_path(l->weights);
    l->values = malloc(TX_WEIGHTS_CHUNK * sizeof *l->values);
    l->blocks = malloc(TX_WEIGHTS_CHUNK * sizeof *l->values);
    l->target = calloc((size_t)count + 1, sizeof *l->target);
    tx_status status =
        l->values && l->blocks && l->target ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for a tensor", path);
    for (int32_t p = 0; p < count && !status; p++) {
        const int32_t targets = l->targets;
        if (source[p] < 0)
            continue;
        status = list_target(l, &pieces[p], source[p]);
        if (l->targets == targets) {
            TX_THEN(status, read_piece(l, &pieces[p], source[p]));
            tx_report_progress(l->report, path, p + 1, count);
        }
    }
    TX_THEN(status, read_targets(l));
    free(l->values);
    free(l->blocks);
    free(l->target);
    return status;
}

/* Warns of the pieces that keep their initial values. */
static void report_new(const loading *l, const tx_weights_piece *pieces, const int32_t *source, int32_t count)
{
    char names[512] = "";
    for (int32_t p = 0; p < count; p++)
        if (source[p] < 0)
            tx_list_add(names, sizeof names, ", ", "%s", pieces[p].name);
    if (names[0])
        tx_reporter_print(l->report, "%s lacks %s, or has them in another shape: these are newly initialized",
                          tx_weights_path(l->weights), names);
}

static tx_status read_pieces(loading *l, const tx_weights_piece *pieces, int32_t count, const tx_weights_names *names)
{
    int32_t *source = malloc((size_t)count * sizeof *source);
    tx_status status = source
                           ? tx_weights_match(l->weights, pieces, count, names, source)
                           : tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", tx_weights_path(l->weights));
    TX_THEN(status, read_data(l, pieces, source, count));
    if (!status && !names->quiet_if_missing)
        report_new(l, pieces, source, count);
    free(source);
    return status;
}

tx_status tx_weights_check(const tx_weights *weights, const tx_weights_piece *pieces, int32_t count,
                           const tx_weights_names *names)
{
    return read_pieces(&(loading){.weights = weights, .check = true}, pieces, count, names);
}

tx_status tx_weights_load(const tx_weights *weights, tx_model *model, const tx_weights_names *names,
                          const tx_load_options *options)
{
    loading l = {.weights = weights, .model = model, .check = true};
    tx_weights_piece *pieces = NULL;
    int32_t count = 0;
    if (options && options->size != sizeof *options)
        return tx_fail(TX_INVALID, "tx_load_options: size is %zu, not %zu", options->size, sizeof *options);
    if (tx_model_param_count(model) == 0)
        return tx_fail(TX_INVALID, "%s: the model has no parameters yet: build its graph first",
                       tx_weights_path(weights));
    if (options) {
        l.report = options->report;
        l.digest = options->digest;
        l.check = !options->allow_nonfinite;
    }
    TX_TRY(tx_weights_list(model, names->is_elsewhere, names->context, &pieces, &count));
    const tx_status status = read_pieces(&l, pieces, count, names);
    free(pieces);
    return status;
}
