/* SPDX-License-Identifier: Apache-2.0
 * Gradient of attention: probabilities are computed again from the saved log-sum-exp, tile by tile (Dao,
 * FlashAttention-2, 2023, algorithm 2). One thread does all of a sample's key head, so sums have one order. */
#include "backends/cpu/tile.h"

/* A thread's part of the scratch memory. */
typedef struct tx_backward_space {
    float p[TX_TILE * TX_TILE];  /* probabilities, then gradients of scores */
    float dp[TX_TILE * TX_TILE]; /* dropped probabilities, then gradients of probabilities */
    float keep[TX_TILE * TX_TILE];
    float query[]; /* [size][TX_TILE], followed by the same for gradients of outputs */
} tx_backward_space;

/* The rows that one tile of queries reads and writes besides tx_head's. */
typedef struct tx_backward_rows {
    const float *dout, *lse, *delta;
    float *dq, *dk, *dv;
    int64_t out_row;
} tx_backward_rows;

/* p = exp(score - lse), 0 where masked or where a lane has no query. */
static void probabilities(const tx_head *head, int64_t key, int64_t keys, int64_t query, int64_t queries,
                          const float *lse, float *p)
{
    for (int64_t j = 0; j < keys; j++) {
        float *row = p + j * TX_TILE;
        TX_SIMD for (int64_t i = 0; i < queries; i++) row[i] = tx_exp(row[i] - lse[i]);
    }
    tx_tile_mask(head, key, keys, query, 0.0f, p);
}

/* p = p (keep dp - delta) scale: the gradient of the unscaled scores. */
static void score_gradients(int64_t keys, int64_t queries, const float *delta, float scale, bool drop,
                            tx_backward_space *space)
{
    for (int64_t j = 0; j < keys; j++) {
        float *p = space->p + j * TX_TILE;
        const float *dp = space->dp + j * TX_TILE, *keep = space->keep + j * TX_TILE;
        if (drop) {
            TX_SIMD for (int64_t i = 0; i < queries; i++) p[i] *= (keep[i] * dp[i] - delta[i]) * scale;
        } else {
            TX_SIMD for (int64_t i = 0; i < queries; i++) p[i] *= (dp[i] - delta[i]) * scale;
        }
    }
}

static void backward_tile(const tx_cpu_call *call, const tx_head *head, const tx_site *site, int64_t query,
                          int64_t queries, const tx_backward_rows *rows, tx_backward_space *space)
{
    const int64_t size = head->size, row = head->kv_row;
    const float scale = call->command->attrs.scale, *q = head->q + query * head->q_row;
    const bool drop = site->threshold != 0;
    float *dout = space->query + size * TX_TILE, *p = space->p, *dp = space->dp;
    tx_tile_transpose(space->query, q, head->q_row, queries, size, scale);
    tx_tile_transpose(dout, rows->dout, rows->out_row, queries, size, 1.0f);
    for (int64_t key = 0;; key += TX_TILE) {
        const int64_t keys = tx_tile_keys(head, key, query + queries);
        if (keys <= 0)
            break;
        const float *k = head->k + key * row, *v = head->v + key * row;
        const tx_pair pair = {head, key, keys, query, queries};
        tx_pair_scores(&pair, k, space->query, p);
        probabilities(head, key, keys, query, queries, rows->lse, p);
        const float *kept = p;
        if (drop) {
            tx_tile_draw(site, head->plane, key, keys, query, queries, space->keep);
            for (int64_t j = 0; j < keys * TX_TILE; j++)
                dp[j] = p[j] * space->keep[j];
            kept = dp;
        }
        tx_pair_to_keys(&pair, kept, rows->dout, rows->out_row, rows->dv + key * row);
        tx_pair_scores(&pair, v, dout, dp);
        score_gradients(keys, queries, rows->delta, scale, drop, space);
        tx_tile_mask(head, key, keys, query, 0.0f, p); /* dp is not set everywhere */
        tx_pair_to_keys(&pair, p, q, head->q_row, rows->dk + key * row);
        tx_pair_to_queries(&pair, p, k, rows->dq, row);
    }
}

static void zero_rows(float *x, int64_t row, int64_t rows, int64_t size)
{
    for (int64_t t = 0; t < rows; t++)
        memset(x + t * row, 0, (size_t)size * sizeof *x);
}

/* delta[t] = sum of do * o over the row of one head. */
static void row_sums(const float *dout, const float *o, int64_t row, int64_t rows, int64_t size, float *delta)
{
    for (int64_t t = 0; t < rows; t++)
        TX_SUM(delta[t], i, size, dout[t * row + i] * o[t * row + i]);
}

/* All queries of head h of sample b; dk and dv are added to. */
static void backward_head(const tx_cpu_call *call, int64_t b, int64_t h, int32_t thread)
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_shape *qkv = &call->command->in[1].shape;
    const int64_t length = qkv->dim[1], width = qkv->dim[2], heads = attrs->heads, kv_heads = attrs->kv_heads;
    const int64_t size = width / (heads + 2 * kv_heads), group = h / (heads / kv_heads), out_row = heads * size;
    const int32_t *lengths = call->in[4];
    const int64_t valid = tx_tile_valid(lengths, b, length), at = b * length * out_row + h * size;
    const int64_t k_at = (heads + group) * size, v_at = (heads + kv_heads + group) * size;
    const float *base = (const float *)call->in[1] + b * length * width, *dout = (const float *)call->in[0] + at;
    const float *lse = (const float *)call->in[3] + (b * heads + h) * length;
    float *dbase = (float *)call->out[0] + b * length * width, *dq = dbase + h * size;
    float *delta = (float *)call->out[1] + (b * heads + h) * length;
    const tx_head head = {
        .q = base + h * size,
        .k = base + k_at,
        .v = base + v_at,
        .q_row = width,
        .kv_row = width,
        .size = size,
        .queries = length,
        .keys = valid,
        .causal = attrs->causal,
        .plane = (uint32_t)h,
    };
    const tx_site site = tx_site_of(call, b);
    tx_backward_space *space =
        (tx_backward_space *)(void *)((char *)call->scratch + thread * tx_cpu_attention_grad_scratch(size));
    row_sums(dout, (const float *)call->in[2] + at, out_row, valid, size, delta);
    for (int64_t query = 0; query < valid; query += TX_TILE) {
        const int64_t queries = valid - query < TX_TILE ? valid - query : TX_TILE;
        const tx_backward_rows rows = {dout + query * out_row, lse + query,  delta + query, dq + query * width,
                                       dbase + k_at,           dbase + v_at, out_row};
        backward_tile(call, &head, &site, query, queries, &rows, space);
    }
    zero_rows(dq + valid * width, width, length - valid, size);
}

/* Item: (sample, key head). */
static void attention_grad_items(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_shape *qkv = &call->command->in[1].shape;
    const int64_t length = qkv->dim[1], width = qkv->dim[2], heads = attrs->heads, kv_heads = attrs->kv_heads;
    const int64_t size = width / (heads + 2 * kv_heads), shared = heads / kv_heads;
    for (int64_t item = first; item < last; item++) {
        const int64_t group = item % kv_heads, b = item / kv_heads;
        float *dbase = (float *)call->out[0] + b * length * width;
        zero_rows(dbase + (heads + group) * size, width, length, size);
        zero_rows(dbase + (heads + kv_heads + group) * size, width, length, size);
        for (int64_t h = group * shared; h < (group + 1) * shared; h++)
            backward_head(call, b, h, thread);
    }
}

void TX_CPU_NAME(attention_grad)(const tx_cpu_call *call)
{
    const tx_shape *qkv = &call->command->in[1].shape;
    tx_cpu_tasks(call, qkv->dim[0] * call->command->attrs.kv_heads, attention_grad_items);
}
