/* SPDX-License-Identifier: Apache-2.0
 * Which instruction sets the kernels were compiled for, and which of them this processor has. */
#include "backends/cpu/variants.h"
#include "backends/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define X(variant, supported) extern const tx_cpu_kernels tx_cpu_kernels_##variant;
TX_CPU_VARIANT_MAP(X)
#undef X

const tx_cpu_kernels *tx_cpu_kernels_choose(void)
{
    const char *wanted = getenv("TX_CPU_VARIANT");
#define X(variant, supported)                                  \
    if ((!wanted || !strcmp(wanted, #variant)) && (supported)) \
        return &tx_cpu_kernels_##variant;
    TX_CPU_VARIANT_MAP(X)
#undef X
    return NULL;
}
