/* SPDX-License-Identifier: Apache-2.0
 * Reads weights that bitsandbytes, GPTQ and AWQ quantized. Called by models/arch/files.c. */
#include "models/files/quantized.h"

#include "api/base/arithmetic.h"
#include "models/files/mxfp4.h"
#include "models/files/scaled.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP 256          /* most values of a data type */
#define STATE_LIMIT 4096 /* bytes of a quant_state */

typedef enum method { BITSANDBYTES, GPTQ, AWQ, METHODS } method;

static const char *const methods[METHODS] = {"bitsandbytes", "gptq", "awq"};

/* The kinds of tensors of the result. */
typedef enum kind { PLAIN, FOUR_BITS, EIGHT_BITS, PACKED_ROWS, PACKED_COLUMNS } kind;

typedef struct matrix {
    kind kind;
    int32_t source; /* its tensor in the file, or that of the codes */
    int64_t out, in;
    int32_t bits;
    char name[TX_WEIGHTS_NAME];
} matrix;

typedef struct quantized {
    tx_weights *weights;
    method method;
    int32_t bits, zero; /* GPTQ's first format stores zero points less one */
    int64_t group;      /* inputs of a group; 0 if all are one group */
    int32_t count;
    matrix *matrix;
    tx_st_tensor *tensor;
    /* The matrix that was read last, or -1. */
    int32_t held;
    uint8_t *codes;
    float *scale; /* of each block, or of each group and output */
    int32_t *zeros, *groups;
    float map[MAP];
    int64_t block;
} quantized;

/* ---- quantization_config --------------------------------------------------------------------------------------- */

/* The name of the method; "" if it is missing. */
static const char *method_of(const tx_json *json)
{
    const char *name = "";
    return TX_JSON_OPTIONAL(string, json, "quant_method", &name) ? "" : name;
}

static tx_status read_method(const tx_json *json, method *found)
{
    const char *name = method_of(json);
    for (int m = 0; m < METHODS; m++)
        if (strcmp(name, methods[m]) == 0) {
            *found = (method)m;
            return TX_OK;
        }
    if (strcmp(name, "torchao") == 0)
        return tx_fail(TX_UNSUPPORTED,
                       "quant_method \"torchao\": its files hold objects of Python: use the model that was "
                       "quantized, or save it in another format");
    return tx_fail(TX_UNSUPPORTED,
                   "quant_method \"%.40s\": TX reads bitsandbytes, gptq, awq, mxfp4, fp8, fbgemm_fp8, "
                   "compressed-tensors and modelopt",
                   name);
}

static tx_status read_settings(const tx_json *json, quantized *q)
{
    int64_t bits = 4, group = -1;
    const char *format = "";
    TX_TRY(read_method(json, &q->method));
    if (q->method == BITSANDBYTES)
        return TX_OK;
    TX_TRY(tx_json_get_int(json, "bits", 1, 32, &bits));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "group_size", -1, 1 << 20, &group));
    TX_TRY(TX_JSON_OPTIONAL(string, json, q->method == GPTQ ? "checkpoint_format" : "version", &format));
    const bool known = q->method == GPTQ ? bits == 2 || bits == 4 || bits == 8 : bits == 4;
    if (!known)
        return tx_fail(TX_UNSUPPORTED, "bits: %" PRId64 " bits of %s are not implemented", bits, methods[q->method]);
    if (q->method == AWQ && *format && strcmp(format, "gemm") != 0 && strcmp(format, "GEMM") != 0)
        return tx_fail(TX_UNSUPPORTED, "version: \"%.40s\" is not implemented, only gemm", format);
    if (q->method == GPTQ && *format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return tx_fail(TX_UNSUPPORTED, "checkpoint_format: \"%.40s\" is not implemented", format);
    q->bits = (int32_t)bits;
    q->group = group > 0 ? group : 0;
    q->zero = q->method == GPTQ && strcmp(format, "gptq_v2") != 0;
    return TX_OK;
}

tx_status tx_quantized_check(const tx_json *quantization)
{
    const char *name = method_of(quantization);
    quantized q;
    const tx_status status = strcmp(name, "mxfp4") == 0 ? TX_OK
                             : tx_scaled_is(name)       ? tx_scaled_check(quantization)
                                                        : read_settings(quantization, &q);
    return tx_fail_in(status, "quantization_config");
}

/* ---- The list of tensors ----------------------------------------------------------------------------------------- */

static const char *name_at(const quantized *q, int32_t i)
{
    return tx_weights_tensor_at(q->weights, i)->name;
}

/* The tensor with the name of another, whose last `cut` bytes are replaced; -1 if there is none. */
static int32_t beside(const quantized *q, const char *name, size_t cut, const char *suffix)
{
    char other[TX_WEIGHTS_NAME];
    const size_t length = strlen(name), end = strlen(suffix);
    if (length < cut || length - cut + end >= sizeof other)
        return -1;
    memcpy(other, name, length - cut);
    memcpy(other + length - cut, suffix, end + 1);
    return tx_weights_find(q->weights, NULL, other);
}

static bool ends(const char *name, const char *suffix)
{
    const size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

static int32_t find_state(const quantized *q, const char *name)
{
    const int32_t nf4 = beside(q, name, 0, ".quant_state.bitsandbytes__nf4");
    return nf4 >= 0 ? nf4 : beside(q, name, 0, ".quant_state.bitsandbytes__fp4");
}

/* Whether a tensor only belongs to the codes of another. */
static bool is_companion(const quantized *q, const char *name)
{
    static const char *const of_packed[] = {".qzeros", ".scales", ".g_idx"};
    const char *weight = strstr(name, ".weight.");
    for (size_t i = 0; i < sizeof of_packed / sizeof of_packed[0] && q->method != BITSANDBYTES; i++)
        if (ends(name, of_packed[i]) && beside(q, name, strlen(of_packed[i]), ".qweight") >= 0)
            return true;
    if (q->method != BITSANDBYTES)
        return false;
    if (ends(name, ".SCB") || ends(name, ".weight_format"))
        return true;
    return weight && beside(q, name, strlen(weight) - strlen(".weight"), "") >= 0;
}

static tx_status read_raw(const quantized *q, int32_t index, void *data)
{
    return tx_weights_read_stored(q->weights, index, 0, tx_st_elements(tx_weights_tensor_at(q->weights, index)), data);
}

/* Reads a quant_state: JSON in bytes. The caller frees. */
static tx_status read_state(const quantized *q, int32_t index, tx_json **json)
{
    char text[STATE_LIMIT];
    const int64_t size = tx_st_bytes(tx_weights_tensor_at(q->weights, index));
    if (size > STATE_LIMIT)
        return tx_fail(TX_FORMAT, "%s has %" PRId64 " bytes", name_at(q, index), size);
    TX_TRY(read_raw(q, index, text));
    return tx_json_parse(text, (size_t)size, name_at(q, index), json);
}

static tx_status list_four_bits(const quantized *q, int32_t state, matrix *m)
{
    tx_json *json = NULL, *shape;
    TX_TRY(read_state(q, state, &json));
    tx_status status = tx_json_get(json, "shape", TX_JSON_ARRAY, &shape);
    if (!status && tx_json_size(shape) != 2)
        status = tx_fail(TX_UNSUPPORTED, "shape: only matrices are read");
    TX_THEN(status, tx_json_as_int(tx_json_at(shape, 0), "shape", 1, 1 << 24, &m->out));
    TX_THEN(status, tx_json_as_int(tx_json_at(shape, 1), "shape", 1, 1 << 24, &m->in));
    const tx_st_tensor *t = tx_weights_tensor_at(q->weights, m->source);
    if (!status && (t->dtype != TX_ST_U8 || tx_st_elements(t) != tx_ceil_div(m->out * m->in, 2)))
        status = tx_fail(TX_FORMAT, "%s has not two codes in each byte", t->name);
    tx_json_free(json);
    return tx_fail_in(status, "%s", name_at(q, state));
}

/* GPTQ packs inputs, qweight [in / n, out]. AWQ packs outputs, [in, out / n]. */
static tx_status list_packed(const quantized *q, matrix *m)
{
    const tx_st_tensor *t = tx_weights_tensor_at(q->weights, m->source);
    const int64_t in_word = 32 / q->bits;
    if (t->rank != 2 || t->dtype != TX_ST_I32)
        return tx_fail(TX_FORMAT, "%s is not a matrix of I32", t->name);
    m->kind = q->method == GPTQ ? PACKED_ROWS : PACKED_COLUMNS;
    m->in = t->dim[0] * (q->method == GPTQ ? in_word : 1);
    m->out = t->dim[1] * (q->method == GPTQ ? 1 : in_word);
    snprintf(m->name, sizeof m->name, "%.*sweight", (int)(strlen(t->name) - strlen("qweight")), t->name);
    return TX_OK;
}

static tx_status list_tensor(const quantized *q, int32_t i, matrix *m)
{
    const tx_st_tensor *t = tx_weights_tensor_at(q->weights, i);
    const int32_t state = q->method == BITSANDBYTES ? find_state(q, t->name) : -1;
    *m = (matrix){.kind = PLAIN, .source = i};
    snprintf(m->name, sizeof m->name, "%s", t->name);
    if (state >= 0) {
        m->kind = FOUR_BITS;
        return list_four_bits(q, state, m);
    }
    if (q->method != BITSANDBYTES && ends(t->name, ".qweight"))
        return list_packed(q, m);
    if (q->method == BITSANDBYTES && t->dtype == TX_ST_I8 && t->rank == 2) {
        m->kind = EIGHT_BITS;
        m->out = t->dim[0];
        m->in = t->dim[1];
    }
    return TX_OK;
}

static tx_status list_all(quantized *q)
{
    const int32_t most = tx_weights_count(q->weights);
    q->matrix = calloc((size_t)most + 1, sizeof *q->matrix);
    q->tensor = calloc((size_t)most + 1, sizeof *q->tensor);
    if (!q->matrix || !q->tensor)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    for (int32_t i = 0; i < most; i++) {
        matrix *m = &q->matrix[q->count];
        if (is_companion(q, name_at(q, i)))
            continue;
        TX_TRY(list_tensor(q, i, m));
        q->tensor[q->count] = m->kind == PLAIN ? *tx_weights_tensor_at(q->weights, i)
                                               : tx_weights_part("", TX_F32, &TX_SHAPE(m->out, m->in));
        q->tensor[q->count++].name = m->name;
    }
    return TX_OK;
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* Finds a companion with this number of elements. */
static tx_status find(const quantized *q, const matrix *m, size_t cut, const char *suffix, int64_t count,
                      int32_t *index)
{
    *index = beside(q, name_at(q, m->source), cut, suffix);
    return *index >= 0 && tx_st_elements(tx_weights_tensor_at(q->weights, *index)) == count
               ? TX_OK
               : tx_fail(TX_FORMAT, "%s: its %s is missing or has another size", name_at(q, m->source), suffix);
}

static tx_status read_floats(const quantized *q, const matrix *m, size_t cut, const char *suffix, int64_t count,
                             float *data)
{
    int32_t index;
    TX_TRY(find(q, m, cut, suffix, count, &index));
    return tx_weights_read_f32(q->weights, index, 0, count, data);
}

/* Double quantization: the scale of a block is map[code] times that of its group of blocks, plus an offset (Dettmers et
 * al., QLoRA, 2023). */
static tx_status read_nested(const quantized *q, const matrix *m, const tx_json *state, int64_t blocks, float *scale)
{
    int64_t group = 256;
    double offset = 0;
    float map[MAP];
    TX_TRY(tx_json_get_int(state, "nested_blocksize", 1, 1 << 20, &group));
    TX_TRY(tx_json_get_number(state, "nested_offset", -1e30, 1e30, &offset));
    const int64_t groups = tx_ceil_div(blocks, group);
    float *outer = malloc((size_t)groups * sizeof *outer);
    tx_status status =
        outer ? read_floats(q, m, 0, ".absmax", blocks, scale) : tx_fail(TX_MEMORY, "no memory for scales");
    TX_THEN(status, read_floats(q, m, 0, ".nested_absmax", groups, outer));
    TX_THEN(status, read_floats(q, m, 0, ".nested_quant_map", MAP, map));
    for (int64_t i = 0; i < blocks && !status; i++)
        scale[i] = map[(int32_t)scale[i] & (MAP - 1)] * outer[i / group] + (float)offset;
    free(outer);
    return status;
}

static tx_status load_four_bits(quantized *q, const matrix *m)
{
    tx_json *json = NULL;
    TX_TRY(read_state(q, find_state(q, name_at(q, m->source)), &json));
    tx_status status = tx_json_get_int(json, "blocksize", 1, 1 << 20, &q->block);
    const int64_t blocks = status ? 1 : tx_ceil_div(m->out * m->in, q->block);
    q->scale = malloc((size_t)blocks * sizeof *q->scale);
    if (!status && !q->scale)
        status = tx_fail(TX_MEMORY, "no memory for scales");
    TX_THEN(status, read_floats(q, m, 0, ".quant_map", 16, q->map));
    TX_THEN(status, tx_json_has(json, "nested_blocksize") ? read_nested(q, m, json, blocks, q->scale)
                                                          : read_floats(q, m, 0, ".absmax", blocks, q->scale));
    tx_json_free(json);
    return status;
}

static tx_status load_eight_bits(quantized *q, const matrix *m)
{
    q->scale = malloc((size_t)m->out * sizeof *q->scale);
    return q->scale ? read_floats(q, m, strlen("weight"), "SCB", m->out, q->scale)
                    : tx_fail(TX_MEMORY, "no memory for scales");
}

/* AWQ's order of the outputs in a word: output k is at place order[k]. */
static const int32_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static int32_t code_at(const quantized *q, uint32_t word, int64_t k)
{
    const int32_t place = q->method == AWQ ? order[k] : (int32_t)k;
    return (int32_t)(word >> (place * q->bits) & ((1U << q->bits) - 1));
}

/* The group of each input: given by g_idx (GPTQ with act-order), or consecutive. */
static tx_status load_groups(quantized *q, const matrix *m, int64_t groups)
{
    int32_t index = q->method == GPTQ ? beside(q, name_at(q, m->source), strlen("qweight"), "g_idx") : -1;
    const int64_t group = q->group ? q->group : m->in;
    if (index >= 0) {
        TX_TRY(find(q, m, strlen("qweight"), "g_idx", m->in, &index));
        if (tx_weights_tensor_at(q->weights, index)->dtype != TX_ST_I32)
            return tx_fail(TX_FORMAT, "%s is not of I32", name_at(q, index));
        TX_TRY(read_raw(q, index, q->groups));
    }
    for (int64_t i = 0; i < m->in; i++) {
        q->groups[i] = index < 0 ? (int32_t)(i / group) : q->groups[i];
        if (q->groups[i] < 0 || q->groups[i] >= groups)
            return tx_fail(TX_FORMAT, "%s: input %" PRId64 " has no group", name_at(q, m->source), i);
    }
    return TX_OK;
}

static tx_status load_packed(quantized *q, const matrix *m)
{
    const int64_t group = q->group ? q->group : m->in, groups = tx_ceil_div(m->in, group), in_word = 32 / q->bits,
                  words = tx_ceil_div(m->out, in_word);
    int32_t index;
    q->scale = malloc((size_t)(groups * m->out) * sizeof *q->scale);
    q->zeros = malloc((size_t)(groups * m->out) * sizeof *q->zeros);
    q->groups = malloc((size_t)m->in * sizeof *q->groups);
    uint32_t *packed = malloc((size_t)(groups * words) * sizeof *packed);
    tx_status status = q->scale && q->zeros && q->groups && packed
                           ? read_floats(q, m, strlen("qweight"), "scales", groups * m->out, q->scale)
                           : tx_fail(TX_MEMORY, "no memory for scales");
    TX_THEN(status, find(q, m, strlen("qweight"), "qzeros", groups * words, &index));
    if (!status && tx_weights_tensor_at(q->weights, index)->dtype != TX_ST_I32)
        status = tx_fail(TX_FORMAT, "%s is not of I32", name_at(q, index));
    TX_THEN(status, read_raw(q, index, packed));
    for (int64_t g = 0; g < groups && !status; g++)
        for (int64_t o = 0; o < m->out; o++)
            q->zeros[g * m->out + o] = code_at(q, packed[g * words + o / in_word], o % in_word) + q->zero;
    TX_THEN(status, load_groups(q, m, groups));
    free(packed);
    return status;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static void forget(quantized *q)
{
    free(q->codes);
    free(q->scale);
    free(q->zeros);
    free(q->groups);
    q->codes = NULL;
    q->scale = NULL;
    q->zeros = q->groups = NULL;
    q->held = -1;
}

static tx_status load(quantized *q, int32_t number)
{
    const matrix *m = &q->matrix[number];
    if (q->held == number)
        return TX_OK;
    forget(q);
    q->codes = malloc((size_t)tx_st_bytes(tx_weights_tensor_at(q->weights, m->source)));
    TX_TRY(q->codes ? read_raw(q, m->source, q->codes) : tx_fail(TX_MEMORY, "no memory for %s", m->name));
    TX_TRY(m->kind == FOUR_BITS    ? load_four_bits(q, m)
           : m->kind == EIGHT_BITS ? load_eight_bits(q, m)
                                   : load_packed(q, m));
    q->held = number;
    return TX_OK;
}

/* Element [o, i] of packed rows or columns. */
static float packed_value(const quantized *q, const matrix *m, int64_t o, int64_t i)
{
    const int32_t shift = q->bits == 8 ? 2 : q->bits == 4 ? 3 : 4; /* a word has 1 << shift codes */
    const bool rows = m->kind == PACKED_ROWS;
    const int64_t at = rows ? (i >> shift) * m->out + o : i * (m->out >> shift) + (o >> shift),
                  group = q->groups[i] * m->out + o;
    uint32_t word;
    memcpy(&word, q->codes + 4 * at, sizeof word);
    const int32_t code = code_at(q, word, (rows ? i : o) & ((1 << shift) - 1));
    return q->scale[group] * (float)(code - q->zeros[group]);
}

/* Elements from number `first` of [out, in] on. */
static void fill_values(const quantized *q, const matrix *m, int64_t first, int64_t count, float *data)
{
    int64_t o = first / m->in, i = first % m->in;
    for (int64_t at = first; at < first + count; at++) {
        if (m->kind == FOUR_BITS) /* the first code of a byte is in its high half */
            *data++ = q->map[q->codes[at / 2] >> (at % 2 ? 0 : 4) & 15] * q->scale[at / q->block];
        else if (m->kind == EIGHT_BITS)
            *data++ = (float)(int8_t)q->codes[at] * q->scale[o] / 127.0f;
        else
            *data++ = packed_value(q, m, o, i);
        if (++i == m->in) {
            i = 0;
            o++;
        }
    }
}

static tx_status read_values(void *context, int32_t index, int64_t first, int64_t count, float *data)
{
    quantized *q = context;
    const matrix *m = &q->matrix[index];
    if (m->kind == PLAIN)
        return tx_weights_read_f32(q->weights, m->source, first, count, data);
    const tx_status status = load(q, index);
    if (!status)
        fill_values(q, m, first, count, data);
    return tx_fail_in(status, "%s", tx_weights_path(q->weights));
}

static void release(void *context)
{
    quantized *q = context;
    forget(q);
    free(q->matrix);
    free(q->tensor);
    tx_weights_close(q->weights);
    free(q);
}

tx_status tx_quantized_open(const tx_json *quantization, tx_weights **weights)
{
    if (strcmp(method_of(quantization), "mxfp4") == 0)
        return tx_mxfp4_open(weights);
    if (tx_scaled_is(method_of(quantization)))
        return tx_scaled_open(quantization, weights);
    quantized *q = calloc(1, sizeof *q);
    if (!q) {
        tx_weights_close(*weights);
        return tx_fail(TX_MEMORY, "no memory for quantized weights");
    }
    q->weights = *weights;
    q->held = -1;
    *weights = NULL;
    tx_status status = tx_fail_in(read_settings(quantization, q), "quantization_config");
    TX_THEN(status, tx_fail_in(list_all(q), "%s", tx_weights_path(q->weights)));
    if (status) {
        release(q);
        return status;
    }
    const tx_weights_source source = {
        .count = q->count, .tensor = q->tensor, .read = read_values, .close = release, .context = q};
    return tx_weights_of_source(tx_weights_path(q->weights), &source, weights);
}
