/* SPDX-License-Identifier: Apache-2.0
 *
 * Scaled dot-product attention, forward. Tiles of queries visit one tile of keys after another and keep a running
 * maximum and a running sum (online softmax; Dao, FlashAttention-2, 2023).
 */
#include "backends/cpu/tile.h"

#include <float.h>

#define GROUP (TX_TILES * TX_TILE) /* queries that share a tile of keys */
#define FEW_QUERIES 9 /* fewer queries of a cache are computed row by row, as in passes over guessed tokens */

/* A tile of queries: the first one, their number, their first key, and the running maxima and sums. */
typedef struct tx_query_tile {
    int64_t query, queries, begin;
    float *rows; /* the queries, [size][TX_TILE] or, if they are few, [TX_TILE][size] */
    float *o;    /* the results, [TX_TILE][size] */
    float greatest[TX_TILE], sum[TX_TILE];
} tx_query_tile;

/* A thread's slice of the scratch memory. */
typedef struct tx_forward_space {
    float score[TX_TILE * TX_TILE];
    float keep[TX_TILE * TX_TILE];
    float factor[TX_TILE];
    tx_query_tile tile[TX_TILES];
    float rows[]; /* [TX_TILE][size] of keys and of values, then rows and o of each tile */
} tx_forward_space;

/* Turns a tile of scores into exponentials below the running maximum. `factor` rescales the earlier sums. */
static void update_softmax(tx_forward_space *space, tx_query_tile *tile, int64_t keys, int64_t lanes)
{
    for (int64_t i = 0; i < lanes; i += TX_VECTOR) {
        float greatest[TX_VECTOR], sum[TX_VECTOR];
        TX_SIMD for (int l = 0; l < TX_VECTOR; l++) greatest[l] = tile->greatest[i + l];
        for (int64_t j = 0; j < keys; j++) {
            const float *score = space->score + j * TX_TILE + i;
            TX_SIMD for (int l = 0; l < TX_VECTOR; l++) greatest[l] = score[l] > greatest[l] ? score[l] : greatest[l];
        }
        TX_SIMD for (int l = 0; l < TX_VECTOR; l++)
        {
            space->factor[i + l] = tx_exp(tile->greatest[i + l] - greatest[l]);
            tile->greatest[i + l] = greatest[l];
            sum[l] = tile->sum[i + l] * space->factor[i + l];
        }
        for (int64_t j = 0; j < keys; j++) {
            float *score = space->score + j * TX_TILE + i;
            TX_SIMD for (int l = 0; l < TX_VECTOR; l++)
            {
                score[l] = tx_exp(score[l] - greatest[l]);
                sum[l] += score[l];
            }
        }
        TX_SIMD for (int l = 0; l < TX_VECTOR; l++) tile->sum[i + l] = sum[l];
    }
}

static void scale_row(float *row, int64_t size, float factor)
{
    TX_SIMD for (int64_t i = 0; i < size; i++) row[i] *= factor;
}

/* Rows of a head in memory: the element offset of the first one, and the elements from one to the next. */
typedef struct tx_stored {
    const void *of;
    tx_dtype type;
    int64_t first, row;
} tx_stored;

/* Bytes of `count` values. */
static int64_t bytes_of(tx_dtype type, int64_t count)
{
    return type == TX_Q8_0 ? tx_block_run(type, count) : count * (int64_t)tx_dtype_size(type);
}

/* Prefetches the rows of `count` keys: processors do not foresee distant rows. */
static void prefetch(const tx_stored *from, const tx_head *head, int64_t first, int64_t count)
{
    const int64_t bytes = bytes_of(from->type, head->size);
    for (int64_t t = first; t < tx_min(first + count, head->keys); t++) {
        const char *row = (const char *)from->of + bytes_of(from->type, from->first + t * from->row);
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(row + i, 0, 2);
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

/* Adds a tile of keys k and values v, both [keys][size]. */
static void add_tile(const tx_site *site, const tx_pair *pair, const float *k, const float *v, tx_query_tile *tile,
                     tx_forward_space *space)
{
    const int64_t size = pair->head->size, keys = pair->keys;
    tx_pair_scores(pair, k, tile->rows, space->score);
    tx_pair_cap(pair, space->score, NULL);
    tx_tile_mask(pair, -INFINITY, space->score);
    update_softmax(space, tile, keys, tx_tile_lanes(pair->queries));
    if (site->threshold) {
        tx_tile_draw(site, pair->head->plane, pair->key, keys, pair->query, pair->queries, space->keep);
        for (int64_t j = 0; j < keys * TX_TILE; j++)
            space->score[j] *= space->keep[j];
    }
    for (int64_t i = 0; !pair->first && i < pair->queries; i++)
        scale_row(tile->o + i * size, size, space->factor[i]);
    tx_pair_to_queries(pair, space->score, v, tile->o, size);
}

/* The products of a query with `count` rows of keys. Element i is added to lane i % LANES. */
enum { LANES = 16, TOGETHER = 4 };
static inline void dot_rows(const int count, const float *q, const float *k, int64_t row, int64_t size, float *to)
{
    float lane[TOGETHER][LANES] = {{0}};
    const int64_t whole = size - size % LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        TX_PRAGMA(GCC unroll 4)
        for (int r = 0; r < count; r++)
            TX_SIMD for (int l = 0; l < LANES; l++) lane[r][l] = TX_FMA(q[i + l], k[r * row + i + l], lane[r][l]);
    }
    for (int r = 0; r < count; r++)
        for (int64_t i = whole; i < size; i++)
            lane[r][i - whole] = TX_FMA(q[i], k[r * row + i], lane[r][i - whole]);
    TX_PRAGMA(GCC unroll 4)
    for (int r = 0; r < count; r++) {
        float *s = lane[r];
        TX_SIMD for (int l = 0; l < 8; l++) s[l] += s[l + 8];
        TX_SIMD for (int l = 0; l < 4; l++) s[l] += s[l + 4];
        to[r] = (s[0] + s[2]) + (s[1] + s[3]);
    }
}

/* The same for few queries of a cache, for which vectors of queries would be almost empty. Scores are [query][key].
 * A query's bits do not depend on the others. */
static void add_rows(const tx_pair *pair, const float *k, const float *v, tx_query_tile *tile,
                     const tx_stored stored[3], float *scores)
{
    const tx_head *head = pair->head;
    const int64_t size = head->size, row = head->kv_row, next = pair->key + TX_TILE;
    memset(scores, 0, (size_t)(pair->queries * TX_TILE) * sizeof *scores);
    for (int64_t t = 0; t < pair->queries; t++) {
        const int64_t end = tx_min(head->offset + pair->query + t + 1 - pair->key, pair->keys);
        const float *q = tile->rows + t * size;
        float *score = scores + t * TX_TILE, sum;
        int64_t first = tx_head_first(head, pair->query + t) - pair->key, j;
        first = first > 0 ? first : 0;
        for (j = first; j + TOGETHER <= end; j += TOGETHER) {
            for (int i = 1; i < 3 && t == 0; i++)
                prefetch(&stored[i], head, next + j, TOGETHER);
            dot_rows(TOGETHER, q, k + j * row, row, size, score + j);
        }
        for (; j < end; j++)
            dot_rows(1, q, k + j * row, row, size, score + j);
        for (j = first; head->cap > 0.0f && j < end; j++)
            score[j] = head->cap * tx_tanh_of(score[j] / head->cap);
        float greatest = tx_greatest(score + first, end - first);
        greatest = greatest > tile->greatest[t] ? greatest : tile->greatest[t];
        const float factor = tx_exp(tile->greatest[t] - greatest);
        TX_SIMD for (int64_t i = first; i < end; i++) score[i] = tx_exp(score[i] - greatest);
        TX_SUM(sum, i, end - first, score[first + i]);
        tile->sum[t] = tile->sum[t] * factor + sum;
        tile->greatest[t] = greatest;
        scale_row(tile->o + t * size, size, factor);
    }
    tx_tile_product(true, pair->queries, size, pair->keys, scores, TX_TILE, 1, v, row, tile->o, size);
}

/* ---- Heads ------------------------------------------------------------------------------------------ */

/* Returns rows as fp32: in place, or widened to [rows][size] in `copy`. */
static const float *rows_of(const tx_stored *from, int64_t first, int64_t rows, int64_t size, float *copy)
{
    if (from->type == TX_F32)
        return (const float *)from->of + from->first + first * from->row;
    tx_widen_rows(copy, size, from->of, from->type, from->first + first * from->row, from->row, rows, size);
    return copy;
}

static void begin_tile(const tx_head *head, const tx_stored *q, float scale, bool few, tx_query_tile *tile)
{
    const int64_t size = head->size;
    const float *rows = rows_of(q, tile->query, tile->queries, size, tile->o);
    const int64_t row = rows == tile->o ? size : q->row;
    for (int64_t t = 0; t < tile->queries && few; t++)
        for (int64_t i = 0; i < size; i++)
            tile->rows[t * size + i] = rows[t * row + i] * scale;
    if (!few)
        tx_tile_transpose(tile->rows, rows, row, tile->queries, size, scale);
    memset(tile->o, 0, (size_t)(tile->queries * size) * sizeof *tile->o);
    tile->begin = tx_tile_begin(head, tile->query, tile->queries);
    for (int64_t i = 0; i < TX_TILE; i++) {
        tile->greatest[i] = head->sink ? *head->sink : -FLT_MAX; /* a tile may mask all its keys for a query */
        tile->sum[i] = head->sink ? 1.0f : 0.0f;
    }
}

/* Computes queries query..end-1 of a head, whose tiles share each tile of keys. The row o of the result, and lse unless
 * it is NULL, belong to the first query. */
static void forward_tiles(const tx_cpu_call *call, tx_head *head, const tx_stored stored[3], const tx_site *site,
                          int64_t query, int64_t end, const tx_stored *o, float *lse)
{
    tx_forward_space *space = call->scratch;
    const int64_t size = head->size, tiles = tx_ceil_div(end - query, TX_TILE), part = TX_TILE / tiles + 1;
    const bool few = !lse && end - query < FEW_QUERIES;
    tx_query_tile *tile = space->tile, *last = tile + tiles - 1;
    float *k_copy = space->rows, *v_copy = k_copy + TX_TILE * size, *free_rows = v_copy;
    for (tx_query_tile *t = tile; t <= last; t++) {
        t->query = query + (t - tile) * TX_TILE;
        t->queries = tx_min(end - t->query, TX_TILE);
        t->rows = free_rows += TX_TILE * size;
        t->o = free_rows += TX_TILE * size;
        begin_tile(head, &stored[0], call->command->attrs.scale, few, t);
    }
    for (int64_t key = tx_tile_begin(head, query, end - query), keys; (keys = tx_tile_keys(head, key, end)) > 0;
         key += TX_TILE) {
        const float *k = rows_of(&stored[1], key, keys, size, k_copy),
                    *v = rows_of(&stored[2], key, keys, size, v_copy);
        for (tx_query_tile *t = tile; t <= last; t++) {
            const int64_t seen = tx_tile_keys(head, key, t->query + t->queries);
            const tx_pair pair = {head, key, seen, t->query, t->queries, key == t->begin};
            for (int i = 1; i < 3 && !few; i++)
                prefetch(&stored[i], head, key + TX_TILE + (t - tile) * part, part);
            if (seen > 0 && key >= t->begin && few)
                add_rows(&pair, k, v, t, stored, space->score);
            else if (seen > 0 && key >= t->begin)
                add_tile(site, &pair, k, v, t, space);
        }
    }
    for (tx_query_tile *t = tile; t <= last; t++)
        for (int64_t i = 0; i < t->queries; i++) {
            const int64_t row = t->query - query + i;
            scale_row(t->o + i * size, size, 1.0f / t->sum[i]);
            tx_narrow(call->out[0], t->o + i * size, o->type, o->first + row * o->row, size);
            if (lse)
                lse[row] = t->greatest[i] + logf(t->sum[i]);
        }
}

/* An item is (sample, head, tiles of queries), tiles innermost. Keys and values are in the rows of the queries, or
 * in caches. */
static void attention_items(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const bool cached = tx_cpu_reads_caches(call->command);
    const tx_operand *in = call->command->in;
    const tx_shape *qkv = &in[0].shape, *kv = &in[cached].shape;
    const int64_t length = qkv->dim[1], width = qkv->dim[2], heads = attrs->attention.heads,
                  kv_heads = attrs->attention.kv_heads, groups = tx_ceil_div(length, GROUP);
    const int64_t size = width / (heads + 2 * kv_heads), unit = (int64_t)tx_dtype_size(in[0].dtype);
    const int64_t kv_row = cached ? kv_heads * size : width;
    const tx_dtype type = in[cached].dtype == TX_U8 ? TX_Q8_0 : in[cached].dtype;
    const float *sinks = call->in[cached ? 5 : 3];
    const int32_t *lengths = cached ? NULL : call->in[1], *starts = cached ? NULL : call->in[2];
    for (int64_t item = first; item < last; item++) {
        const int64_t query = item % groups * GROUP, h = item / groups % heads, b = item / groups / heads;
        const int64_t valid = tx_tile_valid(lengths, b, length), end = tx_min(query + GROUP, length);
        const int64_t seen = valid < query ? query : tx_min(valid, end);
        const int64_t start = cached ? tx_cpu_position(call, 3, b, kv->dim[1] - length) : 0;
        const int64_t row = cached ? tx_cpu_slot(call, b) : b;
        const int64_t k = row * kv->dim[1] * kv_row + ((cached ? 0 : heads) + h / (heads / kv_heads)) * size;
        const int64_t v = cached ? k : k + kv_heads * size;
        const tx_stored stored[3] = {{call->in[0], in[0].dtype, b * length * width + h * size, width},
                                     {call->in[cached ? 1 : 0], type, k, kv_row},
                                     {call->in[cached ? 2 : 0], type, v, kv_row}};
        const tx_stored o = {NULL, in[0].dtype, ((b * length + query) * heads + h) * size, heads * size};
        float *lse = cached ? NULL : (float *)call->out[1] + (b * heads + h) * length + query;
        tx_head head = {
            .kv_row = type == TX_F32 ? kv_row : size,
            .size = size,
            .keys = start + valid,
            .offset = start,
            .causal = cached || attrs->attention.causal,
            .window = attrs->attention.window,
            .chunked = attrs->attention.chunked,
            .starts = starts ? starts + b * length : NULL,
            .plane = (uint32_t)(h + attrs->first),
            .cap = attrs->attention.cap,
            .sink = sinks ? sinks + h : NULL,
        };
        const tx_site site = tx_site_of(call, b);
        if (seen > query)
            forward_tiles(call, &head, stored, &site, query, seen, &o, lse);
        for (int64_t t = seen - query; t < end - query; t++) { /* rows beyond the sample's length */
            memset((char *)call->out[0] + (o.first + t * o.row) * unit, 0, (size_t)(size * unit));
            lse[t] = 0.0f;
        }
    }
}

void TX_CPU_NAME(attention)(const tx_cpu_call *call)
{
    const tx_shape *qkv = &call->command->in[0].shape;
    const int64_t groups = tx_ceil_div(qkv->dim[1], GROUP);
    tx_cpu_tasks(call, qkv->dim[0] * call->command->attrs.attention.heads * groups, attention_items);
}
