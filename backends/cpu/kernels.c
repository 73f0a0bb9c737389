/* SPDX-License-Identifier: Apache-2.0
 * The table of kernels of one instruction set, and the kernels that hand over to a library. */
#include "backends/cpu/simd.h"

/* The epilogue as the op that it stands for, on what the product wrote to `product`. */
static void finish_product(const tx_cpu_call *call, const void *product)
{
    tx_cpu_call rest = *call;
    rest.in[0] = product;
    rest.in[1] = call->in[3];
    switch (call->command->attrs.epilogue) {
    case TX_EPILOGUE_GELU:
        TX_CPU_NAME(gelu)(&rest);
        break;
    case TX_EPILOGUE_GELU_GRAD:
        TX_CPU_NAME(gelu_grad)(&rest);
        break;
    case TX_EPILOGUE_ADD:
        TX_CPU_NAME(add)(&rest);
        break;
    case TX_EPILOGUE_NONE:
        break;
    }
}

void TX_CPU_NAME(matmul)(const tx_cpu_call *call)
{
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    void *product = call->out[1] ? call->out[1] : call->out[0];
    tx_cpu_gemm_run(call->gemm, call->in[0], call->in[1], call->in[2], product, beta, call->scratch);
    finish_product(call, product);
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
