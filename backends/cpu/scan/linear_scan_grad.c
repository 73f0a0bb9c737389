/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of linear attention (op LINEAR_SCAN), in chunks from the last to the first. A task is a part of the
 * value heads of a key head of a sample; the gradients of q and k of its heads are summed in order, and then those of
 * the parts. First the states before all chunks are computed again.
 */
#include "backends/cpu/scan/chunk.h"

/* The state before a chunk and n / weight in it (backends/scan.h). */
static float *saved_state(const scan_head *h, int64_t chunk)
{
    const int64_t index = (h->b * h->s.v_heads + h->head) * h->s.chunks + chunk;
    return (float *)h->call->out[3] + index * (h->s.k_size + SIDE) * h->s.v_size;
}

/* Computes the states; w->state is the last one. */
static void save_states(const scan_head *h, const scan_space *w)
{
    const int64_t size = h->s.k_size * h->s.v_size;
    scan_decay d;
    memset(w->state, 0, (size_t)size * sizeof *w->state);
    for (int64_t chunk = 0; chunk < h->s.chunks; chunk++) {
        float *saved = saved_state(h, chunk);
        memcpy(saved, w->state, (size_t)size * sizeof *saved);
        scan_decay_of(h, chunk, &d);
        scan_load(h, &d, w);
        if (h->delta)
            scan_scores(h, &d, w);
        scan_solve(h, &d, saved, w, saved + size);
        scan_advance(h, &d, w, w->state);
    }
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sum;
    TX_SUM(sum, i, n, a[i] * b[i]);
    return sum;
}

/* dn = scores^T do + out k dS; then by back substitution the gradient dv of v, which is weight times that of n. */
static void solve_back(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    const int64_t n = h->s.v_size, k = h->s.k_size, strips = tx_ceil_div(d->rows, TX_STRIP);
    tx_tile_product(false, d->rows, n, k, w->k, k, 1, w->dstate, n, w->dn, n);
    for (int64_t i = 0; i < d->rows; i++)
        scan_scaled(w->dn + i * n, d->out[i], w->dn + i * n, n);
    scan_upper_times(d, w->scores, w->o, n, w->dn);
    for (int64_t i = strips - 1; i >= 0; i--) {
        const int64_t at = i * TX_STRIP, count = scan_strip(at, d->rows), end = at + count;
        if (h->delta && end < d->rows)
            tx_tile_product(true, count, n, d->rows - end, w->between + end * SIDE + at, 1, SIDE, w->dv + end * n, n,
                            w->dn + at * n, n);
        for (int64_t r = end - 1; r >= at; r--) {
            for (int64_t j = r + 1; h->delta && j < end; j++)
                scan_axpy(w->dn + r * n, w->between[j * SIDE + r], w->dv + j * n, n);
            scan_scaled(w->dv + r * n, d->weight[r], w->dn + r * n, n);
        }
    }
}

/* Row i of a triangle's gradient: adds gradient times value to the slope of token i, and subtracts it from those of the
 * earlier tokens. The diagonal has no decay. Then multiplies the gradient by `factor` times decay. */
static void grad_triangle_row(const scan_space *w, int64_t i, const float *triangle, float factor, float *gradient)
{
    const float *value = triangle + i * SIDE, *decay = w->decay + i * SIDE;
    float *row = gradient + i * SIDE, sum, product[SIDE];
    TX_SIMD for (int64_t j = 0; j < i; j++) product[j] = row[j] * value[j];
    TX_SUM(sum, j, i, product[j]);
    TX_SIMD for (int64_t j = 0; j < i; j++) w->slope[j] -= product[j];
    w->slope[i] += sum;
    for (int64_t j = 0; j < tx_min(i / TX_STRIP * TX_STRIP + TX_STRIP, SIDE); j++)
        row[j] = j <= i ? row[j] * (factor * decay[j]) : 0.0f;
}

/* Gradients of the decayed products: dscores = decay * do n^T, and dbetween = -decay * dv n^T without the diagonal,
 * plus its transpose. The slopes are the gradients of the sums of g. */
static void grad_scores(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    memset(w->slope, 0, SIDE * sizeof *w->slope);
    scan_transpose(w->nt, SIDE, w->n, h->s.v_size, d->rows, h->s.v_size);
    scan_lower(d, w->o, h->s.v_size, w->nt, w->dscores);
    if (h->delta)
        scan_lower(d, w->dv, h->s.v_size, w->nt, w->dbetween);
    for (int64_t i = 0; i < d->rows; i++) {
        grad_triangle_row(w, i, w->scores, 1.0f, w->dscores);
        if (!h->delta)
            continue;
        grad_triangle_row(w, i, w->between, -1.0f, w->dbetween);
        w->dbetween[i * SIDE + i] = 0.0f;
    }
    for (int64_t i = 0; h->delta && i < d->rows; i++)
        for (int64_t j = 0; j < i; j++)
            w->dbetween[j * SIDE + i] = w->dbetween[i * SIDE + j];
}

/* dq = in do S^T + dscores k; dk = out n dS^T - in dv S^T + dscores^T q + dbetween k. */
static void grad_keys(const scan_head *h, const scan_decay *d, const float *state, const scan_space *w)
{
    const int64_t n = h->s.v_size, k = h->s.k_size;
    scan_transpose(w->turned, k, state, n, k, n);
    tx_tile_product(false, d->rows, k, n, w->o, n, 1, w->turned, k, w->dq, k);
    if (h->delta)
        tx_tile_product(false, d->rows, k, n, w->dv, n, 1, w->turned, k, w->keys, k);
    scan_transpose(w->turned, k, w->dstate, n, k, n);
    tx_tile_product(false, d->rows, k, n, w->n, n, 1, w->turned, k, w->dk, k);
    for (int64_t i = 0; i < d->rows; i++) {
        float *dq = w->dq + i * k, *dk = w->dk + i * k;
        scan_scaled(dq, d->in[i], dq, k);
        scan_scaled(dk, d->out[i], dk, k);
        w->slope[i] += dot(w->q + i * k, dq, k) - dot(w->k + i * k, dk, k);
        if (!h->delta)
            continue;
        w->slope[i] -= d->in[i] * dot(w->k + i * k, w->keys + i * k, k);
        scan_axpy(dk, -d->in[i], w->keys + i * k, k);
    }
    scan_lower_times(d, w->dscores, w->k, k, w->dq);
    scan_upper_times(d, w->dscores, w->q, k, w->dk);
    if (h->delta)
        tx_tile_product(true, d->rows, k, d->rows, w->dbetween, SIDE, 1, w->k, k, w->dk, k);
}

/* Gradients of g and of the weights. `inner` is the dot product of the state after the chunk with its gradient. */
static void grad_rates(const scan_head *h, const scan_decay *d, const float *err, float inner, const scan_space *w)
{
    const int64_t n = h->s.v_size, heads = h->s.v_heads;
    float *drates = (float *)h->call->out[1] + (h->b * h->s.time + d->at) * 2 * heads + h->head, sum = inner;
    for (int64_t i = d->rows - 1; i >= 0; i--) {
        const float dweight = dot(w->dn + i * n, err + i * n, n);
        sum = d->first[i] == i ? 0.0f : sum + w->slope[i]; /* at a first token no state is decayed */
        drates[i * 2 * heads] = sum;
        drates[i * 2 * heads + heads] = dweight;
    }
}

/* Turns the gradient of the state after the chunk into that of the state before it. */
static void grad_state(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    const int64_t n = h->s.v_size, k = h->s.k_size;
    scan_scaled(w->dstate, d->whole, w->dstate, k * n);
    for (int64_t i = 0; i < d->rows; i++)
        scan_scaled(w->part + i * n, d->in[i], w->o + i * n, n);
    tx_tile_product(true, k, n, d->rows, w->q, 1, k, w->part, n, w->dstate, n);
    for (int64_t i = 0; h->delta && i < d->rows; i++)
        scan_scaled(w->part + i * n, -d->in[i], w->dv + i * n, n);
    if (h->delta)
        tx_tile_product(true, k, n, d->rows, w->k, 1, k, w->part, n, w->dstate, n);
}

/* Stores or adds dq and dk of the chunk in the sums of a part. */
static void put_keys(const scan_head *h, const scan_decay *d, int64_t part, bool add, const scan_space *w)
{
    const tx_scan *s = &h->s;
    for (int64_t i = 0; i < d->rows; i++) {
        const int64_t row = ((h->b * s->time + d->at + i) * s->k_heads + h->key_head) * s->parts + part;
        float *to = (float *)h->call->out[4] + row * 2 * s->k_size;
        for (int64_t c = 0; c < s->k_size; c++) {
            to[c] = (add ? to[c] : 0.0f) + w->dq[i * s->k_size + c];
            to[s->k_size + c] = (add ? to[s->k_size + c] : 0.0f) + w->dk[i * s->k_size + c];
        }
    }
}

/* Adds skip do to dv, and returns the chunk's sum of do v. */
static float grad_skip(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    const float *skip = h->call->in[3];
    if (!skip)
        return 0.0f;
    scan_axpy(w->dv, skip[h->head], w->o, d->rows * h->s.v_size);
    return dot(w->o, w->v, d->rows * h->s.v_size);
}

static void grad_chunk(const scan_head *h, int64_t chunk, const float *after, int64_t part, bool add,
                       const scan_space *w, float *dskip)
{
    const tx_scan *s = &h->s;
    const tx_cpu_call *call = h->call;
    const int64_t n = s->v_size, row = s->v_heads * n;
    const tx_dtype type = call->command->out[0].dtype;
    const float *state = saved_state(h, chunk), *err = state + s->k_size * n;
    scan_decay d;
    scan_decay_of(h, chunk, &d);
    scan_load(h, &d, w);
    tx_widen_rows(w->o, n, call->in[0], type, (h->b * s->time + d.at) * row + h->head * n, row, d.rows, n);
    scan_scores(h, &d, w);
    for (int64_t i = 0; i < d.rows; i++)
        scan_scaled(w->n + i * n, d.weight[i], err + i * n, n);
    const float inner = dot(after, w->dstate, s->k_size * n);
    solve_back(h, &d, w);
    grad_scores(h, &d, w);
    grad_keys(h, &d, state, w);
    grad_rates(h, &d, err, inner, w);
    grad_state(h, &d, w);
    put_keys(h, &d, part, add, w);
    *dskip += grad_skip(h, &d, w);
    tx_narrow_rows(call->out[0], type, (h->b * s->time + d.at) * s->width + s->v_at + h->head * n, s->width, w->dv, n,
                   d.rows, n);
}

/* An item is (sample, key head, part). */
static void grad_items(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_scan s = tx_scan_of(&call->command->attrs, &call->command->in[1].shape);
    scan_space w;
    scan_space_of(&s, true, call->scratch, &w);
    for (int64_t item = first; item < last; item++) {
        const int64_t part = item % s.parts, key = item / s.parts % s.k_heads, b = item / s.parts / s.k_heads;
        const int64_t begin = key * s.shared + s.shared * part / s.parts,
                      end = key * s.shared + s.shared * (part + 1) / s.parts;
        for (int64_t head = begin; head < end; head++) {
            const scan_head h = scan_head_of(call, 1, b, head);
            float dskip = 0.0f;
            save_states(&h, &w);
            memset(w.dstate, 0, (size_t)(s.k_size * s.v_size) * sizeof *w.dstate);
            for (int64_t chunk = s.chunks - 1; chunk >= 0; chunk--)
                grad_chunk(&h, chunk, chunk + 1 < s.chunks ? saved_state(&h, chunk + 1) : w.state, part, head > begin,
                           &w, &dskip);
            ((float *)call->out[4])[tx_scan_work(&s) - s.batch * s.v_heads + b * s.v_heads + head] = dskip;
        }
    }
}

/* Adds the parts of one of q and k, and writes the gradient before the normalization. */
static void fold_head(const tx_cpu_call *call, const tx_scan *s, const float *parts, int64_t at, float scale)
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_dtype type = call->command->in[1].dtype;
    float x[TX_SCAN_HEAD] = {0}, d[TX_SCAN_HEAD] = {0}, squares, along;
    for (int64_t p = 0; p < s->parts; p++)
        scan_axpy(d, 1.0f, parts + p * 2 * s->k_size, s->k_size);
    tx_widen(x, call->in[1], type, at, s->k_size);
    if (attrs->eps > 0.0f) {
        TX_SUM(squares, i, s->k_size, x[i] * x[i]);
        TX_SUM(along, i, s->k_size, x[i] * d[i]);
        const float rho = 1.0f / sqrtf(squares + attrs->eps);
        for (int64_t i = 0; i < s->k_size; i++)
            d[i] = scale * rho * (d[i] - x[i] * rho * (along * rho));
    } else {
        scan_scaled(d, scale, d, s->k_size);
    }
    tx_narrow(call->out[0], d, type, at, s->k_size);
}

/* An item is (sample, token, key head). */
static void fold_keys(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_scan s = tx_scan_of(&call->command->attrs, &call->command->in[1].shape);
    for (int64_t item = first; item < last; item++) {
        const float *parts = (const float *)call->out[4] + item * s.parts * 2 * s.k_size;
        const int64_t row = item / s.k_heads * s.width + item % s.k_heads * s.k_size;
        fold_head(call, &s, parts, row + s.q_at, call->command->attrs.scale);
        fold_head(call, &s, parts + s.k_size, row + s.k_at, 1.0f);
    }
}

void TX_CPU_NAME(linear_scan_grad)(const tx_cpu_call *call)
{
    const tx_scan s = tx_scan_of(&call->command->attrs, &call->command->in[1].shape);
    tx_cpu_tasks(call, s.batch * s.k_heads * s.parts, grad_items);
    tx_cpu_slices(call, s.batch * s.time * s.k_heads, tx_cpu_rows_grain(2 * s.parts * s.k_size), fold_keys);
    if (call->out[2])
        tx_cpu_fold_blocks((const float *)call->out[4] + tx_scan_work(&s) - s.batch * s.v_heads, s.batch, s.v_heads, 0,
                           s.v_heads, 1.0f, tx_beta(call->command->attrs.accumulate, call->controls), call->out[2]);
}
