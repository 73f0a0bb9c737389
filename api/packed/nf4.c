/* SPDX-License-Identifier: Apache-2.0
 * Quantises to NormalFloat and back, on the host. */
#include "tx.h"

#include "api/base/blocks.h"
#include "api/packed/nf4.h"
#include "api/packed/packed.h"
#include "api/packed/q8.h"
#include "backends/dynamic_map.h"

#include <inttypes.h>
#include <math.h>

void tx_nf4_quantize(const float *x, int64_t blocks, uint8_t *codes, float *absmax)
{
    for (int64_t b = 0; b < blocks; b++, x += TX_NF4_BLOCK, codes += TX_NF4_BLOCK / 2) {
        float largest = 0.0f;
        int32_t code[TX_NF4_BLOCK];
        for (int i = 0; i < TX_NF4_BLOCK; i++) /* keeps NaN, so that readers notice it */
            largest = largest >= fabsf(x[i]) || isnan(largest) ? largest : fabsf(x[i]);
        const float inverse = 1.0f / (largest < 1e-38f ? 1e-38f : largest);
        for (int i = 0; i < TX_NF4_BLOCK; i++)
            code[i] = tx_nf4_code(x[i] * inverse);
        for (int i = 0; i < TX_NF4_BLOCK / 2; i++)
            codes[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
        absmax[b] = largest;
    }
}

void tx_nf4_dequantize(const uint8_t *codes, const float *absmax, int64_t blocks, float *x)
{
    for (int64_t i = 0; i < blocks * TX_NF4_BLOCK / 2; i++) {
        const float scale = absmax[i / (TX_NF4_BLOCK / 2)];
        x[2 * i] = tx_nf4_value[codes[i] >> 4] * scale;
        x[2 * i + 1] = tx_nf4_value[codes[i] & 15] * scale;
    }
}

void tx_nf4_compress(const float *absmax, int64_t blocks, uint8_t *codes, float *groups)
{
    for (int64_t first = 0; first < blocks; first += TX_NF4_GROUP, groups += 2) {
        const int64_t count = blocks - first < TX_NF4_GROUP ? blocks - first : TX_NF4_GROUP;
        double sum = 0.0;
        float scale = 0.0f;
        for (int64_t i = 0; i < count; i++)
            sum += (double)absmax[first + i];
        const float mean = (float)(sum / (double)count);
        for (int64_t i = 0; i < count; i++)
            scale = fmaxf(scale, fabsf(absmax[first + i] - mean));
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int64_t i = 0; i < count; i++)
            codes[first + i] = (uint8_t)tx_map_signed_code((absmax[first + i] - mean) * inverse);
        groups[0] = scale;
        groups[1] = mean;
    }
}

void tx_nf4_expand(const uint8_t *codes, const float *groups, const float map[TX_NF4_MAP], int64_t blocks,
                   float *absmax)
{
    for (int64_t i = 0; i < blocks; i++) {
        const float *group = groups + i / TX_NF4_GROUP * 2;
        absmax[i] = group[0] * map[codes[i]] + group[1];
    }
}

void tx_nf4_make_map(float map[TX_NF4_MAP])
{
    for (int code = 0; code < TX_NF4_MAP; code++)
        map[code] = tx_map_signed(code);
}

/* A matrix, or the matrices of experts. */
static bool has_matrices(const tx_param_spec *spec)
{
    return spec->shape.rank == 2 || (spec->shape.rank == 3 && spec->experts);
}

static tx_status check_blocks(const char *name, const tx_param_spec *spec)
{
    const int64_t values = tx_packed_unit(spec->dtype);
    char text[96];
    if (spec->apart && spec->sections.count > TX_BLOCK_PARTS)
        return tx_fail(TX_UNSUPPORTED, "parameter %s: at most %d sections can have types of their own", name,
                       TX_BLOCK_PARTS);
    if (!has_matrices(spec) || tx_shape_last(&spec->shape) % values != 0 || tx_shape_rows(&spec->shape) > INT32_MAX)
        return tx_fail(TX_UNSUPPORTED,
                       "parameter %s of shape %s cannot be stored in %s: its rows are not multiples of %" PRId64, name,
                       tx_shape_text(&spec->shape, text, sizeof text), tx_dtype_name(spec->dtype), values);
    return TX_OK;
}

tx_status tx_packed_check(const char *name, const tx_param_spec *spec)
{
    const int64_t unit = tx_nf4_unit(spec->dtype == TX_NF4_DOUBLE), row = tx_shape_last(&spec->shape);
    const tx_param_sections *s = &spec->sections;
    char text[96];
    if (tx_block_values(spec->dtype) > 0 || tx_q8_stores(spec->dtype))
        return check_blocks(name, spec);
    if (!has_matrices(spec) || row % TX_NF4_BLOCK != 0)
        return tx_fail(TX_UNSUPPORTED,
                       "parameter %s of shape %s cannot be stored in 4 bits: only matrices can, whose rows are "
                       "multiples of %d: load the model in 16 bits",
                       name, tx_shape_text(&spec->shape, text, sizeof text), TX_NF4_BLOCK);
    for (int32_t i = 0; i < s->count && spec->apart && s->dimension + 2 == spec->shape.rank; i++)
        if (s->size[i] * row % unit != 0)
            return tx_fail(TX_UNSUPPORTED,
                           "parameter %s: section %d of %" PRId64 " elements is not a multiple of the %" PRId64
                           " that share a quantised scale: "
                           "leave out double quantisation",
                           name, i, s->size[i] * row, unit);
    return TX_OK;
}
