/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the CPU backend: c[i] = op(a[i]) op(b[i]) + bias + beta c[i], i < batch, prepared once and
 * run many times. oneDNN does the work, in fp32 where it declines the types; few rows, and fp32 on AMX, are TX's
 * own. All operands are row-major; op(a) is m x k, op(b) is k x n, sums are fp32. */
#ifndef TX_CPU_GEMM_H
#define TX_CPU_GEMM_H

#include "backends/backend.h"

typedef struct tx_cpu_gemm tx_cpu_gemm;   /* a prepared product */
typedef struct tx_gemm_rows tx_gemm_rows; /* TX's own loops in one instruction set (gemm_parts.h) */

typedef struct tx_cpu_gemm_spec {
    tx_gemm shape;
    tx_dtype type;         /* of a and b: F32, BF16 or F16 */
    tx_dtype packed;       /* NF4 or NF4_DOUBLE: b is stored so, a is not transposed, the batch is 1; F32: it is not */
    tx_dtype result;       /* of c: F32 or `type` */
    bool trans_a, trans_b; /* a is stored k x m, b is stored n x k */
    bool bias;             /* runs may give bias [n] */
    bool adds;             /* runs may have beta 1 */
    int32_t threads;       /* that a run uses, at least 1 */
    const tx_gemm_rows *rows; /* the device's (cpu.h) */
} tx_cpu_gemm_spec;

/* Prepares a product; *scratch_bytes is what every run of it needs. The caller destroys *gemm. */
tx_status tx_cpu_gemm_create(const tx_cpu_gemm_spec *spec, tx_cpu_gemm **gemm, int64_t *scratch_bytes);

/* Runs a prepared product, allocating nothing. beta is 0 (c is not read) or, where spec.adds, 1. bias is fp32
 * [n] or, always allowed, NULL. scratch is aligned to 64 bytes and may be shared by runs that do not overlap.
 * One prepared product belongs to one thread at a time. The same operands give the same bits. */
tx_status tx_cpu_gemm_run(tx_cpu_gemm *gemm, const void *a, const void *b, const float *bias, void *c, float beta,
                          void *scratch);

/* What runs it, e.g. "onednn brg:avx512_core" or "few rows avx512"; lives as long as the product. */
const char *tx_cpu_gemm_variant(const tx_cpu_gemm *gemm);
void tx_cpu_gemm_destroy(tx_cpu_gemm *gemm);

/* Whether this CPU has instructions for products of a type that the library uses: of bf16 AVX512_BF16 or AMX, of fp16
 * AVX512_FP16 or AMX, with version 3. */
bool tx_cpu_gemm_native(tx_dtype type);

/* The library, with what its sums depend on, e.g. "onednn 2.6.0 isa 7f". */
#define TX_CPU_GEMM_LIBRARY 96
void tx_cpu_gemm_library(char text[TX_CPU_GEMM_LIBRARY]);

#endif
