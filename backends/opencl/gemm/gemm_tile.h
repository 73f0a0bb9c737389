/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiled matrix products: each work-group computes a block of y, or with split-k its partial sums.
 */
#ifndef TX_OPENCL_GEMM_TILE_H
#define TX_OPENCL_GEMM_TILE_H

#include "backends/opencl/gemm/gemm.h"

typedef struct tx_cl_tile {
    const char *kernel; /* name of the kernel and of its source */
    int64_t rows, columns, terms, group;
    int64_t buffer_bytes; /* local memory for one block of both operands */
    double rate;
    /* Writes the options of the kernel's shape. */
    void (*options)(const tx_context *context, const struct tx_cl_tile *tile, const tx_cl_product *p, char *text,
                    size_t size);
    /* The number of resident work-groups if the kernel uses persistent work-groups that each compute several tiles;
     * 0 if each computes one tile. NULL if the kernel has no loop over tiles. */
    int64_t (*held)(const tx_context *context, const struct tx_cl_tile *tile);
    bool sums;        /* can sum columns with the gradient of GELU, if rows of y are whole quads (tx_cl_product) */
    const void *form; /* data of these two functions */
} tx_cl_tile;

/* For `suits`, with `local_bytes` of local memory for a work-group. Returns the tile's share of the device's rate,
 * times the share of the time in which units work on elements of y. */
double tx_cl_tile_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, int64_t local_bytes,
                        char *why);
void tx_cl_tile_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p);

/* Returns the time to move `bytes` before the product, as a share of the time of its multiply-adds at rate 1. */
double tx_cl_tile_moves(const tx_cl_product *p, int64_t bytes);

/* Return true if all rows of a, of b, or of all operands with the layout of y or of a row of it, consist of whole
 * pieces that are aligned to their size. A piece has `piece` elements, or 4 for y. */
bool tx_cl_whole_a(const tx_cl_product *p, int64_t piece);
bool tx_cl_whole_b(const tx_cl_product *p, int64_t piece);
bool tx_cl_whole_result(const tx_cl_product *p);

/* Selects the number of parts of split-k, which affects the bits of the result. It is 1 to TX_CL_MOST_PARTS parts of
 * each tile. With TX_CL_EVEN each persistent work-group computes the same number of blocks (gemm_matrix.cl). */
#define TX_CL_MOST_PARTS 16
#define TX_CL_EVEN 0
#define TX_CL_EVEN_NAME "even"
tx_status tx_cl_tile_parts(tx_cl_builder *b, const tx_cl_provider *self, const tx_gemm *g, int64_t *parts);

/* Returns true if the provider is expected to split the terms of this product. */
bool tx_cl_tile_splits(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p);

/* Returns a number of columns for which persistent work-groups compute more than one tile each; 0 if the provider
 * has none. */
int64_t tx_cl_gemm_columns(const tx_context *context, const tx_cl_provider *provider);

#endif
