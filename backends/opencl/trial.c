/* SPDX-License-Identifier: Apache-2.0
 * Trials of candidates: the proof and the measurement of a single command. */
#include "backends/opencl/internal.h"
#include "backends/opencl/tuner.h"

#include <math.h>

#define TIMED_RUNS 5
#define TIMED_SECONDS 0.25

/* The backend without explanations of failures: they become the reason why a candidate is switched off. */
static const tx_backend plain = {
    .name = "opencl",
    .allocate = tx_cl_allocate,
    .release = tx_cl_release,
    .write = tx_cl_write,
    .read = tx_cl_read,
    .finish = tx_cl_finish,
    .bind = tx_cl_bind,
    .run = tx_cl_run_program,
    .destroy = tx_cl_destroy,
};

tx_status tx_cl_trial_open(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe, tx_probe_run *run)
{
    int64_t scratch = 0;
    *run = tx_probe_begin(&plain, context, probe);
    TX_TRY(tx_cl_prepare_trial(context, forced, &run->program, &run->executable, &scratch));
    return context->survey ? tx_fail(TX_UNSUPPORTED, "a survey runs nothing") : tx_probe_load(run, scratch);
}

tx_status tx_cl_trial_prove(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe)
{
    tx_probe_run run;
    tx_status status = tx_cl_trial_open(context, forced, probe, &run);
    if (!status)
        status = tx_prove(&run, &context->reference);
    tx_probe_close(&run);
    return status;
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
    context->tune_spent += tx_cl_now() - first;
    if (!status)
        *seconds = best;
    return status;
}

tx_status tx_cl_trial_measure(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe, double *seconds)
{
    tx_probe_run run;
    tx_status status = tx_cl_trial_open(context, forced, probe, &run);
    if (!status)
        status = measure(context, &run, seconds);
    tx_probe_close(&run);
    return status;
}
