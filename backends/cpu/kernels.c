/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of kernels of one instruction set, and the kernel of MATMUL.
 */
#include "backends/cpu/simd.h"

/* plan.c has already computed the product. This kernel applies the epilogue, as the op of the same name. */
void TX_CPU_NAME(matmul)(const tx_cpu_call *call)
{
    static tx_cpu_kernel *const epilogues[] = {
        [TX_EPILOGUE_NONE] = NULL,
        [TX_EPILOGUE_GELU] = TX_CPU_NAME(gelu),
        [TX_EPILOGUE_GELU_GRAD] = TX_CPU_NAME(gelu_grad),
        [TX_EPILOGUE_ADD] = TX_CPU_NAME(add),
    };
    tx_cpu_kernel *epilogue = epilogues[call->command->attrs.epilogue];
    tx_cpu_call rest = *call;
    rest.in[0] = call->out[1] ? call->out[1] : call->out[0];
    rest.in[1] = call->in[3];
    if (epilogue)
        epilogue(&rest);
}

const tx_cpu_kernels TX_CPU_NAME(kernels) = {
    .name = "openmp " TX_TEXT(TX_CPU_VARIANT),
    .gemm_rows = &TX_CPU_NAME(gemm_rows),
    .run =
        {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = TX_CPU_NAME(name),
#define TX_VIRTUAL(NAME, name, ...)
#include "ops.def"
        },
};
