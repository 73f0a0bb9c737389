/* SPDX-License-Identifier: Apache-2.0
 * Running programs: every launch by itself, timed where the caller asks. */
#include "backends/opencl/internal.h"

#include "api/graph/op.h"

#define FLUSH_EVERY 64

static tx_status enqueue(const tx_executable *x, int32_t index, cl_event *event)
{
    const tx_cl_step *s = &x->steps[index];
    cl_int code = clEnqueueNDRangeKernel(x->context->compute, s->kernel, s->dims, NULL, s->global,
                                         s->has_local ? s->local : NULL, 0, NULL, event);
    return tx_cl_check(code, "clEnqueueNDRangeKernel");
}

static tx_status run_command(const tx_executable *x, const tx_cl_command *c, const tx_cl_run *run)
{
    for (int32_t i = c->first; i < c->first + c->count; i++) {
        const tx_cl_step *s = &x->steps[i];
        tx_status status = s->fn ? s->fn(run, s->data) : enqueue(x, i, NULL);
        if (status != TX_OK)
            return status;
    }
    return TX_OK;
}

/* Launches are timed by their events; a call on the host by the clock, between two waits. */
static tx_status run_timed(const tx_executable *x, const tx_cl_command *c, const tx_cl_run *run, double *seconds)
{
    tx_status status = TX_OK;
    for (int32_t i = c->first; status == TX_OK && i < c->first + c->count; i++) {
        const tx_cl_step *s = &x->steps[i];
        if (!s->fn) {
            status = enqueue(x, i, &x->events[i]);
            continue;
        }
        status = tx_cl_finish(x->context);
        double start = tx_cl_now();
        if (status == TX_OK)
            status = s->fn(run, s->data);
        if (status == TX_OK)
            status = tx_cl_finish(x->context);
        *seconds += tx_cl_now() - start;
    }
    return status;
}

static double event_seconds(cl_event event)
{
    cl_ulong start = 0, end = 0;
    if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) != CL_SUCCESS ||
        clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) != CL_SUCCESS || end < start)
        return 0;
    return 1e-9 * (double)(end - start);
}

static tx_status collect_times(tx_executable *x, int32_t first, int32_t count, double *seconds)
{
    tx_status status = tx_cl_finish(x->context);
    for (int32_t i = first; i < first + count; i++) {
        const tx_cl_command *c = &x->commands[i];
        for (int32_t s = c->first; s < c->first + c->count; s++) {
            if (!x->events[s])
                continue;
            seconds[i] += event_seconds(x->events[s]);
            clReleaseEvent(x->events[s]);
            x->events[s] = NULL;
        }
    }
    return status;
}

tx_status tx_cl_run_program(tx_executable *x, int32_t first, int32_t count, const tx_controls *controls,
                            double *seconds)
{
    if (!x->bound)
        return tx_fail(TX_INTERNAL, "a program was run before it was bound");
    if (first < 0 || count < 0 || first > x->length - count)
        return tx_fail(TX_INTERNAL, "commands %d to %d of a program of %d", first, first + count, x->length);
    if (seconds && !x->events)
        return tx_fail(TX_INVALID, "times need a device that was opened with profile");
    const tx_cl_run run = {
        .context = x->context, .queue = x->context->compute, .controls = controls, .memory = x->memory};
    tx_status status = TX_OK;
    int32_t pending = 0;
    for (int32_t i = first; status == TX_OK && i < first + count; i++) {
        const tx_cl_command *c = &x->commands[i];
        status = seconds ? run_timed(x, c, &run, &seconds[i]) : run_command(x, c, &run);
        if (status != TX_OK) {
            tx_fail_in(status, "%s", tx_op_info_of(c->op)->name);
            break;
        }
        x->context->traffic.launches += c->launches;
        pending += c->count;
        if (pending >= FLUSH_EVERY) {
            pending = 0;
            status = tx_cl_check(clFlush(x->context->compute), "clFlush");
        }
    }
    if (seconds) {
        tx_status waited = collect_times(x, first, count, seconds);
        return status == TX_OK ? waited : status;
    }
    return status == TX_OK ? tx_cl_check(clFlush(x->context->compute), "clFlush") : status;
}
