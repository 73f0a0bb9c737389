/* SPDX-License-Identifier: Apache-2.0
 *
 * A chunk of tokens of linear attention (op LINEAR_SCAN): the products of one value head. Sums over earlier tokens of
 * the chunk are triangular matrices; earlier chunks are in the state S [k, v] (Yang et al., Gated delta networks, 2025,
 * and Dao and Gu, Mamba-2, 2024). Matrices of tokens are [TX_SCAN_CHUNK, TX_SCAN_CHUNK].
 */
#ifndef TX_CPU_SCAN_CHUNK_H
#define TX_CPU_SCAN_CHUNK_H

#include "backends/cpu/scan/scratch.h"
#include "backends/cpu/tile.h"

enum { SIDE = TX_SCAN_CHUNK };

/* A value head of one sample. */
typedef struct scan_head {
    const tx_cpu_call *call;
    tx_scan s;
    int64_t b, head, key_head;
    int qkv;               /* index of operand qkv; rates follow */
    const int32_t *starts; /* of the sample, or NULL */
    int64_t count;         /* tokens; later ones are padding */
    bool delta, continues; /* there is a state before the first token */
} scan_head;

/* Decay of a chunk. Token i sees tokens from first[i] on, and the state before the chunk if that is negative. */
typedef struct scan_decay {
    int64_t at, rows; /* first token and number of tokens */
    int32_t first[SIDE];
    float sum[SIDE];    /* of g in the chunk */
    float low[SIDE];    /* its rounding error, which matters if decay is strong */
    float weight[SIDE]; /* of the token */
    float in[SIDE];     /* of the state before the chunk */
    float out[SIDE];    /* of the token's part of the state after the chunk */
    float whole;        /* of the state, over the chunk */
} scan_decay;

static inline scan_head scan_head_of(const tx_cpu_call *call, int qkv, int64_t b, int64_t head)
{
    scan_head h = {.call = call, .s = tx_scan_of(&call->command->attrs, &call->command->in[qkv].shape)};
    h.b = b;
    h.head = head;
    h.key_head = head / h.s.shared;
    h.qkv = qkv;
    const bool cached = call->command->op == TX_OP_LINEAR_SCAN_CACHED;
    h.starts = !cached && call->in[qkv + 3] ? (const int32_t *)call->in[qkv + 3] + b * h.s.time : NULL;
    h.count = h.s.time;
    h.delta = call->command->attrs.scan.delta;
    return h;
}

static inline void scan_decay_of(const scan_head *h, int64_t chunk, scan_decay *d)
{
    const float *rates = h->call->in[h->qkv + 1];
    const int64_t heads = h->s.v_heads;
    int32_t first = -1;
    float sum = 0.0f, low = 0.0f;
    d->at = chunk * SIDE;
    d->rows = tx_min(h->count - d->at, SIDE);
    for (int32_t i = 0; i < d->rows; i++) {
        const int64_t t = d->at + i;
        const float *row = rates + (h->b * h->s.time + t) * 2 * heads + h->head;
        if ((t == 0 && !h->continues) || (h->starts && h->starts[t] >= t))
            first = i;
        const float next = sum + row[0], added = next - sum;
        low += (sum - (next - added)) + (row[0] - added);
        sum = next;
        d->first[i] = first;
        d->sum[i] = sum;
        d->low[i] = low;
        d->weight[i] = row[heads];
    }
    for (int64_t i = 0; i < d->rows; i++) {
        d->in[i] = d->first[i] < 0 ? tx_exp(d->sum[i]) : 0.0f;
        d->out[i] = i >= first ? tx_exp((sum - d->sum[i]) + (low - d->low[i])) : 0.0f;
    }
    d->whole = first < 0 ? tx_exp(sum) : 0.0f;
}

/* to[c][r] = from[r][c] */
static inline void scan_transpose(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows,
                                  int64_t columns)
{
    enum { BLOCK = 16 };
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t i = r; i < tx_min(r + BLOCK, rows); i++)
                to[c * to_row + i] = from[i * from_row + c];
}

/* Divides each row by its norm and multiplies it by `factor`. */
static inline void scan_normalize(float *x, int64_t rows, int64_t size, float eps, float factor)
{
    for (int64_t t = 0; t < rows; t++) {
        float *row = x + t * size, squares = 1.0f;
        if (eps > 0.0f)
            TX_SUM(squares, i, size, row[i] * row[i]);
        const float scale = factor * (eps > 0.0f ? 1.0f / sqrtf(squares + eps) : 1.0f);
        TX_SIMD for (int64_t i = 0; i < size; i++) row[i] *= scale;
    }
}

/* Loads q, k and v of the chunk, and k transposed. */
static inline void scan_load(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    const tx_scan *s = &h->s;
    const tx_attrs *attrs = &h->call->command->attrs;
    const tx_dtype type = h->call->command->in[h->qkv].dtype;
    const void *qkv = h->call->in[h->qkv];
    const int64_t row = (h->b * s->time + d->at) * s->width, key = h->key_head * s->k_size;
    tx_widen_rows(w->q, s->k_size, qkv, type, row + s->q_at + key, s->width, d->rows, s->k_size);
    tx_widen_rows(w->k, s->k_size, qkv, type, row + s->k_at + key, s->width, d->rows, s->k_size);
    tx_widen_rows(w->v, s->v_size, qkv, type, row + s->v_at + h->head * s->v_size, s->width, d->rows, s->v_size);
    scan_normalize(w->q, d->rows, s->k_size, attrs->eps, attrs->scale);
    scan_normalize(w->k, d->rows, s->k_size, attrs->eps, 1.0f);
    scan_transpose(w->kt, SIDE, w->k, s->k_size, d->rows, s->k_size);
}

/* The rows of a strip of a triangular matrix that begins at row i. */
static inline int64_t scan_strip(int64_t i, int64_t rows)
{
    return tx_min(TX_STRIP, rows - i);
}

/* Lower triangle of c = a [rows, size] b, where b is [size, SIDE]. Strips may have more columns than that. */
static inline void scan_lower(const scan_decay *d, const float *a, int64_t size, const float *b, float *c)
{
    for (int64_t i = 0; i < d->rows; i += TX_STRIP) {
        const int64_t count = scan_strip(i, d->rows);
        tx_tile_product(false, count, i + count, size, a + i * size, size, 1, b, SIDE, c + i * SIDE, SIDE);
    }
}

/* c [rows, n] += l b, where l is a lower triangle with zeros in the rest of its strips. */
static inline void scan_lower_times(const scan_decay *d, const float *l, const float *b, int64_t n, float *c)
{
    for (int64_t i = 0; i < d->rows; i += TX_STRIP) {
        const int64_t count = scan_strip(i, d->rows);
        tx_tile_product(true, count, n, i + count, l + i * SIDE, SIDE, 1, b, n, c + i * n, n);
    }
}

/* c [rows, n] += l^T b */
static inline void scan_upper_times(const scan_decay *d, const float *l, const float *b, int64_t n, float *c)
{
    for (int64_t i = 0; i < d->rows; i += TX_STRIP)
        tx_tile_product(true, scan_strip(i, d->rows), n, d->rows - i, l + i * SIDE + i, 1, SIDE, b + i * n, n,
                        c + i * n, n);
}

/* decay[i][j] = e^(sum of g from j + 1 to i) if token i sees token j; 0 in the rest of the strips. */
static inline void scan_decays(const scan_decay *d, float *decay)
{
    for (int64_t i = 0; i < d->rows; i++) {
        const int64_t first = d->first[i] < 0 ? 0 : d->first[i], end = i / TX_STRIP * TX_STRIP + TX_STRIP;
        float *row = decay + i * SIDE;
        const float sum = d->sum[i], low = d->low[i];
        TX_SIMD for (int64_t j = 0; j <= i; j++) row[j] =
            j >= first ? tx_exp((sum - d->sum[j]) + (low - d->low[j])) : 0.0f;
        for (int64_t j = i + 1; j < tx_min(end, SIDE); j++)
            row[j] = 0.0f;
    }
}

/* scores = decay * q k^T; with the delta rule between = -decay * k k^T without the diagonal. */
static inline void scan_scores(const scan_head *h, const scan_decay *d, const scan_space *w)
{
    scan_decays(d, w->decay);
    scan_lower(d, w->q, h->s.k_size, w->kt, w->scores);
    if (h->delta)
        scan_lower(d, w->k, h->s.k_size, w->kt, w->between);
    for (int64_t i = 0; i < d->rows; i++) {
        const int64_t end = tx_min(i / TX_STRIP * TX_STRIP + TX_STRIP, d->rows);
        const float *decay = w->decay + i * SIDE;
        float *scores = w->scores + i * SIDE, *between = w->between + i * SIDE;
        TX_SIMD for (int64_t j = 0; j < end; j++) scores[j] *= decay[j];
        if (!h->delta)
            continue;
        TX_SIMD for (int64_t j = 0; j < end; j++) between[j] *= -decay[j];
        between[i] = 0.0f;
    }
}

static inline void scan_axpy(float *y, float factor, const float *x, int64_t n)
{
    TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = TX_FMA(factor, x[i], y[i]);
}

static inline void scan_scaled(float *y, float factor, const float *x, int64_t n)
{
    TX_SIMD for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}

/* n = weight err, and err = v, with the delta rule minus the product of the state and k. It needs forward substitution.
 * `state` is that before the chunk. */
static inline void scan_solve(const scan_head *h, const scan_decay *d, const float *state, const scan_space *w,
                              float *err)
{
    const int64_t n = h->s.v_size, k = h->s.k_size;
    if (h->delta)
        tx_tile_product(false, d->rows, n, k, w->k, k, 1, state, n, err, n);
    for (int64_t i = 0; i < d->rows; i++) {
        const float in = -d->in[i], *v = w->v + i * n;
        float *row = err + i * n;
        if (h->delta)
            TX_SIMD for (int64_t c = 0; c < n; c++) row[c] = TX_FMA(in, row[c], v[c]);
        else
            memcpy(row, v, (size_t)n * sizeof *row);
    }
    for (int64_t i = 0; i < d->rows; i++) {
        if (h->delta && i % TX_STRIP == 0 && i > 0)
            tx_tile_product(true, scan_strip(i, d->rows), n, i, w->between + i * SIDE, SIDE, 1, w->n, n, err + i * n,
                            n);
        for (int64_t j = i / TX_STRIP * TX_STRIP; h->delta && j < i; j++)
            scan_axpy(err + i * n, w->between[i * SIDE + j], w->n + j * n, n);
        scan_scaled(w->n + i * n, d->weight[i], err + i * n, n);
    }
}

/* Advances the state over the chunk. */
static inline void scan_advance(const scan_head *h, const scan_decay *d, const scan_space *w, float *state)
{
    const int64_t n = h->s.v_size, k = h->s.k_size;
    for (int64_t i = 0; i < d->rows; i++)
        scan_scaled(w->part + i * n, d->out[i], w->n + i * n, n);
    scan_scaled(state, d->whole, state, k * n);
    tx_tile_product(true, k, n, d->rows, w->k, 1, k, w->part, n, state, n);
}

#endif
