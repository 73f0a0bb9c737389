/* SPDX-License-Identifier: Apache-2.0
 * Copies through OpenCL that can be timed. Copies from and to the host use a context of the one device; those between
 * two devices a context of all the platform's devices that the topology has. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue */
#include "api/base/clock.h"
#include "comm/topology/copy.h"
#include "comm/topology/sources.h"

#include <CL/cl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLATFORMS_MAX 32
#define DEVICES_MAX 256

/* A device of the topology, by the same index. */
typedef struct seat {
    cl_device_id id; /* NULL: no OpenCL device */
    cl_context context;
    cl_command_queue queue, shared; /* in its own context, and in the platform's */
} seat;

struct tx_topo_cl {
    const tx_topology *t;
    seat seats[TX_TOPO_DEVICES_MAX];
    cl_context shared[PLATFORMS_MAX];
};

struct tx_topo_cl_way {
    size_t bytes;
    bool between;              /* in one context */
    cl_command_queue from, to; /* of the devices; NULL for the host */
    cl_mem source, target;
    cl_mem pinned; /* what `host` is mapped from, by `pinner`; NULL: `host` is malloc's */
    cl_command_queue pinner;
    void *host;
};

static tx_status check(cl_int code, const char *call)
{
    return code == CL_SUCCESS ? TX_OK : tx_fail(TX_IO, "%s: OpenCL error %d", call, code);
}

/* ---- Devices ------------------------------------------------------------------------------------------ */

tx_status tx_topo_cl_open(const tx_topology *topology, tx_topo_cl **cl)
{
    tx_topo_cl_device *all = NULL;
    int32_t count = 0;
    tx_status status = tx_topo_cl_list(&all, &count);
    if (status && status != TX_NOT_FOUND)
        return status;
    tx_topo_cl *made = calloc(1, sizeof *made);
    for (int32_t i = 0; made && i < topology->device_count; i++)
        for (int32_t k = 0; k < count; k++)
            if (topology->devices[i].platform == all[k].platform && topology->devices[i].device == all[k].device)
                made->seats[i].id = all[k].id;
    free(all);
    if (!made)
        return tx_fail(TX_MEMORY, "OpenCL devices: out of memory");
    made->t = topology;
    *cl = made;
    return TX_OK;
}

void tx_topo_cl_close(tx_topo_cl *cl)
{
    if (!cl)
        return;
    for (int32_t i = 0; i < cl->t->device_count; i++) {
        seat *s = &cl->seats[i];
        if (s->queue)
            clReleaseCommandQueue(s->queue);
        if (s->shared)
            clReleaseCommandQueue(s->shared);
        if (s->context)
            clReleaseContext(s->context);
    }
    for (int i = 0; i < PLATFORMS_MAX; i++)
        if (cl->shared[i])
            clReleaseContext(cl->shared[i]);
    free(cl);
}

/* The device's queue: in its own context, or in the one of its platform's devices. Made when first asked for. */
static tx_status find_queue(tx_topo_cl *cl, int32_t device, bool shared, cl_command_queue *queue)
{
    seat *s = &cl->seats[device];
    const int32_t platform = cl->t->devices[device].platform;
    cl_context *context = shared ? &cl->shared[platform] : &s->context;
    cl_command_queue *place = shared ? &s->shared : &s->queue;
    cl_device_id ids[DEVICES_MAX];
    cl_uint count = 0;
    cl_int code = CL_SUCCESS;
    if (!s->id)
        return tx_fail(TX_NOT_FOUND, "%s: is no OpenCL device now", cl->t->devices[device].label);
    for (int32_t i = 0; i < cl->t->device_count && count < DEVICES_MAX; i++)
        if (cl->seats[i].id && (i == device || (shared && cl->t->devices[i].platform == platform)))
            ids[count++] = cl->seats[i].id;
    if (!*context)
        *context = clCreateContext(NULL, count, ids, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return check(code, shared ? "clCreateContext for all devices of the platform" : "clCreateContext");
    if (!*place)
        *place = clCreateCommandQueue(*context, s->id, 0, &code);
    *queue = *place;
    return check(code, "clCreateCommandQueue");
}

/* ---- Buffers ----------------------------------------------------------------------------------------------- */

static tx_status make_buffer(cl_command_queue queue, cl_mem_flags flags, size_t bytes, cl_mem *buffer)
{
    cl_context context = NULL;
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
    if (code == CL_SUCCESS)
        *buffer = clCreateBuffer(context, flags, bytes, NULL, &code);
    return check(code, "clCreateBuffer");
}

static tx_status make_host(tx_topo_cl_way *way, cl_command_queue queue, bool pinned, size_t bytes)
{
    cl_int code = CL_SUCCESS;
    tx_status status = TX_OK;
    if (pinned) {
        status = make_buffer(queue, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, &way->pinned);
        if (!status) {
            way->pinner = queue;
            way->host = clEnqueueMapBuffer(queue, way->pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL,
                                           NULL, &code);
            status = check(code, "clEnqueueMapBuffer");
        }
    } else if (!(way->host = malloc(bytes)))
        status = tx_fail(TX_MEMORY, "%zu bytes of host memory: out of memory", bytes);
    if (!status)
        memset(way->host, 1, bytes);
    return status;
}

/* Buffers of a device get their memory when something is written there. */
static tx_status fill(cl_command_queue queue, cl_mem buffer, size_t bytes)
{
    const cl_uint pattern = 0x01020304;
    tx_status status = check(clEnqueueFillBuffer(queue, buffer, &pattern, sizeof pattern, 0, bytes, 0, NULL, NULL),
                             "clEnqueueFillBuffer");
    return status ? status : check(clFinish(queue), "clFinish");
}

static tx_status prepare(tx_topo_cl *cl, const tx_topo_copy *copy, size_t bytes, tx_topo_cl_way *way)
{
    const bool shared = copy->method == TX_TOPO_METHOD_ONE_CONTEXT;
    tx_status status = TX_OK;
    if (copy->from >= 0)
        status = find_queue(cl, copy->from, shared, &way->from);
    if (!status && copy->to >= 0)
        status = find_queue(cl, copy->to, shared, &way->to);
    if (!status && way->from)
        status = make_buffer(way->from, CL_MEM_READ_WRITE, bytes, &way->source);
    if (!status && way->to)
        status = make_buffer(way->to, CL_MEM_READ_WRITE, bytes, &way->target);
    if (!status && !shared)
        status = make_host(way, way->from ? way->from : way->to, copy->method != TX_TOPO_METHOD_PAGEABLE, bytes);
    if (!status && way->from)
        status = fill(way->from, way->source, bytes);
    if (!status && way->to)
        status = fill(way->to, way->target, bytes);
    return status;
}

tx_status tx_topo_cl_way_open(tx_topo_cl *cl, const tx_topo_copy *copy, size_t bytes, tx_topo_cl_way **way)
{
    tx_topo_cl_way *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "a copy: out of memory");
    made->bytes = bytes;
    made->between = copy->method == TX_TOPO_METHOD_ONE_CONTEXT;
    tx_status status = prepare(cl, copy, bytes, made);
    if (status)
        tx_topo_cl_way_close(made);
    else
        *way = made;
    return status;
}

void tx_topo_cl_way_close(tx_topo_cl_way *way)
{
    if (!way)
        return;
    if (way->pinned && way->host) {
        clEnqueueUnmapMemObject(way->pinner, way->pinned, way->host, 0, NULL, NULL);
        clFinish(way->pinner);
    } else
        free(way->host);
    if (way->pinned)
        clReleaseMemObject(way->pinned);
    if (way->source)
        clReleaseMemObject(way->source);
    if (way->target)
        clReleaseMemObject(way->target);
    free(way);
}

/* ---- Running -------------------------------------------------------------------------------------------------- */

/* Into the host's memory, out of it, or both; between two devices of a context where there is no such memory. */
static tx_status run(const tx_topo_cl_way *w)
{
    tx_status status = TX_OK;
    if (w->between)
        status = check(clEnqueueCopyBuffer(w->to, w->source, w->target, 0, 0, w->bytes, 0, NULL, NULL),
                       "clEnqueueCopyBuffer");
    else if (w->from)
        status = check(clEnqueueReadBuffer(w->from, w->source, CL_TRUE, 0, w->bytes, w->host, 0, NULL, NULL),
                       "clEnqueueReadBuffer");
    if (!status && w->to && !w->between) /* a blocking write may end when the bytes are staged */
        status = check(clEnqueueWriteBuffer(w->to, w->target, CL_FALSE, 0, w->bytes, w->host, 0, NULL, NULL),
                       "clEnqueueWriteBuffer");
    if (!status && w->to)
        status = check(clFinish(w->to), "clFinish");
    return status;
}

tx_status tx_topo_cl_way_run(tx_topo_cl_way *way, double *seconds)
{
    /* A context keeps copies of a buffer on several devices: after the first run the source would be there already.
     * Writing it anew makes the source's device the only one that has it. */
    tx_status status = way->between ? fill(way->from, way->source, way->bytes) : TX_OK;
    double start = tx_now();
    TX_THEN(status, run(way));
    if (!status)
        *seconds = tx_now() - start;
    return status;
}
