/* SPDX-License-Identifier: Apache-2.0
 * Device and pinned host memory, its account, and copies; everything goes through the one in-order queue. */
#include "backends/opencl/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Drivers give memory lazily; moving the empty buffer to the device now makes a lack of memory show here. */
static tx_status settle(tx_context *context, cl_mem memory)
{
    cl_int code = clEnqueueMigrateMemObjects(context->compute, 1, &memory, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                             NULL, NULL);
    if (code == CL_SUCCESS)
        code = clFinish(context->compute);
    if (code == CL_OUT_OF_RESOURCES)
        code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return tx_cl_check(code, "clEnqueueMigrateMemObjects");
}

/* `adopted`: host memory to use; NULL: the driver's. */
static tx_status make_memory(tx_context *context, bool host, void *adopted, tx_buffer *buffer)
{
    cl_int code;
    cl_mem_flags flags = CL_MEM_READ_WRITE | (adopted ? CL_MEM_USE_HOST_PTR : host ? CL_MEM_ALLOC_HOST_PTR : 0);
    buffer->memory = clCreateBuffer(context->context, flags, (size_t)buffer->bytes, adopted, &code);
    if (code != CL_SUCCESS)
        return tx_cl_check(code, "clCreateBuffer");
    tx_status status = TX_OK;
    if (host) {
        buffer->mapped = clEnqueueMapBuffer(context->compute, buffer->memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                            (size_t)buffer->bytes, 0, NULL, NULL, &code);
        status = tx_cl_check(code, "clEnqueueMapBuffer");
    } else {
        status = settle(context, buffer->memory);
    }
    if (status != TX_OK)
        clReleaseMemObject(buffer->memory);
    return status;
}

static tx_status make_buffer(tx_context *context, tx_memory_kind kind, int64_t bytes, bool host, void *adopted,
                             tx_buffer **out)
{
    if (bytes <= 0)
        return tx_fail(TX_INVALID, "an allocation of %" PRId64 " bytes", bytes);
    if (bytes > context->limits.max_allocation)
        return tx_fail(TX_MEMORY, "it gives at most %" PRId64 " bytes in one allocation, %" PRId64 " were asked for",
                       context->limits.max_allocation, bytes);
    tx_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return tx_fail(TX_MEMORY, "out of host memory");
    buffer->kind = kind;
    buffer->bytes = bytes;
    tx_status status = make_memory(context, host, adopted, buffer);
    if (status != TX_OK) {
        free(buffer);
        return tx_fail_in(status, "%" PRId64 " bytes of %s for %s", bytes, host ? "host memory" : "memory",
                          tx_memory_name(kind));
    }
    context->held.bytes[kind] += bytes;
    context->traffic.allocations++;
    *out = buffer;
    return TX_OK;
}

tx_status tx_cl_allocate(tx_context *context, tx_memory_kind kind, int64_t bytes, bool host, tx_buffer **buffer)
{
    return make_buffer(context, kind, bytes, host, NULL, buffer);
}

tx_status tx_cl_adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer)
{
    return make_buffer(context, kind, bytes, true, memory, buffer);
}

void tx_cl_release(tx_context *context, tx_buffer *buffer)
{
    if (!buffer)
        return;
    if (buffer->mapped)
        clEnqueueUnmapMemObject(context->compute, buffer->memory, buffer->mapped, 0, NULL, NULL);
    clFinish(context->compute);
    clReleaseMemObject(buffer->memory);
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
        return tx_fail(TX_INTERNAL, "a copy of bytes %" PRId64 " to %" PRId64 " of a buffer of %" PRId64, offset,
                       offset + bytes, buffer->bytes);
    return TX_OK;
}

/* Host buffers are the host's own memory: once the queue is empty they are plain memory. */
static tx_status host_address(tx_context *context, const tx_buffer *buffer, int64_t offset, void **address)
{
    *address = buffer->mapped ? (char *)buffer->mapped + offset : NULL;
    return buffer->mapped ? tx_cl_finish(context) : TX_OK;
}

tx_status tx_cl_write(tx_context *context, tx_buffer *to, int64_t offset, const void *data, int64_t bytes)
{
    tx_status status = check_range(to, offset, bytes);
    if (status != TX_OK || bytes == 0)
        return status;
    void *host;
    status = host_address(context, to, offset, &host);
    if (status != TX_OK)
        return status;
    if (host) {
        memmove(host, data, (size_t)bytes);
        return TX_OK;
    }
    context->traffic.to_device += bytes;
    return tx_cl_check(clEnqueueWriteBuffer(context->compute, to->memory, CL_FALSE, (size_t)offset, (size_t)bytes, data,
                                            0, NULL, NULL),
                       "clEnqueueWriteBuffer");
}

/* Reads with an event, or waiting when `event` is NULL. */
static tx_status start_read(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes,
                            cl_event *event)
{
    context->traffic.from_device += bytes;
    return tx_cl_check(clEnqueueReadBuffer(context->compute, from->memory, event ? CL_FALSE : CL_TRUE, (size_t)offset,
                                           (size_t)bytes, data, 0, NULL, event),
                       "clEnqueueReadBuffer");
}

tx_status tx_cl_read(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    tx_status status = check_range(from, offset, bytes);
    if (status != TX_OK || bytes == 0)
        return status;
    void *host;
    status = host_address(context, from, offset, &host);
    if (status != TX_OK)
        return status;
    if (host) {
        memmove(data, host, (size_t)bytes);
        return TX_OK;
    }
    return start_read(context, from, offset, data, bytes, NULL);
}

tx_status tx_cl_read_begin(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes,
                           tx_reading **reading)
{
    cl_event event = NULL;
    tx_status status = check_range(from, offset, bytes);
    if (status == TX_OK && (from->mapped || bytes == 0))
        status = tx_fail(TX_INTERNAL, "an asynchronous read of nothing, or from host memory");
    if (status == TX_OK)
        status = start_read(context, from, offset, data, bytes, &event);
    if (status != TX_OK)
        return status;
    status = tx_cl_check(clFlush(context->compute), "clFlush");
    if (status == TX_OK)
        *reading = (tx_reading *)event;
    else
        clReleaseEvent(event);
    return status;
}

tx_status tx_cl_read_wait(tx_context *context, tx_reading *reading)
{
    (void)context;
    cl_event event = (cl_event)reading;
    if (!event)
        return tx_fail(TX_INTERNAL, "nothing is being read");
    cl_int code = clWaitForEvents(1, &event);
    clReleaseEvent(event);
    return tx_cl_check(code, "waiting for a copy from the device");
}

tx_status tx_cl_fill_bytes(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes)
{
    tx_status status = check_range(to, offset, bytes);
    if (status != TX_OK || bytes == 0)
        return status;
    void *host;
    status = host_address(context, to, offset, &host);
    if (status != TX_OK)
        return status;
    if (host) {
        memset(host, value, (size_t)bytes);
        return TX_OK;
    }
    uint8_t pattern[16];
    memset(pattern, value, sizeof pattern);
    size_t size = offset % 16 == 0 && bytes % 16 == 0 ? 16 : 1; /* wide stores where the range allows them */
    return tx_cl_check(
        clEnqueueFillBuffer(context->compute, to->memory, pattern, size, (size_t)offset, (size_t)bytes, 0, NULL, NULL),
        "clEnqueueFillBuffer");
}

tx_status tx_cl_finish(tx_context *context)
{
    return tx_cl_check(clFinish(context->compute), "clFinish");
}
