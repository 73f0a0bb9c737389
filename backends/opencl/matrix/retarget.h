/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds instructions to the PTX of NVIDIA's driver that its compiler does not support. The driver compiles OpenCL C
 * for .target sm_90 and rejects instructions that only sm_90a has (wgmma), but it loads PTX for sm_90a as a binary.
 *
 * So kernels contain these instructions as comments in inline assembly, "//@90a INSTRUCTION", and the compiler
 * allocates their registers. The program is built, its binary is read, changed here, and loaded.
 */
#ifndef TX_OPENCL_RETARGET_H
#define TX_OPENCL_RETARGET_H

#include "backends/opencl/runtime/internal.h"

/* Converts the PTX in `size` bytes (a NUL ends it earlier) to sm_90a: marks are removed. The caller frees *text.
 * Returns TX_DEVICE with a message if the text is not PTX for sm_90, has no marks, or has a mark that does not
 * begin a line. */
tx_status tx_cl_retarget_ptx(const char *ptx, size_t size, char **text);

#endif
