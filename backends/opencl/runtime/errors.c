/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of OpenCL calls, and the explanation for the user: the device, how much of its memory TX holds, and what to
 * do.
 */
#include "backends/opencl/runtime/internal.h"

#include <inttypes.h>
#include <stdio.h>

/* The errors of the calls that TX makes. */
/* clang-format off */
#define ERROR_MAP(X) \
    X(CL_DEVICE_NOT_FOUND) X(CL_DEVICE_NOT_AVAILABLE) X(CL_COMPILER_NOT_AVAILABLE) \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE) X(CL_OUT_OF_RESOURCES) X(CL_OUT_OF_HOST_MEMORY) \
    X(CL_PROFILING_INFO_NOT_AVAILABLE) X(CL_BUILD_PROGRAM_FAILURE) X(CL_MISALIGNED_SUB_BUFFER_OFFSET) \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) X(CL_INVALID_VALUE) X(CL_INVALID_DEVICE) X(CL_INVALID_CONTEXT) \
    X(CL_INVALID_COMMAND_QUEUE) X(CL_INVALID_MEM_OBJECT) X(CL_INVALID_BINARY) X(CL_INVALID_BUILD_OPTIONS) \
    X(CL_INVALID_PROGRAM) X(CL_INVALID_PROGRAM_EXECUTABLE) X(CL_INVALID_KERNEL_NAME) X(CL_INVALID_KERNEL) \
    X(CL_INVALID_ARG_INDEX) X(CL_INVALID_ARG_VALUE) X(CL_INVALID_ARG_SIZE) X(CL_INVALID_KERNEL_ARGS) \
    X(CL_INVALID_WORK_DIMENSION) X(CL_INVALID_WORK_GROUP_SIZE) X(CL_INVALID_WORK_ITEM_SIZE) X(CL_INVALID_EVENT) \
    X(CL_INVALID_OPERATION) X(CL_INVALID_BUFFER_SIZE) X(CL_INVALID_GLOBAL_WORK_SIZE)
/* clang-format on */

const char *tx_cl_error_name(cl_int code)
{
    switch (code) {
#define X(name) \
    case name:  \
        return #name;
        ERROR_MAP(X)
#undef X
    default:
        return "OpenCL error";
    }
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
    return tx_fail(
        status, "%s (%s, driver %s): %s; TX holds %" PRId64 " of its %" PRId64 " bytes; %s, or choose another device",
        info->id, info->name, info->driver, what, tx_memory_total(&context->held), info->memory,
        status == TX_MEMORY ? "use a smaller batch or block size, end other programs that use it"
                            : "check the system log, try a smaller batch or another driver");
}
