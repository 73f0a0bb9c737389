/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear attention with a state (op LINEAR_SCAN), in chunks. A task is a value head of a sample.
 */
#include "backends/cpu/scan/chunk.h"

/* o = in q S + scores n + skip v */
static void output(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    const int64_t n = h->s.v_size, k = h->s.k_size, row = h->s.v_heads * n;
    const float *skip = h->call->in[2];
    tx_tile_product(false, d->rows, n, k, w->q, k, 1, w->state, n, w->o, n);
    for (int64_t i = 0; i < d->rows; i++)
        scan_scaled(w->o + i * n, d->in[i], w->o + i * n, n);
    scan_lower_times(d, w->scores, w->n, n, w->o);
    for (int64_t i = 0; skip && i < d->rows; i++)
        scan_axpy(w->o + i * n, skip[h->head], w->v + i * n, n);
    tx_narrow_rows(h->call->out[0], h->call->command->out[0].dtype, (h->b * h->s.time + d->at) * row + h->head * n, row,
                   w->o, n, d->rows, n);
}

static void scan_chunks(const scan_head *h, const scan_space *w)
{
    scan_decay d;
    for (int64_t chunk = 0; chunk * SIDE < h->count; chunk++) {
        scan_decay_of(h, chunk, &d);
        scan_load(h, &d, w);
        scan_scores(h, &d, w);
        scan_solve(h, &d, w->state, w, w->err);
        output(h, &d, w);
        scan_advance(h, &d, w, w->state);
    }
}

static void scan_items(const tx_cpu_call *call, int64_t first, int64_t last)
{
    for (int64_t item = first; item < last; item++) {
        const int64_t heads = call->command->attrs.scan.v_heads;
        const scan_head h = scan_head_of(call, 0, item / heads, item % heads);
        scan_space w;
        scan_space_of(&h.s, false, call->scratch, &w);
        memset(w.state, 0, (size_t)(h.s.k_size * h.s.v_size) * sizeof *w.state);
        scan_chunks(&h, &w);
    }
}

void TX_CPU_NAME(linear_scan)(const tx_cpu_call *call)
{
    tx_cpu_tasks(call, call->command->in[0].shape.dim[0] * call->command->attrs.scan.v_heads, scan_items);
}

/* The state is advanced in place. */
static void scan_cached_items(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_operand *o = &call->command->out[0];
    const int64_t rows = call->command->in[3].shape.dim[0], unit = (int64_t)tx_dtype_size(o->dtype);
    for (int64_t item = first; item < last; item++) {
        const int64_t heads = call->command->attrs.scan.v_heads;
        scan_head h = scan_head_of(call, 0, item / heads, item % heads);
        const tx_scan_span span = tx_scan_span_of(call->in[4], h.b, rows, h.s.time);
        const int64_t cells = h.s.k_size * h.s.v_size;
        scan_space w;
        scan_space_of(&h.s, false, call->scratch, &w);
        w.state = (float *)call->out[1] + (span.row * heads + h.head) * cells;
        h.count = span.count;
        h.continues = true;
        if (span.fresh && span.count > 0)
            memset(w.state, 0, (size_t)cells * sizeof *w.state);
        scan_chunks(&h, &w);
        for (int64_t t = span.count; t < h.s.time; t++)
            memset((char *)call->out[0] + ((h.b * h.s.time + t) * heads + h.head) * h.s.v_size * unit, 0,
                   (size_t)(h.s.v_size * unit));
    }
}

void TX_CPU_NAME(linear_scan_cached)(const tx_cpu_call *call)
{
    tx_cpu_tasks(call, call->command->in[0].shape.dim[0] * call->command->attrs.scan.v_heads, scan_cached_items);
}

/* ---- Rates ----------------------------------------------------------------------------------------------- */

/* ln(1 + e^x) */
static float softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + log1pf(tx_exp_to(x > 0.0f ? -x : x, true));
}

/* A row of SCAN_RATES and of its gradient. */
typedef struct rates_row {
    int64_t heads;
    const tx_attrs *attrs;
    const float *x, *a_log, *dt_bias;
} rates_row;

static rates_row rates_row_of(const tx_cpu_call *call, int x, int64_t row, float *piece)
{
    const tx_operand *operand = &call->command->in[x];
    const int64_t width = tx_shape_last(&operand->shape);
    rates_row r = {.heads = call->command->in[x + 1].shape.dim[0], .attrs = &call->command->attrs};
    tx_widen(piece, call->in[x], operand->dtype, row * width, width);
    r.x = piece;
    r.a_log = call->in[x + 1];
    r.dt_bias = call->in[x + 2];
    return r;
}

/* The decayed input of a head: a + dt_bias. */
static float input_of(const rates_row *r, int64_t head)
{
    return r->x[r->attrs->scan.delta ? r->heads + head : head] + r->dt_bias[head];
}

static float clamped(const rates_row *r, float step)
{
    step = step < r->attrs->scan.low ? r->attrs->scan.low : step;
    return step > r->attrs->scan.high ? r->attrs->scan.high : step;
}

enum { HEADS = 2 * TX_SCAN_RATES }; /* most columns of a row */

TX_COSTLY_ROWS(scan_rates, out[0], 16 * width)
{
    float piece[HEADS], *g = (float *)call->out[0] + row * width, *weight = g + width / 2;
    const rates_row r = rates_row_of(call, 0, row, piece);
    for (int64_t h = 0; h < r.heads; h++) {
        const float step = softplus(input_of(&r, h));
        weight[h] = r.attrs->scan.delta ? tx_sigmoid_of(r.x[h]) : clamped(&r, step);
        g[h] = -expf(r.a_log[h]) * (r.attrs->scan.delta ? step : weight[h]);
    }
}

/* Writes dx of a row, and adds to the sums of the block. */
static void rates_grad_row(const tx_cpu_call *call, int64_t row, float *da_log, float *ddt_bias)
{
    float piece[HEADS], dx[HEADS];
    const rates_row r = rates_row_of(call, 1, row, piece);
    const float *dg = (const float *)call->in[0] + row * 2 * r.heads, *dweight = dg + r.heads;
    const bool delta = r.attrs->scan.delta;
    for (int64_t h = 0; h < r.heads; h++) {
        const float input = input_of(&r, h), step = softplus(input), rate = -expf(r.a_log[h]);
        const bool inside = delta || clamped(&r, step) == step;
        const float dstep = inside ? rate * dg[h] + (delta ? 0.0f : dweight[h]) : 0.0f,
                    da = dstep * tx_sigmoid_of(input);
        dx[delta ? r.heads + h : h] = da;
        if (delta)
            dx[h] = dweight[h] * tx_logistic_of(r.x[h]).slope;
        da_log[h] += dg[h] * rate * (delta ? step : clamped(&r, step));
        ddt_bias[h] += da;
    }
    const int64_t width = delta ? 2 * r.heads : r.heads;
    tx_narrow(call->out[0], dx, call->command->out[0].dtype, row * width, width);
}

static void rates_grad_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const int64_t rows = tx_shape_rows(&call->command->in[1].shape), block = tx_block_size(rows, TX_ROW_BLOCK),
                  heads = call->command->in[2].shape.dim[0];
    for (int64_t b = first; b < last; b++) {
        float sums[HEADS] = {0};
        for (int64_t row = b * block; row < tx_min((b + 1) * block, rows); row++)
            rates_grad_row(call, row, sums, sums + heads);
        if (call->out[3])
            memcpy((float *)call->out[3] + b * 2 * heads, sums, (size_t)(2 * heads) * sizeof *sums);
    }
}

void TX_CPU_NAME(scan_rates_grad)(const tx_cpu_call *call)
{
    const int64_t rows = tx_shape_rows(&call->command->in[1].shape), blocks = tx_row_blocks(rows),
                  heads = call->command->in[2].shape.dim[0];
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(16 * tx_ceil_div(rows, blocks) * heads), rates_grad_blocks);
    for (int i = 1; i <= 2; i++)
        if (call->out[i])
            tx_cpu_fold_blocks((const float *)call->out[3] + (i - 1) * heads, blocks, 2 * heads, 0, heads, 1.0f, beta,
                               call->out[i]);
}
