/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout, noise and rotary embedding: element-wise kernels that depend on the position of an element.
 */
#include "backends/cpu/random.h"
#include "backends/rope.h"

static void noise_chunk(const tx_site *site, uint32_t row, int64_t column, int64_t count, const float *x, float *y)
{
    const float scale = site->scale;
    uint32_t draw[TX_DRAW_COLUMNS];
    tx_draw_columns(site, row, column, draw);
    TX_SIMD for (int64_t i = 0; i < count; i++) y[i] =
        x[i] + scale * ((float)(int32_t)(draw[i] >> 8) * 0x1p-23f - 1.0f);
}

/* Dropout and noise, one chunk of columns after another. */
TX_COSTLY_ROWS(dropout, out[0], 4 * width)
{
    const int64_t rows = tx_rows_per_sample(&call->command->out[0].shape);
    const bool noise = call->command->op == TX_OP_NOISE;
    const tx_dtype type = call->command->out[0].dtype;
    const tx_site site = tx_site_of(call, row / rows);
    for (int64_t column = 0; column < width; column += TX_DRAW_COLUMNS) {
        const int64_t count = tx_min(width - column, TX_DRAW_COLUMNS), at = row * width + column;
        float from[TX_DRAW_COLUMNS], to[TX_DRAW_COLUMNS];
        const float *x = tx_run_of(call->in[0], call->command->in[0].dtype, at, count, from);
        float *y = tx_run_to(call->out[0], type, at, to);
        (noise ? noise_chunk : tx_drop)(&site, tx_drawn_row(call, row, rows), column, count, x, y);
        tx_run_put(call->out[0], y, type, at, count);
    }
}

void TX_CPU_NAME(noise)(const tx_cpu_call *call)
{
    TX_CPU_NAME(dropout)(call);
}

/* ---- Rotary ------------------------------------------------------------------------------------ */

static void rotate_head(const float *x, float *y, const float *cosine, const float *sine, int64_t half)
{
    TX_SIMD for (int64_t i = 0; i < half; i++)
    {
        float a = x[i], b = x[i + half];
        y[i] = a * cosine[i] - b * sine[i];
        y[i + half] = b * cosine[i] + a * sine[i];
    }
}

/* Computes cosines and sines of one position from the frequencies of the pairs. */
static void rotary_angles(const tx_attrs *attrs, const float *frequency, int64_t position, float *cosine, float *sine)
{
    const double magnitude = (double)attrs->rope->magnitude;
    for (int32_t i = 0; i < tx_rope_rotated(attrs) / 2; i++) {
        const double angle = (double)position * (double)frequency[i];
        cosine[i] = (float)(magnitude * cos(angle));
        sine[i] = (float)(magnitude * (attrs->inverse ? -sin(angle) : sin(angle)));
    }
}

/* An item is a position of the sequence, so one set of angles serves all samples at the same position. */
static void rotary_positions(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t batch = shape->dim[0], length = shape->dim[1], width = shape->dim[2];
    const int64_t size = attrs->attention.head_size, half = tx_rope_rotated(attrs) / 2,
                  turned = attrs->attention.heads * size;
    const float *rates = call->in[2];
    const tx_dtype type = call->command->out[0].dtype;
    const int64_t bytes = (int64_t)tx_dtype_size(type);
    float *cosine = call->scratch, *sine = cosine + half, frequency[TX_MAX_ROTARY / 2];
    float wide[TX_MAX_ROTARY], piece[TX_MAX_ROTARY];
    for (int32_t i = 0; !rates && i < half; i++)
        frequency[i] = tx_rope_frequency(attrs, i);
    for (int64_t t = first; t < last; t++) {
        int64_t turned_to = -1;
        for (int64_t b = 0; b < batch; b++) {
            const int64_t position = tx_cpu_place(call, 1, b, t, length, INT32_MAX + length);
            if (rates || position != turned_to)
                rotary_angles(attrs, rates ? rates + b * half : frequency, turned_to = position, cosine, sine);
            const int64_t row = (b * length + t) * width, rest = (row + turned) * bytes;
            for (int64_t at = row; at < row + turned; at += size) {
                const float *x = tx_run_of(call->in[0], type, at, 2 * half, wide);
                float *y = tx_run_to(call->out[0], type, at, piece);
                rotate_head(x, y, cosine, sine, half);
                tx_run_put(call->out[0], y, type, at, 2 * half);
                if (call->in[0] != call->out[0])
                    memcpy((char *)call->out[0] + (at + 2 * half) * bytes,
                           (const char *)call->in[0] + (at + 2 * half) * bytes, (size_t)((size - 2 * half) * bytes));
            }
            if (call->in[0] != call->out[0])
                memcpy((char *)call->out[0] + rest, (const char *)call->in[0] + rest,
                       (size_t)((width - turned) * bytes));
        }
    }
}

void TX_CPU_NAME(rotary)(const tx_cpu_call *call)
{
    const tx_shape *shape = &call->command->out[0].shape;
    tx_cpu_slices(call, shape->dim[1], tx_cpu_rows_grain(shape->dim[0] * shape->dim[2]), rotary_positions);
}
