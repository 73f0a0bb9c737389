/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor (Shazeer and Stern, 2018). A line is a row of a matrix, or a block of a tensor that is not a matrix.
 *
 * The work output holds, in this order: column sums for each block of rows, the first row of which becomes 1 / sqrt(c).
 * Then the sums of squares of u for each line; the same of p; TX_ADAFACTOR_NUMBERS scalars.
 */
#include "backends/adafactor.h"
#include "backends/cpu/update.h"

#define TINY 1e-30f  /* added to squared gradients */
#define MIN_RMS 1e-3 /* minimum of rms(p) */

/* Indices of the scalars that the last pass reads. */
enum { MEAN, FACTOR, KEEP };

typedef struct parts {
    float *columns, *u, *p, *number;
    int64_t lines, length, all; /* length of a line; the last line may be shorter if p is not a matrix */
    float beta, factor;
} parts;

static parts parts_of(const tx_cpu_call *call)
{
    const tx_shape *p = &call->command->in[0].shape;
    const bool matrix = p->rank == 2;
    const int64_t lines = tx_adafactor_lines(p), sums = tx_adafactor_work(p) - 2 * lines - TX_ADAFACTOR_NUMBERS;
    float *work = call->out[matrix ? 3 : 2];
    return (parts){
        .columns = work,
        .u = work + sums,
        .p = work + sums + lines,
        .number = work + sums + 2 * lines,
        .lines = lines,
        .length = matrix ? p->dim[1] : tx_block_size(tx_shape_count(p), TX_REDUCE_BLOCK),
        .all = tx_shape_count(p),
        .beta = (float)(1.0 - pow((double)call->results[TX_RESULT_UPDATES], -0.8)),
        .factor = call->results[TX_RESULT_GRAD_FACTOR],
    };
}

/* ---- Matrices ---------------------------------------------------------------------------------------- */

/* Updates r for blocks of rows, and computes the column sums of each block. */
static void sum_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const parts w = parts_of(call);
    const int64_t block = tx_block_size(w.lines, TX_ROW_BLOCK);
    float *r = call->out[1];
    for (int64_t b = first; b < last; b++) {
        const int64_t end = (b + 1) * block < w.lines ? (b + 1) * block : w.lines;
        float *restrict column = w.columns + b * w.length;
        memset(column, 0, (size_t)w.length * sizeof *column);
        for (int64_t row = b * block; row < end; row++) {
            const float *g = (const float *)call->in[1] + row * w.length;
            float sum;
            TX_SUM(sum, i, w.length, (g[i] * w.factor) * (g[i] * w.factor) + TINY);
            r[row] = w.beta * r[row] + (1.0f - w.beta) * (sum / (float)w.length);
            TX_SIMD for (int64_t i = 0; i < w.length; i++) column[i] += (g[i] * w.factor) * (g[i] * w.factor) + TINY;
        }
    }
}

static void fold_columns(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const parts w = parts_of(call);
    float *c = call->out[2];
    TX_SIMD for (int64_t i = first; i < last; i++) c[i] *= w.beta;
    tx_cpu_fold_blocks(w.columns, tx_row_blocks(w.lines), w.length, first, last, (1.0f - w.beta) / (float)w.lines, 1.0f,
                       c);
    TX_SIMD for (int64_t i = first; i < last; i++) w.columns[i] = 1.0f / sqrtf(c[i]);
}

static void measure_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const parts w = parts_of(call);
    const float *r = call->out[1], mean = w.number[MEAN];
    for (int64_t row = first; row < last; row++) {
        const float *g = (const float *)call->in[1] + row * w.length, *p = (const float *)call->out[0] + row * w.length;
        float sum;
        TX_SUM(sum, i, w.length, (g[i] * w.factor * w.columns[i]) * (g[i] * w.factor * w.columns[i]));
        w.u[row] = sum * (mean / r[row]);
        TX_SUM(w.p[row], i, w.length, p[i] * p[i]);
    }
}

static void update_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const parts w = parts_of(call);
    const float *r = call->out[1], keep = w.number[KEEP];
    for (int64_t row = first; row < last; row++) {
        const float *restrict g = (const float *)call->in[1] + row * w.length;
        const float rate = w.number[FACTOR] * sqrtf(w.number[MEAN] / r[row]) * w.factor;
        float *restrict p = (float *)call->out[0] + row * w.length;
        TX_SIMD for (int64_t i = 0; i < w.length; i++) p[i] = p[i] * keep - rate * (g[i] * w.columns[i]);
    }
}

/* ---- Other tensors ------------------------------------------------------------------------------------- */

static int64_t line_end(const parts *w, int64_t line)
{
    return (line + 1) * w->length < w->all ? (line + 1) * w->length : w->all;
}

static void measure_lines(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const parts w = parts_of(call);
    for (int64_t line = first; line < last; line++) {
        const int64_t at = line * w.length, count = line_end(&w, line) - at;
        const float *g = (const float *)call->in[1] + at, *p = (const float *)call->out[0] + at;
        float *v = (float *)call->out[1] + at;
        TX_SIMD for (int64_t i = 0; i < count; i++) v[i] =
            w.beta * v[i] + (1.0f - w.beta) * ((g[i] * w.factor) * (g[i] * w.factor) + TINY);
        TX_SUM(w.u[line], i, count, (g[i] * w.factor / sqrtf(v[i])) * (g[i] * w.factor / sqrtf(v[i])));
        TX_SUM(w.p[line], i, count, p[i] * p[i]);
    }
}

static void update_lines(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const parts w = parts_of(call);
    const float rate = w.number[FACTOR] * w.factor, keep = w.number[KEEP];
    const int64_t end = line_end(&w, last - 1);
    const float *restrict g = call->in[1], *restrict v = call->out[1];
    float *restrict p = call->out[0];
    TX_SIMD for (int64_t i = first * w.length; i < end; i++) p[i] = p[i] * keep - rate * (g[i] / sqrtf(v[i]));
}

/* ---- Both ------------------------------------------------------------------------------------------------ */

/* Computes the rate from the sums of squares of u and p. */
static void choose_rate(const tx_cpu_call *call, const parts *w)
{
    const tx_attrs *attrs = &call->command->attrs;
    const double t = (double)call->results[TX_RESULT_UPDATES];
    const double max_rate = attrs->update.warmup_init ? 1e-6 * t : 1e-2;
    double rate = tx_update_rate(call);
    float squares_u, squares_p;
    TX_SUM(squares_u, i, w->lines, w->u[i]);
    TX_SUM(squares_p, i, w->lines, w->p[i]);
    const double u = sqrt((double)squares_u / (double)w->all), p = sqrt((double)squares_p / (double)w->all);
    if (attrs->update.relative_step)
        rate = max_rate < 1.0 / sqrt(t) ? max_rate : 1.0 / sqrt(t);
    if (attrs->update.scale_parameter)
        rate *= p > MIN_RMS ? p : MIN_RMS;
    const uint8_t *groups = call->in[2];
    w->number[FACTOR] = (float)(rate / (u > 1.0 ? u : 1.0));
    w->number[KEEP] = groups[0] & TX_DECAY ? (float)(1.0 - rate * (double)attrs->update.weight_decay) : 1.0f;
}

void TX_CPU_NAME(adafactor)(const tx_cpu_call *call)
{
    const parts w = parts_of(call);
    const int64_t blocks = tx_row_blocks(w.lines), block = tx_block_size(w.lines, TX_ROW_BLOCK);
    const float *r = call->out[1];
    if (call->results[TX_RESULT_FINITE] == 0.0f)
        return;
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(block * w.length), sum_blocks);
    tx_cpu_slices(call, w.length, tx_cpu_columns_grain(blocks), fold_columns);
    TX_SUM(w.number[MEAN], i, w.lines, r[i]);
    w.number[MEAN] /= (float)w.lines;
    tx_cpu_slices(call, w.lines, tx_cpu_rows_grain(w.length), measure_rows);
    choose_rate(call, &w);
    tx_cpu_slices(call, w.lines, tx_cpu_rows_grain(w.length), update_rows);
}

void TX_CPU_NAME(adafactor_vector)(const tx_cpu_call *call)
{
    const parts w = parts_of(call);
    if (call->results[TX_RESULT_FINITE] == 0.0f)
        return;
    tx_cpu_slices(call, w.lines, tx_cpu_rows_grain(w.length), measure_lines);
    choose_rate(call, &w);
    tx_cpu_slices(call, w.lines, tx_cpu_rows_grain(w.length), update_lines);
}
