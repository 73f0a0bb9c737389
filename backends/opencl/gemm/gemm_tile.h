/* SPDX-License-Identifier: Apache-2.0
 *
 * Products in tiles: each work-group computes a block of y, or the sums of a part of its terms. */
#ifndef TX_OPENCL_GEMM_TILE_H
#define TX_OPENCL_GEMM_TILE_H

#include "backends/opencl/gemm/gemm.h"

typedef struct tx_cl_tile {
    const char *kernel; /* and its text */
    int64_t rows, columns, terms, group;
    int64_t buffer_bytes; /* of local memory, for one block of both operands */
    double rate;
    /* Writes the options that belong to the kernel's form. */
    void (*options)(const tx_context *context, const struct tx_cl_tile *tile, const tx_cl_product *p, char *text,
                    size_t size);
    /* The number of work-groups that the device holds at once if each computes several tiles, 0 if each computes one.
     * It is NULL if the kernel has no loop over tiles. */
    int64_t (*held)(const tx_context *context, const struct tx_cl_tile *tile);
    const void *form; /* which these two read */
} tx_cl_tile;

/* For `suits`, if a work-group may have so much local memory: the share of the device's rate is that of the tile, times
 * that of the time in which units work on elements of y. */
double tx_cl_tile_suits(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p,
                        int64_t local_bytes, char *why);
void tx_cl_tile_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p);

/* Whether the rows of a, b, or of all that is stored like y or a row of it, are whole pieces of so many elements (4 for
 * y), and each piece lies at a multiple of its size. */
bool tx_cl_whole_a(const tx_cl_product *p, int64_t piece);
bool tx_cl_whole_b(const tx_cl_product *p, int64_t piece);
bool tx_cl_whole_result(const tx_cl_product *p);

/* Selects the number of groups that share the terms of a product, which is part of the bits. */
#define TX_CL_MOST_PARTS 16
tx_status tx_cl_tile_parts(const tx_cl_builder *b, const tx_cl_provider *self, const tx_gemm *g, int64_t *parts);

/* So many columns of a few rows that groups have more than one tile, if they go on from one to the next; else 0. */
int64_t tx_cl_gemm_columns(const tx_context *context, const tx_cl_provider *provider);

#endif
