/* SPDX-License-Identifier: Apache-2.0
 * The OpenCL backend's table: what leaves the backend explains its failures. */
#include "backends/opencl/internal.h"

static tx_status allocate(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                          tx_buffer **buffer)
{
    return tx_cl_explain(context, tx_cl_allocate(context, kind, space, bytes, buffer));
}

static tx_status adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer)
{
    return tx_cl_explain(context, tx_cl_adopt(context, kind, memory, bytes, buffer));
}

static tx_status write_bytes(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                             int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_write(context, queue, to, offset, data, bytes));
}

static tx_status read_begin(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                            int64_t bytes, tx_event **event)
{
    return tx_cl_explain(context, tx_cl_read_begin(context, queue, from, offset, data, bytes, event));
}

static tx_status read_bytes(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_read(context, from, offset, data, bytes));
}

static tx_status fill_bytes(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_fill_bytes(context, to, offset, value, bytes));
}

static tx_status copy_bytes(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
                            int64_t to_offset, int64_t bytes)
{
    return tx_cl_explain(context, tx_cl_copy_bytes(context, queue, from, from_offset, to, to_offset, bytes));
}

static tx_status mark(tx_context *context, tx_queue_id queue, tx_event **event)
{
    return tx_cl_explain(context, tx_cl_mark(context, queue, event));
}

static tx_status await_event(tx_context *context, tx_queue_id queue, tx_event *event)
{
    return tx_cl_explain(context, tx_cl_await(context, queue, event));
}

static tx_status wait_event(tx_context *context, tx_event *event)
{
    return tx_cl_explain(context, tx_cl_wait(context, event));
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
    return tx_cl_explain(executable->context, tx_cl_bind(executable, bindings));
}

static tx_status run(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds)
{
    return tx_cl_explain(executable->context, tx_cl_run_program(executable, first, count, controls, seconds));
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
    .read_begin = read_begin,
    .read = read_bytes,
    .fill = fill_bytes,
    .copy = copy_bytes,
    .mark = mark,
    .await = await_event,
    .wait = wait_event,
    .forget = tx_cl_forget,
    .finish = finish,
    .prepare = prepare,
    .bind = bind,
    .run = run,
    .command_info = tx_cl_command_info,
    .destroy = tx_cl_destroy,
    .choices = tx_cl_choices,
    .choose = tx_cl_choose,
    .tuned = tx_cl_tuned,
    .facts = tx_cl_facts,
};
