/* SPDX-License-Identifier: Apache-2.0
 * The table of kernels of one instruction set, and the kernels that hand over to a library. */
#include "backends/cpu/simd.h"

void TX_CPU_NAME(matmul)(const tx_cpu_call *call)
{
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    tx_cpu_gemm_run(call->gemm, call->in[0], call->in[1], call->in[2], call->out[0], beta, call->scratch);
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const tx_cpu_kernels TX_CPU_NAME(kernels) = {
    .name = "openmp " TEXT(TX_CPU_VARIANT),
    .run =
        {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = TX_CPU_NAME(name),
#define TX_VIRTUAL(NAME, name, ...)
#include "ops.def"
        },
};
