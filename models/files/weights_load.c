/* SPDX-License-Identifier: Apache-2.0
 * Matches the tensors of weight files with the parameters of a model, and loads them. */
#include "models/files/safetensors_header.h"
#include "models/files/weights.h"

#include "api/base/blocks.h"

#include <inttypes.h>
#include <math.h>
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
#define NAMES_TOLD 20

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
    if (faults->kind[fault].count++ >= NAMES_TOLD || length < 0 ||
        (size_t)length >= sizeof faults->kind[fault].text - used) {
        faults->kind[fault].left_out++;
        return;
    }
    memcpy(faults->kind[fault].text + used, one, (size_t)length + 1);
    faults->kind[fault].used += (size_t)length;
}

/* Returns TX_OK if there are no faults. */
static tx_status tell(const tx_faults *faults, const char *path)
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
    return names->other_shape_lacks && may_lack(names, wanted) && !has_shape(t, &wanted->shape);
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
        status = tell(faults, tx_weights_path(w));
    } else {
        status = tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", tx_weights_path(w));
    }
    free(faults);
    free(sorted);
    return status;
}

/* ---- Data -------------------------------------------------------------------------------------------- */

float tx_weights_limit(const tx_model *model, int32_t param)
{
    const char *name;
    const tx_param_spec *spec;
    const bool known = model && tx_model_param(model, param, &name, &spec) == TX_OK;
    return known && spec->dtype == TX_F16 ? 65520.0f : INFINITY;
}

/* Checks that absolute values of elements first .. first + count - 1 are less than `limit`. */
static tx_status check_values(const tx_weights *w, int32_t index, int64_t first, int64_t count, const float *data,
                              float limit)
{
    const tx_st_tensor *t = tx_weights_tensor_at(w, index);
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(data[i]) < limit))
            return tx_fail(TX_FORMAT, "%s: tensor %s (%s) holds %f at element %" PRId64 ": %s", tx_weights_path(w),
                           t->name, tx_st_dtype_name(t->dtype), (double)data[i], first + i,
                           isfinite(data[i]) ? "too large for float16: use bfloat16 or float32"
                                             : "weights must be finite unless allow_nonfinite is set");
    return TX_OK;
}

/* The type of blocks in which a parameter holds a tensor; F32 if it holds numbers, or there is no model. */
static tx_dtype blocks_of(const tx_weights *w, int32_t index, const tx_model *model, int32_t param)
{
    const char *name;
    const tx_param_spec *spec;
    const bool blocks = model && !tx_model_param(model, param, &name, &spec) && tx_block_values(spec->dtype) > 0;
    return blocks ? tx_weights_stored(w, index) : TX_F32;
}

typedef struct chunk {
    float *values;
    uint8_t *blocks; /* the same as the file holds them */
} chunk;

/* Reads elements and checks them, and copies them if there is a model. */
static tx_status read_chunk(const tx_weights *w, const tx_weights_piece *piece, int32_t index, int64_t at, int64_t now,
                            const tx_load_options *options, tx_model *model, const chunk *to)
{
    const tx_dtype blocks = blocks_of(w, index, model, piece->param);
    const bool digested = options && options->digest;
    bool check = !(options && options->allow_nonfinite);
    if (blocks == TX_F32) {
        TX_TRY(tx_weights_read_f32(w, index, at, now, to->values));
    } else {
        TX_TRY(tx_weights_read_stored(w, index, at, now, to->blocks));
        check = check && !tx_block_finite(blocks, to->blocks, now);
        if (check || digested)
            tx_to_f32(blocks, to->blocks, now, to->values);
    }
    if (check)
        TX_TRY(check_values(w, index, at, now, to->values, tx_weights_limit(model, piece->param)));
    if (digested)
        TX_TRY(tx_digest_add(options->digest, to->values, (size_t)now * sizeof *to->values));
    if (model && blocks == TX_F32)
        return tx_model_write_range(model, TX_PARAM_WEIGHT, piece->param, piece->first + at, now, to->values);
    return model ? tx_model_write_blocks(model, piece->param, piece->first + at, now, blocks, to->blocks) : TX_OK;
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
static tx_status read_piece(const tx_weights *w, const tx_weights_piece *piece, int32_t index,
                            const tx_load_options *options, tx_model *model, const chunk *buffer)
{
    const int64_t elements = tx_st_elements(tx_weights_tensor_at(w, index));
    row_mean mean;
    tx_status status = begin_mean(piece, elements, &mean);
    if (!status && mean.rows && blocks_of(w, index, model, piece->param) != TX_F32)
        status = tx_fail(TX_UNSUPPORTED, "%s: rows cannot be added to %s, which is quantized", tx_weights_path(w),
                         piece->name);
    for (int64_t at = 0; at < elements && !status; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = elements - at < TX_WEIGHTS_CHUNK ? elements - at : TX_WEIGHTS_CHUNK;
        status = read_chunk(w, piece, index, at, now, options, model, buffer);
        if (!status)
            add_to_mean(&mean, at, now, buffer->values);
    }
    TX_THEN(status, write_mean(model, piece, &mean, buffer->values));
    free(mean.sum);
    return status;
}

/* Reads and checks the data of all pieces, and copies them if there is a model. */
static tx_status read_data(const tx_weights *w, const tx_weights_piece *pieces, const int32_t *source, int32_t count,
                           const tx_load_options *options, tx_model *model)
{
    const chunk buffer = {malloc(TX_WEIGHTS_CHUNK * sizeof(float)), malloc(TX_WEIGHTS_CHUNK * sizeof(float))};
    tx_status status =
        buffer.values && buffer.blocks ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(w));
    for (int32_t p = 0; p < count && !status; p++) {
        if (source[p] >= 0)
            status = read_piece(w, &pieces[p], source[p], options, model, &buffer);
        tx_report_progress(options ? options->report : NULL, tx_weights_path(w), p + 1, count);
    }
    free(buffer.values);
    free(buffer.blocks);
    return status;
}

/* Warns of the pieces that keep their initial values. */
static void tell_new(const tx_weights *w, const tx_weights_piece *pieces, const int32_t *source, int32_t count,
                     const tx_load_options *options)
{
    char names[512] = "";
    for (int32_t p = 0; p < count; p++)
        if (source[p] < 0)
            tx_list_add(names, sizeof names, ", ", "%s", pieces[p].name);
    if (names[0] && options)
        tx_reporter_print(options->report, "%s lacks %s, or has them in another shape: these are newly initialized",
                          tx_weights_path(w), names);
}

static tx_status read_pieces(const tx_weights *w, const tx_weights_piece *pieces, int32_t count,
                             const tx_weights_names *names, const tx_load_options *options, tx_model *model)
{
    int32_t *source = malloc((size_t)count * sizeof *source);
    tx_status status = source ? match(w, pieces, count, names, source)
                              : tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", tx_weights_path(w));
    TX_THEN(status, read_data(w, pieces, source, count, options, model));
    if (!status)
        tell_new(w, pieces, source, count, options);
    free(source);
    return status;
}

tx_status tx_weights_check(const tx_weights *weights, const tx_weights_piece *pieces, int32_t count,
                           const tx_weights_names *names)
{
    return read_pieces(weights, pieces, count, names, NULL, NULL);
}

tx_status tx_weights_load(const tx_weights *weights, tx_model *model, const tx_weights_names *names,
                          const tx_load_options *options)
{
    tx_weights_piece *pieces = NULL;
    int32_t count = 0;
    if (options && options->size != sizeof *options)
        return tx_fail(TX_INVALID, "tx_load_options: size is %zu, not %zu", options->size, sizeof *options);
    if (tx_model_param_count(model) == 0)
        return tx_fail(TX_INVALID, "%s: the model has no parameters yet: build its graph first",
                       tx_weights_path(weights));
    TX_TRY(tx_weights_list(model, names->is_elsewhere, names->context, &pieces, &count));
    const tx_status status = read_pieces(weights, pieces, count, names, options, model);
    free(pieces);
    return status;
}
