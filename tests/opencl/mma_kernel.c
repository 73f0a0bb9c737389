/* SPDX-License-Identifier: Apache-2.0
 * One form of kernels/gemm_mma.cl as C: AB, Y, WIDEN, TRANS_A, TRANS_B, PARTS and the function's name are given. */
#include "tests/opencl/mma_host.h"

/* What is usual in OpenCL C. */
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#include "gemm_mma_host.h"
