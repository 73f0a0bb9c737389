/* SPDX-License-Identifier: Apache-2.0
 *
 * PTX of NVIDIA's driver, for instructions that its compiler does not take. It compiles OpenCL C for .target sm_90 and
 * refuses what sm_90a alone has (wgmma), but loads PTX of that target as a binary. So kernels hold these instructions
 * as comments of their inline assembler, "//@90a INSTRUCTION", for which the compiler allots the registers: the program
 * is built, its binary is taken, changed here, and loaded. "//@90a .maxnreg N" limits the registers of the kernel that
 * it is in, which compilers do not say of large work-groups. */
#ifndef TX_OPENCL_RETARGET_H
#define TX_OPENCL_RETARGET_H

#include "backends/opencl/runtime/internal.h"

/* *text: the PTX in `size` bytes (a NUL among them ends it) for sm_90a, with the marks taken off and limits put
 * before their kernels; the caller frees it.
 * TX_DEVICE with a message: it is no PTX for sm_90, it has no marks, or one that does not begin a line. */
tx_status tx_cl_retarget_ptx(const char *ptx, size_t size, char **text);

#endif
