/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix units of GPUs, for who uses their atoms (matrix_mma.cl, matrix_amd.cl, matrix_dpas.cl): products and
 * attention. */
#ifndef TX_OPENCL_MATRIX_H
#define TX_OPENCL_MATRIX_H

#include "backends/opencl/runtime/internal.h"

/* Whether the device has units of this vendor whose warps have so many lanes, which tells AMD's and Intel's two
 * kinds apart. They take operands of 16 bits; what else, context->can says. */
bool tx_cl_matrix_units(const tx_context *context, tx_cl_vendor vendor, int lanes);

/* ATOM of the kernels: "MMA" and "MFMA" are that, of "WMMA" the architecture says which. */
const char *tx_cl_matrix_atom(const tx_context *context, const char *atom);

/* What the driver's compiler is told besides: Intel's to give threads 256 registers in place of 128, half as many
 * threads having them. */
const char *tx_cl_matrix_build(tx_cl_vendor vendor);

/* Bytes of local memory that a work-group may have. */
int64_t tx_cl_matrix_local(const tx_context *context);

#endif
