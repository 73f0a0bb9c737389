/* SPDX-License-Identifier: Apache-2.0
 * Trials of candidates: the proof and the measurement of a single command. */
#include "backends/opencl/tune/tuner.h"

#include <math.h>

#define TIMED_RUNS 5
#define TIMED_SECONDS 0.25

tx_status tx_cl_trial_prove(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe)
{
    tx_probe_run run;
    tx_status status = tx_probe_open(&run, context->plain, context, probe, forced);
    TX_THEN(status, tx_prove(&run, &context->reference));
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
    tx_status status = tx_probe_open(&run, context->plain, context, probe, forced);
    TX_THEN(status, measure(context, &run, seconds));
    tx_probe_close(&run);
    return status;
}
