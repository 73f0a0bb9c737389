/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction sets for which the kernels were compiled, and the choice among them at run time. The list comes
 * from CMake, best first: TX_CPU_VARIANT_MAP(X, HAS) is X(variant, HAS(feature)...) for each.
 */
#include "backends/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define X(variant, features) extern const tx_cpu_kernels tx_cpu_kernels_##variant;
TX_CPU_VARIANT_MAP(X, )
#undef X

const tx_cpu_kernels *tx_cpu_kernels_choose(void)
{
    const char *wanted = getenv("TX_CPU_VARIANT");
#define HAS(feature) &&__builtin_cpu_supports(#feature)
#define X(variant, features)                             \
    if ((!wanted || !strcmp(wanted, #variant)) features) \
        return &tx_cpu_kernels_##variant;
    TX_CPU_VARIANT_MAP(X, HAS)
#undef X
    return NULL;
}
