/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions over a whole tensor, over the last dimension, or over all dimensions except the last; quantiles. Long sums
 * are computed in blocks whose size depends only on the count (backend.h). Within a block the sums of pieces are added
 * in double precision, so that the sum of squares of 10^9 gradients stays accurate.
 */
#include "backends/cpu/simd.h"

#define PIECE 4096

/* Returns the greatest number, or NaN if there is one. */
static float greatest_or_nan(const float *x, int64_t n)
{
    float nan;
    TX_SUM(nan, i, n, x[i] != x[i] ? 1.0f : 0.0f);
    return nan > 0.0f ? NAN : tx_greatest(x, n);
}

static inline float greater_or_nan(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* Returns the sum, sum of squares or maximum of n > 0 elements of x from element `first` on. */
static double reduce_run(tx_reduction reduction, const void *x, tx_dtype type, int64_t first, int64_t n)
{
    double total = 0.0;
    float greatest = -INFINITY, piece[PIECE];
    for (int64_t start = 0; start < n; start += PIECE) {
        const int64_t count = n - start < PIECE ? n - start : PIECE;
        const float *p = tx_run_of(x, type, first + start, count, piece);
        float sum = 0.0f;
        if (reduction == TX_REDUCE_MAX)
            greatest = greater_or_nan(greatest, greatest_or_nan(p, count));
        else if (reduction == TX_REDUCE_SUMSQ)
            TX_SUM(sum, i, count, p[i] * p[i]);
        else
            TX_SUM(sum, i, count, p[i]);
        total += (double)sum;
    }
    return reduction == TX_REDUCE_MAX ? (double)greatest : total;
}

/* Returns the factor of the result: alpha, the control, and 1 / count for a mean. */
static float result_factor(const tx_cpu_call *call, int64_t count)
{
    const float factor = tx_cpu_factor(call);
    return call->command->attrs.reduction == TX_REDUCE_MEAN ? factor / (float)count : factor;
}

static void put(const tx_cpu_call *call, float *y, float value)
{
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    *y = beta != 0.0f ? *y + value : value;
}

/* ---- Whole tensor ---------------------------------------------------------------------------------- */

static void reduce_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_operand *x = &call->command->in[0];
    const int64_t count = tx_operand_count(x), block = tx_block_size(count, TX_REDUCE_BLOCK);
    float *work = call->out[1];
    for (int64_t b = first; b < last; b++) {
        const int64_t end = (b + 1) * block < count ? (b + 1) * block : count;
        work[b] = (float)reduce_run(call->command->attrs.reduction, call->in[0], x->dtype, b * block, end - b * block);
    }
}

static void reduce_all(const tx_cpu_call *call)
{
    const int64_t count = tx_operand_count(&call->command->in[0]), blocks = tx_blocks(count, TX_REDUCE_BLOCK);
    const tx_reduction reduction = call->command->attrs.reduction;
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(tx_block_size(count, TX_REDUCE_BLOCK)), reduce_blocks);
    /* the blocks already hold sums of squares */
    const double total =
        reduce_run(reduction == TX_REDUCE_SUMSQ ? TX_REDUCE_SUM : reduction, call->out[1], TX_F32, 0, blocks);
    put(call, call->out[0], (float)total * result_factor(call, count));
}

/* ---- Last dimension ---------------------------------------------------------------------------------- */

static void reduce_last(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_operand *x = &call->command->in[0];
    const int64_t width = tx_shape_last(&x->shape);
    const float factor = result_factor(call, width);
    float *y = call->out[0];
    for (int64_t row = first; row < last; row++)
        put(call, y + row,
            (float)reduce_run(call->command->attrs.reduction, call->in[0], x->dtype, row * width, width) * factor);
}

/* ---- All dimensions except the last ------------------------------------------------------------------- */

static void gather_row(tx_reduction reduction, const float *x, int64_t width, float *sum)
{
    switch (reduction) {
    case TX_REDUCE_MAX:
        TX_SIMD for (int64_t i = 0; i < width; i++) sum[i] = ((x[i] > sum[i]) | (x[i] != x[i])) ? x[i] : sum[i];
        break;
    case TX_REDUCE_SUMSQ:
        TX_SIMD for (int64_t i = 0; i < width; i++) sum[i] += x[i] * x[i];
        break;
    case TX_REDUCE_SUM:
    case TX_REDUCE_MEAN:
        TX_SIMD for (int64_t i = 0; i < width; i++) sum[i] += x[i];
        break;
    }
}

static float empty_value(tx_reduction reduction)
{
    return reduction == TX_REDUCE_MAX ? -INFINITY : 0.0f;
}

static void reduce_row_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape);
    const int64_t block = tx_block_size(rows, TX_ROW_BLOCK);
    const tx_reduction reduction = call->command->attrs.reduction;
    const tx_dtype type = call->command->in[0].dtype;
    float piece[PIECE];
    for (int64_t b = first; b < last; b++) {
        float *work = (float *)call->out[1] + b * width;
        const int64_t end = (b + 1) * block < rows ? (b + 1) * block : rows;
        for (int64_t i = 0; i < width; i++)
            work[i] = empty_value(reduction);
        for (int64_t row = b * block; row < end; row++)
            for (int64_t at = 0; at < width; at += PIECE) {
                const int64_t count = width - at < PIECE ? width - at : PIECE;
                gather_row(reduction, tx_run_of(call->in[0], type, row * width + at, count, piece), count, work + at);
            }
    }
}

static void reduce_columns(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape), blocks = tx_row_blocks(rows);
    const tx_reduction reduction = call->command->attrs.reduction;
    const float factor = result_factor(call, rows), *work = call->out[1];
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    float *y = call->out[0];
    if (reduction != TX_REDUCE_MAX) {
        tx_cpu_fold_blocks(work, blocks, width, first, last, factor, beta, y);
        return;
    }
    for (int64_t i = first; i < last; i++) {
        float greatest = -INFINITY;
        for (int64_t b = 0; b < blocks; b++)
            greatest = greater_or_nan(greatest, work[b * width + i]);
        put(call, y + i, greatest * factor);
    }
}

void TX_CPU_NAME(reduce)(const tx_cpu_call *call)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t width = tx_shape_last(shape), rows = tx_shape_rows(shape), blocks = tx_row_blocks(rows);
    switch (call->command->attrs.axis) {
    case TX_AXIS_ALL:
        reduce_all(call);
        break;
    case TX_AXIS_LAST:
        tx_cpu_slices(call, rows, tx_cpu_rows_grain(width), reduce_last);
        break;
    case TX_AXIS_ROWS:
        tx_cpu_slices(call, blocks, tx_cpu_rows_grain(tx_block_size(rows, TX_ROW_BLOCK) * width), reduce_row_blocks);
        tx_cpu_slices(call, width, tx_cpu_columns_grain(blocks), reduce_columns);
        break;
    }
}

/* ---- Quantile --------------------------------------------------------------------------------------------- */

/* A number whose order as an integer is that of floats. Negative zero is below zero. */
static inline uint32_t order_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* Returns the element of rank `rank`, from 0 on, of those that count: bit by bit, from the highest. */
static float element_of_rank(const float *x, const float *counts, int64_t n, int64_t rank)
{
    uint32_t found = 0;
    for (int bit = 31; bit >= 0; bit--) {
        int64_t below = 0; /* elements that begin as `found` and have 0 in this bit */
        for (int64_t i = 0; i < n; i++)
            below += (counts[i] != 0.0f) & (order_of(x[i]) >> bit == found >> bit);
        if (rank >= below) {
            rank -= below;
            found |= 1u << bit;
        }
    }
    const uint32_t bits = found >> 31 ? found & ~(1u << 31) : ~found;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void TX_CPU_NAME(quantile)(const tx_cpu_call *call)
{
    const int64_t n = tx_operand_count(&call->command->in[0]);
    const float *x = call->in[0], *counts = call->in[1];
    float *y = call->out[0];
    int64_t count = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        count += counts[i] != 0.0f;
        nan |= counts[i] != 0.0f && x[i] != x[i];
    }
    *y = nan ? NAN : 0.0f;
    if (nan || count == 0)
        return;
    const float at = call->command->attrs.alpha * (float)(count - 1), low = floorf(at), share = at - low;
    const float a = element_of_rank(x, counts, n, (int64_t)low), b = element_of_rank(x, counts, n, (int64_t)ceilf(at));
    *y = share < 0.5f ? fmaf(share, b - a, a) : fmaf(share - 1.0f, b - a, b);
}
