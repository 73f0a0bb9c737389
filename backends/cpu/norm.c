/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm (Ba et al., Layer normalization, 2016) and RMS norm (Zhang and Sennrich, 2019), forward and backward.
 * Each block of rows (backend.h) sums its gradients of gamma and beta into its own slice of `work`. Then the slices
 * are summed in order.
 */
#include "backends/cpu/random.h"

/* sum = x + dropout(row `row` of operand z). */
static void add_dropped(const tx_cpu_call *call, int z, int64_t row, const float *x, float *sum)
{
    const tx_operand *operand = &call->command->in[z];
    const int64_t width = tx_shape_last(&operand->shape), rows = tx_rows_per_sample(&operand->shape);
    const tx_site site = tx_site_of(call, row / rows);
    for (int64_t at = 0; at < width; at += TX_DRAW_COLUMNS) {
        const int64_t count = tx_min(width - at, TX_DRAW_COLUMNS);
        float wide[TX_DRAW_COLUMNS], left[TX_DRAW_COLUMNS];
        const float *other = tx_run_of(call->in[z], operand->dtype, row * width + at, count, wide);
        tx_drop(&site, tx_drawn_row(call, row, rows), at, count, other, left);
        TX_SIMD for (int64_t i = 0; i < count; i++) sum[at + i] = x[at + i] + left[i];
    }
}

/* Returns row `row` of the input: x, or x plus operand z. The sum is stored in output z. */
static const float *norm_row(const tx_cpu_call *call, int z, int64_t row, int64_t width)
{
    const float *x = (const float *)call->in[0] + row * width;
    if (!call->in[z])
        return x;
    float *sum = (float *)call->out[z] + row * width;
    if (call->command->attrs.draw.p > 0.0f) {
        add_dropped(call, z, row, x, sum);
        return sum;
    }
    const float *other = (const float *)call->in[z] + row * width;
    TX_SIMD for (int64_t i = 0; i < width; i++) sum[i] = x[i] + other[i];
    return sum;
}

/* ---- Forward ---------------------------------------------------------------------------------- */

TX_ROWS(layer_norm, out[0])
{
    const float *gamma = call->in[1], *beta = call->in[2];
    const float inverse = 1.0f / (float)width, eps = call->command->attrs.eps;
    const tx_dtype type = call->command->out[0].dtype;
    float *means = call->out[1], *rstds = call->out[2], piece[TX_PIECE];
    const float *x = norm_row(call, 3, row, width);
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

TX_ROWS(rms_norm, out[0])
{
    const tx_dtype type = call->command->out[0].dtype;
    const float *x = norm_row(call, 2, row, width);
    const int64_t part = tx_norm_part(&call->command->attrs, row);
    float squares, piece[TX_PIECE], *rstd = (float *)call->out[1] + row;
    if (part < 0) {
        tx_narrow(call->out[0], x, type, row * width, width);
        *rstd = 1.0f;
        return;
    }
    TX_SUM(squares, i, width, x[i] * x[i]);
    const float factor = *rstd = 1.0f / sqrtf(squares / (float)width + call->command->attrs.eps);
    for (int64_t at = 0, count; at < width; at += count) {
        count = tx_run_length(type, width - at);
        const float *xs = x + at, *gamma = (const float *)call->in[1] + part * width + at;
        float *y = tx_run_to(call->out[0], type, row * width + at, piece);
        TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = xs[i] * factor * gamma[i];
        tx_run_put(call->out[0], y, type, row * width + at, count);
    }
}

/* ---- Backward --------------------------------------------------------------------------------- */

/* Returns a row of dy as fp32. A 16-bit row is widened into scratch. */
static const float *gradient_row(const tx_cpu_call *call, int64_t row, int64_t width)
{
    return tx_run_of(call->in[0], call->command->in[0].dtype, row * width, width, call->scratch);
}

/* dx = rstd (d - mean(d) - xhat mean(d xhat)), d = dy gamma. dx may alias dy. */
static void layer_norm_grad_row(const tx_cpu_call *call, int64_t row, int64_t width, float *dgamma)
{
    const float *dy = gradient_row(call, row, width), *x = (const float *)call->in[1] + row * width;
    const float *gamma = call->in[2], mean = ((const float *)call->in[3])[row],
                rstd = ((const float *)call->in[4])[row];
    const float inverse = 1.0f / (float)width;
    float sum, dot, *dx = (float *)call->out[0] + row * width, *dbeta = dgamma + width;
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

/* dx = rstd (d - xhat mean(d xhat)), d = dy gamma. dx may alias dy. */
static void rms_norm_grad_row(const tx_cpu_call *call, int64_t row, int64_t width, float *dgammas)
{
    const int64_t at = tx_norm_part(&call->command->attrs, row) * width;
    const float *dy = gradient_row(call, row, width), *x = (const float *)call->in[1] + row * width;
    float dot, *dx = (float *)call->out[0] + row * width;
    if (at < 0) {
        memmove(dx, dy, (size_t)width * sizeof *dx);
        return;
    }
    const float *gamma = (const float *)call->in[2] + at, rstd = ((const float *)call->in[3])[row];
    float *dgamma = dgammas + at;
    TX_SUM(dot, i, width, dy[i] * gamma[i] * (x[i] * rstd));
    dot /= (float)width;
    TX_SIMD for (int64_t i = 0; i < width; i++)
    {
        float xhat = x[i] * rstd, d = dy[i];
        dgamma[i] += d * xhat;
        dx[i] = rstd * (d * gamma[i] - xhat * dot);
    }
}

/* Returns the number of parameters: gamma, and for a layer norm beta. Each block of rows sums their gradients in
 * work [blocks, parameters, elements of gamma]. Operand z, which is added to dx, comes after rstd. */
static int parameters(const tx_cpu_call *call)
{
    return call->command->op == TX_OP_LAYER_NORM_GRAD ? 2 : 1;
}

static void grad_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape);
    const int64_t block = tx_block_size(rows, TX_ROW_BLOCK), count = parameters(call);
    const int64_t sums = count * tx_shape_last(&call->command->in[2].shape);
    const float *z = call->in[3 + count];
    for (int64_t b = first; b < last; b++) {
        float *work = (float *)call->out[1 + count] + b * sums;
        memset(work, 0, (size_t)sums * sizeof *work);
        for (int64_t row = b * block, end = tx_min(row + block, rows); row < end; row++) {
            float *dx = (float *)call->out[0] + row * width;
            if (count == 2)
                layer_norm_grad_row(call, row, width, work);
            else
                rms_norm_grad_row(call, row, width, work);
            if (z)
                TX_SIMD for (int64_t i = 0; i < width; i++) dx[i] += z[row * width + i];
        }
    }
}

/* Computes elements first..last-1 of the gradients of the parameters from the sums of blocks. */
static void fold_work(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const int64_t blocks = tx_row_blocks(tx_shape_rows(&call->command->out[0].shape)), count = parameters(call);
    const int64_t columns = tx_shape_last(&call->command->in[2].shape);
    const float *work = call->out[1 + count], beta = tx_beta(call->command->attrs.accumulate, call->controls);
    for (int64_t p = 0; p < count; p++)
        tx_cpu_fold_blocks(work + p * columns, blocks, count * columns, first, last, 1.0f, beta, call->out[1 + p]);
}

static void norm_grad(const tx_cpu_call *call)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t rows = tx_shape_rows(shape), blocks = tx_row_blocks(rows);
    const int64_t elements = tx_block_size(rows, TX_ROW_BLOCK) * tx_shape_last(shape);
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(elements), grad_blocks);
    tx_cpu_slices(call, tx_shape_last(&call->command->in[2].shape), tx_cpu_columns_grain(parameters(call) * blocks),
                  fold_work);
}

void TX_CPU_NAME(layer_norm_grad)(const tx_cpu_call *call)
{
    norm_grad(call);
}

void TX_CPU_NAME(rms_norm_grad)(const tx_cpu_call *call)
{
    norm_grad(call);
}
