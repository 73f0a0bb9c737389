/* SPDX-License-Identifier: Apache-2.0
 *
 * The OpenCL context and the queues of an opened device.
 */
#include "backends/opencl/gemm/gemm.h"
#include "backends/opencl/runtime/internal.h"

tx_status tx_cl_make_context(tx_context *context)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)context->platform, 0};
    cl_int code;
    context->context = clCreateContext(properties, 1, &context->device, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return tx_cl_check(code, "clCreateContext");
    cl_command_queue_properties flags = context->profile ? CL_QUEUE_PROFILING_ENABLE : 0;
    context->compute = clCreateCommandQueue(context->context, context->device, flags, &code);
    if (code == CL_SUCCESS)
        context->transfer = clCreateCommandQueue(context->context, context->device, 0, &code);
    return tx_cl_check(code, "clCreateCommandQueue");
}

/* Releases the OpenCL context and its objects. After a hang no call is safe. */
void tx_cl_drop_context(tx_context *context)
{
    cl_command_queue *const queues[] = {&context->compute, &context->transfer};
    tx_cl_clblast_close(context);
    tx_cl_release_programs(context);
    for (int i = 0; i < 2 && !context->hung; i++) {
        if (!*queues[i])
            continue;
        tx_cl_wait_queue(context, *queues[i], NULL);
        if (!context->hung)
            clReleaseCommandQueue(*queues[i]);
        *queues[i] = NULL;
    }
    if (!context->hung)
        tx_cl_drop_beats(context);
    if (context->context && !context->hung)
        clReleaseContext(context->context);
    context->context = NULL;
}

tx_status tx_cl_renew(tx_context *context)
{
    if (context->hung || tx_memory_total(&context->held) > 0)
        return tx_fail(TX_DEVICE, "the OpenCL context cannot be used any more");
    tx_cl_drop_context(context);
    context->lost[0] = '\0';
    context->generation++;
    return tx_cl_make_context(context);
}
