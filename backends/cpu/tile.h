/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of attention. Scores are stored transposed, [key][query], so that queries are vector lanes. A softmax then
 * needs no sum across a vector, keys, values and gradients are read in place, and only queries are transposed.
 */
#ifndef TX_BACKENDS_CPU_TILE_H
#define TX_BACKENDS_CPU_TILE_H

#include "backends/cpu/random.h"

/* ---- Small products ------------------------------------------------------------------------------ */

/* Lanes of a vector, and rows of a block whose sums (rows x two vectors) stay in registers. */
#if defined __AVX512F__
#define TX_VECTOR 16
#define TX_PANEL 8
#elif defined __AVX__
#define TX_VECTOR 8
#define TX_PANEL 6
#else
#define TX_VECTOR 4
#define TX_PANEL 6
#endif

/* a b + c, rounded once if the processor can. Compilers may do so or not, which would give products of one row other
 * bits than products of several. */
#if defined __FMA__
#define TX_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define TX_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* ROWS x WIDTH elements of c (= or +=) a b, from column j on. */
#define TX_TILE_BLOCK(ROWS, WIDTH)                                                                                \
    do {                                                                                                          \
        float sum_[ROWS][2 * TX_VECTOR];                                                                          \
        for (int r = 0; r < (ROWS); r++)                                                                          \
            for (int l = 0; l < (WIDTH); l++)                                                                     \
                sum_[r][l] = add ? c[r * ldc + j + l] : 0.0f;                                                     \
        for (int64_t p = 0; p < k; p++) {                                                                         \
            TX_PRAGMA(GCC unroll 8)                                                                               \
            for (int r = 0; r < (ROWS); r++) {                                                                    \
                const float x = a[r * a_row + p * a_step];                                                        \
                TX_SIMD for (int l = 0; l < (WIDTH); l++) sum_[r][l] = TX_FMA(x, b[p * ldb + j + l], sum_[r][l]); \
            }                                                                                                     \
        }                                                                                                         \
        for (int r = 0; r < (ROWS); r++)                                                                          \
            for (int l = 0; l < (WIDTH); l++)                                                                     \
                c[r * ldc + j + l] = sum_[r][l];                                                                  \
    } while (0)

#define TX_TILE_PANEL(ROWS)                                                                                          \
    static inline void tx_tile_panel_##ROWS(bool add, int64_t n, int64_t k, const float *restrict a, int64_t a_row,  \
                                            int64_t a_step, const float *restrict b, int64_t ldb, float *restrict c, \
                                            int64_t ldc)                                                             \
    {                                                                                                                \
        int64_t j = 0;                                                                                               \
        for (; j + 2 * TX_VECTOR <= n; j += 2 * TX_VECTOR)                                                           \
            TX_TILE_BLOCK(ROWS, 2 * TX_VECTOR);                                                                      \
        for (; j + TX_VECTOR <= n; j += TX_VECTOR)                                                                   \
            TX_TILE_BLOCK(ROWS, TX_VECTOR);                                                                          \
        const int rest = (int)(n - j);                                                                               \
        if (rest > 0)                                                                                                \
            TX_TILE_BLOCK(ROWS, rest);                                                                               \
    }

TX_TILE_PANEL(8)
TX_TILE_PANEL(6)
TX_TILE_PANEL(4)
TX_TILE_PANEL(2)
TX_TILE_PANEL(1)

/* c [m, n] = a b, or c += a b. Element (i, p) of a [m, k] is a[i a_row + p a_step]. Rows of b [k, n] and c are ldb
 * and ldc elements apart. */
static inline void tx_tile_product(bool add, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                                   int64_t a_step, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    int64_t i = 0;
#define TX_TILE_ROWS(ROWS)               \
    for (; i + (ROWS) <= m; i += (ROWS)) \
    tx_tile_panel_##ROWS(add, n, k, a + i * a_row, a_row, a_step, b, ldb, c + i * ldc, ldc)
#if TX_PANEL == 8
    TX_TILE_ROWS(8);
#else
    TX_TILE_ROWS(6);
#endif
    TX_TILE_ROWS(4);
    TX_TILE_ROWS(2);
    TX_TILE_ROWS(1);
#undef TX_TILE_ROWS
}

/* ---- 16-bit storage ------------------------------------------------------------------------------ */

/* Converts `rows` rows of `size` elements of x, `row` apart from element `first` on, to fp32 rows that are `to_row`
 * apart. */
static inline void tx_widen_rows(float *to, int64_t to_row, const void *x, tx_dtype dtype, int64_t first, int64_t row,
                                 int64_t rows, int64_t size)
{
    for (int64_t t = 0; t < rows; t++)
        tx_widen(to + t * to_row, x, dtype, first + t * row, size);
}

static inline void tx_narrow_rows(void *y, tx_dtype dtype, int64_t first, int64_t row, const float *from,
                                  int64_t from_row, int64_t rows, int64_t size)
{
    for (int64_t t = 0; t < rows; t++)
        tx_narrow(y, from + t * from_row, dtype, first + t * row, size);
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

/* One head of one sample. Query t attends to keys 0..keys-1; if causal, only to those up to offset + t. A window (0
 * = none) and starts (one for each query, or NULL) restrict them further. */
typedef struct tx_head {
    const float *q, *k, *v;
    int64_t q_row, kv_row; /* elements from one row to the next */
    int64_t size;          /* elements of a row */
    int64_t keys, offset;
    bool causal;
    int64_t window;
    bool chunked; /* the window is the query's own chunk, from its start on */
    const int32_t *starts;
    uint32_t plane;
    float cap;         /* soft cap of the scores, or 0 */
    const float *sink; /* or NULL */
} tx_head;

/* Returns the valid rows of sample b, clamped to 0..length. */
static inline int64_t tx_tile_valid(const int32_t *lengths, int64_t b, int64_t length)
{
    if (!lengths || lengths[b] > length)
        return length;
    return lengths[b] > 0 ? lengths[b] : 0;
}

/* to[p][i] = from[i][p] * factor for i < rows, 0 for the other lanes of the last vector. */
static inline void tx_tile_transpose(float *to, const float *from, int64_t row, int64_t rows, int64_t size,
                                     float factor)
{
    enum { SIDE = 16 };
    for (int64_t i = 0; i < TX_TILE; i += SIDE) {
        const int64_t height = rows - i < SIDE ? rows - i : SIDE;
        for (int64_t p = 0; p < size; p += SIDE) {
            const int64_t width = size - p < SIDE ? size - p : SIDE;
            float square[SIDE][SIDE] = {{0}};
            for (int64_t r = 0; r < height; r++)
                for (int64_t c = 0; c < width; c++)
                    square[r][c] = from[(i + r) * row + p + c] * factor;
            for (int64_t c = 0; c < width; c++)
                for (int64_t r = 0; r < SIDE; r++)
                    to[(p + c) * TX_TILE + i + r] = square[r][c];
        }
    }
}

/* Returns the first key that a query attends to. */
static inline int64_t tx_head_first(const tx_head *head, int64_t query)
{
    const int64_t own = head->offset + query;
    const int64_t start = !head->starts ? 0 : head->starts[query] < own ? head->starts[query] : own;
    if (head->window == 0)
        return start;
    const int64_t first = head->chunked ? own - (own - start) % head->window : own - head->window + 1;
    return first > start ? first : start;
}

static inline bool tx_head_bounded(const tx_head *head)
{
    return head->window > 0 || head->starts;
}

/* Returns the first key of the first tile of keys that any of `queries` queries attends to. */
static inline int64_t tx_tile_begin(const tx_head *head, int64_t query, int64_t queries)
{
    int64_t first = tx_head_bounded(head) ? head->keys : 0;
    for (int64_t i = 0; i < queries && first > 0; i++) {
        const int64_t own = tx_head_first(head, query + i);
        first = own < first ? own : first;
    }
    return first / TX_TILE * TX_TILE;
}

/* Returns the number of keys in the tile from `key` on that the last query before `query_end` attends to. */
static inline int64_t tx_tile_keys(const tx_head *head, int64_t key, int64_t query_end)
{
    int64_t end = head->keys;
    if (head->causal && head->offset + query_end < end)
        end = head->offset + query_end;
    return end - key < TX_TILE ? end - key : TX_TILE;
}

/* Returns the lanes of `queries` queries, in whole vectors. */
static inline int64_t tx_tile_lanes(int64_t queries)
{
    return tx_round_up(queries, TX_VECTOR);
}

/* Returns the first query of the tile at `query` that attends to `key`, relative to the tile. */
static inline int64_t tx_tile_first(const tx_head *head, int64_t key, int64_t query)
{
    const int64_t hidden = head->causal ? key - head->offset - query : 0;
    return hidden > 0 ? hidden : 0;
}

/* A tile of `keys` keys at `key` and a tile of `queries` queries at `query`. `first` is true for the queries' first
 * tile of keys. */
typedef struct tx_pair {
    const tx_head *head;
    int64_t key, keys, query, queries;
    bool first;
} tx_pair;

/* Sets score [keys][TX_TILE] to `value` for masked keys. */
static inline void tx_tile_mask(const tx_pair *t, float value, float *score)
{
    for (int64_t j = 0; j < t->keys; j++) {
        const int64_t first = tx_tile_first(t->head, t->key + j, t->query), end = first < TX_TILE ? first : TX_TILE;
        for (int64_t i = 0; i < end; i++)
            score[j * TX_TILE + i] = value;
    }
    for (int64_t i = 0; i < t->queries && tx_head_bounded(t->head); i++) {
        const int64_t hidden = tx_head_first(t->head, t->query + i) - t->key, end = hidden < t->keys ? hidden : t->keys;
        for (int64_t j = 0; j < end; j++)
            score[j * TX_TILE + i] = value;
    }
}

/* The three products of attention between the tiles of a pair. Strips of rows skip most masked elements: they are
 * not written, or count as 0. */
#define TX_STRIP (2 * TX_PANEL)

static inline int64_t tx_tile_strip(int64_t from, int64_t count)
{
    return count - from < TX_STRIP ? count - from : TX_STRIP;
}

/* out [key][query] = rows of keys (with the head's stride) times lanes [size][TX_TILE]. */
static inline void tx_pair_scores(const tx_pair *t, const float *rows, const float *lanes, float *out)
{
    const int64_t row = t->head->kv_row, width = tx_tile_lanes(t->queries);
    for (int64_t j = 0; j < t->keys; j += TX_STRIP) {
        const int64_t hidden = tx_tile_first(t->head, t->key + j, t->query);
        const int64_t first = hidden / (2 * TX_VECTOR) * (2 * TX_VECTOR);
        tx_tile_product(false, tx_tile_strip(j, t->keys), width - first, t->head->size, rows + j * row, row, 1,
                        lanes + first, TX_TILE, out + j * TX_TILE + first, TX_TILE);
    }
}

/* Replaces scaled scores s by cap tanh(s / cap). If `slope` is not NULL it gets the derivatives, 1 - tanh^2. */
static inline void tx_pair_cap(const tx_pair *t, float *score, float *slope)
{
    const float cap = t->head->cap, inverse = 1.0f / cap;
    for (int64_t j = 0; cap > 0.0f && j < t->keys; j++) {
        float *s = score + j * TX_TILE;
        for (int64_t i = 0; slope && i < t->queries; i++) {
            const float tanh_of = tx_tanh_of(s[i] * inverse);
            slope[j * TX_TILE + i] = 1.0f - tanh_of * tanh_of;
        }
        TX_SIMD for (int64_t i = 0; i < t->queries; i++) s[i] = cap * tx_tanh_of(s[i] * inverse);
    }
}

/* out [key] += tile [key][query] times rows of queries. */
static inline void tx_pair_to_keys(const tx_pair *t, const float *tile, const float *rows, int64_t row, float *out)
{
    const int64_t out_row = t->head->kv_row;
    for (int64_t j = 0; j < t->keys; j += TX_STRIP) {
        const int64_t first = tx_tile_first(t->head, t->key + j, t->query);
        tx_tile_product(true, tx_tile_strip(j, t->keys), t->head->size, t->queries - first, tile + j * TX_TILE + first,
                        TX_TILE, 1, rows + first * row, row, out + j * out_row, out_row);
    }
}

/* out [query] = or += transposed tile [key][query] times rows of keys; = for the queries' first tile of keys. */
static inline void tx_pair_to_queries(const tx_pair *t, const float *tile, const float *rows, float *out,
                                      int64_t out_row)
{
    for (int64_t i = 0; i < t->queries; i += TX_STRIP) {
        const int64_t count = tx_tile_strip(i, t->queries);
        const int64_t end =
            t->head->offset + t->query + i + count - t->key; /* keys that the last query of the strip attends to */
        const int64_t keys = t->head->causal && end < t->keys ? end : t->keys;
        if (keys > 0)
            tx_tile_product(!t->first, count, t->head->size, keys, tile + i, 1, TX_TILE, rows, t->head->kv_row,
                            out + i * out_row, out_row);
    }
}

/* keep[j][i] = 1 / (1 - p) if dropout keeps the probability of query i and key j, else 0. key is a multiple of 4. */
static inline void tx_tile_draw(const tx_site *site, uint32_t plane, int64_t key, int64_t keys, int64_t query,
                                int64_t queries, float *keep)
{
    const uint32_t threshold = site->threshold; /* a local copy: the compiler must assume that keep aliases *site */
    const float factor = site->keep;
    for (int64_t j = 0; j < keys; j += 4) {
        const int64_t words = keys - j < 4 ? keys - j : 4;
        for (int64_t i = 0; i < queries; i += TX_DRAW_LANES) {
            uint32_t word[4][TX_DRAW_LANES];
            tx_draw_lanes(site, plane, (uint32_t)(query + i), 1, (uint32_t)((key + j) / 4), 0, word);
            for (int64_t w = 0; w < words; w++) {
                float *row = keep + (j + w) * TX_TILE + i;
                TX_SIMD for (int l = 0; l < TX_DRAW_LANES; l++) row[l] = word[w][l] >= threshold ? factor : 0.0f;
            }
        }
    }
}

#endif
