/* SPDX-License-Identifier: Apache-2.0
 * txbench ops: times the cases of the conformance suite. */
#include "api/graph/op.h"
#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"

#include <string.h>

typedef struct settings {
    tx_bench_common common;
    const char *op;
} settings;

static const tx_option options[] = {
    TX_BENCH_OPTIONS,
    {TX_OPTION_TEXT, "op", offsetof(settings, op), .choices = "NAME",
     .help = "measure only this op; api/ops.def has the names"},
};

static const settings defaults = {.common = TX_BENCH_DEFAULTS};

typedef struct context {
    tx_roofline *report;
    tx_status status;
} context;

static bool add(void *user, const tx_timing *timing)
{
    context *c = user;
    c->status = tx_roofline_add(c->report, timing, timing->op, tx_class_name(timing->op_class), 0);
    return !c->status && !tx_roofline_late(c->report);
}

static bool is_selected(const settings *set, int32_t op)
{
    return !set->op || strcmp(tx_op_info_of((tx_op)op)->name, set->op) == 0;
}

static tx_status check(const settings *set)
{
    for (int32_t op = 0; op < TX_OP_KERNELS; op++)
        if (is_selected(set, op))
            return TX_OK;
    return tx_fail(TX_NOT_FOUND, "%s: no such op; api/ops.def lists them", set->op);
}

static tx_status measure(tx_roofline *report, const void *user)
{
    const settings *set = user;
    context c = {.report = report};
    tx_status status = TX_OK;
    for (int32_t op = 0; op < TX_OP_KERNELS && !c.status && !status; op++) {
        if (!is_selected(set, op))
            continue;
        if (tx_roofline_late(report))
            continue;
        tx_roofline_progress(report, tx_op_info_of((tx_op)op)->name, "");
        status = tx_conformance_bench(&report->target, (tx_op)op, (int32_t)set->common.repeats, true, add, &c);
    }
    status = c.status ? c.status : status;
    if (is_selected(set, TX_OP_MATMUL) && !tx_roofline_late(report))
        TX_THEN(status, tx_bench_tf32(&report->target.info, (int32_t)set->common.repeats, &report->peaks));
    if (status)
        return status;
    return report->rows ? TX_OK : tx_fail(TX_NOT_FOUND, "%s: no case is large enough to be timed", set->op);
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    TX_TRY(check(set));
    return tx_roofline_run("ops", argv, &set->common, measure, set);
}

TX_BENCH_COMMAND(ops, "", "Times every op at sizes of GPT-2: median time, GFLOP/s and GB/s." TX_BENCH_ABOUT);
