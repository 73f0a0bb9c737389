/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and the register tile of TX's own matrix product, after Goto & van de Geijn, "Anatomy of High-Performance
 * Matrix Multiplication" (2008). Compiled once for each instruction set. The compiler keeps the tile's sums in
 * vector registers; the sizes below leave room for a line of b and one number of a. */
#include "gemm_tile.h"

#include "backends/cpu/simd.h"

#include <string.h>

#if defined(__AVX512F__)
#define ROWS 12
#define COLUMNS 32
#elif defined(__AVX2__)
#define ROWS 6
#define COLUMNS 16
#else
#define ROWS 6
#define COLUMNS 8
#endif

#define CHUNK 64  /* depth that is transposed at a time */
#define LINE 16   /* numbers in a line of the cache */
#define DEPTH 8   /* lines of b that few rows take in at once */
#define SWEEP 128 /* lines that are copied side by side: few enough streams for the cache */

/* Reads `count` neighbours, from element `at` on, as fp32. */
static inline void load(const void *data, tx_dtype type, int64_t at, int64_t count, float *restrict to)
{
    if (type == TX_F32) {
        const float *from = (const float *)data + at;
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i];
    } else if (type == TX_BF16) {
        const uint16_t *from = (const uint16_t *)data + at;
        for (int64_t i = 0; i < count; i++)
            to[i] = tx_bf16_to_f32(from[i]);
    } else {
        const uint16_t *from = (const uint16_t *)data + at;
        for (int64_t i = 0; i < count; i++)
            to[i] = tx_f16_to_f32(from[i]);
    }
}

/* Lines lie side by side in memory: copies runs of them, depth by depth. */
static inline void pack_runs(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, int width,
                             float *panels)
{
    for (int64_t q = 0; q < k; q++) {
        int64_t at = (p + q) * lines->depth_stride + first;
        float *to = panels + q * width;
        int64_t line = 0;
        for (; line + width <= count; line += width, to += k * width)
            load(lines->data, lines->type, at + line, width, to);
        if (line < count) {
            int rest = (int)(count - line);
            load(lines->data, lines->type, at + line, rest, to);
            for (int i = rest; i < width; i++)
                to[i] = 0.0f;
        }
    }
}

/* Each line is a run in memory: transposes chunk by chunk. */
static inline void pack_lines(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, int width,
                              float *panels)
{
    float chunk[COLUMNS > ROWS ? COLUMNS : ROWS][CHUNK];
    for (int64_t line = 0; line < count; line += width, panels += k * width) {
        int present = (int)(count - line < width ? count - line : width);
        for (int i = present; i < width; i++)
            for (int q = 0; q < CHUNK; q++)
                chunk[i][q] = 0.0f;
        for (int64_t q = 0; q < k; q += CHUNK) {
            int depth = (int)(k - q < CHUNK ? k - q : CHUNK);
            for (int i = 0; i < present; i++)
                load(lines->data, lines->type, (first + line + i) * lines->line_stride + p + q, depth, chunk[i]);
            float *to = panels + q * width;
            for (int d = 0; d < depth; d++)
                for (int i = 0; i < width; i++)
                    to[d * width + i] = chunk[i][d];
        }
    }
}

static inline void pack(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, int width,
                        float *panels)
{
    const int64_t sweep = SWEEP / width * width;
    if (lines->line_stride == 1)
        for (int64_t i = 0; i < count; i += sweep)
            pack_runs(lines, first + i, count - i < sweep ? count - i : sweep, p, k, width, panels + i * k);
    else
        pack_lines(lines, first, count, p, k, width, panels);
}

static void pack_a(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, float *panels)
{
    pack(lines, first, count, p, k, ROWS, panels);
}

static void pack_b(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, float *panels)
{
    pack(lines, first, count, p, k, COLUMNS, panels);
}

/* tile = one panel of a times one panel of b; k is at least 1. */
static void multiply_panels(int64_t k, const float *restrict a, const float *restrict b,
                            float tile[restrict ROWS][COLUMNS])
{
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++)
#pragma omp simd
        for (int j = 0; j < COLUMNS; j++)
            tile[i][j] = a[i] * b[j];
    for (int64_t p = 1; p < k; p++) {
        a += ROWS;
        b += COLUMNS;
#pragma GCC unroll 12
        for (int i = 0; i < ROWS; i++)
#pragma omp simd
            for (int j = 0; j < COLUMNS; j++)
                tile[i][j] += a[i] * b[j];
    }
}

static inline float read_c(const tx_gemm_target *t, int64_t at)
{
    if (t->type == TX_F32)
        return ((const float *)t->c)[at];
    uint16_t h = ((const uint16_t *)t->c)[at];
    return t->type == TX_BF16 ? tx_bf16_to_f32(h) : tx_f16_to_f32(h);
}

/* Writes the last sums of one row as c. */
static inline void write_c(const tx_gemm_target *t, int64_t at, int n, const float *row)
{
    if (t->type == TX_F32)
        for (int j = 0; j < n; j++)
            ((float *)t->c)[at + j] = row[j];
    else if (t->type == TX_BF16)
        for (int j = 0; j < n; j++)
            ((uint16_t *)t->c)[at + j] = tx_f32_to_bf16(row[j]);
    else
        for (int j = 0; j < n; j++)
            ((uint16_t *)t->c)[at + j] = tx_f32_to_f16(row[j]);
}

/* Puts row `row` of n sums where they belong: column j0 on of row i of the target. */
static inline void store_row(float *restrict row, int64_t i, int64_t j0, int n, const tx_gemm_target *t)
{
    int64_t at = i * t->ldc + j0;
    float *sum = t->sum + i * t->ld_sum + j0;
    if (!t->first)
        for (int j = 0; j < n; j++)
            row[j] += sum[j];
    if (t->first && t->bias)
        for (int j = 0; j < n; j++)
            row[j] += t->bias[j0 + j];
    if (t->first && t->add)
        for (int j = 0; j < n; j++)
            row[j] += read_c(t, at + j);
    if (t->last)
        write_c(t, at, n, row);
    else
        for (int j = 0; j < n; j++)
            sum[j] = row[j];
}

/* Asks for the lines of memory that store_row() is going to read or write. */
static inline void prefetch(int64_t i0, int m, int64_t j0, const tx_gemm_target *t)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < COLUMNS; j += LINE)
            __builtin_prefetch(t->sum + (i0 + i) * t->ld_sum + j0 + j, 1);
}

static void multiply(int64_t m, int64_t n, int64_t k, const float *a, const float *b, const tx_gemm_target *target)
{
    float tile[ROWS][COLUMNS];
    for (int64_t j = 0; j < n; j += COLUMNS)
        for (int64_t i = 0; i < m; i += ROWS) {
            int rows = (int)(m - i < ROWS ? m - i : ROWS), columns = (int)(n - j < COLUMNS ? n - j : COLUMNS);
            prefetch(i, rows, j, target);
            multiply_panels(k, a + i * k, b + j * k, tile);
            if (columns == COLUMNS) /* a constant, for the compiler */
                for (int r = 0; r < rows; r++)
                    store_row(tile[r], i + r, j, COLUMNS, target);
            else
                for (int r = 0; r < rows; r++)
                    store_row(tile[r], i + r, j, columns, target);
        }
}

static void unpack(const tx_gemm_lines *a, int64_t m, int64_t k, float *rows)
{
    for (int64_t i = 0; i < m; i++)
        if (a->depth_stride == 1)
            load(a->data, a->type, i * a->line_stride, k, rows + i * k);
        else
            for (int64_t p = 0; p < k; p++)
                load(a->data, a->type, i * a->line_stride + p * a->depth_stride, 1, rows + i * k + p);
}

/* sum [m, n] += rows [m, DEPTH] times DEPTH lines of b that lie side by side, `step` apart: as fast as memory gives the
 * lines, which stay in the first cache for the other rows. */
static inline void thin_add_lines(int64_t m, int64_t n, const float *rows, int64_t ld, const float *b, int64_t step,
                                  float sum[TX_GEMM_THIN][TX_GEMM_THIN_COLUMNS])
{
    for (int64_t i = 0; i < m; i++) {
        const float *restrict x = rows + i * ld;
        float *restrict y = sum[i];
#pragma omp simd
        for (int64_t c = 0; c < n; c++) {
            float s = y[c];
#pragma GCC unroll 8
            for (int d = 0; d < DEPTH; d++)
                s += x[d] * b[d * step + c];
            y[c] = s;
        }
    }
}

/* Sums of columns that lie side by side. */
static void thin_runs(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld, const tx_gemm_lines *b,
                      float sum[TX_GEMM_THIN][TX_GEMM_THIN_COLUMNS])
{
    float wide[DEPTH][TX_GEMM_THIN_COLUMNS], last[TX_GEMM_THIN][DEPTH] = {{0.0f}};
    for (int64_t p = 0; p < k; p += DEPTH) {
        const int64_t depth = k - p < DEPTH ? k - p : DEPTH;
        if (b->type == TX_F32 && depth == DEPTH) {
            const float *lines = (const float *)b->data + p * b->depth_stride + j;
            thin_add_lines(m, n, rows + p, ld, lines, b->depth_stride, sum);
            continue;
        }
        for (int64_t d = 0; d < DEPTH; d++) /* beyond the end: zeros times zeros */
            if (d < depth)
                load(b->data, b->type, (p + d) * b->depth_stride + j, n, wide[d]);
            else
                memset(wide[d], 0, (size_t)n * sizeof wide[d][0]);
        for (int64_t i = 0; i < m; i++)
            memcpy(last[i], rows + i * ld + p, (size_t)depth * sizeof last[i][0]);
        thin_add_lines(m, n, last[0], DEPTH, wide[0], TX_GEMM_THIN_COLUMNS, sum);
    }
}

/* One row times one column, which is a run: by lanes, which are added in pairs at the end. */
static inline float thin_dot(const float *restrict x, const float *restrict b, int64_t k)
{
    float lane[CHUNK] = {0.0f};
    int64_t p = 0;
    for (; p + CHUNK <= k; p += CHUNK)
#pragma omp simd
        for (int d = 0; d < CHUNK; d++)
            lane[d] += x[p + d] * b[p + d];
    for (int64_t d = 0; p + d < k; d++)
        lane[d] += x[p + d] * b[p + d];
    for (int width = CHUNK / 2; width > 0; width /= 2)
#pragma omp simd
        for (int d = 0; d < width; d++)
            lane[d] += lane[d + width];
    return lane[0];
}

/* Sums of columns each of which is a run. */
static void thin_lines(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld,
                       const tx_gemm_lines *b, float sum[TX_GEMM_THIN][TX_GEMM_THIN_COLUMNS])
{
    for (int64_t c = 0; c < n; c++) {
        const int64_t at = (j + c) * b->line_stride;
        if (b->type == TX_F32) {
            for (int64_t i = 0; i < m; i++)
                sum[i][c] = thin_dot(rows + i * ld, (const float *)b->data + at, k);
            continue;
        }
        float run[TX_GEMM_THIN_COLUMNS];
        for (int64_t p = 0; p < k; p += TX_GEMM_THIN_COLUMNS) {
            const int64_t depth = k - p < TX_GEMM_THIN_COLUMNS ? k - p : TX_GEMM_THIN_COLUMNS;
            load(b->data, b->type, at + p, depth, run);
            for (int64_t i = 0; i < m; i++)
                sum[i][c] += thin_dot(rows + i * ld + p, run, depth);
        }
    }
}

static void thin(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld, const tx_gemm_lines *b,
                 const tx_gemm_target *target)
{
    float sum[TX_GEMM_THIN][TX_GEMM_THIN_COLUMNS];
    for (int64_t i = 0; i < m; i++)
        memset(sum[i], 0, (size_t)n * sizeof sum[i][0]);
    if (b->line_stride == 1)
        thin_runs(m, j, n, k, rows, ld, b, sum);
    else
        thin_lines(m, j, n, k, rows, ld, b, sum);
    for (int64_t i = 0; i < m; i++)
        store_row(sum[i], i, j, (int)n, target);
}

const tx_gemm_tile TX_CPU_NAME(gemm_tile) = {
    .name = TX_TEXT(TX_CPU_VARIANT) " " TX_TEXT(ROWS) "x" TX_TEXT(COLUMNS),
    .rows = ROWS,
    .columns = COLUMNS,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .unpack = unpack,
    .thin = thin,
};
