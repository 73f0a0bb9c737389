/* SPDX-License-Identifier: Apache-2.0
 *
 * Device and host memory and their accounting, copies, and events of the two queues.
 */
#include "backends/opencl/runtime/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Drivers allocate memory lazily. Moving the empty buffer to the device reports a lack of memory now. */
static tx_status commit_memory(tx_context *context, cl_mem memory)
{
    cl_int code = clEnqueueMigrateMemObjects(context->compute, 1, &memory, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                             NULL, NULL);
    if (code == CL_SUCCESS)
        code = tx_cl_wait_queue(context, context->compute, NULL);
    if (code == CL_OUT_OF_RESOURCES)
        code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return tx_cl_check(code, "clEnqueueMigrateMemObjects");
}

/* `adopted` is host memory to use, or NULL to let the driver allocate. */
static tx_status make_memory(tx_context *context, bool pinned, void *adopted, tx_buffer *buffer)
{
    /* NVIDIA's driver copies to and from mapped memory by DMA while the host continues. Other host memory is copied
     * piece by piece through a mapped buffer of the driver, and the call waits. */
    cl_int code;
    cl_mem_flags flags = CL_MEM_READ_WRITE | (adopted ? CL_MEM_USE_HOST_PTR : pinned ? CL_MEM_ALLOC_HOST_PTR : 0);
    buffer->memory = clCreateBuffer(context->context, flags, (size_t)buffer->bytes, adopted, &code);
    if (code != CL_SUCCESS)
        return tx_cl_check(code, "clCreateBuffer");
    tx_status status = TX_OK;
    if (pinned) {
        buffer->mapped = clEnqueueMapBuffer(context->compute, buffer->memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                            (size_t)buffer->bytes, 0, NULL, NULL, &code);
        status = tx_cl_check(code, "clEnqueueMapBuffer");
    } else {
        status = commit_memory(context, buffer->memory);
    }
    if (status != TX_OK)
        clReleaseMemObject(buffer->memory);
    return status;
}

static tx_status make_buffer(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                             void *adopted, tx_buffer **out)
{
    if (bytes <= 0)
        return tx_fail(TX_INVALID, "cannot allocate %" PRId64 " bytes", bytes);
    if (context->lost[0])
        return tx_fail(TX_DEVICE, "no memory can be allocated");
    if (bytes > context->limits.max_allocation)
        return tx_fail(TX_MEMORY,
                       "the device allows at most %" PRId64 " bytes in one allocation; %" PRId64 " were requested",
                       context->limits.max_allocation, bytes);
    tx_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return tx_fail(TX_MEMORY, "out of host memory");
    buffer->kind = kind;
    buffer->bytes = bytes;
    tx_status status = make_memory(context, space == TX_SPACE_PINNED, adopted, buffer);
    if (status != TX_OK) {
        free(buffer);
        return tx_fail_in(status, "%" PRId64 " bytes of %s for %s", bytes,
                          space == TX_SPACE_DEVICE ? "memory" : "host memory", tx_memory_name(kind));
    }
    context->held.bytes[kind] += bytes;
    context->traffic.allocations++;
    *out = buffer;
    return TX_OK;
}

tx_status tx_cl_allocate(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                         tx_buffer **buffer)
{
    return make_buffer(context, kind, space, bytes, NULL, buffer);
}

tx_status tx_cl_adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer)
{
    return make_buffer(context, kind, TX_SPACE_PINNED, bytes, memory, buffer);
}

void tx_cl_release(tx_context *context, tx_buffer *buffer)
{
    if (!buffer)
        return;
    tx_cl_wait_queue(context, context->transfer, NULL);
    if (!context->hung) { /* otherwise the device may still write to it */
        if (buffer->mapped)
            clEnqueueUnmapMemObject(context->compute, buffer->memory, buffer->mapped, 0, NULL, NULL);
        tx_cl_wait_queue(context, context->compute, NULL);
        clReleaseMemObject(buffer->memory);
    }
    context->held.bytes[buffer->kind] -= buffer->bytes;
    free(buffer);
}

void *tx_cl_map(tx_buffer *buffer)
{
    return buffer->mapped;
}

void tx_cl_account(const tx_context *context, tx_memory *held, tx_traffic *traffic)
{
    if (held)
        *held = context->held;
    if (traffic)
        *traffic = context->traffic;
}

static tx_status check_range(const tx_buffer *buffer, int64_t offset, int64_t bytes)
{
    if (offset < 0 || bytes < 0 || offset > buffer->bytes - bytes)
        return tx_fail(TX_INTERNAL, "bytes %" PRId64 " to %" PRId64 " are outside a buffer of %" PRId64, offset,
                       offset + bytes, buffer->bytes);
    return TX_OK;
}

/* Prepares host access to a range. *address is its address in host memory, or NULL if it is in device memory. Waits
 * until the queues are empty, so that the memory can be accessed directly. */
static tx_status begin(tx_context *context, const tx_buffer *buffer, int64_t offset, int64_t bytes, void **address)
{
    tx_status status = check_range(buffer, offset, bytes);
    *address = buffer->mapped ? (char *)buffer->mapped + offset : NULL;
    return status == TX_OK && bytes > 0 && buffer->mapped ? tx_cl_finish(context) : status;
}

static cl_command_queue queue_of(const tx_context *context, tx_queue_id queue)
{
    return queue == TX_QUEUE_TRANSFER ? context->transfer : context->compute;
}

/* Checks the result of enqueueing a copy. Copies on the transfer queue are flushed at once, others with the next
 * program. */
static tx_status enqueued(tx_context *context, tx_queue_id queue, cl_int code, const char *what)
{
    if (code != CL_SUCCESS || queue == TX_QUEUE_COMPUTE)
        return tx_cl_check(code, what);
    context->traffic.transfers++;
    return tx_cl_check(clFlush(context->transfer), "clFlush");
}

tx_status tx_cl_write(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                      int64_t bytes)
{
    void *host;
    tx_status status = begin(context, to, offset, bytes, &host);
    if (status != TX_OK || bytes == 0)
        return status;
    if (host) {
        memmove(host, data, (size_t)bytes);
        return TX_OK;
    }
    context->traffic.to_device += bytes;
    return enqueued(context, queue,
                    clEnqueueWriteBuffer(queue_of(context, queue), to->memory, CL_FALSE, (size_t)offset, (size_t)bytes,
                                         data, 0, NULL, NULL),
                    "clEnqueueWriteBuffer");
}

/* Starts a read of device memory. `event` may be NULL. */
static tx_status start_read(tx_context *context, tx_queue_id queue, const tx_buffer *from, int64_t offset, void *data,
                            int64_t bytes, cl_event *event)
{
    context->traffic.from_device += bytes;
    return enqueued(context, queue,
                    clEnqueueReadBuffer(queue_of(context, queue), from->memory, CL_FALSE, (size_t)offset, (size_t)bytes,
                                        data, 0, NULL, event),
                    "clEnqueueReadBuffer");
}

tx_status tx_cl_read(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    void *host;
    tx_status status = begin(context, from, offset, bytes, &host);
    if (status != TX_OK || bytes == 0)
        return status;
    if (host) {
        memmove(data, host, (size_t)bytes);
        return TX_OK;
    }
    TX_TRY(start_read(context, TX_QUEUE_COMPUTE, from, offset, data, bytes, NULL));
    return tx_cl_check(tx_cl_wait_queue(context, context->compute, NULL), "clEnqueueReadBuffer");
}

tx_status tx_cl_read_begin(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                           int64_t bytes, tx_event **out)
{
    cl_event event = NULL;
    tx_status status = check_range(from, offset, bytes);
    if (status == TX_OK && (from->mapped || bytes == 0))
        status = tx_fail(TX_INTERNAL, "an asynchronous read needs device memory and at least one byte");
    TX_THEN(status, start_read(context, queue, from, offset, data, bytes, &event));
    TX_THEN(status, tx_cl_check(clFlush(queue_of(context, queue)), "clFlush"));
    if (status == TX_OK)
        *out = (tx_event *)event;
    else if (event)
        clReleaseEvent(event);
    return status;
}

tx_status tx_cl_copy_bytes(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
                           int64_t to_offset, int64_t bytes)
{
    tx_status status = check_range(from, from_offset, bytes);
    TX_THEN(status, check_range(to, to_offset, bytes));
    if (status != TX_OK || bytes == 0)
        return status;
    if (from->mapped)
        return tx_cl_write(context, queue, to, to_offset, (char *)from->mapped + from_offset, bytes);
    if (to->mapped)
        return start_read(context, queue, from, from_offset, (char *)to->mapped + to_offset, bytes, NULL);
    return enqueued(context, queue,
                    clEnqueueCopyBuffer(queue_of(context, queue), from->memory, to->memory, (size_t)from_offset,
                                        (size_t)to_offset, (size_t)bytes, 0, NULL, NULL),
                    "clEnqueueCopyBuffer");
}

/* Bytes of one launch. Its grid has 2^26 items. */
#define FILL_PIECE ((int64_t)1 << 30)

/* Fills device memory with bytes. The kernel counts them from the start of the buffer. */
static tx_status launch_fill(tx_context *context, cl_kernel kernel, tx_buffer *to, int64_t offset, cl_uint word,
                             int64_t bytes)
{
    const size_t global = tx_cl_fill_items(bytes);
    const cl_long numbers[] = {offset, bytes};
    const cl_int unit = 1;
    cl_int code = clSetKernelArg(kernel, 0, sizeof to->memory, &to->memory);
    for (cl_uint i = 0; i < 2 && code == CL_SUCCESS; i++)
        code = clSetKernelArg(kernel, 1 + i, sizeof numbers[i], &numbers[i]);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(kernel, 3, sizeof word, &word);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(kernel, 4, sizeof unit, &unit);
    if (code == CL_SUCCESS)
        code = tx_cl_enqueue(context, kernel, 1, &global, NULL, NULL);
    return tx_cl_check(code, "filling memory");
}

tx_status tx_cl_fill_bytes(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes)
{
    void *host;
    cl_kernel kernel = NULL;
    tx_status status = begin(context, to, offset, bytes, &host);
    if (status != TX_OK || bytes == 0)
        return status;
    if (host) {
        memset(host, value, (size_t)bytes);
        return TX_OK;
    }
    TX_TRY(tx_cl_kernel(context, "fill", NULL, "fill", &kernel));
    for (int64_t done = 0; status == TX_OK && done < bytes; done += FILL_PIECE)
        status =
            launch_fill(context, kernel, to, offset + done, value * 0x01010101u, tx_cl_least(bytes - done, FILL_PIECE));
    clReleaseKernel(kernel);
    return status;
}

/* ---- Events ---------------------------------------------------------------------------------------------- */

/* Flushes the marker: a queue that waits for a marker in an unflushed queue would wait forever. */
tx_status tx_cl_mark(tx_context *context, tx_queue_id queue, tx_event **event)
{
    cl_event made;
    TX_TRY(tx_cl_check(clEnqueueMarkerWithWaitList(queue_of(context, queue), 0, NULL, &made),
                       "clEnqueueMarkerWithWaitList"));
    tx_status status = tx_cl_check(clFlush(queue_of(context, queue)), "clFlush");
    if (status == TX_OK)
        *event = (tx_event *)made;
    else
        clReleaseEvent(made);
    return status;
}

tx_status tx_cl_await(tx_context *context, tx_queue_id queue, tx_event *event)
{
    const cl_event point = (cl_event)event;
    if (!point)
        return TX_OK;
    return tx_cl_check(clEnqueueBarrierWithWaitList(queue_of(context, queue), 1, &point, NULL),
                       "clEnqueueBarrierWithWaitList");
}

tx_status tx_cl_wait(tx_context *context, tx_event *event)
{
    const cl_event point = (cl_event)event;
    if (!point)
        return TX_OK;
    const cl_int code = tx_cl_wait_event(context, point);
    tx_cl_forget(context, event);
    return tx_cl_check(code, "clWaitForEvents");
}

void tx_cl_forget(tx_context *context, tx_event *event)
{
    if (event && !context->hung)
        clReleaseEvent((cl_event)event);
}
