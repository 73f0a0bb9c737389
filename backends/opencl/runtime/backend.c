/* SPDX-License-Identifier: Apache-2.0
 *
 * The OpenCL backend's table of functions. Its wrappers add the device and a hint to each failure (tx_cl_explain).
 */
#include "backends/opencl/runtime/internal.h"

/* Defines the function of a slot: calls tx_cl_NAME and explains its failure. */
#define EXPLAINED(name, of, parameters, arguments)        \
    static tx_status name parameters                      \
    {                                                     \
        return tx_cl_explain(of, tx_cl_##name arguments); \
    }

EXPLAINED(allocate, context,
          (tx_context * context, tx_memory_kind kind, tx_memory_space space, int64_t bytes, tx_buffer **buffer),
          (context, kind, space, bytes, buffer))
EXPLAINED(adopt, context, (tx_context * context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer),
          (context, kind, memory, bytes, buffer))
EXPLAINED(write, context,
          (tx_context * context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data, int64_t bytes),
          (context, queue, to, offset, data, bytes))
EXPLAINED(read_begin, context,
          (tx_context * context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data, int64_t bytes,
           tx_event **event),
          (context, queue, from, offset, data, bytes, event))
EXPLAINED(read, context, (tx_context * context, tx_buffer *from, int64_t offset, void *data, int64_t bytes),
          (context, from, offset, data, bytes))
EXPLAINED(fill_bytes, context, (tx_context * context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes),
          (context, to, offset, value, bytes))
EXPLAINED(copy_bytes, context,
          (tx_context * context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
           int64_t to_offset, int64_t bytes),
          (context, queue, from, from_offset, to, to_offset, bytes))
EXPLAINED(mark, context, (tx_context * context, tx_queue_id queue, tx_event **event), (context, queue, event))
EXPLAINED(await, context, (tx_context * context, tx_queue_id queue, tx_event *event), (context, queue, event))
EXPLAINED(wait, context, (tx_context * context, tx_event *event), (context, event))
EXPLAINED(finish, context, (tx_context * context), (context))
EXPLAINED(prepare, context,
          (tx_context * context, const tx_program *program, tx_executable **executable, int64_t *scratch),
          (context, program, executable, scratch))
EXPLAINED(bind_current, executable->context, (tx_executable * executable, const tx_bindings *bindings),
          (executable, bindings))
EXPLAINED(run_program, executable->context,
          (tx_executable * executable, int32_t first, int32_t count, const tx_controls *controls, double *seconds),
          (executable, first, count, controls, seconds))

#define TX_SLOT(name, parameters) tx_status tx_cl_##name parameters;
#include "backends/opencl/extensions.def"
#undef TX_SLOT

extern const tx_backend tx_backend_opencl;
const tx_backend tx_backend_opencl = {
    .version = TX_BACKEND_VERSION,
    .name = "opencl",
    .device_count = tx_cl_device_count,
    .device_info = tx_cl_device_info,
    .open = tx_cl_open,
    .close = tx_cl_close,
    .workers = tx_cl_workers,
    .allocate = allocate,
    .adopt = adopt,
    .release = tx_cl_release,
    .map = tx_cl_map,
    .account = tx_cl_account,
    .write = write,
    .read_begin = read_begin,
    .read = read,
    .fill = fill_bytes,
    .copy = copy_bytes,
    .mark = mark,
    .await = await,
    .wait = wait,
    .forget = tx_cl_forget,
    .finish = finish,
    .prepare = prepare,
    .bind = bind_current,
    .run = run_program,
    .command_info = tx_cl_command_info,
    .destroy = tx_cl_destroy,
#define TX_SLOT(slot, ...) .slot = tx_cl_##slot,
#include "backends/opencl/extensions.def"
};
