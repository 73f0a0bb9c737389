/* SPDX-License-Identifier: Apache-2.0
 * Matches the tensors of weight files with the parameters of a model, and loads them. */
#include "api/base/arithmetic.h"
#include "models/files/safetensors_header.h"
#include "models/files/weights.h"

#include "api/base/blocks.h"
#include "api/base/thread.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Faults ---------------------------------------------------------------------------------------- */

/* X(NAME, "text before the names") */
#define FAULT_MAP(X)            \
    X(MISSING, "missing")       \
    X(UNEXPECTED, "unexpected") \
    X(TWICE, "duplicate")       \
    X(SHAPE, "wrong shape")     \
    X(TYPE, "wrong type")

typedef enum tx_fault {
#define X(name, text) FAULT_##name,
    FAULT_MAP(X)
#undef X
        FAULT_KINDS
} tx_fault;

static const char *const fault_texts[FAULT_KINDS] = {
#define X(name, text) [FAULT_##name] = text,
    FAULT_MAP(X)
#undef X
};

/* Names of each kind that one message lists; others are only counted. */
#define NAMES_LISTED 20

/* All faults, for a single message. */
typedef struct tx_faults {
    struct {
        char text[2048];
        size_t used;
        int32_t count, left_out;
    } kind[FAULT_KINDS];
} tx_faults;

static void add_fault(tx_faults *faults, tx_fault fault, const char *name, const char *detail)
{
    char one[320];
    size_t used = faults->kind[fault].used;
    int length = snprintf(one, sizeof one, "%s%.150s%.150s", used ? ", " : "", name, detail);
    if (faults->kind[fault].count++ >= NAMES_LISTED || length < 0 ||
        (size_t)length >= sizeof faults->kind[fault].text - used) {
        faults->kind[fault].left_out++;
        return;
    }
    memcpy(faults->kind[fault].text + used, one, (size_t)length + 1);
    faults->kind[fault].used += (size_t)length;
}

/* Returns TX_OK if there are no faults. */
static tx_status report_faults(const tx_faults *faults, const char *path)
{
    char text[sizeof faults->kind + 64 * FAULT_KINDS] = "";
    for (int k = 0; k < FAULT_KINDS; k++) {
        if (faults->kind[k].count)
            tx_list_add(text, sizeof text, "; ", "%s %s", fault_texts[k], faults->kind[k].text);
        if (faults->kind[k].left_out)
            tx_list_add(text, sizeof text, " and ", "%" PRId32 " more", faults->kind[k].left_out);
    }
    return text[0] ? tx_fail(TX_FORMAT, "%s: the weights do not fit the model: %s", path, text) : TX_OK;
}

/* ---- Matching -------------------------------------------------------------------------------------- */

static bool may_lack(const tx_weights_names *names, const tx_weights_piece *piece)
{
    return names->may_lack && names->may_lack(names->context, piece->name);
}

static bool has_shape(const tx_st_tensor *t, const tx_shape *wanted)
{
    const tx_shape shape = tx_st_shape(t);
    return t->rank <= TX_MAX_RANK && tx_shape_equal(&shape, wanted);
}

/* Returns true if a tensor is ignored because of its shape. */
static bool is_dropped(const tx_st_tensor *t, const tx_weights_piece *wanted, const tx_weights_names *names)
{
    return names->other_shape_is_missing && may_lack(names, wanted) && !has_shape(t, &wanted->shape);
}

/* Returns true if a tensor has the first rows of a matrix that has grown. */
static bool has_fewer_rows(const tx_st_tensor *t, const tx_shape *wanted, const tx_weights_names *names)
{
    return names->grown_from && wanted->rank == 2 && t->rank == 2 && wanted->dim[0] == names->grown_to &&
           t->dim[0] == names->grown_from && t->dim[1] == wanted->dim[1];
}

static void check_tensor(const tx_st_tensor *t, const tx_shape *wanted, const tx_weights_names *names,
                         tx_faults *faults)
{
    char have[96], want[96], detail[256];
    const tx_shape shape = tx_st_shape(t);
    if (t->rank > TX_MAX_RANK) {
        snprintf(detail, sizeof detail, " (of %" PRId32 " dimensions)", t->rank);
        add_fault(faults, FAULT_SHAPE, t->name, detail);
    } else if (!has_shape(t, wanted) && !has_fewer_rows(t, wanted, names)) {
        bool transposed =
            shape.rank == 2 && wanted->rank == 2 && shape.dim[0] == wanted->dim[1] && shape.dim[1] == wanted->dim[0];
        snprintf(detail, sizeof detail, " (%s, the configuration requires %s%s)",
                 tx_shape_text(&shape, have, sizeof have), tx_shape_text(wanted, want, sizeof want),
                 transposed ? ": stored transposed" : "");
        add_fault(faults, FAULT_SHAPE, t->name, detail);
    } else if (t->dtype != TX_ST_F32 && t->dtype != TX_ST_F16 && t->dtype != TX_ST_BF16 && t->dtype != TX_ST_F64) {
        snprintf(detail, sizeof detail, " (%s, not F32, F16, BF16 or F64)", tx_st_dtype_name(t->dtype));
        add_fault(faults, FAULT_TYPE, t->name, detail);
    }
}

/* Assigns the tensors to pieces. `sorted` has the pieces' names. */
static void assign(const tx_weights *w, const tx_weights_piece *pieces, const tx_named *sorted, int32_t count,
                   const tx_weights_names *names, int32_t *source, tx_faults *faults)
{
    for (int32_t p = 0; p < count; p++)
        source[p] = -1;
    for (int32_t i = 0; i < tx_weights_count(w); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(w, i);
        char name[TX_WEIGHTS_NAME];
        names->rename(names->context, t->name, name);
        if (name[0] == '\0')
            continue;
        const int32_t piece = tx_named_find(sorted, (size_t)count, name);
        if (piece < 0) {
            add_fault(faults, FAULT_UNEXPECTED, t->name, "");
        } else if (source[piece] >= 0) {
            add_fault(faults, FAULT_TWICE, t->name, "");
        } else if (!is_dropped(t, &pieces[piece], names)) {
            source[piece] = i;
            check_tensor(t, &pieces[piece].shape, names, faults);
        }
    }
    for (int32_t p = 0; p < count; p++) {
        char other[TX_WEIGHTS_NAME];
        if (source[p] < 0 && names->stand_in && names->stand_in(names->context, pieces[p].name, other)) {
            const int32_t piece = tx_named_find(sorted, (size_t)count, other);
            source[p] = piece < 0 ? -1 : source[piece];
        }
        if (source[p] < 0 && !may_lack(names, &pieces[p]))
            add_fault(faults, FAULT_MISSING, pieces[p].name, "");
    }
}

/* Sets source[p] to the index of the tensor for piece p, or -1. Collects all faults before it fails. */
static tx_status match(const tx_weights *w, const tx_weights_piece *pieces, int32_t count,
                       const tx_weights_names *names, int32_t *source)
{
    tx_faults *faults = calloc(1, sizeof *faults);
    tx_named *sorted = malloc((size_t)count * sizeof *sorted);
    tx_status status = TX_OK;
    if (faults && sorted) {
        for (int32_t p = 0; p < count; p++)
            sorted[p] = (tx_named){pieces[p].name, p};
        tx_named_sort(sorted, (size_t)count);
        assign(w, pieces, sorted, count, names, source, faults);
        status = report_faults(faults, tx_weights_path(w));
    } else {
        status = tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", tx_weights_path(w));
    }
    free(faults);
    free(sorted);
    return status;
}

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
    const tx_dtype from = tx_weights_stored(l->weights, index), to = type_of(l->model, piece->param);
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

/* Reads elements and checks them, and copies them if there is a model. */
static tx_status read_chunk(const loading *l, const tx_weights_piece *piece, int32_t index, int64_t at, int64_t now)
{
    const tx_dtype type = type_of(l->model, piece->param);
    const tx_dtype blocks = tx_block_values(type) > 0 ? tx_weights_stored(l->weights, index) : TX_F32;
    bool check = l->check;
    if (blocks == TX_F32) {
        TX_TRY(tx_weights_read_f32(l->weights, index, at, now, l->values));
    } else {
        TX_TRY(tx_weights_read_stored(l->weights, index, at, now, l->blocks));
        check = check && !tx_block_finite(blocks, l->blocks, now);
        if (check || l->digest)
            tx_to_f32(blocks, l->blocks, now, l->values);
    }
    if (check)
        TX_TRY(check_values(l->weights, index, at, now, l->values, tx_weights_limit(l->model, piece->param)));
    if (l->digest)
        TX_TRY(tx_digest_add(l->digest, l->values, (size_t)now * sizeof *l->values));
    if (l->model && blocks == TX_F32)
        return tx_model_write_range(l->model, TX_PARAM_WEIGHT, piece->param, piece->first + at, now, l->values);
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

/* Reads and checks the data of a piece, and copies them if there is a model. */
static tx_status read_piece(const loading *l, const tx_weights_piece *piece, int32_t index)
{
    const int64_t elements = tx_st_elements(tx_weights_tensor_at(l->weights, index));
    row_mean mean;
    tx_status status = begin_mean(piece, elements, &mean);
    if (!status && mean.rows && tx_block_values(type_of(l->model, piece->param)) > 0)
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
                           ? match(l->weights, pieces, count, names, source)
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
