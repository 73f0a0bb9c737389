/* SPDX-License-Identifier: Apache-2.0
 * Quantises writes to packed parameters and dequantises reads, slice by slice. */
#include "api/plan/plan.h"

#include "api/base/blocks.h"
#include "api/base/thread.h"
#include "api/packed/nf4.h"
#include "api/packed/packed.h"
#include "api/packed/q8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Blocks that are converted at once; a multiple of whole groups. */
#define SLICE (INT64_C(64) * TX_NF4_GROUP)

/* A slice of a parameter on the host. */
typedef struct slice {
    tx_model *model;
    int32_t param;
    bool twice;
    int64_t elements; /* of the parameter */
    uint8_t codes[SLICE * TX_NF4_BLOCK / 2], absmax_codes[SLICE];
    float absmax[SLICE], groups[2 * SLICE / TX_NF4_GROUP], map[TX_NF4_MAP];
    float values[SLICE * TX_NF4_BLOCK];
} slice;

static tx_status open_slice(tx_model *model, int32_t index, slice **opened)
{
    const tx_param_record *param = &model->param[index];
    slice *s = malloc(sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "no memory to convert parameter %s", param->name);
    s->model = model;
    s->param = index;
    s->twice = param->spec.dtype == TX_NF4_DOUBLE;
    s->elements = tx_shape_count(&param->spec.shape);
    tx_nf4_make_map(s->map);
    *opened = s;
    return TX_OK;
}

static tx_status move(const slice *s, bool out, int64_t at, void *data, int64_t bytes)
{
    return out ? tx_stored_write(s->model, TX_PARAM_WEIGHT, s->param, at, data, bytes)
               : tx_stored_read(s->model, TX_PARAM_WEIGHT, s->param, at, data, bytes);
}

/* Returns the first failure. Later transfers still run, because the ranks that have shards make them collectively. */
static tx_status first_of(tx_status status, tx_status next)
{
    return status ? status : next;
}

/* Transfers blocks first .. first + blocks - 1, which start a group with double quantisation. */
static tx_status move_slice(slice *s, bool out, int64_t first, int64_t blocks)
{
    const int64_t n = s->elements, group = first / TX_NF4_GROUP,
                  groups = tx_ceil_div(blocks, TX_NF4_GROUP) * (int64_t)sizeof(float[2]);
    tx_status status = move(s, out, first * TX_NF4_BLOCK / 2, s->codes, blocks * TX_NF4_BLOCK / 2);
    if (!s->twice)
        return first_of(status, move(s, out, tx_nf4_absmax_at(n) + first * (int64_t)sizeof(float), s->absmax,
                                     blocks * (int64_t)sizeof(float)));
    status = first_of(status, move(s, out, tx_nf4_map_at(n), s->map, (int64_t)sizeof s->map));
    status = first_of(status, move(s, out, tx_nf4_groups_at(n) + group * (int64_t)sizeof(float[2]), s->groups, groups));
    return first_of(status, move(s, out, tx_nf4_codes_at(n) + first, s->absmax_codes, blocks));
}

/* ---- Quantising ----------------------------------------------------------------------------------------- */

/* Whole groups of a slice for one thread. The bytes do not depend on the number of threads. */
typedef struct job {
    slice *s;
    const float *data; /* of the slice */
    int64_t first, blocks;
} job;

static void *quantize(void *argument)
{
    const job *part = argument;
    slice *s = part->s;
    const int64_t first = part->first;
    tx_nf4_quantize(part->data + first * TX_NF4_BLOCK, part->blocks, s->codes + first * TX_NF4_BLOCK / 2,
                    s->absmax + first);
    if (s->twice)
        tx_nf4_compress(s->absmax + first, part->blocks, s->absmax_codes + first, s->groups + first / TX_NF4_GROUP * 2);
    return NULL;
}

static void quantize_all(slice *s, const float *data, int64_t blocks)
{
    job part[SLICE / TX_NF4_GROUP];
    const int64_t groups = tx_ceil_div(blocks, TX_NF4_GROUP), threads = s->model->engine->threads;
    const int64_t parts = tx_min(groups, threads);
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = groups * i / parts * TX_NF4_GROUP, end = groups * (i + 1) / parts * TX_NF4_GROUP;
        part[i] = (job){.s = s, .data = data, .first = first, .blocks = tx_min(end, blocks) - first};
    }
    tx_thread_each(quantize, part, sizeof *part, (size_t)parts);
}

tx_status tx_packed_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *data,
                          const uint8_t *blocks)
{
    const tx_param_record *param = &model->param[index];
    const tx_engine *e = model->engine;
    slice *s = NULL;
    if (tx_block_values(param->spec.dtype) > 0)
        return tx_fail(TX_UNSUPPORTED, "parameter %s is stored in %s: values are not quantised to blocks", param->name,
                       tx_dtype_name(param->spec.dtype));
    if (tx_q8_stores(param->spec.dtype))
        return tx_q8_write(model, index, first, count, data, blocks);
    const int64_t unit = tx_nf4_unit(param->spec.dtype == TX_NF4_DOUBLE), end = first + count;
    if (first % unit != 0 || (end % unit != 0 && end != tx_shape_count(&param->spec.logical)))
        return tx_fail(TX_INVALID,
                       "parameter %s is stored in %s: write whole units of %" PRId64 " elements, not elements %" PRId64
                       " to %" PRId64,
                       param->name, tx_dtype_name(param->spec.dtype), unit, first, end - 1);
    TX_TRY(open_slice(model, index, &s));
    tx_status status = TX_OK;
    for (int64_t at = first / TX_NF4_BLOCK; at < end / TX_NF4_BLOCK && !status; at += SLICE) {
        const int64_t left = end / TX_NF4_BLOCK - at, now = tx_min(left, SLICE);
        quantize_all(s, data + at * TX_NF4_BLOCK - first, now);
        status = move_slice(s, true, at, now);
        TX_THEN(status, e->backend->finish(e->context)); /* the slice is reused */
    }
    free(s);
    return status;
}

/* Reads values first .. first + count - 1 of one row; `row` has room for a row. */
static tx_status read_row(tx_model *model, int32_t index, const tx_block_matrix *b, int64_t at, int64_t count,
                          uint8_t *bytes, float *row, float *data)
{
    tx_dtype dtype;
    const int64_t number = at / b->width, first = at % b->width;
    const int64_t offset = tx_block_row(b, number, &dtype, NULL) - b->data;
    TX_TRY(tx_stored_read(model, TX_PARAM_WEIGHT, index, offset, bytes, tx_block_run(dtype, b->width)));
    tx_block_read(dtype, bytes, b->width, row);
    memcpy(data, row + first, (size_t)count * sizeof *data);
    return TX_OK;
}

static tx_status read_blocks(tx_model *model, int32_t index, int64_t first, int64_t count, float *data)
{
    const tx_param_record *param = &model->param[index];
    const int64_t width = tx_shape_last(&param->spec.shape), rows = tx_shape_rows(&param->spec.shape);
    tx_block_part part[TX_BLOCK_PARTS];
    float *row = malloc((size_t)width * sizeof *row);
    uint8_t *bytes = malloc((size_t)tx_block_run(param->spec.dtype, width) + sizeof(int32_t));
    tx_status status = row && bytes ? TX_OK : tx_fail(TX_MEMORY, "no memory to convert parameter %s", param->name);
    TX_THEN(status, tx_stored_read(model, TX_PARAM_WEIGHT, index, tx_block_parts_at(param->spec.dtype, rows * width),
                                   part, sizeof part));
    const tx_block_matrix b = {.data = bytes, .part = part, .dtype = param->spec.dtype, .width = width};
    for (int64_t done = 0, now; done < count && !status; done += now) {
        const int64_t left = width - (first + done) % width;
        now = left < count - done ? left : count - done;
        status = read_row(model, index, &b, first + done, now, bytes, row, data + done);
    }
    free(row);
    free(bytes);
    return status;
}

tx_status tx_packed_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data)
{
    slice *s = NULL;
    if (tx_block_values(model->param[index].spec.dtype) > 0)
        return read_blocks(model, index, first, count, data);
    if (tx_q8_stores(model->param[index].spec.dtype))
        return tx_q8_read(model, index, first, count, data);
    TX_TRY(open_slice(model, index, &s));
    const int64_t end = first + count, last = tx_ceil_div(end, TX_NF4_BLOCK);
    tx_status status = TX_OK;
    for (int64_t at = first / TX_NF4_BLOCK / TX_NF4_GROUP * TX_NF4_GROUP; at < last; at += SLICE) {
        const int64_t blocks = last - at < SLICE ? last - at : SLICE, begin = at * TX_NF4_BLOCK;
        const int64_t from = tx_max(first, begin), stop = begin + blocks * TX_NF4_BLOCK;
        status = first_of(status, move_slice(s, false, at, blocks));
        if (status)
            continue;
        if (s->twice)
            tx_nf4_expand(s->absmax_codes, s->groups, s->map, blocks, s->absmax);
        tx_nf4_dequantize(s->codes, s->absmax, blocks, s->values);
        memcpy(data + from - first, s->values + from - begin, (size_t)(tx_min(end, stop) - from) * sizeof *data);
    }
    free(s);
    return status;
}
