/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits. Drivers of NVIDIA and Intel occupy a processor in clFinish and clWaitForEvents, and no driver ends them if a
 * kernel hangs. So TX asks for the state of an event and sleeps in between. Drivers of CPU devices wait well, and
 * their kernels may take long.
 */
#include "backends/opencl/runtime/internal.h"

#include <stdio.h>
#include <time.h>

#define SPIN_SECONDS 1e-4 /* a sleep takes about as long */
#define SHARE (1.0 / 64)  /* of the time so far: the most that a sleep adds to a wait */
#define LONGEST_SLEEP 2e-3

/* CL_COMPLETE, a positive state, or a negative error code. */
static cl_int state_of(cl_event event)
{
    cl_int state = CL_COMPLETE;
    const cl_int code = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return code == CL_SUCCESS ? state : code;
}

/* Releases the beats that were reached. Returns true if there were any. */
static bool pass_beats(tx_context *context)
{
    tx_cl_beats *b = &context->beats;
    bool passed = false;
    while (b->count > 0 && state_of(b->beat[b->first].event) <= CL_COMPLETE) {
        clReleaseEvent(b->beat[b->first].event);
        b->first = (b->first + 1) % TX_CL_BEATS;
        b->count--;
        passed = true;
    }
    return passed;
}

void tx_cl_drop_beats(tx_context *context)
{
    tx_cl_beats *b = &context->beats;
    for (; b->count > 0; b->count--, b->first = (b->first + 1) % TX_CL_BEATS)
        clReleaseEvent(b->beat[b->first].event);
}

tx_status tx_cl_beat(tx_context *context, const char *first, const char *last)
{
    tx_cl_beats *b = &context->beats;
    if (context->limits.patience == 0)
        return TX_OK;
    pass_beats(context);
    if (b->count == TX_CL_BEATS)
        return TX_OK;
    tx_cl_interval *made = &b->beat[(b->first + b->count) % TX_CL_BEATS];
    *made = (tx_cl_interval){.first = first, .last = last};
    TX_TRY(tx_cl_check(clEnqueueMarkerWithWaitList(context->compute, 0, NULL, &made->event),
                       "clEnqueueMarkerWithWaitList"));
    b->count++;
    return TX_OK;
}

static cl_int give_up(tx_context *context, const char *what)
{
    const tx_cl_beats *b = &context->beats;
    char between[160] = "the last kernels";
    if (b->count > 0)
        snprintf(between, sizeof between, "a kernel from %s to %s", b->beat[b->first].first, b->beat[b->first].last);
    context->hung = true;
    snprintf(context->lost, sizeof context->lost,
             "%.160s did not end within %d seconds (TX_OCL_TIMEOUT): the driver hangs, or the device is too slow",
             what ? what : between, context->limits.patience);
    return CL_DEVICE_NOT_AVAILABLE;
}

static cl_int poll_event(tx_context *context, cl_event event, const char *what)
{
    const double start = tx_cl_now();
    double progress = start;
    cl_int state;
    while ((state = state_of(event)) > CL_COMPLETE) {
        const double now = tx_cl_now(), share = (now - start) * SHARE;
        if (pass_beats(context))
            progress = now;
        if (context->limits.patience > 0 && now - progress > context->limits.patience)
            return give_up(context, what);
        if (now - start > SPIN_SECONDS)
            nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * (share < LONGEST_SLEEP ? share : LONGEST_SLEEP))},
                      NULL);
    }
    return state;
}

/* Returns true if the driver's own waits are used. */
static bool by_driver(const tx_context *context)
{
    return context->limits.cpu && context->limits.patience == 0;
}

cl_int tx_cl_wait_queue(tx_context *context, cl_command_queue queue, const char *what)
{
    cl_event event;
    if (context->hung)
        return CL_DEVICE_NOT_AVAILABLE;
    cl_int code = by_driver(context) ? CL_SUCCESS : clEnqueueMarkerWithWaitList(queue, 0, NULL, &event);
    if (!by_driver(context) && code == CL_SUCCESS) {
        code = clFlush(queue);
        code = code == CL_SUCCESS ? poll_event(context, event, what) : code;
        if (!context->hung)
            clReleaseEvent(event);
    }
    return code == CL_SUCCESS ? clFinish(queue) : code; /* it returns at once, with the code of a failed command */
}

cl_int tx_cl_wait_event(tx_context *context, cl_event event)
{
    if (context->hung)
        return CL_DEVICE_NOT_AVAILABLE;
    const cl_int code = by_driver(context) ? CL_SUCCESS : poll_event(context, event, NULL);
    return code == CL_SUCCESS ? clWaitForEvents(1, &event) : code;
}

/* Waits for both queues even if one fails, because the caller may free the destinations of their copies. */
tx_status tx_cl_finish(tx_context *context)
{
    const cl_int compute = tx_cl_wait_queue(context, context->compute, NULL),
                 transfer = tx_cl_wait_queue(context, context->transfer, "a copy");
    return tx_cl_check(compute != CL_SUCCESS ? compute : transfer, "clFinish");
}

bool tx_cl_is_alive(tx_context *context)
{
    cl_int code = CL_SUCCESS;
    if (context->lost[0])
        return false;
    cl_mem memory = clCreateBuffer(context->context, CL_MEM_READ_WRITE, TX_ALIGNMENT, NULL, &code);
    if (code == CL_SUCCESS) {
        code = clEnqueueMigrateMemObjects(context->compute, 1, &memory, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                          NULL, NULL);
        clReleaseMemObject(memory);
    }
    return code == CL_SUCCESS && tx_cl_wait_queue(context, context->compute, NULL) == CL_SUCCESS;
}

bool tx_cl_is_refusal(cl_int code)
{
    return code == CL_OUT_OF_RESOURCES || code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY ||
           code == CL_INVALID_WORK_GROUP_SIZE || code == CL_INVALID_WORK_ITEM_SIZE;
}

cl_int tx_cl_enqueue(tx_context *context, cl_kernel kernel, cl_uint dims, const size_t *global, const size_t *local,
                     cl_event *event)
{
    cl_int code = CL_SUCCESS;
    for (int attempt = 0; attempt < 2; attempt++) {
        code = clEnqueueNDRangeKernel(context->compute, kernel, dims, NULL, global, local, 0, NULL, event);
        if (!tx_cl_is_refusal(code) ||
            (attempt == 0 && tx_cl_wait_queue(context, context->compute, NULL) != CL_SUCCESS))
            break;
    }
    return code;
}
