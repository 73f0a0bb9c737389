/* SPDX-License-Identifier: Apache-2.0
 * The suite's front: devices, verdicts and timings by op. */
#include "tests/ops/conformance.h"
#include "api/graph/op.h"
#include "api/model/engine.h"
#include "tests/ops/check.h"
#include "tests/ops/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Devices ------------------------------------------------------------------------------------ */

tx_status tx_target_open(const char *device, const tx_open_options *options, tx_target *target)
{
    int32_t index = 0, local = 0;
    tx_target t = {0};
    tx_status status = tx_device_find(device, &index);
    TX_THEN(status, tx_device_locate(index, &t.backend, &local));
    TX_THEN(status, t.backend->device_info(local, &t.info));
    TX_THEN(status, t.backend->open(local, options, &t.context));
    if (!status)
        *target = t;
    return status;
}

void tx_target_close(tx_target *target)
{
    if (target->context)
        target->backend->close(target->context);
    target->context = NULL;
}

/* ---- Verdicts ----------------------------------------------------------------------------------- */

static tx_status cases_of(tx_op op, tx_cases **cases)
{
    tx_cases *list = calloc(1, sizeof *list);
    if (!list)
        return tx_fail(TX_MEMORY, "conformance: no memory for a list of cases");
    tx_descriptor_of(op)->cases(list);
    if (list->overflow || list->count == 0) {
        tx_status status =
            tx_fail(TX_INTERNAL, "%s has %s cases", tx_op_info_of(op)->name, list->overflow ? "too many" : "no");
        free(list);
        return status;
    }
    *cases = list;
    return TX_OK;
}

/* Adds a name to a list separated by commas, once, while there is room. */
static void add_name(char *names, size_t size, const char *name)
{
    size_t used = strlen(names), length = strlen(name);
    for (const char *at = names; length && (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
            return;
    if (length && used + length + 2 < size)
        snprintf(names + used, size - used, "%s%s", used ? "," : "", name);
}

static void judge(tx_op op, const tx_case *c, const tx_outcome *outcome, tx_verdict *verdict)
{
    const bool refused = outcome->refused && tx_descriptor_of(op)->may_refuse;
    verdict->cases += !refused;
    verdict->refused += refused;
    add_name(verdict->variants, sizeof verdict->variants, outcome->variant);
    if (!outcome->passed) {
        if (!verdict->failure[0])
            snprintf(verdict->failure, sizeof verdict->failure, "%s: %.900s", c->label, outcome->failure);
        return;
    }
    verdict->passed++;
    if (outcome->worst >= verdict->worst) {
        verdict->worst = outcome->worst;
        snprintf(verdict->worst_case, sizeof verdict->worst_case, "%s", c->label);
    }
}

#define SMALL 50000 /* elements of all operands */

/* Big cases are only timed. If no reference has to be computed, those of some 30 MB run as well, since small ones do
 * not use all threads. */
static bool left_out(const tx_case *c, const tx_conformance_options *options, int32_t index)
{
    int64_t elements = 0;
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        elements += c->in[i].dtype != TX_DTYPE_COUNT ? tx_shape_count(&c->in[i].shape) : 0;
    if (c->flags & TX_CASE_BENCH)
        return !options->peer || elements > 8000000;
    return (options->every && index % options->every != options->turn) || (options->small && elements > SMALL);
}

tx_status tx_conformance_op(const tx_target *target, tx_op op, const tx_conformance_options *options,
                            tx_verdict *verdict)
{
    tx_cases *list = NULL;
    TX_TRY(cases_of(op, &list));
    *verdict = (tx_verdict){.op = tx_op_info_of(op)->name};
    for (int32_t i = 0; i < list->count; i++) {
        const tx_case *c = &list->item[i];
        if (left_out(c, options, i))
            continue;
        tx_outcome outcome;
        if (options->peer)
            tx_check_same(target, options->peer, op, c, &outcome);
        else
            tx_check_case(target, op, c, &outcome);
        judge(op, c, &outcome, verdict);
        if (options->progress)
            options->progress(options->user, verdict->op, c->label, outcome.worst,
                              outcome.passed ? NULL : outcome.failure);
    }
    free(list);
    return TX_OK;
}

/* ---- Timings ------------------------------------------------------------------------------------ */

static tx_status time_case(tx_rig *rig, const tx_call *call, int32_t repeats, bool profiled, tx_timing *timing)
{
    const tx_timed_run run = {rig->target, rig->executable, TX_RIG_COMMAND, 1, &call->controls, profiled};
    tx_status status = tx_rig_upload(rig, call, 0);
    TX_THEN(status, tx_time_runs(&run, repeats, &timing->seconds, &timing->spread));
    if (!status)
        tx_timing_finish(rig->target, rig->executable, rig->program, TX_RIG_COMMAND, timing);
    return status;
}

tx_status tx_conformance_bench(const tx_target *target, tx_op op, int32_t repeats, bool profiled,
                               bool (*report)(void *user, const tx_timing *timing), void *user)
{
    tx_cases *list = NULL;
    tx_status status = cases_of(op, &list);
    bool more = true;
    for (int32_t i = 0; !status && more && i < list->count; i++) {
        const tx_case *c = &list->item[i];
        if (!(c->flags & TX_CASE_BENCH))
            continue;
        tx_timing timing = {.op = tx_op_info_of(op)->name};
        snprintf(timing.label, sizeof timing.label, "%s", c->label);
        tx_call call;
        tx_rig rig;
        status = tx_call_of_case(op, c, false, &call);
        if (status)
            break;
        status = tx_rig_create(target, &call, c, false, &rig);
        if (!status) {
            status = time_case(&rig, &call, repeats, profiled, &timing);
            tx_rig_free(&rig);
        }
        tx_call_free(&call);
        if (!status)
            more = report(user, &timing);
        else
            tx_fail_in(status, "%s %s", timing.op, c->label);
    }
    free(list);
    return status;
}
