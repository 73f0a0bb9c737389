/* SPDX-License-Identifier: Apache-2.0
 * Checks the checker: the harness must detect planted errors, and references must agree with themselves.
 */
#include "api/graph/op.h"
#include "tests/ops/check.h"
#include "tests/ops/mock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*reporter)(void *user, const char *fault, bool caught, const char *how);

/* Ops of every kind: element-wise, contraction, with scratch, in place, accumulating. */
static const tx_op victims[] = {TX_OP_ADD, TX_OP_MATMUL, TX_OP_LAYER_NORM_GRAD, TX_OP_ADAMW, TX_OP_CROSS_ENTROPY_GRAD};

/* A case of an op that is neither tiny nor has open elements: its sixth. */
static const tx_case *victim_case(tx_op op, tx_cases *list)
{
    memset(list, 0, sizeof *list);
    tx_descriptor_of(op)->cases(list);
    return &list->item[5];
}

static tx_status plant_fault(tx_fault fault, tx_op op, tx_cases *list, tx_outcome *outcome)
{
    tx_target target = {.backend = &tx_backend_mock};
    TX_TRY(tx_mock_open(fault, &target.context));
    tx_check_case(&target, op, victim_case(op, list), outcome);
    tx_backend_mock.close(target.context);
    return TX_OK;
}

static tx_status try_faults(tx_cases *list, reporter report, void *user, bool *all)
{
    for (int f = TX_FAULT_OFF; f < TX_FAULT_COUNT; f++)
        for (size_t v = 0; v < sizeof victims / sizeof victims[0]; v++) {
            tx_outcome outcome;
            char what[128];
            TX_TRY(plant_fault((tx_fault)f, victims[v], list, &outcome));
            snprintf(what, sizeof what, "%s: %s", tx_op_info_of(victims[v])->name, tx_fault_text((tx_fault)f));
            report(user, what, !outcome.passed, outcome.failure);
            *all = *all && !outcome.passed;
        }
    return TX_OK;
}

/* The references as kernels must pass every case: detects a harness that rejects correct results. */
static tx_status try_none(reporter report, void *user, bool *all)
{
    tx_target target = {.backend = &tx_backend_mock};
    tx_status status = tx_mock_open(TX_FAULT_NONE, &target.context);
    tx_conformance_options options = {.every = 4};
    for (int op = 0; op < TX_OP_KERNELS && !status; op++) {
        tx_verdict verdict;
        status = tx_conformance_op(&target, (tx_op)op, &options, &verdict);
        if (status)
            break;
        bool good = verdict.cases > 0 && verdict.passed == verdict.cases;
        char what[128];
        snprintf(what, sizeof what, "%s: right kernel accepted", verdict.op);
        report(user, what, good, verdict.failure);
        *all = *all && good;
    }
    if (target.context)
        tx_backend_mock.close(target.context);
    return status;
}

/* A case whose reference is all zeros proves nothing and must be refused. */
static tx_status try_idle_case(tx_cases *list, reporter report, void *user, bool *all)
{
    tx_case c = *victim_case(TX_OP_ADD, list);
    c.in[0].lo = c.in[0].hi = c.in[1].lo = c.in[1].hi = 0.0;
    tx_target target = {.backend = &tx_backend_mock};
    TX_TRY(tx_mock_open(TX_FAULT_NONE, &target.context));
    tx_outcome outcome;
    tx_check_case(&target, TX_OP_ADD, &c, &outcome);
    tx_backend_mock.close(target.context);
    report(user, "add: a case whose result is zero", !outcome.passed, outcome.failure);
    *all = *all && !outcome.passed;
    return TX_OK;
}

tx_status tx_conformance_selftest(reporter report, void *user)
{
    bool all = true;
    tx_cases *list = calloc(1, sizeof *list);
    if (!list)
        return tx_fail(TX_MEMORY, "conformance: no memory for a list of cases");
    tx_status status = try_none(report, user, &all);
    TX_THEN(status, try_faults(list, report, user, &all));
    TX_THEN(status, try_idle_case(list, report, user, &all));
    free(list);
    if (!status && !all)
        status = tx_fail(TX_INTERNAL, "the harness missed a planted fault or refused a right kernel");
    return status;
}
