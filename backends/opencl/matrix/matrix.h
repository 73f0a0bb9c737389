/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix units of GPUs, for the code that uses their atoms (matrix_mma.cl, matrix_amd.cl, matrix_dpas.cl): matrix
 * products and attention.
 */
#ifndef TX_OPENCL_MATRIX_H
#define TX_OPENCL_MATRIX_H

#include "backends/opencl/runtime/internal.h"

/* Returns true if the device has matrix units of this vendor and warps of `lanes` lanes, which distinguishes the
 * two kinds of AMD and of Intel. They support 16-bit operands; see `can` for other types. */
bool tx_cl_matrix_units(const tx_cl_capabilities *can, tx_cl_vendor vendor, int lanes);

/* Returns ATOM of the kernels. "MMA" and "MFMA" are returned unchanged; the architecture selects the variant of
 * "WMMA". */
const char *tx_cl_matrix_atom(const tx_context *context, const char *atom);

/* Returns additional build options: Intel's compiler uses 256 registers for each thread instead of 128, which
 * halves the number of threads. */
const char *tx_cl_matrix_build(tx_cl_vendor vendor);

/* Returns the bytes of local memory that a work-group may use. */
int64_t tx_cl_matrix_local(const tx_context *context);

#endif
