/* SPDX-License-Identifier: Apache-2.0
 *
 * Scaled dot-product attention, forward. A tile of queries visits one tile of keys after another and keeps a running
 * maximum and a running sum (online softmax; Dao, FlashAttention-2, 2023).
 */
#include "backends/cpu/tile.h"

#include <float.h>

/* A thread's slice of the scratch memory. */
typedef struct tx_forward_space {
    float score[TX_TILE * TX_TILE];
    float keep[TX_TILE * TX_TILE];
    float greatest[TX_TILE], sum[TX_TILE], factor[TX_TILE];
    float query[]; /* [size][TX_TILE] */
} tx_forward_space;

/* Turns a tile of scores into exponentials below the running maximum. `factor` rescales the earlier sums. */
static void update_softmax(tx_forward_space *space, int64_t keys, int64_t lanes)
{
    for (int64_t i = 0; i < lanes; i += TX_VECTOR) {
        float greatest[TX_VECTOR], sum[TX_VECTOR];
        TX_SIMD for (int l = 0; l < TX_VECTOR; l++) greatest[l] = space->greatest[i + l];
        for (int64_t j = 0; j < keys; j++) {
            const float *score = space->score + j * TX_TILE + i;
            TX_SIMD for (int l = 0; l < TX_VECTOR; l++) greatest[l] = score[l] > greatest[l] ? score[l] : greatest[l];
        }
        TX_SIMD for (int l = 0; l < TX_VECTOR; l++)
        {
            space->factor[i + l] = tx_exp(space->greatest[i + l] - greatest[l]);
            space->greatest[i + l] = greatest[l];
            sum[l] = space->sum[i + l] * space->factor[i + l];
        }
        for (int64_t j = 0; j < keys; j++) {
            float *score = space->score + j * TX_TILE + i;
            TX_SIMD for (int l = 0; l < TX_VECTOR; l++)
            {
                score[l] = tx_exp(score[l] - greatest[l]);
                sum[l] += score[l];
            }
        }
        TX_SIMD for (int l = 0; l < TX_VECTOR; l++) space->sum[i + l] = sum[l];
    }
}

static void scale_row(float *row, int64_t size, float factor)
{
    TX_SIMD for (int64_t i = 0; i < size; i++) row[i] *= factor;
}

/* Computes queries query..query+queries-1 of one head. o and lse point at the first of them; lse may be NULL. */
static void forward_tile(const tx_cpu_call *call, const tx_head *head, const tx_site *site, int64_t query,
                         int64_t queries, float *o, int64_t o_row, float *lse, tx_forward_space *space)
{
    const int64_t lanes = tx_tile_lanes(queries), size = head->size;
    tx_tile_transpose(space->query, head->q + query * head->q_row, head->q_row, queries, size,
                      call->command->attrs.scale);
    for (int64_t i = 0; i < TX_TILE; i++) {
        space->greatest[i] = head->sink ? *head->sink : -FLT_MAX; /* a tile may mask all its keys for a query */
        space->sum[i] = head->sink ? 1.0f : 0.0f;
    }
    const int64_t begin = tx_tile_begin(head, query, queries);
    for (int64_t key = begin;; key += TX_TILE) {
        const int64_t keys = tx_tile_keys(head, key, query + queries);
        if (keys <= 0)
            break;
        const tx_pair pair = {head, key, keys, query, queries, key == begin};
        tx_tile_fetch(head, head->k, key + TX_TILE);
        tx_tile_fetch(head, head->v, key + TX_TILE);
        tx_pair_scores(&pair, head->k + key * head->kv_row, space->query, space->score);
        tx_pair_cap(&pair, space->score, NULL);
        tx_tile_mask(&pair, -INFINITY, space->score);
        update_softmax(space, keys, lanes);
        if (site->threshold) {
            tx_tile_draw(site, head->plane, key, keys, query, queries, space->keep);
            for (int64_t j = 0; j < keys * TX_TILE; j++)
                space->score[j] *= space->keep[j];
        }
        for (int64_t i = 0; !pair.first && i < queries; i++)
            scale_row(o + i * o_row, size, space->factor[i]);
        tx_pair_to_queries(&pair, space->score, head->v + key * head->kv_row, o, o_row);
    }
    for (int64_t i = 0; i < queries; i++) {
        scale_row(o + i * o_row, size, 1.0f / space->sum[i]);
        if (lse)
            lse[i] = space->greatest[i] + logf(space->sum[i]);
    }
}

/* ---- One row ---------------------------------------------------------------------------------------- */

/* Fewer queries of a cache than this are computed row by row, because a tile computes at least a vector of them. */
#define FEW_QUERIES 9

/* Turns the scores of a query against `keys` keys into exponentials below their maximum, and returns the maximum. */
static float exponentiate_row(const tx_head *head, const float *query, int64_t key, int64_t keys, float scale,
                              float greatest, float *score)
{
    const float *k = head->k + key * head->kv_row;
    for (int64_t j = 0; j < keys; j++) {
        const float *row = k + j * head->kv_row;
        float sum;
        TX_SUM(sum, i, head->size, query[i] * row[i]);
        score[j] = head->cap > 0.0f ? head->cap * tx_tanh_of(sum * scale / head->cap) : sum * scale;
        greatest = score[j] > greatest ? score[j] : greatest;
    }
    TX_SIMD for (int64_t j = 0; j < keys; j++) score[j] = tx_exp(score[j] - greatest);
    return greatest;
}

/* Computes one query. Its keys are processed in chunks that fit in the space for scores. */
static void forward_row(const tx_head *head, int64_t query, float scale, float *restrict o, tx_forward_space *space)
{
    const int64_t begin = tx_head_first(head, query), end = head->offset + query + 1;
    const int64_t piece = TX_TILE * TX_TILE, size = head->size;
    const float *q = head->q + query * head->q_row;
    float greatest = head->sink ? *head->sink : -INFINITY, sum = head->sink ? 1.0f : 0.0f;
    memset(o, 0, (size_t)size * sizeof *o);
    for (int64_t key = begin; key < end; key += piece) {
        const int64_t count = end - key < piece ? end - key : piece;
        const float before = greatest;
        greatest = exponentiate_row(head, q, key, count, scale, before, space->score);
        const float factor = key > begin || head->sink ? expf(before - greatest) : 0.0f;
        sum *= factor;
        if (key > begin)
            scale_row(o, size, factor);
        for (int64_t j = 0; j < count; j++) {
            const float *restrict v = head->v + (key + j) * head->kv_row;
            const float p = space->score[j];
            sum += p;
            TX_SIMD for (int64_t i = 0; i < size; i++) o[i] += p * v[i];
        }
    }
    scale_row(o, size, 1.0f / sum);
}

/* ---- Heads ------------------------------------------------------------------------------------------ */

/* A head in memory: its operands, the element offsets of its first query, first key, first value and of the tile's
 * result, and the strides of rows. */
typedef struct tx_stored {
    const void *q_of, *k_of, *v_of;
    int64_t q, k, v, o, q_row, kv_row, o_row;
} tx_stored;

/* Converts the rows q | k | v of a head to fp32: the queries of the tile, and the keys and values that they attend
 * to. */
static void widen_tile(const tx_stored *at, tx_dtype type, tx_head *head, int64_t query, int64_t queries, float *copy)
{
    const int64_t size = head->size, row = 3 * size, begin = tx_tile_begin(head, query, queries);
    const int64_t last = head->causal ? head->offset + query + queries : head->keys;
    const int64_t seen = tx_least(last, head->keys) - begin;
    tx_widen_rows(copy + query * row, row, at->q_of, type, at->q + query * at->q_row, at->q_row, queries, size);
    tx_widen_rows(copy + begin * row + size, row, at->k_of, type, at->k + begin * at->kv_row, at->kv_row, seen, size);
    tx_widen_rows(copy + begin * row + 2 * size, row, at->v_of, type, at->v + begin * at->kv_row, at->kv_row, seen,
                  size);
    head->q = copy;
    head->k = copy + size;
    head->v = copy + 2 * size;
    head->q_row = head->kv_row = row;
}

/* Computes a tile of queries of a head. fp32 operands are used in place. 16-bit operands are widened into scratch
 * after the thread's other data, and the result is narrowed. */
static void forward_stored(const tx_cpu_call *call, const tx_stored *at, tx_head *head, const tx_site *site,
                           int64_t query, int64_t queries, float *lse)
{
    const tx_dtype type = call->command->in[0].dtype;
    const int64_t size = head->size, o_row = type == TX_F32 ? at->o_row : size;
    tx_forward_space *space = call->scratch;
    float *o = (float *)(void *)((char *)space + tx_cpu_attention_scratch(size));
    if (type == TX_F32) {
        head->q = (const float *)at->q_of + at->q;
        head->k = (const float *)at->k_of + at->k;
        head->v = (const float *)at->v_of + at->v;
        head->q_row = at->q_row;
        head->kv_row = at->kv_row;
        o = (float *)call->out[0] + at->o;
    } else {
        widen_tile(at, type, head, query, queries, o + TX_TILE * size);
    }
    if (lse || queries >= FEW_QUERIES)
        forward_tile(call, head, site, query, queries, o, o_row, lse, space);
    else
        for (int64_t t = 0; t < queries; t++)
            forward_row(head, query + t, call->command->attrs.scale, o + t * o_row, space);
    if (type != TX_F32)
        tx_narrow_rows(call->out[0], type, at->o, at->o_row, o, size, queries, size);
}

/* An item is (sample, head, tile of queries), tiles innermost. Keys and values are in the rows of the queries, or
 * in caches. */
static void attention_items(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const bool cached = tx_cpu_reads_caches(call->command);
    const tx_shape *qkv = &call->command->in[0].shape, *kv = cached ? &call->command->in[1].shape : qkv;
    const int64_t length = qkv->dim[1], width = qkv->dim[2], heads = attrs->attention.heads,
                  kv_heads = attrs->attention.kv_heads;
    const int64_t size = width / (heads + 2 * kv_heads), tiles = (length + TX_TILE - 1) / TX_TILE;
    const int64_t unit = (int64_t)tx_dtype_size(call->command->in[0].dtype);
    const float *sinks = call->in[cached ? 5 : 3];
    const int32_t *lengths = cached ? NULL : call->in[1], *starts = cached ? NULL : call->in[2];
    for (int64_t item = first; item < last; item++) {
        const int64_t query = item % tiles * TX_TILE, h = item / tiles % heads, b = item / tiles / heads;
        const int64_t valid = tx_tile_valid(lengths, b, length), end = tx_least(query + TX_TILE, length);
        const int64_t seen = valid < query ? query : tx_least(valid, end);
        const int64_t start = cached ? tx_cpu_position(call, 3, b, kv->dim[1] - length) : 0;
        const int64_t row = cached ? tx_cpu_slot(call, b) : b;
        const int64_t k = row * kv->dim[1] * kv->dim[2] + ((cached ? 0 : heads) + h / (heads / kv_heads)) * size;
        const tx_stored at = {.q_of = call->in[0],
                              .k_of = call->in[cached ? 1 : 0],
                              .v_of = call->in[cached ? 2 : 0],
                              .q = b * length * width + h * size,
                              .k = k,
                              .v = cached ? k : k + kv_heads * size,
                              .q_row = width,
                              .kv_row = kv->dim[2],
                              .o = (b * length + query) * heads * size + h * size,
                              .o_row = heads * size};
        float *lse = cached ? NULL : (float *)call->out[1] + (b * heads + h) * length + query;
        tx_head head = {
            .size = size,
            .keys = start + valid,
            .offset = start,
            .causal = cached || attrs->attention.causal,
            .window = attrs->attention.window,
            .starts = starts ? starts + b * length : NULL,
            .plane = (uint32_t)(h + attrs->first),
            .cap = attrs->attention.cap,
            .sink = sinks ? sinks + h : NULL,
        };
        const tx_site site = tx_site_of(call, b);
        if (seen > query)
            forward_stored(call, &at, &head, &site, query, seen - query, lse);
        for (int64_t t = seen - query; t < end - query; t++) { /* rows beyond the sample's length */
            memset((char *)call->out[0] + (at.o + t * at.o_row) * unit, 0, (size_t)(size * unit));
            lse[t] = 0.0f;
        }
    }
}

void TX_CPU_NAME(attention)(const tx_cpu_call *call)
{
    const tx_shape *qkv = &call->command->in[0].shape;
    const int64_t tiles = (qkv->dim[1] + TX_TILE - 1) / TX_TILE;
    tx_cpu_tasks(call, qkv->dim[0] * call->command->attrs.attention.heads * tiles, attention_items);
}
