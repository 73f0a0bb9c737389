/* SPDX-License-Identifier: Apache-2.0
 * Runs a case and compares with the reference. */
#include "tests/ops/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tolerances -------------------------------------------------------------------------------- */

/* The rounding error of fp32 is its epsilon times the magnitude of the terms. A sum of n terms has an error
 * proportional to the square root of n (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2, for
 * independent roundings). The constant 12 allows for the units in the last place that OpenCL grants to exp, tanh, erf
 * and division. */
double tx_check_rounding(double length)
{
    return ldexp(1.0, -24) * (12.0 + 2.0 * sqrt(length));
}

/* Below this a type cannot hold a value to its precision; devices may flush subnormal fp32 numbers to zero. */
static double smallest(tx_dtype dtype)
{
    return dtype == TX_F16 ? 0x1p-25 : 0x1p-126;
}

static double tolerance_of(const tx_array *expected, int64_t i, double length)
{
    double magnitude = expected->magnitude[i];
    if (magnitude == 0.0)
        return 0.0;
    return tx_check_rounding(length) * magnitude + tx_number_epsilon(expected->dtype) * fabs(expected->value[i]) +
           smallest(expected->dtype);
}

static tx_status wrong(const char *what, int64_t i, double got, double expected, double tolerance)
{
    return tx_fail(TX_INTERNAL, "%s: element %lld is %.9g, expected %.9g, error %.3g, tolerance %.3g", what,
                   (long long)i, got, expected, fabs(got - expected), tolerance);
}

/* Compares values of one storage type with the reference; updates *worst. `length` is the longest sum. */
static tx_status check_values(const char *what, const tx_array *expected, double length, const double *got,
                              double *worst)
{
    double error2 = 0.0, size2 = 0.0, expected2 = 0.0;
    for (int64_t i = 0; i < expected->count; i++) {
        double want = tx_number_round(expected->dtype, expected->value[i]),
               tolerance = tolerance_of(expected, i, length);
        if (isinf(expected->magnitude[i]))
            continue; /* open */
        if (isnan(want) || isinf(want)) {
            if (!(isnan(want) ? isnan(got[i]) : got[i] == want))
                return wrong(what, i, got[i], want, 0.0);
            continue;
        }
        double error = fabs(got[i] - (tolerance > 0.0 ? expected->value[i] : want));
        if (!(error <= tolerance))
            return wrong(what, i, got[i], want, tolerance);
        if (tolerance > 0.0)
            *worst = fmax(*worst, error / tolerance);
        error2 += error * error;
        size2 += expected->magnitude[i] * expected->magnitude[i] / length;
        expected2 += want * want;
    }
    /* Relative L2: errors that are all at their bound are no rounding errors. A sum of n terms of either sign is about
     * its magnitude / sqrt(n), if it does not happen to be larger. */
    double bound =
        1.5 * (tx_check_rounding(length) + tx_number_epsilon(expected->dtype)) * sqrt(fmax(size2, expected2)) +
        smallest(expected->dtype) * sqrt((double)expected->count);
    if (!(sqrt(error2) <= bound))
        return tx_fail(TX_INTERNAL, "%s: the error has norm %.3g, more than %.3g", what, sqrt(error2), bound);
    return TX_OK;
}

/* Is the result of the reference worth comparing with? Not when it is mostly zero, constant, NaN or open. */
static tx_status check_reference(const tx_call *call, uint32_t flags)
{
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        const tx_array *y = &call->out[o];
        if (!tx_array_present(y) || tx_descriptor_of(call->op)->work >> o & 1u || flags & TX_CASE_ZEROS || y->count < 8)
            continue;
        int64_t useful = 0, different = 0;
        for (int64_t i = 0; i < y->count; i++) {
            useful += isfinite(y->value[i]) && isfinite(y->magnitude[i]) && y->value[i] != 0.0;
            different += y->value[i] != y->value[0];
        }
        if (2 * useful < y->count || 2 * different < y->count)
            return tx_fail(TX_INTERNAL,
                           "the reference of output %d says little: %lld of %lld elements are of use, "
                           "%lld differ from the first: mend the case",
                           o, (long long)useful, (long long)y->count, (long long)different);
    }
    return TX_OK;
}

/* ---- Runs ---------------------------------------------------------------------------------------- */

static double length_of(const tx_call *call)
{
    const tx_descriptor *d = tx_descriptor_of(call->op);
    return d->length ? d->length(call) : 1.0;
}

static bool compared(const tx_rig *rig, int32_t o)
{
    return tx_present(&rig->program[TX_RIG_COMMAND].out[o]) && !(rig->work >> o & 1u);
}

static tx_status compare_results(const tx_rig *rig, const tx_call *call, double *worst)
{
    double got[TX_RESULT_COUNT];
    tx_number_decode(TX_F32, rig->image[TX_ARENA_RESULT][0].after, TX_RESULT_COUNT, got);
    tx_array expected = {.dtype = TX_F32,
                         .shape = TX_SHAPE(TX_RESULT_COUNT),
                         .count = TX_RESULT_COUNT,
                         .value = (double *)call->result,
                         .magnitude = (double *)call->result_magnitude};
    return check_values("results", &expected, 1.0, got, worst);
}

/* `call` after its reference has run. */
static tx_status compare(const tx_rig *rig, const tx_call *call, double *worst)
{
    tx_status status = tx_rig_check_untouched(rig);
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++) {
        if (!compared(rig, o))
            continue;
        char what[32];
        snprintf(what, sizeof what, "output %d", o);
        const tx_array *expected = &call->out[o];
        double *got = malloc((size_t)expected->count * sizeof *got);
        if (!got)
            return tx_fail(TX_MEMORY, "conformance: no memory for a result");
        tx_number_decode(expected->dtype, tx_rig_output(rig, o), expected->count, got);
        status = check_values(what, expected, length_of(call), got, worst);
        free(got);
    }
    if (!status && call->op == TX_OP_CLIP_NORM)
        status = compare_results(rig, call, worst);
    return status;
}

/* Bytes of the outputs that are compared, one after the other. */
static tx_status snapshot(const tx_rig *rig, uint8_t **bytes, int64_t *size)
{
    int64_t total = 1;
    for (int32_t o = 0; o < TX_MAX_OUT; o++)
        total += compared(rig, o) ? tx_operand_bytes(&rig->program[TX_RIG_COMMAND].out[o]) : 0;
    uint8_t *copy = calloc((size_t)total, 1);
    if (!copy)
        return tx_fail(TX_MEMORY, "conformance: no memory for a result");
    int64_t at = 0;
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        if (!compared(rig, o))
            continue;
        memcpy(copy + at, tx_rig_output(rig, o), (size_t)tx_operand_bytes(&rig->program[TX_RIG_COMMAND].out[o]));
        at += tx_operand_bytes(&rig->program[TX_RIG_COMMAND].out[o]);
    }
    *bytes = copy;
    *size = total;
    return TX_OK;
}

/* Elements that the contract leaves open may differ from run to run: both snapshots get zeros there. */
static void forget_open(const tx_rig *rig, const tx_call *reference, uint8_t *bytes)
{
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        if (!compared(rig, o))
            continue;
        int64_t size = (int64_t)tx_dtype_size(reference->out[o].dtype);
        for (int64_t i = 0; i < reference->out[o].count; i++)
            if (isinf(reference->out[o].magnitude[i]))
                memset(bytes + i * size, 0, (size_t)size);
        bytes += reference->out[o].count * size;
    }
}

/* The same call with other garbage in outputs and scratch must give the same bits. */
static tx_status run_again(tx_rig *rig, const tx_call *call, const tx_call *reference)
{
    uint8_t *first = NULL, *second = NULL;
    int64_t size = 0;
    tx_status status = snapshot(rig, &first, &size);
    TX_THEN(status, tx_rig_upload(rig, call, 0x7F7F7F7Fu));
    TX_THEN(status, tx_rig_run(rig, call));
    TX_THEN(status, snapshot(rig, &second, &size));
    if (!status) {
        forget_open(rig, reference, first);
        forget_open(rig, reference, second);
    }
    for (int64_t i = 0; i < size && !status; i++)
        if (first[i] != second[i])
            status =
                tx_fail(TX_INTERNAL, "a second run differs from the first at byte %lld of the outputs", (long long)i);
    free(first);
    free(second);
    return status;
}

/* One way to run a case. `call` is the untouched call, `reference` the same after the reference. */
static tx_status run_one(tx_rig *rig, const tx_call *call, const tx_call *reference, bool again, double *worst)
{
    tx_status status = tx_rig_upload(rig, call, 0xFFFFFFFFu);
    TX_THEN(status, tx_rig_run(rig, call));
    TX_THEN(status, compare(rig, reference, worst));
    if (!status && again)
        status = run_again(rig, call, reference);
    return status;
}

/* A case's call twice: as the device receives it, and after the reference. */
static tx_status both_calls(tx_op op, const tx_case *c, tx_call *call, tx_call *reference)
{
    tx_status status = tx_call_of_case(op, c, true, call);
    if (status)
        return status;
    status = tx_call_of_case(op, c, true, reference);
    TX_THEN(status, tx_call_reference(reference));
    TX_THEN(status, check_reference(reference, c->flags));
    if (status) {
        tx_call_free(call);
        tx_call_free(reference);
    }
    return status;
}

static tx_status check_all(const tx_target *target, tx_op op, const tx_case *c, tx_outcome *outcome)
{
    tx_call call, reference, other = {0}, other_reference = {0};
    tx_status status = both_calls(op, c, &call, &reference);
    if (status)
        return status;
    tx_rig rig;
    for (int in_place = 0; in_place < 2 && !status; in_place++) {
        if (in_place && !tx_rig_may_be_in_place(&call))
            break;
        status = tx_rig_create(target, &call, c, in_place, &rig);
        if (status)
            break;
        status = run_one(&rig, &call, &reference, true, &outcome->worst);
        if (!status && !in_place) { /* the same executable with other inputs and scalars: nothing may be left over */
            tx_command_info info = target->backend->command_info(rig.executable, TX_RIG_COMMAND);
            snprintf(outcome->variant, sizeof outcome->variant, "%s", info.variant ? info.variant : "");
            tx_case salted = *c;
            tx_case_salt(&salted);
            status = both_calls(op, &salted, &other, &other_reference);
            TX_THEN(status, run_one(&rig, &other, &other_reference, false, &outcome->worst));
            if (status)
                tx_fail_in(status, "with other inputs");
        } else if (status && in_place) {
            tx_fail_in(status, "in place");
        }
        tx_rig_free(&rig);
    }
    tx_call_free(&call);
    tx_call_free(&reference);
    tx_call_free(&other);
    tx_call_free(&other_reference);
    return status;
}

void tx_check_case(const tx_target *target, tx_op op, const tx_case *c, tx_outcome *outcome)
{
    *outcome = (tx_outcome){0};
    const tx_status status = check_all(target, op, c, outcome);
    outcome->passed = status == TX_OK;
    outcome->refused = status == TX_UNSUPPORTED;
    if (!outcome->passed)
        snprintf(outcome->failure, sizeof outcome->failure, "%s", tx_error());
}

/* ---- The same bits on two contexts --------------------------------------------------------------- */

static tx_status run_for_bits(const tx_target *target, const tx_case *c, const tx_call *call, uint8_t **bytes,
                              int64_t *size)
{
    tx_rig rig;
    tx_status status = tx_rig_create(target, call, c, false, &rig);
    if (status)
        return status;
    status = tx_rig_upload(&rig, call, 0xFFFFFFFFu);
    TX_THEN(status, tx_rig_run(&rig, call));
    TX_THEN(status, snapshot(&rig, bytes, size));
    tx_rig_free(&rig);
    return status;
}

void tx_check_same(const tx_target *target, const tx_target *peer, tx_op op, const tx_case *c, tx_outcome *outcome)
{
    tx_call call;
    uint8_t *mine = NULL, *theirs = NULL;
    int64_t size = 0;
    *outcome = (tx_outcome){0};
    tx_status status = tx_call_of_case(op, c, !(c->flags & TX_CASE_BENCH), &call);
    if (!status) {
        status = run_for_bits(target, c, &call, &mine, &size);
        TX_THEN(status, run_for_bits(peer, c, &call, &theirs, &size));
        tx_call_free(&call);
    }
    for (int64_t i = 0; i < size && !status; i++)
        if (mine[i] != theirs[i])
            status = tx_fail(TX_INTERNAL, "the outputs differ at byte %lld", (long long)i);
    free(mine);
    free(theirs);
    outcome->passed = !status;
    if (status)
        snprintf(outcome->failure, sizeof outcome->failure, "%s", tx_error());
}
