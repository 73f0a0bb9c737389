/* SPDX-License-Identifier: Apache-2.0
 * Copies between the host and parameters of blocks (api/base/blocks.h). */
#include "api/packed/packed.h"
#include "api/plan/plan.h"

#include "api/base/blocks.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>

_Static_assert(TX_BLOCK_PARTS == TX_MAX_SECTIONS, "a part for each section");

tx_status tx_blocks_check(const char *name, const tx_param_spec *spec)
{
    const int64_t values = tx_block_values(spec->dtype);
    char text[96];
    if (spec->shape.rank != 2 || tx_shape_last(&spec->shape) % values != 0 || spec->shape.dim[0] > INT32_MAX)
        return tx_fail(TX_UNSUPPORTED,
                       "parameter %s of shape %s cannot be stored in %s: its rows are not multiples of %" PRId64, name,
                       tx_shape_text(&spec->shape, text, sizeof text), tx_dtype_name(spec->dtype), values);
    return TX_OK;
}

/* Finds the section of rows that contains a row: its number, its first row and the row after it. */
static int32_t section_of(const tx_param_spec *spec, int64_t row, int64_t *first, int64_t *end)
{
    const tx_param_sections *s = &spec->sections;
    const bool divided = s->count > 0 && s->dimension == 0;
    int32_t i = 0;
    *first = 0;
    *end = divided ? s->size[0] : spec->shape.dim[0];
    while (divided && row >= *end && i + 1 < s->count) {
        *first = *end;
        *end += s->size[++i];
    }
    return i;
}

static tx_status check_write(const tx_model *model, int32_t index, int64_t first, int64_t count, tx_dtype dtype)
{
    TX_NEEDS(model && index >= 0 && index < model->params, TX_INVALID);
    const tx_param_record *param = &model->param[index];
    const tx_param_spec *spec = &param->spec;
    const int64_t values = tx_block_values(dtype), width = tx_shape_last(&spec->shape);
    const int64_t most = tx_block_values(spec->dtype), elements = tx_shape_count(&spec->logical);
    int64_t begin, end;
    if (!values || most != values || tx_block_run(dtype, width) > tx_block_run(spec->dtype, width))
        return tx_fail(TX_INVALID, "parameter %s is stored in %s and cannot hold %s", param->name,
                       tx_dtype_name(spec->dtype), tx_dtype_name(dtype));
    section_of(spec, first < 0 ? 0 : first / width, &begin, &end);
    if (first < 0 || count < 1 || first % values != 0 || count % values != 0 || first > elements ||
        count > elements - first || first + count > end * width)
        return tx_fail(TX_INVALID,
                       "parameter %s: elements %" PRId64 " to %" PRId64 " are not whole blocks of one section",
                       param->name, first, first + count - 1);
    return TX_OK;
}

tx_status tx_model_write_blocks(tx_model *model, int32_t index, int64_t first, int64_t count, tx_dtype dtype,
                                const void *blocks)
{
    TX_TRY(check_write(model, index, first, count, dtype));
    TX_TRY(tx_values_prepare(
        model, &(tx_value_copy){.part = TX_PARAM_WEIGHT, .index = index, .first = first, .count = count}));
    const tx_param_spec *spec = &model->param[index].spec;
    const int64_t width = tx_shape_last(&spec->shape);
    int64_t begin, end;
    const int32_t section = section_of(spec, first / width, &begin, &end);
    const tx_block_part part = {.end = (int32_t)end, .dtype = (int32_t)dtype};
    const int64_t at = begin * tx_block_run(spec->dtype, width) + tx_block_run(dtype, first - begin * width),
                  table = tx_block_parts_at(spec->dtype, tx_shape_count(&spec->shape));
    TX_TRY(tx_stored_write(model, TX_PARAM_WEIGHT, index, at, blocks, tx_block_run(dtype, count)));
    return tx_stored_write(model, TX_PARAM_WEIGHT, index, table + section * (int64_t)sizeof part, &part, sizeof part);
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

tx_status tx_blocks_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data)
{
    const tx_param_record *param = &model->param[index];
    const int64_t width = tx_shape_last(&param->spec.shape), rows = param->spec.shape.dim[0];
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
