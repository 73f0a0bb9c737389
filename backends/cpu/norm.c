/* SPDX-License-Identifier: Apache-2.0
 * Layer norm (Ba et al., Layer normalization, 2016) and RMS norm (Zhang and Sennrich, 2019), forward and backward.
 * Gradients of gamma and beta: each block of rows (backend.h) sums into its own part of `work`, then the parts are
 * summed in order. */
#include "backends/cpu/random.h"

/* sum = x + what dropout leaves of row `row` of operand z. */
static void add_dropped(const tx_cpu_call *call, int z, int64_t row, const float *x, float *sum)
{
    const tx_operand *operand = &call->command->in[z];
    const int64_t width = tx_shape_last(&operand->shape), rows = tx_rows_per_sample(&operand->shape);
    const tx_site site = tx_site_of(call, row / rows);
    for (int64_t at = 0; at < width; at += TX_DRAW_COLUMNS) {
        const int64_t count = width - at < TX_DRAW_COLUMNS ? width - at : TX_DRAW_COLUMNS;
        float wide[TX_DRAW_COLUMNS], left[TX_DRAW_COLUMNS];
        const float *other = tx_run_of(call->in[z], operand->dtype, row * width + at, count, wide);
        tx_drop(&site, tx_drawn_row(call, row, rows), at, count, other, left);
        TX_SIMD for (int64_t i = 0; i < count; i++) sum[at + i] = x[at + i] + left[i];
    }
}

/* Row `row` of what is normalised: x, or x plus operand z, which goes to output `out`. */
static const float *norm_row(const tx_cpu_call *call, int z, int out, int64_t row, int64_t width)
{
    const float *x = (const float *)call->in[0] + row * width;
    if (!call->in[z])
        return x;
    float *sum = (float *)call->out[out] + row * width;
    if (call->command->attrs.draw.p > 0.0f) {
        add_dropped(call, z, row, x, sum);
        return sum;
    }
    const float *other = (const float *)call->in[z] + row * width;
    TX_SIMD for (int64_t i = 0; i < width; i++) sum[i] = x[i] + other[i];
    return sum;
}

/* Adds operand z, where there is one, to row `row` of dx. */
static void add_row(const tx_cpu_call *call, int z, int64_t row, int64_t width)
{
    if (!call->in[z])
        return;
    const float *other = (const float *)call->in[z] + row * width;
    float *dx = (float *)call->out[0] + row * width;
    TX_SIMD for (int64_t i = 0; i < width; i++) dx[i] += other[i];
}

/* A row of dy as fp32; of 16 bits in the thread's part of the scratch memory. */
static const float *gradient_row(const tx_cpu_call *call, int64_t row, int64_t width, int32_t thread)
{
    float *piece = call->scratch ? (float *)call->scratch + thread * width : NULL;
    return tx_run_of(call->in[0], call->command->in[0].dtype, row * width, width, piece);
}

/* ---- Layer norm ---------------------------------------------------------------------------------- */

static void layer_norm_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    const float *gamma = call->in[1], *beta = call->in[2];
    const float inverse = 1.0f / (float)width, eps = call->command->attrs.eps;
    const tx_dtype type = call->command->out[0].dtype;
    float *means = call->out[1], *rstds = call->out[2], piece[TX_PIECE];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *x = norm_row(call, 3, 3, row, width);
        float sum, squares;
        TX_SUM(sum, i, width, x[i]);
        const float mean = sum * inverse;
        TX_SUM(squares, i, width, (x[i] - mean) * (x[i] - mean));
        const float rstd = 1.0f / sqrtf(squares * inverse + eps);
        for (int64_t at = 0, count; at < width; at += count) {
            count = tx_run_length(type, width - at);
            const float *xs = x + at, *g = gamma + at, *b = beta + at;
            float *y = tx_run_to(call->out[0], type, row * width + at, piece);
            TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = (xs[i] - mean) * rstd * g[i] + b[i];
            tx_run_put(call->out[0], y, type, row * width + at, count);
        }
        means[row] = mean;
        rstds[row] = rstd;
    }
}

void TX_CPU_NAME(layer_norm)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), layer_norm_rows);
}

/* One row: dx = rstd (d - mean(d) - xhat mean(d xhat)), d = dy gamma. dx may lie on dy. */
static void layer_norm_grad_row(const float *dy, const float *x, const float *gamma, float mean, float rstd,
                                int64_t width, float *dx, float *dgamma, float *dbeta)
{
    const float inverse = 1.0f / (float)width;
    float sum, dot;
    TX_SUM(sum, i, width, dy[i] * gamma[i]);
    TX_SUM(dot, i, width, dy[i] * gamma[i] * ((x[i] - mean) * rstd));
    sum *= inverse;
    dot *= inverse;
    TX_SIMD for (int64_t i = 0; i < width; i++)
    {
        float xhat = (x[i] - mean) * rstd, d = dy[i];
        dgamma[i] += d * xhat;
        dbeta[i] += d;
        dx[i] = rstd * (d * gamma[i] - sum - xhat * dot);
    }
}

static void layer_norm_grad_blocks(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape);
    const int64_t block = tx_block_size(rows, TX_ROW_BLOCK);
    const float *gamma = call->in[2], *mean = call->in[3], *rstd = call->in[4];
    for (int64_t b = first; b < last; b++) {
        float *dgamma = (float *)call->out[3] + b * 2 * width, *dbeta = dgamma + width;
        const int64_t end = (b + 1) * block < rows ? (b + 1) * block : rows;
        memset(dgamma, 0, (size_t)(2 * width) * sizeof *dgamma);
        for (int64_t row = b * block; row < end; row++) {
            layer_norm_grad_row(gradient_row(call, row, width, thread), (const float *)call->in[1] + row * width, gamma,
                                mean[row], rstd[row], width, (float *)call->out[0] + row * width, dgamma, dbeta);
            add_row(call, 5, row, width);
        }
    }
}

/* Columns first..last-1 of the sums over blocks; work is [blocks, 2, width], for dgamma and dbeta. */
static void layer_norm_fold(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), blocks = tx_row_blocks(tx_shape_rows(shape));
    const float *work = call->out[3], beta = tx_beta(call->command->attrs.accumulate, call->controls);
    (void)thread;
    for (int64_t p = 0; p < 2; p++)
        tx_cpu_fold_blocks(work + p * width, blocks, 2 * width, first, last, 1.0f, beta, call->out[1 + p]);
}

void TX_CPU_NAME(layer_norm_grad)(const tx_cpu_call *call)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape);
    const int64_t blocks = tx_row_blocks(rows), block = tx_block_size(rows, TX_ROW_BLOCK);
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(block * width), layer_norm_grad_blocks);
    tx_cpu_slices(call, width, tx_cpu_columns_grain(2 * blocks), layer_norm_fold);
}

/* ---- RMS norm ------------------------------------------------------------------------------------ */

static void rms_norm_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    const tx_attrs *attrs = &call->command->attrs;
    const tx_dtype type = call->command->out[0].dtype;
    float *rstds = call->out[1], piece[TX_PIECE];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *x = norm_row(call, 2, 2, row, width);
        const int64_t part = tx_norm_part(attrs, row);
        const float *gamma = part < 0 ? NULL : (const float *)call->in[1] + part * width;
        float squares, rstd = 1.0f;
        if (gamma) {
            TX_SUM(squares, i, width, x[i] * x[i]);
            rstd = 1.0f / sqrtf(squares / (float)width + attrs->eps);
        }
        for (int64_t at = 0, count; at < width; at += count) {
            count = tx_run_length(type, width - at);
            const float *xs = x + at, *g = gamma ? gamma + at : NULL;
            float *y = tx_run_to(call->out[0], type, row * width + at, piece);
            if (gamma) {
                TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = xs[i] * rstd * g[i];
            } else {
                memcpy(y, xs, (size_t)count * sizeof *y);
            }
            tx_run_put(call->out[0], y, type, row * width + at, count);
        }
        rstds[row] = rstd;
    }
}

void TX_CPU_NAME(rms_norm)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), rms_norm_rows);
}

/* One row: dx = rstd (d - xhat mean(d xhat)), d = dy gamma. dx may lie on dy. */
static void rms_norm_grad_row(const float *dy, const float *x, const float *gamma, float rstd, int64_t width, float *dx,
                              float *dgamma)
{
    float dot;
    TX_SUM(dot, i, width, dy[i] * gamma[i] * (x[i] * rstd));
    dot /= (float)width;
    TX_SIMD for (int64_t i = 0; i < width; i++)
    {
        float xhat = x[i] * rstd, d = dy[i];
        dgamma[i] += d * xhat;
        dx[i] = rstd * (d * gamma[i] - xhat * dot);
    }
}

static void rms_norm_grad_blocks(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape);
    const int64_t block = tx_block_size(rows, TX_ROW_BLOCK);
    const float *gamma = call->in[2], *rstd = call->in[3];
    const int64_t channels = tx_shape_last(&call->command->in[2].shape);
    for (int64_t b = first; b < last; b++) {
        float *dgamma = (float *)call->out[2] + b * channels;
        const int64_t end = (b + 1) * block < rows ? (b + 1) * block : rows;
        memset(dgamma, 0, (size_t)channels * sizeof *dgamma);
        for (int64_t row = b * block; row < end; row++) {
            const int64_t at = tx_norm_part(&call->command->attrs, row) * width;
            const float *dy = gradient_row(call, row, width, thread);
            float *dx = (float *)call->out[0] + row * width;
            if (at >= 0)
                rms_norm_grad_row(dy, (const float *)call->in[1] + row * width, gamma + at, rstd[row], width, dx,
                                  dgamma + at);
            else
                memmove(dx, dy, (size_t)width * sizeof *dx);
            add_row(call, 4, row, width);
        }
    }
}

static void rms_norm_fold(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t blocks = tx_row_blocks(tx_shape_rows(&call->command->out[0].shape));
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    (void)thread;
    tx_cpu_fold_blocks(call->out[2], blocks, tx_shape_last(&call->command->in[2].shape), first, last, 1.0f, beta,
                       call->out[1]);
}

void TX_CPU_NAME(rms_norm_grad)(const tx_cpu_call *call)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape);
    const int64_t blocks = tx_row_blocks(rows), block = tx_block_size(rows, TX_ROW_BLOCK);
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(block * width), rms_norm_grad_blocks);
    tx_cpu_slices(call, tx_shape_last(&call->command->in[2].shape), tx_cpu_columns_grain(blocks), rms_norm_fold);
}
