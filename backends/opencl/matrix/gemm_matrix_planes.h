/* SPDX-License-Identifier: Apache-2.0
 *
 * fp32 products by planes of bf16. Three planes hold all bits; six of their nine products are added. Two planes hold
 * 16 bits; three of their four products are added.
 */
#ifndef TX_OPENCL_GEMM_MATRIX_PLANES_H
#define TX_OPENCL_GEMM_MATRIX_PLANES_H

#include "backends/opencl/gemm/gemm_tile.h"

/* Returns the share of a form that multiplies planes (tx_cl_tile_suits), reduced by the time to split a and b. Returns
 * 0 if the planes take too much memory. */
double tx_cl_planes_suits(const tx_context *context, const tx_cl_product *p, int planes, double share);

/* Emits the kernels that split a and b, which may have any layout, and the product of their planes. */
void tx_cl_planes_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, int planes);

#endif
