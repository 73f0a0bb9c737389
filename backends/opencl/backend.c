/* SPDX-License-Identifier: Apache-2.0
 * The OpenCL backend's table, and errors of OpenCL calls. */
#include "backends/opencl/internal.h"

#include <stddef.h>

extern const tx_backend tx_backend_opencl;
const tx_backend tx_backend_opencl = {
    .version = TX_BACKEND_VERSION,
    .name = "opencl",
    .device_count = tx_cl_device_count,
    .device_info = tx_cl_device_info,
    .open = tx_cl_open,
    .close = tx_cl_close,
    .allocate = tx_cl_allocate,
    .release = tx_cl_release,
    .map = tx_cl_map,
    .account = tx_cl_account,
    .write = tx_cl_write,
    .read = tx_cl_read,
    .read_begin = tx_cl_read_begin,
    .read_wait = tx_cl_read_wait,
    .fill = tx_cl_fill_bytes,
    .finish = tx_cl_finish,
    .prepare = tx_cl_prepare,
    .bind = tx_cl_bind,
    .run = tx_cl_run_program,
    .command_info = tx_cl_command_info,
    .destroy = tx_cl_destroy,
    .choices = tx_cl_choices,
    .choose = tx_cl_choose,
};

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
