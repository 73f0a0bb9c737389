/* SPDX-License-Identifier: Apache-2.0
 * The OpenCL backend's table, and errors of OpenCL calls. What leaves the backend says which device it was, how much of
 * its memory is held, and what to do about it. */
#include "backends/opencl/internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

tx_status tx_cl_explain(const tx_context *context, tx_status status)
{
    const tx_device_info *info = &context->info;
    char what[640];
    if (status != TX_MEMORY && status != TX_DEVICE)
        return status;
    snprintf(what, sizeof what, "%s", tx_error());
    return tx_fail(status, "%s (%s): %s; TX holds %" PRId64 " of its %" PRId64 " bytes: %s, or choose another device",
                   info->id, info->name, what, tx_memory_total(&context->held), info->memory,
                   status == TX_MEMORY ? "take a smaller batch or shorter blocks, end other programs on it"
                                       : "the system's log may say more, a smaller batch or another driver may help");
}

static tx_status allocate(tx_context *context, tx_memory_kind kind, int64_t bytes, bool host, tx_buffer **buffer)
{
    return tx_cl_explain(context, tx_cl_allocate(context, kind, bytes, host, buffer));
}

static tx_status write_bytes(tx_context *context, tx_buffer *to, int64_t offset, const void *data, int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_write(context, to, offset, data, bytes));
}

static tx_status read_bytes(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_read(context, from, offset, data, bytes));
}

static tx_status adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer)
{
    return tx_cl_explain(context, tx_cl_adopt(context, kind, memory, bytes, buffer));
}

static tx_status read_begin(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes,
                            tx_reading **reading)
{
    return tx_cl_explain(context, tx_cl_read_begin(context, from, offset, data, bytes, reading));
}

static tx_status read_wait(tx_context *context, tx_reading *reading)
{
    return tx_cl_explain(context, tx_cl_read_wait(context, reading));
}

static tx_status fill_bytes(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_fill_bytes(context, to, offset, value, bytes));
}

static tx_status finish(tx_context *context)
{
    return tx_cl_explain(context, tx_cl_finish(context));
}

static tx_status prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                         int64_t *scratch_bytes)
{
    return tx_cl_explain(context, tx_cl_prepare(context, program, executable, scratch_bytes));
}

static tx_status bind(tx_executable *executable, const tx_bindings *bindings)
{
    return tx_cl_explain(tx_cl_context_of(executable), tx_cl_bind(executable, bindings));
}

static tx_status run(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds)
{
    return tx_cl_explain(tx_cl_context_of(executable), tx_cl_run_program(executable, first, count, controls, seconds));
}

extern const tx_backend tx_backend_opencl;
const tx_backend tx_backend_opencl = {
    .version = TX_BACKEND_VERSION,
    .name = "opencl",
    .device_count = tx_cl_device_count,
    .device_info = tx_cl_device_info,
    .open = tx_cl_open,
    .close = tx_cl_close,
    .allocate = allocate,
    .adopt = adopt,
    .release = tx_cl_release,
    .map = tx_cl_map,
    .account = tx_cl_account,
    .write = write_bytes,
    .read = read_bytes,
    .read_begin = read_begin,
    .read_wait = read_wait,
    .fill = fill_bytes,
    .finish = finish,
    .prepare = prepare,
    .bind = bind,
    .run = run,
    .command_info = tx_cl_command_info,
    .destroy = tx_cl_destroy,
    .choices = tx_cl_choices,
    .choose = tx_cl_choose,
    .tuned = tx_cl_tuned,
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
