/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal convolution of columns over a few rows (op SHORT_CONV), also of rows that continue earlier ones. In the
 * gradient each block of rows (backend.h) sums its gradients of weights and bias into its own slice of `work`; the
 * slices are then summed in order.
 */
#include "backends/cpu/simd.h"
#include "backends/scan.h"

/* A convolution, and TX_PIECE columns of it from column `at` on. */
typedef struct conv {
    const tx_cpu_call *call;
    int x; /* index of operand x; w, bias and starts follow */
    int64_t rows, time, columns, taps, at, count;
    const float *bias;
    const int32_t *starts, *spans;
    float w[TX_CONV_TAPS][TX_PIECE];
} conv;

static void conv_open(const tx_cpu_call *call, int x, conv *v)
{
    const tx_shape *shape = &call->command->in[x].shape;
    v->call = call;
    v->x = x;
    v->rows = tx_shape_rows(shape);
    v->time = shape->dim[1];
    v->columns = tx_shape_last(shape);
    v->taps = call->command->in[x + 1].shape.dim[1];
    v->bias = call->in[x + 2];
    const bool cached = call->command->op == TX_OP_SHORT_CONV_CACHED;
    v->starts = cached ? NULL : call->in[x + 3];
    v->spans = cached ? call->in[4] : NULL;
}

static tx_scan_span span_of(const conv *v, int64_t b)
{
    return tx_scan_span_of(v->spans, b, v->call->command->in[3].shape.dim[0], v->time);
}

/* Row `t`, a negative number, before the first one of a sample that continues. */
static float *tail_of(const conv *v, const tx_scan_span *span, int64_t t)
{
    return (float *)v->call->out[1] + ((span->row + 1) * (v->taps - 1) + t) * v->columns;
}

/* Chooses the columns from `at` on. */
static void conv_choose(conv *v, int64_t at)
{
    const float *w = (const float *)v->call->in[v->x + 1] + at * v->taps;
    v->at = at;
    v->count = tx_min(v->columns - at, TX_PIECE);
    for (int64_t i = 0; i < v->count; i++)
        for (int64_t j = 0; j < v->taps; j++)
            v->w[j][i] = w[i * v->taps + j];
}

/* The number of rows before `row` that its result depends on. */
static int64_t rows_before(const conv *v, int64_t row)
{
    const int64_t t = row % v->time, start = v->starts && v->starts[row] > 0 ? v->starts[row] : 0;
    const int64_t before = v->spans && !span_of(v, row / v->time).fresh ? v->taps : start < t ? t - start : 0;
    return before < v->taps - 1 ? before : v->taps - 1;
}

/* The row `back` rows before row `row` of x. */
static const float *row_of(const conv *v, int64_t row, int64_t back, float *piece)
{
    const tx_scan_span span = v->spans && row % v->time < back ? span_of(v, row / v->time) : (tx_scan_span){0};
    if (v->spans && row % v->time < back)
        return tail_of(v, &span, row % v->time - back) + v->at;
    row -= back;
    return tx_run_of(v->call->in[v->x], v->call->command->in[v->x].dtype, row * v->columns + v->at, v->count, piece);
}

/* z = bias + the sum of the taps */
static void convolve(const conv *v, int64_t row, float *z)
{
    float piece[TX_PIECE];
    for (int64_t i = 0; i < v->count; i++)
        z[i] = v->bias ? v->bias[v->at + i] : 0.0f;
    for (int64_t back = rows_before(v, row); back >= 0; back--) {
        const float *x = row_of(v, row, back, piece), *w = v->w[v->taps - 1 - back];
        TX_SIMD for (int64_t i = 0; i < v->count; i++) z[i] += w[i] * x[i];
    }
}

static void conv_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_dtype type = call->command->out[0].dtype;
    const bool silu = call->command->attrs.scan.silu;
    float z[TX_PIECE];
    conv v;
    conv_open(call, 0, &v);
    for (int64_t at = 0; at < v.columns; at += TX_PIECE) {
        conv_choose(&v, at);
        for (int64_t row = first; row < last; row++) {
            convolve(&v, row, z);
            if (silu)
                TX_SIMD for (int64_t i = 0; i < v.count; i++) z[i] *= tx_sigmoid_of(z[i]);
            tx_narrow(call->out[0], z, type, row * v.columns + at, v.count);
        }
    }
}

void TX_CPU_NAME(short_conv)(const tx_cpu_call *call)
{
    const tx_shape *x = &call->command->in[0].shape;
    tx_cpu_slices(call, tx_shape_rows(x), tx_cpu_rows_grain(8 * tx_shape_last(x)), conv_rows);
}

/* Makes the last rows up to the number of tokens the tail, for some columns. Earlier rows of the tail move down, so
 * that the order matters. */
static void tail_columns(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const size_t bytes = (size_t)(last - first) * sizeof(float);
    conv v;
    conv_open(call, 0, &v);
    for (int64_t b = 0; b < v.rows / v.time; b++) {
        const tx_scan_span span = span_of(&v, b);
        for (int64_t j = 1 - v.taps; j < 0 && span.count > 0; j++) {
            const int64_t t = span.count + j;
            float *to = tail_of(&v, &span, j) + first;
            if (t >= 0)
                tx_widen(to, call->in[0], call->command->in[0].dtype, (b * v.time + t) * v.columns + first,
                         last - first);
            else if (span.fresh)
                memset(to, 0, bytes);
            else
                memcpy(to, tail_of(&v, &span, t) + first, bytes);
        }
    }
}

void TX_CPU_NAME(short_conv_cached)(const tx_cpu_call *call)
{
    const tx_shape *x = &call->command->in[0].shape;
    TX_CPU_NAME(short_conv)(call);
    tx_cpu_slices(call, tx_shape_last(x), tx_cpu_columns_grain(8 * x->dim[0]), tail_columns);
}

/* ---- Gradient ------------------------------------------------------------------------------------------ */

/* dz of a row: dy times the slope of SiLU. */
static void grad_before_silu(const conv *v, int64_t row, float *dz)
{
    float z[TX_PIECE];
    tx_widen(dz, v->call->in[0], v->call->command->in[0].dtype, row * v->columns + v->at, v->count);
    if (!v->call->command->attrs.scan.silu)
        return;
    convolve(v, row, z);
    TX_SIMD for (int64_t i = 0; i < v->count; i++)
    {
        const tx_logistic s = tx_logistic_of(z[i]);
        dz[i] *= s.value + z[i] * s.slope;
    }
}

/* Adds a row to the sums: dw [taps][TX_PIECE], then dbias. */
static void add_sums(const conv *v, int64_t row, const float *dz, float sums[TX_CONV_TAPS + 1][TX_PIECE])
{
    float piece[TX_PIECE];
    for (int64_t back = rows_before(v, row); back >= 0; back--) {
        const float *x = row_of(v, row, back, piece);
        float *sum = sums[v->taps - 1 - back];
        TX_SIMD for (int64_t i = 0; i < v->count; i++) sum[i] += dz[i] * x[i];
    }
    float *sum = sums[v->taps];
    TX_SIMD for (int64_t i = 0; i < v->count; i++) sum[i] += dz[i];
}

/* dx of a row, from dz of it and of the next rows: ring[r % taps] is dz of row r. */
static void grad_row(const conv *v, int64_t row, float ring[TX_CONV_TAPS][TX_PIECE], float *dx)
{
    const int64_t left = v->time - 1 - row % v->time;
    memset(dx, 0, (size_t)v->count * sizeof *dx);
    for (int64_t on = 0; on < v->taps && on <= left; on++) {
        const float *dz = ring[(row + on) % v->taps], *w = v->w[v->taps - 1 - on];
        if (rows_before(v, row + on) >= on)
            TX_SIMD for (int64_t i = 0; i < v->count; i++) dx[i] += w[i] * dz[i];
    }
}

static void put_sums(const conv *v, int64_t block, float sums[TX_CONV_TAPS + 1][TX_PIECE])
{
    float *work = (float *)v->call->out[3] + block * v->columns * (v->taps + 1);
    for (int64_t i = 0; i < v->count; i++)
        for (int64_t j = 0; j < v->taps; j++)
            work[(v->at + i) * v->taps + j] = sums[j][i];
    memcpy(work + v->columns * v->taps + v->at, sums[v->taps], (size_t)v->count * sizeof *work);
}

static void grad_block(conv *v, int64_t block, int64_t first, int64_t last)
{
    const tx_dtype type = v->call->command->out[0].dtype;
    float ring[TX_CONV_TAPS][TX_PIECE], sums[TX_CONV_TAPS + 1][TX_PIECE] = {{0}}, dx[TX_PIECE];
    int64_t next = first;
    for (int64_t row = first; row < last; row++) {
        for (; next < tx_min(row + v->taps, v->rows); next++) {
            float *dz = ring[next % v->taps];
            grad_before_silu(v, next, dz);
            if (v->call->out[3] && next < last)
                add_sums(v, next, dz, sums);
        }
        grad_row(v, row, ring, dx);
        tx_narrow(v->call->out[0], dx, type, row * v->columns + v->at, v->count);
    }
    if (v->call->out[3])
        put_sums(v, block, sums);
}

static void grad_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    conv v;
    conv_open(call, 1, &v);
    const int64_t block = tx_block_size(v.rows, TX_ROW_BLOCK);
    for (int64_t at = 0; at < v.columns; at += TX_PIECE) {
        conv_choose(&v, at);
        for (int64_t b = first; b < last; b++)
            grad_block(&v, b, b * block, tx_min((b + 1) * block, v.rows));
    }
}

/* Computes elements first..last-1 of dw, or of dbias, from those of the blocks. */
static void fold_sums(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_shape *w = &call->command->in[2].shape;
    const int64_t blocks = tx_row_blocks(tx_shape_rows(&call->command->in[1].shape)), count = w->dim[0] * w->dim[1];
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    if (call->out[1])
        tx_cpu_fold_blocks(call->out[3], blocks, count + w->dim[0], first, tx_min(last, count), 1.0f, beta,
                           call->out[1]);
    const int64_t begin = first < count ? 0 : first - count;
    if (call->out[2] && last > count)
        tx_cpu_fold_blocks((const float *)call->out[3] + count, blocks, count + w->dim[0], begin, last - count, 1.0f,
                           beta, call->out[2]);
}

void TX_CPU_NAME(short_conv_grad)(const tx_cpu_call *call)
{
    const tx_shape *x = &call->command->in[1].shape;
    const int64_t rows = tx_shape_rows(x), blocks = tx_row_blocks(rows), columns = tx_shape_last(x),
                  taps = call->command->in[2].shape.dim[1];
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(16 * columns * tx_ceil_div(rows, blocks)), grad_blocks);
    if (call->out[3])
        tx_cpu_slices(call, columns * (taps + 1), tx_cpu_columns_grain(blocks), fold_sums);
}
