/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm (Ba et al., Layer normalization, 2016) and RMS norm (Zhang and Sennrich, 2019), forward and backward.
 * Each block of rows (backend.h) sums its gradients of gamma and beta into its own slice of `work`. Then the slices
 * are summed in order.
 */
#include "backends/cpu/random.h"

/* Rounds at most TX_DRAW_COLUMNS numbers to a type. */
static void round_to(tx_dtype type, float *x, int64_t count)
{
    uint16_t half[TX_DRAW_COLUMNS];
    if (type == TX_F32)
        return;
    tx_narrow(half, x, type, 0, count);
    tx_widen(x, half, type, 0, count);
}

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
        round_to(call->command->in[0].dtype, left, count);
        TX_SIMD for (int64_t i = 0; i < count; i++) sum[at + i] = x[at + i] + left[i];
    }
}

/* sum = x + row `row` of operand z, which has the type of x. */
static void add_row(const tx_cpu_call *call, int z, int64_t row, int64_t width, const float *x, float *sum)
{
    const tx_dtype type = call->command->in[0].dtype;
    float wide[TX_PIECE];
    for (int64_t at = 0, count; at < width; at += count) {
        count = tx_run_length(type, width - at);
        const float *own = x + at, *other = tx_run_of(call->in[z], type, row * width + at, count, wide);
        float *to = sum + at;
        TX_SIMD for (int64_t i = 0; i < count; i++) to[i] = own[i] + other[i];
    }
}

/* Returns row `row` of the input as fp32: x, or x plus operand z. The sum is stored in output z, and returned as it is
 * stored. */
static const float *norm_row(const tx_cpu_call *call, int z, int64_t row, int64_t width)
{
    const tx_dtype type = call->command->in[0].dtype;
    const int64_t first = row * width;
    const float *x = tx_run_of(call->in[0], type, first, width, call->scratch);
    if (!call->in[z])
        return x;
    float *sum = tx_run_to(call->out[z], type, first, call->scratch);
    if (call->command->attrs.draw.p > 0.0f)
        add_dropped(call, z, row, x, sum);
    else
        add_row(call, z, row, width, x, sum);
    tx_run_put(call->out[z], sum, type, first, width);
    return tx_run_of(call->out[z], type, first, width, call->scratch);
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

enum { DGAMMA, DBETA, DBIAS, SUMS };

/* The operands of a norm's gradient. */
typedef struct norm_grad_parts {
    bool rms;
    int64_t rows, width, count; /* elements of gamma */
    int dbias, sums;            /* index of output dbias; number of sums over rows */
    const void *z;
    float *work; /* [blocks, sums, count] */
} norm_grad_parts;

/* A row of it. Sums that are not wanted are NULL, and so is gamma if the row is not normalized. */
typedef struct norm_grad_row {
    bool rms;
    const float *dy, *x, *gamma;
    float mean, rstd, mean_d, mean_dx; /* the last two are of d = dy gamma and of d xhat */
    float *sum[SUMS];
} norm_grad_row;

static norm_grad_parts parts_of(const tx_cpu_call *call)
{
    const tx_command *c = call->command;
    const tx_shape *x = &c->in[1].shape;
    const bool rms = c->op == TX_OP_RMS_NORM_GRAD;
    norm_grad_parts p = {.rms = rms,
                         .rows = tx_shape_rows(x),
                         .width = tx_shape_last(x),
                         .count = tx_shape_last(&c->in[2].shape),
                         .dbias = rms ? 2 : 3,
                         .z = call->in[rms ? 4 : 5],
                         .work = call->out[rms ? 3 : 4]};
    for (int i = 1; i <= p.dbias; i++)
        p.sums += call->out[i] != NULL;
    return p;
}

/* Finds the row's operands, and its sums in the block's slice of work. */
static norm_grad_row row_of(const tx_cpu_call *call, const norm_grad_parts *p, int64_t row, float *work)
{
    const int64_t width = p->width, part = tx_norm_part(&call->command->attrs, row);
    const tx_operand *in = call->command->in;
    float *of_x = call->scratch; /* after dy, if that is there */
    if (in[0].dtype != TX_F32)
        of_x += width;
    norm_grad_row r = {.rms = p->rms,
                       .dy = tx_run_of(call->in[0], in[0].dtype, row * width, width, call->scratch),
                       .x = tx_run_of(call->in[1], in[1].dtype, row * width, width, of_x),
                       .gamma = part < 0 ? NULL : (const float *)call->in[2] + part * width,
                       .mean = p->rms ? 0.0f : ((const float *)call->in[3])[row],
                       .rstd = ((const float *)call->in[p->rms ? 3 : 4])[row]};
    for (int i = 1; i <= p->dbias; i++) {
        const int sum = i == p->dbias ? DBIAS : i - 1;
        if (!call->out[i])
            continue;
        r.sum[sum] = sum == DGAMMA && part >= 0 ? work + part * width : work;
        work += p->count;
    }
    return r;
}

static void find_means(norm_grad_row *r, int64_t width)
{
    const float *dy = r->dy, *x = r->x, *gamma = r->gamma, mean = r->mean, rstd = r->rstd;
    float sum = 0.0f, dot;
    if (!r->rms)
        TX_SUM(sum, i, width, dy[i] * gamma[i]);
    TX_SUM(dot, i, width, dy[i] * gamma[i] * ((x[i] - mean) * rstd));
    const float inverse = 1.0f / (float)width;
    r->mean_d = sum * inverse;
    r->mean_dx = r->rms ? dot / (float)width : dot * inverse;
}

/* dx = rstd (d - mean(d) - xhat mean(d xhat)). dx may alias dy. */
static void grad_piece(const norm_grad_row *r, int64_t at, int64_t count, float *dx)
{
    const float *dy = r->dy + at, *x = r->x + at;
    const float mean = r->mean, rstd = r->rstd, mean_d = r->mean_d, mean_dx = r->mean_dx;
    if (!r->gamma) {
        memmove(dx, dy, (size_t)count * sizeof *dx);
        return;
    }
    const float *gamma = r->gamma + at;
    if (r->sum[DGAMMA]) {
        float *dgamma = r->sum[DGAMMA] + at;
        TX_SIMD for (int64_t i = 0; i < count; i++) dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
    }
    if (r->sum[DBETA]) {
        float *dbeta = r->sum[DBETA] + at;
        TX_SIMD for (int64_t i = 0; i < count; i++) dbeta[i] += dy[i];
    }
    if (r->rms)
        TX_SIMD for (int64_t i = 0; i < count; i++) dx[i] = rstd * (dy[i] * gamma[i] - x[i] * rstd * mean_dx);
    else
        TX_SIMD for (int64_t i = 0; i < count; i++) dx[i] =
            rstd * (dy[i] * gamma[i] - mean_d - (x[i] - mean) * rstd * mean_dx);
}

static void grad_row(const tx_cpu_call *call, const norm_grad_parts *p, int64_t row, float *work)
{
    const tx_dtype type = call->command->out[0].dtype;
    norm_grad_row r = row_of(call, p, row, work);
    float piece[TX_PIECE], wide[TX_PIECE];
    if (r.gamma)
        find_means(&r, p->width);
    for (int64_t at = 0, count; at < p->width; at += count) {
        const int64_t first = row * p->width + at;
        count = tx_run_length(type, p->width - at);
        float *dx = tx_run_to(call->out[0], type, first, piece);
        grad_piece(&r, at, count, dx);
        if (p->z) {
            const float *z = tx_run_of(p->z, type, first, count, wide);
            TX_SIMD for (int64_t i = 0; i < count; i++) dx[i] += z[i];
        }
        tx_run_put(call->out[0], dx, type, first, count);
        if (r.sum[DBIAS]) {
            const float *stored = tx_run_of(call->out[0], type, first, count, wide);
            float *dbias = r.sum[DBIAS] + at;
            TX_SIMD for (int64_t i = 0; i < count; i++) dbias[i] += stored[i];
        }
    }
}

static void grad_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const norm_grad_parts p = parts_of(call);
    const int64_t block = tx_block_size(p.rows, TX_ROW_BLOCK), sums = p.sums * p.count;
    for (int64_t b = first; b < last; b++) {
        float *work = p.sums ? p.work + b * sums : NULL;
        if (p.sums)
            memset(work, 0, (size_t)sums * sizeof *work);
        for (int64_t row = b * block, end = tx_min(row + block, p.rows); row < end; row++)
            grad_row(call, &p, row, work);
    }
}

/* Computes elements first..last-1 of the sums from those of blocks. */
static void fold_work(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const norm_grad_parts p = parts_of(call);
    const float *work = p.work, beta = tx_beta(call->command->attrs.accumulate, call->controls);
    for (int i = 1; i <= p.dbias; i++) {
        if (!call->out[i])
            continue;
        tx_cpu_fold_blocks(work, tx_row_blocks(p.rows), p.sums * p.count, first, last, 1.0f, beta, call->out[i]);
        work += p.count;
    }
}

static void norm_grad(const tx_cpu_call *call)
{
    const norm_grad_parts p = parts_of(call);
    const int64_t blocks = tx_row_blocks(p.rows), elements = tx_block_size(p.rows, TX_ROW_BLOCK) * p.width;
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(elements), grad_blocks);
    if (p.sums)
        tx_cpu_slices(call, p.count, tx_cpu_columns_grain(p.sums * blocks), fold_work);
}

void TX_CPU_NAME(layer_norm_grad)(const tx_cpu_call *call)
{
    norm_grad(call);
}

void TX_CPU_NAME(rms_norm_grad)(const tx_cpu_call *call)
{
    norm_grad(call);
}
