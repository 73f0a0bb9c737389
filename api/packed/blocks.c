/* SPDX-License-Identifier: Apache-2.0
 * Writes parameters of blocks (api/base/blocks.h). */
#include "api/packed/packed.h"
#include "api/plan/plan.h"

#include "api/base/blocks.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>

/* Finds the section of rows that contains a row: its number, its first row and the row after it. Sections that are one
 * tensor in files count as one. */
static int32_t section_of(const tx_param_spec *spec, int64_t row, int64_t *first, int64_t *end)
{
    const tx_param_sections *s = &spec->sections;
    const bool divided = spec->apart && s->count > 0 && s->dimension == 0;
    int32_t i = 0;
    *first = 0;
    *end = divided ? s->size[0] : tx_shape_rows(&spec->shape);
    while (divided && row >= *end && i + 1 < s->count) {
        *first = *end;
        *end += s->size[++i];
    }
    return i;
}

static tx_status check_write(const tx_model *model, int32_t index, int64_t first, int64_t count, tx_dtype dtype)
{
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

/* Writes blocks of Q8_0 to a parameter of type Q8, on all ranks and devices that have it. */
static tx_status write_q8(tx_model *model, int32_t index, int64_t first, int64_t count, tx_dtype dtype,
                          const void *blocks)
{
    const tx_param_record *param = &model->param[index];
    if (dtype != TX_Q8_0 || count < 1 || count % tx_block_values(dtype) != 0)
        return tx_fail(TX_INVALID,
                       "parameter %s is stored in Q8 and takes whole blocks of Q8_0, not %" PRId64 " elements of %s",
                       param->name, count, tx_dtype_name(dtype));
    float *values = malloc((size_t)count * sizeof *values);
    if (!values)
        return tx_fail(TX_MEMORY, "no memory to convert parameter %s", param->name);
    tx_block_read(dtype, blocks, count, values);
    const tx_value_copy copy = {
        .part = TX_PARAM_WEIGHT, .index = index, .first = first, .count = count, .from = values, .blocks = blocks};
    const tx_status status = tx_values_copy(model, &copy);
    free(values);
    return status;
}

tx_status tx_model_write_blocks(tx_model *model, int32_t index, int64_t first, int64_t count, tx_dtype dtype,
                                const void *blocks)
{
    TX_NEEDS(model && index >= 0 && index < model->params && blocks, TX_INVALID);
    if (model->param[index].spec.dtype == TX_Q8)
        return write_q8(model, index, first, count, dtype, blocks);
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
