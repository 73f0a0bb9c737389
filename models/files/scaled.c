/* SPDX-License-Identifier: Apache-2.0
 * Reads weights that are small numbers times scales. Called by models/files/quantized.c. */
#include "models/files/scaled.h"

#include "api/base/arithmetic.h"
#include "api/base/half.h"
#include "models/files/mxfp4.h"
#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BYTES: one element in a byte. PAIRS: two of e2m1, the lower bits first. WORDS: unsigned elements in words of 32 bits,
 * of which half the range is subtracted. */
typedef enum kind { PLAIN, BYTES, PAIRS, WORDS } kind;

/* A tensor of the result: `batch` matrices [out, in]. Tensors of the file are -1 if there is none. */
typedef struct matrix {
    kind kind;
    int32_t source, scale, factor, zeros, order;
    bool divide;                           /* scales are divided by the factor */
    int64_t batch, out, in, rows, columns; /* of a scale: rows and columns */
    int64_t in_word;
    char name[TX_WEIGHTS_NAME];
} matrix;

typedef struct scaled {
    tx_weights *weights;
    int64_t block[2]; /* rows and columns of a scale in the configuration, or 0 */
    int32_t count;
    matrix *matrix;
    tx_st_tensor *tensor;
    int32_t held; /* the matrix that was read last, or -1, and its index in the batch */
    int64_t slice;
    uint8_t *codes;
    float *scale;
    int32_t *zeros, *groups;
    float value[256]; /* of a code */
} scaled;

/* ---- quantization_config --------------------------------------------------------------------------------------- */

bool tx_scaled_is(const char *method)
{
    static const char *const methods[] = {"fp8", "fbgemm_fp8", "compressed-tensors", "modelopt"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

static tx_status check_word(const tx_json *json, const char *key, const char *const *known)
{
    const char *word = "";
    char list[256] = "";
    TX_TRY(TX_JSON_OPTIONAL(string, json, key, &word));
    for (; *known; known++) {
        if (!*word || strcmp(word, *known) == 0)
            return TX_OK;
        tx_list_add(list, sizeof list, ", ", "%s", *known);
    }
    return tx_fail(TX_UNSUPPORTED, "%s: \"%.40s\" is not implemented, only %s", key, word, list);
}

static const char *const formats[] = {
    "float-quantized",      "pack-quantized",       "int-quantized",   "naive-quantized",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision", NULL};
static const char *const algorithms[] = {"FP8", "FP8_PB_WO", "NVFP4", "W4A16_NVFP4", "MIXED_PRECISION", NULL};

static const char *const codes[] = {"e4m3", "float8_e4m3fn", NULL};

static tx_status check_groups(const tx_json *json)
{
    const tx_json *groups = tx_json_find(json, "config_groups"), *sparse = tx_json_find(json, "sparsity_config"),
                  *rotated = tx_json_find(json, "transform_config");
    static const char *const dense[] = {"dense", NULL};
    if (sparse && tx_json_size(sparse) > 0)
        TX_TRY(tx_fail_in(check_word(sparse, "format", dense), "sparsity_config"));
    if (rotated && tx_json_size(rotated) > 0)
        return tx_fail(TX_UNSUPPORTED, "transform_config: rotated weights are not implemented");
    for (void *i = groups ? tx_json_first(groups) : NULL; i; i = tx_json_next(groups, i))
        TX_TRY(tx_fail_in(check_word(tx_json_value(i), "format", formats), "config_groups"));
    return TX_OK;
}

static tx_status read_pair(const tx_json *list, const char *key, int64_t pair[2])
{
    if (tx_json_size(list) != 2)
        return tx_fail(TX_UNSUPPORTED, "%s: expected two numbers", key);
    TX_TRY(tx_json_as_int(tx_json_at(list, 0), key, 1, 1 << 20, &pair[0]));
    return tx_json_as_int(tx_json_at(list, 1), key, 1, 1 << 20, &pair[1]);
}

/* Reads the size of blocks with one scale. */
static tx_status read_block(const tx_json *json, int64_t block[2])
{
    const tx_json *size = tx_json_find(json, "weight_block_size"), *groups = tx_json_find(json, "config_groups");
    if (size && tx_json_size(size) > 0)
        return read_pair(size, "weight_block_size", block);
    for (void *i = groups ? tx_json_first(groups) : NULL; i; i = tx_json_next(groups, i)) {
        const tx_json *of = tx_json_find(tx_json_value(i), "weights");
        size = of ? tx_json_find(of, "block_structure") : NULL;
        if (size && tx_json_size(size) > 0)
            return read_pair(size, "block_structure", block);
    }
    return TX_OK;
}

tx_status tx_scaled_check(const tx_json *quantization)
{
    int64_t block[2];
    TX_TRY(check_word(quantization, "format", formats));
    TX_TRY(check_word(quantization, "quant_algo", algorithms));
    TX_TRY(check_word(quantization, "fmt", codes));
    TX_TRY(read_block(quantization, block));
    return check_groups(quantization);
}

/* ---- The list of tensors ----------------------------------------------------------------------------------------- */

static const tx_st_tensor *tensor_at(const scaled *s, int32_t i)
{
    return tx_weights_tensor_at(s->weights, i);
}

/* Tensors that belong to another, or only to the quantization of activations. */
static bool is_companion(const char *name)
{
    static const char *const ends[] = {
        "_scale_inv",        "weight_scale", "weight_scale_2",     "weight_global_scale", "weight_shape",
        "weight_zero_point", "weight_g_idx", ".input_scale",       ".output_scale",       ".k_scale",
        ".v_scale",          ".q_scale",     ".input_global_scale"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (tx_ends_with(name, ends[i]))
            return true;
    return false;
}

static int32_t find(const scaled *s, const matrix *m, const char *suffix)
{
    char other[TX_WEIGHTS_NAME + 32];
    snprintf(other, sizeof other, "%s%s", m->name, suffix);
    return tx_weights_find(s->weights, NULL, other);
}

static tx_status read_raw(const scaled *s, int32_t index, int64_t first, int64_t count, void *data)
{
    return tx_weights_read_stored(s->weights, index, first, count, data);
}

/* Reads the shape of a matrix in words, whose last word may be partly used. */
static tx_status read_shape(const scaled *s, matrix *m, int64_t words)
{
    const int32_t index = find(s, m, "_shape");
    int64_t shape[2] = {0};
    int32_t narrow[2];
    if (index < 0 || tx_st_elements(tensor_at(s, index)) != 2)
        return tx_fail(TX_FORMAT, "%s: its weight_shape is missing", m->name);
    const bool wide = tensor_at(s, index)->dtype == TX_ST_I64;
    TX_TRY(read_raw(s, index, 0, 2, wide ? (void *)shape : narrow));
    for (int i = 0; i < 2 && !wide; i++)
        shape[i] = narrow[i];
    m->in = shape[1];
    m->in_word = words > 0 && tx_ceil_div(shape[1], 8) == words ? 8 : 4;
    if (shape[0] != m->out || shape[1] < 1 || tx_ceil_div(shape[1], m->in_word) != words)
        return tx_fail(TX_UNSUPPORTED, "%s: only 4 and 8 bits are read, in words of 32 bits", m->name);
    return TX_OK;
}

/* Finds the rows and columns that share a scale. */
static tx_status find_scales(const scaled *s, matrix *m)
{
    const tx_st_tensor *t = tensor_at(s, m->scale);
    const int64_t all = tx_st_elements(t), each = all % m->batch ? 0 : all / m->batch;
    const int64_t across = t->rank >= 2 ? t->dim[t->rank - 1] : 1, down = each > 0 && across > 0 ? each / across : 0;
    const int64_t rows = s->block[0], columns = s->block[1];
    if (rows && down == tx_ceil_div(m->out, rows) && across == tx_ceil_div(m->in, columns)) {
        m->rows = rows;
        m->columns = columns;
        return TX_OK;
    }
    if (all == 1 || (down > 0 && m->out % down == 0 && m->in % across == 0)) {
        m->rows = all == 1 ? m->out * m->batch : m->out / down;
        m->columns = all == 1 ? m->in : m->in / across;
        return TX_OK;
    }
    return tx_fail(TX_FORMAT, "%s does not have a scale for each block", t->name);
}

/* Fills in the kind and the shape of a tensor with scales. */
static tx_status list_codes(const scaled *s, const tx_st_tensor *t, matrix *m)
{
    const bool packed = tx_ends_with(t->name, "weight_packed");
    m->kind = t->dtype == TX_ST_I32 ? WORDS : t->dtype == TX_ST_U8 ? PAIRS : BYTES;
    if (packed)
        m->name[strlen(m->name) - strlen("_packed")] = '\0';
    const int32_t divisor = find(s, m, "_global_scale"), inverse = find(s, m, "_scale_inv");
    m->scale = inverse >= 0 ? inverse : find(s, m, "_scale");
    m->factor = divisor >= 0 ? divisor : find(s, m, "_scale_2");
    m->divide = divisor >= 0;
    m->zeros = find(s, m, "_zero_point");
    m->order = m->kind == WORDS ? find(s, m, "_g_idx") : -1;
    if (m->scale < 0 || (t->rank != 2 && t->rank != 3))
        return tx_fail(TX_FORMAT, "%s: its scales are missing, or it is no matrix", t->name);
    if (m->zeros >= 0 && m->kind != WORDS)
        return tx_fail(TX_UNSUPPORTED, "%s: zero points of bytes are not implemented", t->name);
    m->batch = t->rank == 3 ? t->dim[0] : 1;
    m->out = t->dim[t->rank - 2];
    m->in = t->dim[t->rank - 1] * (m->kind == PAIRS ? 2 : 1);
    if (m->kind == WORDS)
        TX_TRY(read_shape(s, m, m->in));
    return find_scales(s, m);
}

static tx_status list_tensor(const scaled *s, int32_t i, matrix *m)
{
    const tx_st_tensor *t = tensor_at(s, i);
    const bool small = t->dtype == TX_ST_F8_E4M3 || t->dtype == TX_ST_F8_E5M2;
    const bool others = t->dtype == TX_ST_I8 || t->dtype == TX_ST_U8 || t->dtype == TX_ST_I32;
    *m = (matrix){.kind = PLAIN, .source = i, .scale = -1};
    if (strlen(t->name) >= sizeof m->name)
        return tx_fail(TX_FORMAT, "%s: its name is too long", t->name);
    snprintf(m->name, sizeof m->name, "%s", t->name);
    return small || (others && (tx_ends_with(t->name, "weight_packed") || find(s, m, "_scale") >= 0))
               ? list_codes(s, t, m)
               : TX_OK;
}

static tx_status list_all(scaled *s)
{
    const int32_t most = tx_weights_count(s->weights);
    s->matrix = calloc((size_t)most + 1, sizeof *s->matrix);
    s->tensor = calloc((size_t)most + 1, sizeof *s->tensor);
    if (!s->matrix || !s->tensor)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    for (int32_t i = 0; i < most; i++) {
        matrix *m = &s->matrix[s->count];
        tx_st_tensor *shown = &s->tensor[s->count];
        if (is_companion(tensor_at(s, i)->name))
            continue;
        TX_TRY(list_tensor(s, i, m));
        *shown = *tensor_at(s, i);
        shown->name = m->name;
        if (m->kind != PLAIN) {
            shown->dtype = TX_ST_BF16;
            shown->dim[shown->rank - 1] = m->in;
        }
        s->count++;
    }
    return TX_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* The value of a byte: sign, 4 bits of exponent, 3 of mantissa (OCP 8-bit Floating Point, 2023). */
static float of_e4m3(unsigned byte)
{
    const unsigned exponent = byte >> 3 & 15, mantissa = byte & 7;
    const float size = (byte & 127) == 127 ? NAN
                       : exponent          ? ldexpf((float)(8 + mantissa), (int)exponent - 10)
                                           : ldexpf((float)mantissa, -9);
    return byte & 128 ? -size : size;
}

static void list_values(scaled *s, const matrix *m)
{
    const tx_st_dtype dtype = tensor_at(s, m->source)->dtype;
    for (unsigned b = 0; b < 256; b++)
        s->value[b] = m->kind == PAIRS         ? tx_mxfp4_value(b & 15, 127)
                      : dtype == TX_ST_I8      ? (float)(int8_t)b
                      : dtype == TX_ST_F8_E5M2 ? tx_f16_to_f32((uint16_t)(b << 8))
                                               : of_e4m3(b);
}

/* Reads scales, which may have 8 bits themselves. */
static tx_status read_scales(const scaled *s, int32_t index, int64_t first, int64_t count, float *to)
{
    const tx_st_dtype dtype = tensor_at(s, index)->dtype;
    if (dtype != TX_ST_U8 && dtype != TX_ST_F8_E8M0 && dtype != TX_ST_F8_E4M3)
        return tx_weights_read_f32(s->weights, index, first, count, to);
    uint8_t *bytes = malloc((size_t)count);
    tx_status status = bytes ? TX_OK : tx_fail(TX_MEMORY, "no memory for scales");
    TX_THEN(status, read_raw(s, index, first, count, bytes));
    for (int64_t i = 0; i < count && !status; i++)
        to[i] = dtype == TX_ST_F8_E4M3 ? of_e4m3(bytes[i]) : ldexpf(1.0f, bytes[i] - 127);
    free(bytes);
    return status;
}

static tx_status load_scales(scaled *s, const matrix *m, int64_t slice)
{
    const int64_t all = tx_st_elements(tensor_at(s, m->scale)), count = all == 1 ? 1 : all / m->batch;
    float factor = 1.0f;
    s->scale = malloc((size_t)count * sizeof *s->scale);
    if (!s->scale)
        return tx_fail(TX_MEMORY, "no memory for scales");
    TX_TRY(read_scales(s, m->scale, all == 1 ? 0 : slice * count, count, s->scale));
    if (m->factor < 0)
        return TX_OK;
    const int64_t factors = tx_st_elements(tensor_at(s, m->factor));
    if (factors != 1 && factors != m->batch)
        return tx_fail(TX_FORMAT, "%s: expected one number", tensor_at(s, m->factor)->name);
    TX_TRY(read_scales(s, m->factor, factors == 1 ? 0 : slice, 1, &factor));
    for (int64_t i = 0; i < count; i++)
        s->scale[i] = m->divide ? s->scale[i] / factor : s->scale[i] * factor;
    return TX_OK;
}

static uint32_t code_at(const matrix *m, const uint8_t *words, int64_t word, int64_t k)
{
    uint32_t bits;
    memcpy(&bits, words + 4 * word, sizeof bits);
    const int width = (int)(32 / m->in_word);
    return bits >> (k * width) & ((1U << width) - 1);
}

/* Zero points: codes of [out, groups], packed along out. */
static tx_status load_zeros(scaled *s, const matrix *m, int64_t groups)
{
    const int64_t words = tx_ceil_div(m->out, m->in_word) * groups;
    uint8_t *packed = malloc((size_t)words * 4);
    s->zeros = malloc((size_t)(m->out * groups) * sizeof *s->zeros);
    tx_status status = packed && s->zeros ? TX_OK : tx_fail(TX_MEMORY, "no memory for zero points");
    for (int64_t i = 0; i < m->out * groups && !status; i++)
        s->zeros[i] = m->in_word == 8 ? 8 : 128;
    const tx_st_tensor *t = m->zeros < 0 ? NULL : tensor_at(s, m->zeros);
    if (!status && t && (t->dtype != TX_ST_I32 || tx_st_elements(t) != words))
        status = tx_fail(TX_FORMAT, "%s: expected I32 [%" PRId64 ", %" PRId64 "]", t->name, words / groups, groups);
    TX_THEN(status, t ? read_raw(s, m->zeros, 0, words, packed) : TX_OK);
    for (int64_t o = 0; o < m->out && t && !status; o++)
        for (int64_t g = 0; g < groups; g++)
            s->zeros[o * groups + g] = (int32_t)code_at(m, packed, o / m->in_word * groups + g, o % m->in_word);
    free(packed);
    return status;
}

/* The scale's column of each column. */
static tx_status load_groups(scaled *s, const matrix *m, int64_t groups)
{
    s->groups = malloc((size_t)m->in * sizeof *s->groups);
    if (!s->groups)
        return tx_fail(TX_MEMORY, "no memory for groups");
    const tx_st_tensor *t = m->order < 0 ? NULL : tensor_at(s, m->order);
    if (t && (t->dtype != TX_ST_I32 || tx_st_elements(t) != m->in))
        return tx_fail(TX_FORMAT, "%s: expected I32 [%" PRId64 "]", t->name, m->in);
    if (t)
        TX_TRY(read_raw(s, m->order, 0, m->in, s->groups));
    for (int64_t i = 0; i < m->in; i++) {
        s->groups[i] = !t || s->groups[0] < 0 ? (int32_t)(i / m->columns) : s->groups[i];
        if (s->groups[i] < 0 || s->groups[i] >= groups)
            return tx_fail(TX_FORMAT, "%s: column %" PRId64 " has no group", m->name, i);
    }
    return TX_OK;
}

static void forget(scaled *s)
{
    free(s->codes);
    free(s->scale);
    free(s->zeros);
    free(s->groups);
    s->codes = NULL;
    s->scale = NULL;
    s->zeros = s->groups = NULL;
    s->held = -1;
}

static tx_status load(scaled *s, int32_t number, int64_t slice)
{
    const matrix *m = &s->matrix[number];
    const tx_st_tensor *t = tensor_at(s, m->source);
    const int64_t count = tx_st_elements(t) / m->batch, groups = tx_ceil_div(m->in, m->columns);
    if (s->held == number && s->slice == slice)
        return TX_OK;
    forget(s);
    s->codes = malloc((size_t)(count * (m->kind == WORDS ? 4 : 1)));
    TX_TRY(s->codes ? read_raw(s, m->source, slice * count, count, s->codes)
                    : tx_fail(TX_MEMORY, "no memory for %s", m->name));
    TX_TRY(load_scales(s, m, slice));
    TX_TRY(load_groups(s, m, groups));
    if (m->kind == WORDS)
        TX_TRY(load_zeros(s, m, groups));
    list_values(s, m);
    s->held = number;
    s->slice = slice;
    return TX_OK;
}

/* Elements of row `o` of the matrix that is held, rounded to bf16. */
static void fill_row(const scaled *s, const matrix *m, int64_t o, int64_t first, int64_t count, float *data)
{
    const int64_t groups = tx_ceil_div(m->in, m->columns),
                  words = tx_ceil_div(m->in, m->kind == WORDS ? m->in_word : 1);
    const float *scale = s->scale + o / m->rows * groups;
    for (int64_t i = first; i < first + count; i++) {
        const int64_t at = o * m->in + i, group = s->groups[i];
        float value;
        if (m->kind == WORDS)
            value = (float)((int32_t)code_at(m, s->codes, o * words + i / m->in_word, i % m->in_word) -
                            s->zeros[o * groups + group]);
        else
            value = s->value[m->kind == PAIRS ? s->codes[at / 2] >> at % 2 * 4 & 15 : s->codes[at]];
        *data++ = tx_bf16_to_f32(tx_f32_to_bf16(value * scale[group]));
    }
}

static tx_status read_values(void *context, int32_t index, int64_t first, int64_t count, float *data)
{
    scaled *s = context;
    const matrix *m = &s->matrix[index];
    if (m->kind == PLAIN)
        return tx_weights_read_f32(s->weights, m->source, first, count, data);
    for (int64_t end = first + count, now; first < end; first += now, data += now) {
        const int64_t row = first / m->in, at = first % m->in;
        now = tx_min(end - first, m->in - at);
        TX_TRY(tx_fail_in(load(s, index, row / m->out), "%s", tx_weights_path(s->weights)));
        fill_row(s, m, row % m->out, at, now, data);
    }
    return TX_OK;
}

static void release(void *context)
{
    scaled *s = context;
    forget(s);
    free(s->matrix);
    free(s->tensor);
    tx_weights_close(s->weights);
    free(s);
}

tx_status tx_scaled_open(const tx_json *quantization, tx_weights **weights)
{
    scaled *s = calloc(1, sizeof *s);
    if (!s) {
        tx_weights_close(*weights);
        return tx_fail(TX_MEMORY, "no memory for quantized weights");
    }
    s->weights = *weights;
    s->held = -1;
    *weights = NULL;
    tx_status status = tx_fail_in(tx_scaled_check(quantization), "quantization_config");
    TX_THEN(status, tx_fail_in(read_block(quantization, s->block), "quantization_config"));
    TX_THEN(status, tx_fail_in(list_all(s), "%s", tx_weights_path(s->weights)));
    if (status) {
        release(s);
        return status;
    }
    const tx_weights_source source = {
        .count = s->count, .tensor = s->tensor, .read = read_values, .close = release, .context = s};
    return tx_weights_of_source(tx_weights_path(s->weights), &source, weights);
}
