/* SPDX-License-Identifier: Apache-2.0
 *
 * TX's own loops of matrix products: few rows of a, where memory bandwidth is the limit because b is read once, and
 * conversions between fp32 and 16-bit types. Compiled once for each instruction set.
 */
#include "gemm_parts.h"

#include "backends/cpu/blocks.h"
#include "backends/cpu/dots.h"
#include "backends/cpu/nf4.h"
#include "backends/cpu/panels8.h"
#include "backends/cpu/q8.h"

#include <string.h>

#define COLUMNS 512 /* columns of few rows' sums; with DEPTH lines of b they stay in the L1 cache */
#define DEPTH 8     /* lines of b that are added at once */
#define PIECE 1024  /* terms of a sum that are added at once */
/* At least so many bytes of columns are fetched to the L2 cache before one row needs them. */
#define AHEAD(half) ((half) ? 8192 : 4096)
#define CACHE_LINE 16         /* fp32 numbers in a cache line */
#define SMALL_WORK 65536      /* multiply-adds that are not worth waking a thread */
enum { MANY = 4, DEEP = 64 }; /* for MANY rows or more, DEEP lines of fewer columns */

/* Operand b in memory: contiguous lines, `ld` elements apart, packed if its type is. */
typedef struct lines {
    const void *data;
    tx_dtype type;
    int64_t ld, first; /* first element of a packed matrix */
    tx_cpu_nf4 nf4;
    tx_cpu_q8 q8;
    tx_block_matrix blocks;
} lines;

static lines lines_of(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call)
{
    const void *b = call->b;
    const int64_t size = spec->shape.n * spec->shape.k, count = size * tx_max(spec->matrices, 1);
    lines l = {.data = b, .type = spec->type, .ld = spec->shape.ldb, .first = call->matrix * size};
    if (spec->packed != TX_F32) {
        l.type = spec->packed;
        if (tx_block_values(spec->packed) > 0)
            l.blocks = tx_block_matrix_of(b, spec->packed, count / spec->shape.ldb, spec->shape.ldb);
        else if (spec->packed == TX_Q8)
            l.q8 = tx_cpu_q8_of(b, count, spec->type);
        else
            l.nf4 = tx_cpu_nf4_of(b, spec->packed, count, spec->type);
    }
    return l;
}

/* Reads a part of one row. */
static void load_blocks(const tx_block_matrix *b, int64_t at, int64_t count, float *restrict to)
{
    tx_dtype type;
    const uint8_t *row = tx_block_row(b, at / b->width, &type, NULL);
    tx_block_read(type, row + tx_block_run(type, at % b->width), count, to);
}

/* Reads `count` elements from element `at` on as fp32. Packed elements are read in whole blocks. */
static inline void load_lines(const lines *b, int64_t at, int64_t count, float *restrict to)
{
    if (b->blocks.data)
        load_blocks(&b->blocks, b->first + at, count, to);
    else if (b->type == TX_Q8)
        tx_cpu_q8_run(&b->q8, b->first + at, count, to);
    else if (tx_dtype_packed(b->type))
        tx_cpu_nf4_run(&b->nf4, b->first + at, count, to);
    else
        tx_widen(to, b->data, b->type, at, count);
}

/* Stores c [i, j0..] = n sums + bias [j0..] (unless bias is NULL), plus the values in c if `add`. */
static inline void store_row(float *restrict row, int64_t i, int64_t j0, int64_t n, const tx_gemm_matrix *c,
                             const float *bias, bool add)
{
    const int64_t first = i * c->ld + j0;
    float piece[TX_PIECE];
    if (bias)
        for (int64_t j = 0; j < n; j++)
            row[j] += bias[j0 + j];
    for (int64_t at = 0; add && at < n; at += TX_PIECE) {
        const int64_t count = tx_min(n - at, TX_PIECE);
        const float *old = tx_run_of(c->data, c->type, first + at, count, piece);
        for (int64_t j = 0; j < count; j++)
            row[at + j] += old[j];
    }
    tx_narrow(c->data, row, c->type, first, n);
}

/* ---- Few rows ------------------------------------------------------------------------------------ */

/* Converts a to fp32 rows [m, k]. With `trans` a is stored k x m. */
static void unpack(const tx_gemm_matrix *a, bool trans, int64_t m, int64_t k, float *rows)
{
    float line[TX_GEMM_FEW];
    for (int64_t i = 0; i < m && !trans; i++)
        tx_widen(rows + i * k, a->data, a->type, i * a->ld, k);
    for (int64_t p = 0; p < k && trans; p++) {
        tx_widen(line, a->data, a->type, p * a->ld, m);
        for (int64_t i = 0; i < m; i++)
            rows[i * k + p] = line[i];
    }
}

/* sum [m, n] += rows [m, DEPTH] times DEPTH adjacent lines of b, `step` apart. The lines are read at the speed of
 * memory and stay in the L1 cache for the other rows. `half` is a constant. */
static inline __attribute__((always_inline)) void thin_add_lines(int64_t m, int64_t n, const float *rows, int64_t ld,
                                                                 const void *b, bool half, int64_t step,
                                                                 float sum[TX_GEMM_FEW][COLUMNS])
{
    for (int64_t i = 0; i < m; i++) {
        const float *restrict x = rows + i * ld;
        float *restrict y = sum[i];
#pragma omp simd
        for (int64_t c = 0; c < n; c++) {
            float s = y[c];
#pragma GCC unroll 8
            for (int d = 0; d < DEPTH; d++)
                s = TX_FMA(x[d], tx_element(b, half, d * step + c), s);
            y[c] = s;
        }
    }
}

/* Returns n columns of `depth` lines of b from element `at` on, `*step` apart, as fp32: in place or in `wide`. */
static const float *lines_at(const lines *b, int64_t at, int64_t depth, int64_t n, float *wide, int64_t *step)
{
    if (b->type == TX_F32) {
        *step = b->ld;
        return (const float *)b->data + at;
    }
    for (int64_t d = 0; d < depth; d++)
        load_lines(b, at + d * b->ld, n, wide + d * *step);
    return wide;
}

/* Fetches `depth` lines of b to the L2 cache. */
static void fetch_lines(const lines *b, int64_t at, int64_t depth, int64_t n)
{
    const int64_t size = (int64_t)tx_dtype_size(b->type);
    for (int64_t d = 0; d < depth && !tx_dtype_packed(b->type); d++)
        for (int64_t c = 0; c < n; c += CACHE_LINE)
            __builtin_prefetch((const char *)b->data + (at + d * b->ld + c) * size, 0, 2);
}

/* Sums of columns that are adjacent in memory. Lines of b are read at the speed of memory. They stay in the L1 cache
 * for all rows: DEPTH whole lines, or for MANY rows DEEP lines of narrower columns. */
static void thin_runs(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld, const lines *b,
                      float sum[TX_GEMM_FEW][COLUMNS])
{
    float wide[DEPTH * COLUMNS];
    const int64_t most = m < MANY ? DEPTH : DEEP, width = DEPTH * COLUMNS / most;
    for (int64_t c = 0; c < n; c += width)
        for (int64_t p = 0; p < k; p += most) {
            const int64_t depth = tx_min(k - p, most), count = tx_min(n - c, width), at = p * b->ld + j + c;
            const bool few = m < MANY && depth == DEPTH;
            if (few && b->type == TX_BF16) { /* widened in registers */
                thin_add_lines(m, count, rows + p, ld, (const uint16_t *)b->data + at, true, b->ld, sum);
                continue;
            }
            int64_t step = width;
            const float *from = lines_at(b, at, depth, count, wide, &step);
            if (few)
                thin_add_lines(m, count, rows + p, ld, from, false, step, sum);
            const int64_t next = p + depth < k ? at + depth * b->ld : j + c + count;
            for (int64_t l = 0, some; l < count && !few; l += some) {
                some = tx_min(count - l, 2 * TX_VECTOR);
                fetch_lines(b, next + l, depth, some);
                tx_tile_product(true, m, some, depth, rows + p, ld, 1, from + l, step, sum[0] + c + l, COLUMNS);
            }
        }
}

/* Sums of at most TX_DOT_COLUMNS columns that are each contiguous in memory, from column j on.
 * While rows are multiplied with columns, those of a later tile are fetched to the L2 cache. */
static void thin_tile(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld, const lines *b,
                      float *sum)
{
    tx_lanes lane[TX_GEMM_FEW];
    float wide[TX_DOT_TILE][PIECE];
    /* Few rows widen bf16 in registers. For more it is widened once. */
    const bool half = b->type == TX_BF16 && m <= TX_GEMM_THIN, in_place = half || b->type == TX_F32;
    const int64_t size = half ? sizeof(uint16_t) : sizeof(float), most = in_place && m == 1 ? k : PIECE;
    const int64_t tile = TX_DOT_TILE * b->ld, alone = tx_ceil_div(AHEAD(half), tile * size) * tile;
    if (n < TX_DOT_COLUMNS)
        memset(lane, 0, (size_t)m * sizeof lane[0]);
    for (int64_t p = 0; p < k; p += most) {
        const int64_t depth = tx_min(k - p, most), at = j * b->ld + p;
        const int64_t next = p + depth < k ? depth : TX_DOT_COLUMNS * b->ld - p, ahead = m == 1 ? alone : next;
        if (in_place)
            tx_dot_add(m, n, rows + p, ld, (const char *)b->data + at * size, half, b->ld, depth, ahead, p == 0, lane);
        for (int64_t l = 0, some; l < n && !in_place; l += some) {
            some = tx_min(n - l, TX_DOT_TILE);
            for (int64_t w = 0; w < some; w++)
                load_lines(b, at + (l + w) * b->ld, depth, wide[w]);
            tx_dot_add(m, some, rows + p, ld, wide, false, PIECE, depth, 0, p == 0, (tx_lanes *)(void *)lane[0][l]);
        }
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < n; l += TX_VECTOR)
            tx_dot_fold(lane[i] + l, sum + i * COLUMNS + l);
}

/* Sums of columns that are each contiguous in memory. TX_DOT_COLUMNS columns stay in the L2 cache for all rows. */
static void thin_lines(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld, const lines *b,
                       float sum[TX_GEMM_FEW][COLUMNS])
{
    for (int64_t c = 0; c < n; c += TX_DOT_COLUMNS)
        thin_tile(m, j + c, tx_min(n - c, TX_DOT_COLUMNS), k, rows, ld, b, sum[0] + c);
}

/* ---- Rows in 8 bits ------------------------------------------------------------------------------------- */

static bool has_vnni(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

static bool any_rows(void)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return true;
#else
    return has_vnni();
#endif
}

#if defined(__AVX2__)
#define EIGHT_BITS true
#define TILE (2 * TX_PANEL_COLUMNS)

/* Multiplies rows by blocks: few rows by one column after the other, many by tiles of columns. */
static void multiply_blocks(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call, const float *rows, int64_t ld,
                            const tx_block_matrix *b, int32_t threads)
{
    const tx_gemm *s = &spec->shape;
    const int64_t before = call->matrix * s->n; /* columns of earlier matrices */
    const tx_gemm_matrix c = {.data = call->c, .type = spec->result, .ld = s->ldc};
    const bool few = tx_gemm_few(spec), vnni = has_vnni();
    const int64_t values = few ? tx_block_values(spec->packed) : 32;
    const int8_t bias = few ? tx_row8_bias(vnni, values) : TX_PANEL_BIAS;
    const int64_t most = few ? TX_ROW8_ROWS : TX_ROW8_MOST;
    const tx_cpu_rows8 all = {(char *)call->scratch + tx_gemm_thin_wide(spec), s->m, s->k};
#pragma omp parallel for schedule(static) num_threads(threads) if (s->m > TX_ROW8_ROWS)
    for (int64_t i = 0; i < s->m; i++) {
        const tx_cpu_row8 row = tx_row8_of(&all, i);
        tx_row8_make(rows + i * ld, s->k, values, bias, &row);
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < s->n; j += TILE)
        for (int64_t first = 0; first < s->m; first += most) {
            const int64_t n = tx_min(s->n - j, TILE), m = tx_min(s->m - first, most);
            const tx_cpu_rows8 some = {all.memory + first * tx_gemm_row8_bytes(s->k), m, s->k};
            float sum[TX_ROW8_MOST][TILE];
            if (few)
                tx_row8_columns(vnni, b, before + j, n, &some, sum[0], TILE);
            else
                tx_panels_columns(b, before + j, n, &some, sum[0], TILE);
            for (int64_t i = 0; i < m; i++)
                store_row(sum[i], first + i, j, n, &c, call->bias, call->add);
        }
}
#else
#define EIGHT_BITS false

static void multiply_blocks(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call, const float *rows, int64_t ld,
                            const tx_block_matrix *b, int32_t threads)
{
    (void)spec, (void)call, (void)rows, (void)ld, (void)b, (void)threads;
}
#endif

static void multiply(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call)
{
    const tx_gemm *s = &spec->shape;
    const tx_gemm_matrix a = {.data = (void *)call->a, .type = spec->type, .ld = s->lda};
    const lines b = lines_of(spec, call);
    const tx_gemm_matrix c = {.data = call->c, .type = spec->result, .ld = s->ldc};
    const bool in_place = tx_gemm_thin_wide(spec) == 0;
    const float *rows = in_place ? call->a : call->scratch;
    const int64_t ld = in_place ? s->lda : s->k;
    if (!in_place)
        unpack(&a, spec->trans_a, s->m, s->k, call->scratch);
    const int32_t threads = (double)s->m * (double)s->n * (double)s->k < SMALL_WORK ? 1 : spec->threads;
    if (EIGHT_BITS && b.blocks.data) {
        multiply_blocks(spec, call, rows, ld, &b.blocks, threads);
        return;
    }
    const int64_t items = threads * tx_ceil_div(s->n, threads * COLUMNS);
    const int64_t unit = spec->packed == TX_F32 ? CACHE_LINE : TX_NF4_BLOCK;
    const int64_t columns = tx_round_up(tx_ceil_div(s->n, items), unit);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < s->n; j += columns) {
        const int64_t n = s->n - j < columns ? s->n - j : columns;
        float sum[TX_GEMM_FEW][COLUMNS];
        for (int64_t i = 0; i < s->m; i++)
            memset(sum[i], 0, (size_t)n * sizeof sum[i][0]);
        if (spec->trans_b)
            thin_lines(s->m, j, n, s->k, rows, ld, &b, sum);
        else
            thin_runs(s->m, j, n, s->k, rows, ld, &b, sum);
        for (int64_t i = 0; i < s->m; i++)
            store_row(sum[i], i, j, n, &c, call->bias, call->add);
    }
}

/* ---- From packed types ------------------------------------------------------------------------------------ */

static void unpack_panel(const tx_cpu_gemm_spec *spec, const tx_gemm_call *call, int64_t j, int64_t width, tx_dtype to,
                         void *panel)
{
    const tx_gemm *s = &spec->shape;
    const lines w = lines_of(spec, call);
    const int64_t rows = spec->trans_b ? width : s->k, columns = spec->trans_b ? s->k : width,
                  first = spec->trans_b ? j * s->ldb : j;
    const size_t size = tx_dtype_size(to);
#pragma omp parallel for schedule(static) num_threads(spec->threads)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0, count; c < columns; c += count) {
            float piece[TX_PIECE];
            count = tx_min(columns - c, TX_PIECE);
            load_lines(&w, first + i * s->ldb + c, count, piece);
            tx_narrow((char *)panel + (size_t)(i * columns + c) * size, piece, to, 0, count);
        }
}

/* ---- Between fp32 and 16 bits ------------------------------------------------------------------- */

static void widen(const tx_gemm_matrix *from, float *to, int32_t threads)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (from->rows * from->columns > TX_CPU_GRAIN)
    for (int64_t i = 0; i < from->rows; i++)
        tx_widen(to + i * from->columns, from->data, from->type, i * from->ld, from->columns);
}

static void narrow(float *sums, bool add, const tx_gemm_matrix *to, int32_t threads)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (to->rows * to->columns > TX_CPU_GRAIN)
    for (int64_t i = 0; i < to->rows; i++)
        store_row(sums + i * to->columns, i, 0, to->columns, to, NULL, add);
}

const tx_gemm_rows TX_CPU_NAME(gemm_rows) = {
    .name = TX_TEXT(TX_CPU_VARIANT),
    .few = TX_VECTOR == 16 ? TX_GEMM_FEW : TX_GEMM_THIN,
    .multiply = multiply,
    .any_rows = any_rows,
    .unpack = unpack_panel,
    .widen = widen,
    .narrow = narrow,
};
