/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the cpu backend: c[i] = op(a[i]) op(b[i]) + bias + beta c[i] for i < batch, prepared once and
 * run many times. oneDNN computes them, in fp32 if it declines the types. TX itself computes products of few rows,
 * and fp32 products on AMX. All operands are row-major, op(a) is m x k, op(b) is k x n, and sums are fp32. plan.c
 * and experts/gemm_grouped.c call this interface.
 */
#ifndef TX_CPU_GEMM_H
#define TX_CPU_GEMM_H

#include "backends/backend.h"

typedef struct tx_cpu_gemm tx_cpu_gemm;   /* a prepared product */
typedef struct tx_gemm_rows tx_gemm_rows; /* TX's own loops in one instruction set (gemm_parts.h) */

typedef struct tx_cpu_gemm_spec {
    tx_gemm shape;
    tx_dtype type;            /* of a and b: F32, BF16 or F16 */
    tx_dtype packed;          /* packed type of b, for batch 1 and no trans_a, blocks with trans_b; F32 = not packed */
    int64_t matrices;         /* of a packed b, of which a run reads one; 0 means 1 */
    tx_dtype result;          /* of c: F32 or `type` */
    bool trans_a, trans_b;    /* a is stored k x m, b is stored n x k */
    bool bias;                /* runs may pass bias [n] */
    bool adds;                /* runs may use beta 1 */
    int32_t threads;          /* threads of a run, at least 1 */
    const tx_gemm_rows *rows; /* the device's loops (cpu.h) */
} tx_cpu_gemm_spec;

/* Prepares a product. *scratch_bytes is the scratch size of every run. The caller destroys *gemm. */
tx_status tx_cpu_gemm_create(const tx_cpu_gemm_spec *spec, tx_cpu_gemm **gemm, int64_t *scratch_bytes);

/* Runs a prepared product without allocating. `matrix` is the number of the matrix in a packed b, else 0. Factor beta
 * is 0 (c is not read), or 1 if spec.adds. The bias is fp32 [n]; it may always be NULL. Pointer scratch is aligned to
 * 64 bytes and may be shared by runs that do not overlap. Only one thread at a time may use a prepared product. The
 * same operands give the same bits. */
tx_status tx_cpu_gemm_run(tx_cpu_gemm *gemm, const void *a, const void *b, int64_t matrix, const float *bias, void *c,
                          float beta, void *scratch);

/* Returns the name of the implementation, e.g. "onednn brg:avx512_core" or "few rows avx512". It lives as long as
 * the product. */
const char *tx_cpu_gemm_variant(const tx_cpu_gemm *gemm);
void tx_cpu_gemm_destroy(tx_cpu_gemm *gemm);

/* Returns true if this CPU has instructions that the library uses for products of a type. These are AVX512_BF16 (if it
 * is faster than fp32) or AMX for bf16, and AVX512_FP16 or AMX (oneDNN 3) for fp16. */
bool tx_cpu_gemm_native(tx_dtype type);

/* Writes the name of the library and the properties that determine its sums, e.g. "onednn 2.6.0 isa 7f". */
#define TX_CPU_GEMM_LIBRARY 96
void tx_cpu_gemm_library(char text[TX_CPU_GEMM_LIBRARY]);

#endif
