/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of attention. Probabilities are recomputed from the saved log-sum-exp, tile by tile (Dao,
 * FlashAttention-2, 2023, algorithm 2). One thread computes a whole key head of a sample, so the order of sums is
 * fixed.
 */
#include "backends/cpu/tile.h"

/* A thread's slice of the scratch memory. */
typedef struct tx_backward_space {
    float p[TX_TILE * TX_TILE];  /* probabilities, then gradients of scores */
    float dp[TX_TILE * TX_TILE]; /* probabilities after dropout, then gradients of probabilities */
    float keep[TX_TILE * TX_TILE];
    float slope[TX_TILE * TX_TILE]; /* derivatives of capped scores */
    float query[];                  /* [size][TX_TILE], followed by the gradients of outputs in the same layout */
} tx_backward_space;

/* The rows that one tile of queries reads and writes, in addition to those of tx_head. */
typedef struct tx_backward_rows {
    const float *dout, *lse, *delta;
    float *dq, *dk, *dv;
    int64_t out_row;
} tx_backward_rows;

/* p = exp(score - lse), or 0 for masked keys and unused lanes. */
static void probabilities(const tx_pair *pair, const float *lse, float *p)
{
    for (int64_t j = 0; j < pair->keys; j++) {
        float *row = p + j * TX_TILE;
        TX_SIMD for (int64_t i = 0; i < pair->queries; i++) row[i] = tx_exp(row[i] - lse[i]);
    }
    tx_tile_mask(pair, 0.0f, p);
}

/* p = p (keep dp - delta) scale, times the slope with a cap: the gradient of the unscaled scores. */
static void score_gradients(int64_t keys, int64_t queries, const float *delta, float scale, bool drop, bool capped,
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
        for (int64_t i = 0; capped && i < queries; i++)
            p[i] *= space->slope[j * TX_TILE + i];
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
    const int64_t begin = tx_tile_begin(head, query, queries);
    for (int64_t key = begin;; key += TX_TILE) {
        const int64_t keys = tx_tile_keys(head, key, query + queries);
        if (keys <= 0)
            break;
        const float *k = head->k + key * row, *v = head->v + key * row;
        const tx_pair pair = {head, key, keys, query, queries, key == begin};
        tx_pair_scores(&pair, k, space->query, p);
        tx_pair_cap(&pair, p, space->slope);
        probabilities(&pair, rows->lse, p);
        const float *kept = p;
        if (drop) {
            tx_tile_draw(site, head->plane, key, keys, query, queries, space->keep);
            for (int64_t j = 0; j < keys * TX_TILE; j++)
                dp[j] = p[j] * space->keep[j];
            kept = dp;
        }
        tx_pair_to_keys(&pair, kept, rows->dout, rows->out_row, rows->dv + key * row);
        tx_pair_scores(&pair, v, dout, dp);
        score_gradients(keys, queries, rows->delta, scale, drop, head->cap > 0.0f, space);
        tx_tile_mask(&pair, 0.0f, p); /* dp is undefined for masked keys */
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

/* The data of one key head of a sample, as fp32. Rows of qkv are packed: q of `shared` query heads, k, v. Rows of o and
 * its gradient are those of the query heads. */
typedef struct tx_backward_group {
    int64_t b, group, length, shared, size;
    float *qkv, *dqkv, *dout, *o;
} tx_backward_group;

/* Computes all queries of query head `i` of the group, and adds to dk and dv. */
static void backward_head(const tx_cpu_call *call, const tx_backward_group *g, int64_t i, tx_backward_space *space)
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t length = g->length, size = g->size, b = g->b, h = g->group * g->shared + i;
    const int64_t out_row = g->shared * size, row = out_row + 2 * size, valid = tx_tile_valid(call->in[4], b, length);
    const int64_t plane = (b * attrs->attention.heads + h) * length;
    const int32_t *starts = call->in[5];
    const float *dout = g->dout + i * size, *lse = (const float *)call->in[3] + plane;
    float *dq = g->dqkv + i * size, *dk = g->dqkv + out_row, *delta = (float *)call->out[1] + plane;
    const tx_head head = {
        .q = g->qkv + i * size,
        .k = g->qkv + out_row,
        .v = g->qkv + out_row + size,
        .q_row = row,
        .kv_row = row,
        .size = size,
        .keys = valid,
        .causal = attrs->attention.causal,
        .window = attrs->attention.window,
        .chunked = attrs->attention.chunked,
        .starts = starts ? starts + b * length : NULL,
        .plane = (uint32_t)(h + attrs->first),
        .cap = attrs->attention.cap,
    };
    const tx_site site = tx_site_of(call, b);
    row_sums(dout, g->o + i * size, out_row, valid, size, delta);
    for (int64_t query = 0; query < valid; query += TX_TILE) {
        const tx_backward_rows rows = {
            dout + query * out_row, lse + query, delta + query, dq + query * row, dk, dk + size, out_row};
        backward_tile(call, &head, &site, query, tx_min(valid - query, TX_TILE), &rows, space);
    }
    zero_rows(dq + valid * row, row, length - valid, size);
}

/* Computes a group. Works on fp32 copies in the rest of the thread's memory and narrows the gradient: rows that lie
 * close together are fetched ahead by the processor. */
static void backward_group(const tx_cpu_call *call, int64_t b, int64_t group)
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_shape *shape = &call->command->in[1].shape;
    const tx_dtype type = call->command->in[1].dtype;
    const int64_t length = shape->dim[1], width = shape->dim[2], heads = attrs->attention.heads,
                  kv_heads = attrs->attention.kv_heads, shared = heads / kv_heads,
                  size = width / (heads + 2 * kv_heads);
    const int64_t queries = shared * size, row = queries + 2 * size, first = b * length * width,
                  out = b * length * heads * size + group * queries;
    const int64_t from[] = {first + group * queries, first + (heads + group) * size,
                            first + (heads + kv_heads + group) * size};
    const int64_t to[] = {0, queries, queries + size}, parts[] = {queries, size, size};
    tx_backward_space *space = call->scratch;
    tx_backward_group g = {b, group, length, shared, size, NULL, NULL, NULL, NULL};
    g.qkv = (float *)(void *)((char *)space + tx_cpu_attention_grad_scratch(size));
    g.dqkv = g.qkv + length * row;
    g.dout = g.dqkv + length * row;
    g.o = g.dout + length * queries;
    for (int p = 0; p < 3; p++)
        tx_widen_rows(g.qkv + to[p], row, call->in[1], type, from[p], width, length, parts[p]);
    tx_widen_rows(g.dout, queries, call->in[0], type, out, heads * size, length, queries);
    tx_widen_rows(g.o, queries, call->in[2], type, out, heads * size, length, queries);
    zero_rows(g.dqkv + queries, row, length, 2 * size);
    for (int64_t i = 0; i < shared; i++)
        backward_head(call, &g, i, space);
    for (int p = 0; p < 3; p++)
        tx_narrow_rows(call->out[0], type, from[p], width, g.dqkv + to[p], row, length, parts[p]);
}

/* The dot product of `count` elements from element `first` on of a and b. */
static float dot_stored(const void *a, const void *b, tx_dtype type, int64_t first, int64_t count)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < count; i += TX_TILE) {
        float x[TX_TILE], y[TX_TILE], part;
        const int64_t n = tx_min(count - i, TX_TILE);
        tx_widen(x, a, type, first + i, n);
        tx_widen(y, b, type, first + i, n);
        TX_SUM(part, k, n, x[k] * y[k]);
        sum += part;
    }
    return sum;
}

TX_ROWS(attention_sink_grad, out[0])
{
    const tx_operand *o = &call->command->in[1];
    const int64_t time = o->shape.dim[1], size = tx_shape_last(&o->shape) / width;
    const float *lse = (const float *)call->in[2] + (row / time * width) * time + row % time, *sinks = call->in[3];
    float *slope = (float *)call->out[0] + row * width;
    for (int64_t h = 0; h < width; h++) {
        const float sum = dot_stored(call->in[0], call->in[1], o->dtype, (row * width + h) * size, size);
        slope[h] = -tx_exp(sinks[h] - lse[h * time]) * sum;
    }
}

/* An item is (sample, key head). */
static void attention_grad_items(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const int64_t groups = call->command->attrs.attention.kv_heads;
    for (int64_t item = first; item < last; item++)
        backward_group(call, item / groups, item % groups);
}

void TX_CPU_NAME(attention_grad)(const tx_cpu_call *call)
{
    const tx_shape *qkv = &call->command->in[1].shape;
    tx_cpu_tasks(call, qkv->dim[0] * call->command->attrs.attention.kv_heads, attention_grad_items);
}
