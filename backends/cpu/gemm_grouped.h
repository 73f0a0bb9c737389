/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by groups of rows, ops GROUPED_MATMUL and GROUPED_MATMUL_GRAD. How many rows a group has is known when it
 * runs; products are prepared for some numbers of rows, of which every number is a sum, so that nothing is padded. */
#ifndef TX_CPU_GEMM_GROUPED_H
#define TX_CPU_GEMM_GROUPED_H

#include "backends/cpu/gemm.h"

typedef struct tx_cpu_grouped tx_cpu_grouped;

static inline bool tx_cpu_is_grouped(tx_op op)
{
    return op == TX_OP_GROUPED_MATMUL || op == TX_OP_GROUPED_MATMUL_GRAD;
}

/* As tx_cpu_gemm_create, for a command of these ops; the caller destroys *grouped. */
tx_status tx_cpu_grouped_create(const tx_command *command, int32_t threads, const tx_gemm_rows *rows,
                                tx_cpu_grouped **grouped, int64_t *scratch_bytes);
/* Runs it on the command's inputs; beta as in tx_cpu_gemm_run. Offsets count as the nearest that are allowed. */
tx_status tx_cpu_grouped_run(tx_cpu_grouped *grouped, const void *const in[TX_MAX_IN], void *out, float beta,
                             void *scratch);
/* What runs most of its rows; lives as long as the product. */
const char *tx_cpu_grouped_variant(const tx_cpu_grouped *grouped);
void tx_cpu_grouped_destroy(tx_cpu_grouped *grouped); /* NULL is fine */

#endif
