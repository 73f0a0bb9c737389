/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of OpenCL calls, and the explanation for the user: the device, how much of its memory TX holds, and what to
 * do.
 */
#include "backends/opencl/runtime/internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

const char *tx_cl_error_name(cl_int code)
{
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
#define NAME(x) {x, #x}
        NAME(CL_DEVICE_NOT_FOUND),
        NAME(CL_DEVICE_NOT_AVAILABLE),
        NAME(CL_COMPILER_NOT_AVAILABLE),
        NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        NAME(CL_OUT_OF_RESOURCES),
        NAME(CL_OUT_OF_HOST_MEMORY),
        NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
        NAME(CL_BUILD_PROGRAM_FAILURE),
        NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
        NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
        NAME(CL_INVALID_VALUE),
        NAME(CL_INVALID_DEVICE),
        NAME(CL_INVALID_CONTEXT),
        NAME(CL_INVALID_COMMAND_QUEUE),
        NAME(CL_INVALID_MEM_OBJECT),
        NAME(CL_INVALID_BINARY),
        NAME(CL_INVALID_BUILD_OPTIONS),
        NAME(CL_INVALID_PROGRAM),
        NAME(CL_INVALID_PROGRAM_EXECUTABLE),
        NAME(CL_INVALID_KERNEL_NAME),
        NAME(CL_INVALID_KERNEL),
        NAME(CL_INVALID_ARG_INDEX),
        NAME(CL_INVALID_ARG_VALUE),
        NAME(CL_INVALID_ARG_SIZE),
        NAME(CL_INVALID_KERNEL_ARGS),
        NAME(CL_INVALID_WORK_DIMENSION),
        NAME(CL_INVALID_WORK_GROUP_SIZE),
        NAME(CL_INVALID_WORK_ITEM_SIZE),
        NAME(CL_INVALID_EVENT),
        NAME(CL_INVALID_OPERATION),
        NAME(CL_INVALID_BUFFER_SIZE),
        NAME(CL_INVALID_GLOBAL_WORK_SIZE),
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code)
            return names[i].name;
    return "OpenCL error";
}

tx_status tx_cl_check(cl_int code, const char *what)
{
    if (code == CL_SUCCESS)
        return TX_OK;
    bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
    return tx_fail(memory ? TX_MEMORY : TX_DEVICE, "%s: %s (%d)", what, tx_cl_error_name(code), code);
}

tx_status tx_cl_explain(const tx_context *context, tx_status status)
{
    const tx_device_info *info = &context->info;
    char what[640];
    if (status != TX_MEMORY && status != TX_DEVICE)
        return status;
    snprintf(what, sizeof what, "%s", tx_error());
    if (context->lost[0])
        return tx_fail(TX_DEVICE,
                       "%s (%s, driver %s): %s; start again, which avoids it if there is an alternative, set TX_GEMM, "
                       "try another driver, or choose another device",
                       info->id, info->name, info->driver, context->lost);
    return tx_fail(status, "%s (%s): %s; TX holds %" PRId64 " of its %" PRId64 " bytes; %s, or choose another device",
                   info->id, info->name, what, tx_memory_total(&context->held), info->memory,
                   status == TX_MEMORY ? "use a smaller batch or block size, end other programs that use it"
                                       : "check the system log, try a smaller batch or another driver");
}
