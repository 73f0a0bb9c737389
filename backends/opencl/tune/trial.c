/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the known-answer test and the measurement of a candidate with a single command.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TIMED_RUNS 5
#define TIMED_SECONDS 0.25

const tx_backend tx_cl_plain = {
    .name = "opencl",
    .allocate = tx_cl_allocate,
    .release = tx_cl_release,
    .write = tx_cl_write,
    .read = tx_cl_read,
    .finish = tx_cl_finish,
    .prepare = tx_cl_prepare,
    .bind = tx_cl_bind,
    .run = tx_cl_run_program,
    .destroy = tx_cl_destroy,
};

#define SPILL_MEM_SIZE_INTEL \
    0x4109 /* of cl_intel_required_subgroup_size: on Intel devices private memory is not only spilled registers */

static int64_t private_bytes(const tx_context *context, cl_kernel kernel)
{
    const bool intel = context->can.vendor == TX_CL_INTEL;
    cl_ulong bytes = 0;
    clGetKernelWorkGroupInfo(kernel, context->device, intel ? SPILL_MEM_SIZE_INTEL : CL_KERNEL_PRIVATE_MEM_SIZE,
                             sizeof bytes, &bytes, NULL);
    return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

/* Returns true if private memory means spilled registers. It does not if the driver reports private memory for a
 * kernel that needs hardly any registers. */
static bool tells_spills(tx_context *context)
{
    tx_cl_tuner *tuner = context->tuner;
    cl_kernel plain = NULL;
    if (!tuner->asked_spills && tx_cl_kernel(context, TX_CL_PLAIN, NULL, TX_CL_PLAIN_KERNEL, &plain) == TX_OK) {
        tuner->tells_spills = private_bytes(context, plain) == 0;
        clReleaseKernel(plain);
    }
    tuner->asked_spills = true;
    return tuner->tells_spills;
}

/* Records the largest private memory of a launched kernel. Candidate kernels declare none, so it consists of
 * spilled registers. */
static void note_spills(tx_context *context, const tx_executable *x)
{
    const tx_cl_command *c = &x->commands[0];
    for (int32_t i = 0; i < c->step_count && !context->limits.cpu; i++) {
        const int64_t bytes = c->steps[i].kernel ? private_bytes(context, c->steps[i].kernel) : 0;
        if (bytes > context->tuner->spilled && tells_spills(context))
            context->tuner->spilled = bytes;
    }
}

/* Fails if a trial of the candidate failed in an earlier start, or candidates whose names differ from its name only in
 * numbers: drivers fail on a kind of kernel. */
static tx_status check_earlier(const tx_context *context, const tx_cl_forced *forced)
{
    char name[TX_CL_JOURNAL_NAME];
    if (!forced)
        return TX_OK;
    snprintf(name, sizeof name, "%.40s %.60s, ", forced->begins, forced->name);
    const size_t kind = strlen(forced->begins);
    return tx_cl_journal_check(context, name, kind + strcspn(name + kind, "0123456789"));
}

/* After a failed trial: if it destroyed the OpenCL context, makes another. The message stays that of the trial. */
static tx_status recover(tx_context *context, tx_status status)
{
    char why[640];
    if (status == TX_OK || status == TX_UNSUPPORTED || !context->lost[0])
        return status;
    snprintf(why, sizeof why, "%s; %s", context->lost, tx_error());
    (void)tx_cl_renew(context);
    return tx_fail(TX_DEVICE, "%s", why);
}

tx_status tx_cl_want_candidate(const tx_cl_builder *b, const tx_cl_forced *forced, const tx_command *command)
{
    tx_cl_builder own = {.context = b->context, .limits = b->limits, .forced = forced};
    tx_cl_command c = {.asked = *command};
    TX_TRY(check_earlier(b->context, forced));
    const tx_status status = tx_cl_emit(&own, &c);
    tx_cl_clear(b->context, &c);
    return status;
}

tx_status tx_cl_verify_candidate(const tx_cl_builder *b, const tx_cl_forced *forced, const tx_probe *probe)
{
    tx_context *context = b->context;
    tx_probe_run run;
    if (b->ahead)
        return tx_cl_want_candidate(b, forced, &probe->command);
    TX_TRY(check_earlier(context, forced));
    tx_status status = tx_probe_open(&run, &tx_cl_plain, context, probe, forced);
    if (!status)
        note_spills(context, run.executable);
    TX_THEN(status, tx_verify(&run, &context->tuner->reference));
    tx_probe_close(&run);
    return recover(context, status);
}

static tx_status measure(tx_context *context, const tx_probe_run *run, double *seconds)
{
    tx_status status = tx_probe_launch(run); /* the first run compiles and warms up */
    const double first = tx_cl_now();
    double best = INFINITY;
    for (int i = 0; i < TIMED_RUNS && !status && (i == 0 || tx_cl_now() - first < TIMED_SECONDS); i++) {
        const double start = tx_cl_now();
        status = tx_probe_launch(run);
        best = fmin(best, tx_cl_now() - start);
    }
    context->tuner->spent += tx_cl_now() - first;
    if (!status)
        *seconds = best;
    return status;
}

tx_status tx_cl_measure_candidate(const tx_cl_builder *b, const tx_cl_forced *forced, const tx_probe *probe,
                                  double *seconds)
{
    tx_context *context = b->context;
    tx_probe_run run;
    if (b->ahead)
        return tx_cl_want_candidate(b, forced, &probe->command);
    tx_status status = tx_probe_open(&run, &tx_cl_plain, context, probe, forced);
    TX_THEN(status, measure(context, &run, seconds));
    tx_probe_close(&run);
    return recover(context, status);
}
