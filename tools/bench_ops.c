/* SPDX-License-Identifier: Apache-2.0
 * txbench ops: the cases of the conformance suite, timed. */
#include "api/op.h"
#include "tests/ops/conformance.h"
#include "tools/bench.h"
#include "tools/options.h"

#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *device, *op;
    int64_t repeats, threads;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "where to compute"},
    {TX_OPTION_TEXT, "op", AT(op), .choices = "NAME", .help = "this op only, named as in api/ops.def"},
    {TX_OPTION_INTEGER, "repeats", AT(repeats), 0, 1 << 20, "N", "runs a case; 0: as many as fit in half a second"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend; 0: all there are"},
};
#undef AT

static const settings defaults = {.device = "cpu"};

const tx_cli tx_bench_ops_program = {
    .name = "txbench",
    .usage = "txbench ops [options]",
    .about = "Times every op at sizes of GPT-2: median of the runs, arithmetic and traffic a second.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
};

static void report(void *context, const tx_timing *timing)
{
    (void)context;
    printf("%-20s %-44s %10.1f us %5.1f %% %9.1f GFLOP/s %7.1f GB/s  %s\n", timing->op, timing->label,
           1e6 * timing->seconds, 100.0 * timing->spread, timing->gflops, timing->gbytes, timing->variant);
    fflush(stdout);
}

static tx_status run(const settings *set)
{
    tx_target target;
    tx_status status = tx_target_open(set->device, (int32_t)set->threads, true, &target);
    if (status)
        return status;
    bool known = false;
    printf("device %s: %s\n%-20s %-44s %13s %7s\n", target.info.id, target.info.name, "op", "case", "median", "spread");
    for (int32_t op = 0; op < TX_OP_KERNELS && !status; op++) {
        if (set->op && strcmp(tx_op_info_of((tx_op)op)->name, set->op) != 0)
            continue;
        known = true;
        status = tx_conformance_bench(&target, (tx_op)op, (int32_t)set->repeats, true, report, NULL);
    }
    tx_target_close(&target);
    if (!status && !known)
        status = tx_fail(TX_NOT_FOUND, "%s: no such op; api/ops.def lists them", set->op);
    return status;
}

int tx_bench_ops(int argc, char *const *argv)
{
    settings set = defaults;
    int result = tx_options_parse(&tx_bench_ops_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    return run(&set) ? tx_complain(&tx_bench_ops_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
