/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the functions and tables that the rows of prepared.def name.
 */
#ifndef TX_CPU_PREPARED_H
#define TX_CPU_PREPARED_H

#include "backends/cpu/cpu.h"

/* A kind of matrix product, which is prepared once and run many times (gemm.h). */
struct tx_cpu_product {
    /* *scratch_bytes is the scratch size of every run. The caller destroys *product. */
    tx_status (*create)(const tx_context *context, const tx_command *command, void **product, int64_t *scratch_bytes);
    tx_status (*run)(const tx_cpu_call *call);
    const char *(*variant)(const void *product); /* lives as long as the product */
    void (*destroy)(void *product);
};

#define TX_SCRATCH(NAME, function) int64_t tx_cpu_scratch_##function(const tx_command *command);
#define TX_PRODUCT(NAME, product) extern const tx_cpu_product tx_cpu_product_##product;
#include "backends/cpu/prepared.def"

#endif
