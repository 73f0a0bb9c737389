/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs programs launch by launch, and times commands on request.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/graph/op.h"
#include "backends/opencl/runtime/select.h"

#include <stdio.h>

#define FLUSH_EVERY 64

static tx_status call(const tx_executable *x, const tx_cl_step *s, const tx_cl_run *run, double *seconds)
{
    tx_status status = seconds ? tx_cl_finish(x->context) : TX_OK;
    const double start = tx_cl_now();
    TX_THEN(status, s->fn(run, s->data));
    TX_THEN(status, seconds ? tx_cl_finish(x->context) : TX_OK);
    if (seconds)
        *seconds += tx_cl_now() - start;
    return status;
}

/* Launches a kernel. Sets *refused if the driver refuses it. */
static tx_status launch(const tx_executable *x, const tx_cl_step *s, cl_event *event, bool *refused)
{
    const cl_int code = tx_cl_enqueue(x->context, s->kernel, s->dims, s->global, s->has_local ? s->local : NULL, event);
    *refused = tx_cl_is_refusal(code);
    if (code == CL_SUCCESS && s->doubted)
        x->context->driver.groups = TX_CL_WRONG;
    return tx_cl_check(code, "clEnqueueNDRangeKernel");
}

/* Runs a step for the first time: with an entry in the journal, and without other work in the queue. The
 * entry of a trial begins with the name of its candidate. */
static tx_status run_first(const tx_executable *x, const tx_cl_step *s, const tx_cl_run *run, bool *refused)
{
    tx_context *context = x->context;
    char kernel[128], name[TX_CL_JOURNAL_NAME];
    tx_cl_step_entry(s, kernel, sizeof kernel);
    if (x->forced)
        snprintf(name, sizeof name, "%.40s %.60s, %s", x->forced->begins, x->forced->name, kernel);
    else
        snprintf(name, sizeof name, "%s", kernel);
    const int entry = tx_cl_journal_begin(context, name);
    tx_status status = s->fn ? s->fn(run, s->data) : launch(x, s, NULL, refused);
    TX_THEN(status, tx_cl_check(tx_cl_wait_queue(context, context->compute, name), name));
    const bool failed = status != TX_OK && !*refused && !tx_cl_is_alive(context);
    if (failed && !context->lost[0])
        snprintf(context->lost, sizeof context->lost, "%.200s destroyed the OpenCL context", name);
    tx_cl_journal_end(context, entry, failed);
    return status;
}

/* Runs a command. If the driver refuses a launch, uses a form with smaller work-groups from now on. Host calls are
 * timed by the clock between two waits, kernels by their events. */
static tx_status run_command(tx_executable *x, tx_cl_command *c, const tx_cl_run *run, double *seconds)
{
    tx_status status = TX_OK;
    bool refused = false;
    int32_t i = 0;
    for (; status == TX_OK && i < c->step_count; i++) {
        tx_cl_step *s = &c->steps[i];
        if (c->runs == 1 && !seconds)
            status = run_first(x, s, run, &refused);
        else if (s->fn)
            status = call(x, s, run, seconds);
        else
            status = launch(x, s, seconds ? &s->event : NULL, &refused);
    }
    if (refused)
        status = tx_cl_replace_refused(x, c, i > 1, status);
    return refused && status == TX_OK ? run_command(x, c, run, seconds) : status;
}

/* Runs a command. Its second run is timed if launches have a time limit, because compilers may work in the first.
 * If the rates of limits.c were too high for it, the command gets more launches from then on. */
static tx_status run_watched(tx_executable *x, tx_cl_command *c, const tx_cl_run *run, double *seconds)
{
    const bool watched = !seconds && tx_cl_is_watched(x, c);
    c->runs += c->runs < 2;
    tx_status status = watched ? tx_cl_finish(x->context) : TX_OK;
    const double start = tx_cl_now();
    TX_THEN(status, run_command(x, c, run, seconds));
    if (status != TX_OK || !watched || c->runs == 0) /* it was replaced */
        return status;
    status = tx_cl_finish(x->context);
    if (status == TX_OK)
        tx_cl_replace_slow(x, c, tx_cl_now() - start);
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

/* Adds the times of a command's launches, which are done. */
static void add_times(tx_cl_command *c, double *seconds)
{
    for (int32_t i = 0; i < c->step_count; i++) {
        tx_cl_step *s = &c->steps[i];
        if (!s->event)
            continue;
        *seconds += event_seconds(s->event);
        clReleaseEvent(s->event);
        s->event = NULL;
    }
}

static tx_status collect_times(tx_executable *x, int32_t first, int32_t count, double *seconds)
{
    tx_status status = tx_cl_finish(x->context);
    for (int32_t i = first; i < first + count; i++)
        add_times(&x->commands[i], &seconds[i]);
    return status;
}

static const char *op_name(const tx_executable *x, int32_t index)
{
    return tx_op_info_of(x->commands[index].asked.op)->name;
}

tx_status tx_cl_run_launches(tx_executable *x, int32_t first, int32_t count, const tx_controls *controls,
                             double *seconds)
{
    const tx_cl_run run = {
        .context = x->context, .queue = x->context->compute, .controls = controls, .memory = x->memory};
    tx_status status = TX_OK;
    int32_t pending = 0, since = first;
    for (int32_t i = first; status == TX_OK && i < first + count; i++) {
        tx_cl_command *c = &x->commands[i];
        status = run_watched(x, c, &run, seconds ? &seconds[i] : NULL);
        if (status != TX_OK) {
            tx_fail_in(status, "%s", op_name(x, i));
            break;
        }
        x->context->traffic.launches += c->launches;
        pending += c->step_count;
        if (pending >= FLUSH_EVERY) {
            pending = 0;
            status = tx_cl_beat(x->context, op_name(x, since), op_name(x, i));
            TX_THEN(status, tx_cl_check(clFlush(x->context->compute), "clFlush"));
            since = i + 1;
        }
    }
    if (seconds) {
        tx_status waited = collect_times(x, first, count, seconds);
        return status == TX_OK ? waited : status;
    }
    return status == TX_OK ? tx_cl_check(clFlush(x->context->compute), "clFlush") : status;
}

tx_status tx_cl_run_program(tx_executable *x, int32_t first, int32_t count, const tx_controls *controls,
                            double *seconds)
{
    const tx_cl_whole *whole = tx_cl_whole_of(x);
    bool done = false;
    if (!x->bound)
        return tx_fail(TX_INTERNAL, "bind the program before a run");
    if (first < 0 || count < 0 || first > x->length - count)
        return tx_fail(TX_INTERNAL, "commands %d to %d are outside a program of %d", first, first + count, x->length);
    if (seconds && !x->context->profile)
        return tx_fail(TX_INVALID, "to measure times, open the device with profile");
    if (whole && count > 0 && count == x->length && !seconds)
        TX_TRY(whole->run(x, controls, &done));
    return done ? TX_OK : tx_cl_run_launches(x, first, count, controls, seconds);
}
