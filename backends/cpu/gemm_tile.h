/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner parts of TX's own matrix product, compiled once for each instruction set (gemm_tile.c). */
#ifndef TX_CPU_GEMM_TILE_H
#define TX_CPU_GEMM_TILE_H

#include "tx.h"

/* A stored operand seen as `width` lines of `depth` numbers that are multiplied and summed: the rows of op(a) or
 * the columns of op(b). Element (line, p) lies at line * line_stride + p * depth_stride; one of the two is 1. */
typedef struct tx_gemm_lines {
    const void *data;
    tx_dtype type;
    int64_t line_stride, depth_stride;
} tx_gemm_lines;

/* A tile of the result and how it is written. Partial sums over k go through `sum`; the first block over k takes
 * in the bias and the old c, the last one writes c. Where c is fp32, sum is c. */
typedef struct tx_gemm_target {
    float *sum;
    int64_t ld_sum;
    void *c;
    tx_dtype type;
    int64_t ldc;
    const float *bias; /* NULL: none */
    bool add, first, last;
} tx_gemm_target;

typedef struct tx_gemm_tile {
    const char *name;
    int32_t rows, columns; /* of the tile that the registers hold */
    /* Packs lines first..first+count-1, depth p..p+k-1, as fp32 into panels of `rows` (pack_a) or `columns`
     * (pack_b) lines: panel-major, then depth, then line; lines that are missing in the last panel are 0. */
    void (*pack_a)(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, float *panels);
    void (*pack_b)(const tx_gemm_lines *lines, int64_t first, int64_t count, int64_t p, int64_t k, float *panels);
    /* target[m x n] = packed a times packed b over depth k. */
    void (*multiply)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, const tx_gemm_target *target);
    /* Few rows, where b is read once and memory is the bound. unpack: rows 0..m-1 of a as fp32, k to a row. thin:
     * columns j..j+n-1 of the target, whose sums are complete (first and last), from rows `ld` apart; a sum depends on
     * k alone. m is at most TX_GEMM_THIN, n at most TX_GEMM_THIN_COLUMNS. */
    void (*unpack)(const tx_gemm_lines *a, int64_t m, int64_t k, float *rows);
    void (*thin)(int64_t m, int64_t j, int64_t n, int64_t k, const float *rows, int64_t ld, const tx_gemm_lines *b,
                 const tx_gemm_target *target);
} tx_gemm_tile;

#define TX_GEMM_THIN 8
#define TX_GEMM_THIN_COLUMNS 512 /* with the depth that is taken in at once: 16 KiB */

#endif
