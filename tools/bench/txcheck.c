/* SPDX-License-Identifier: Apache-2.0
 *
 * txcheck: checks a device. It compares every op with a reference in double precision, gradients with finite
 * differences, and runs the ONNX backend node cases. A self-test checks the checker with planted faults. It also checks
 * files (check_file.c). */
#include "api/graph/op.h"
#include "tests/ops/conformance.h"
#include "tools/bench/check_file.h"
#include "tools/bench/figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit status if there is no such device. ctest counts the test as skipped. */
#define EXIT_SKIPPED 77

typedef struct settings {
    const char *device, *op;
    tx_words operands;
    int64_t threads, every, turn;
    double seconds;
    bool small, verbose, json;
    tx_alive *alive;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "device", AT(device), .choices = "auto|cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "device to check"},
    {TX_OPTION_TEXT, "op", AT(op), .choices = "NAME",
     .help = "check only this op; api/ops.def has the names (ops, threads)"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N",
     "threads of the cpu backend; 0 uses all, or 3 for the command threads"},
    {TX_OPTION_INTEGER, "every", AT(every), 1, 1000, "N", "check only every Nth case (ops, threads)"},
    {TX_OPTION_INTEGER, "turn", AT(turn), 0, 999, "K", "start at case K, below N (with --every)"},
    {TX_OPTION_FLAG, "small", AT(small), .help = "check only cases that are small enough for a simulator (ops)"},
    {TX_OPTION_REAL, "seconds", AT(seconds), 0, 1e6, "X",
     "start no new op after X seconds, except the first (ops, threads)"},
    {TX_OPTION_FLAG, "verbose", AT(verbose), .help = "print one line per case"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the results as one JSON object (ops, threads)"},
};
#undef AT

/* In the order of `runs`. */
static const tx_cli_command commands[] = {
    {"ops", "compare every op with a reference in double precision", NULL},
    {"threads", "check that one thread and several give the same bits", NULL},
    {"autodiff", "compare gradients of graphs with finite differences", NULL},
    {"onnx", "run the ONNX backend node cases in DIR (manifest.jsonl and *.safetensors)", NULL},
    {"selftest", "plant faults in a mock device and check that each is caught", NULL},
    {"file", "check files and folders of models, datasets and runs", &tx_check_file_program},
};

static const tx_cli program = {
    .name = "txcheck",
    .one_process = "start it without the launcher",
    .usage = "txcheck ops|threads|autodiff|onnx DIR|selftest|file PATH... [options]",
    .about = "Checks that a device computes correctly, or checks files.\n"
             "Exit status: 0 if all checks passed, 1 if one failed, 2 for wrong usage, 77 if there is no such device.",
    .example = "  txcheck ops --device cpu --op gelu",
    .table = {TX_CLI_OPTIONS(options)},
    TX_CLI_COMMANDS(commands),
    .operand = "DIR",
    .operands = offsetof(settings, operands),
    .operands_most = 1,
};

static int usage(const char *problem)
{
    return tx_complain(&program, TX_EXIT_USAGE, "%s; see txcheck --help", problem);
}

static int failed(void)
{
    return tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
}

/* ---- ops --------------------------------------------------------------------------------------- */

static void print_case(void *user, const char *op, const char *label, double worst, const char *failure)
{
    (void)user;
    if (failure)
        printf("    FAIL %s %s: %s\n", op, label, failure);
    else
        printf("    ok   %s %s (%.2f of tolerance)\n", op, label, worst);
}

static void print_verdict(const tx_verdict *v)
{
    bool good = v->passed == v->cases;
    printf("%-4s %-18s %4d of %4d cases  worst %.2f of tolerance  %s\n", good ? "ok" : "FAIL", v->op, v->passed,
           v->cases, v->worst, v->variants);
    if (!good)
        printf("     first failure: %s\n", v->failure);
    else if (v->refused)
        printf("     %d cases refused: %s\n", v->refused, v->failure);
    fflush(stdout);
}

static tx_json *verdict_json(const tx_verdict *v)
{
    tx_json *row = tx_json_pack("{s:s, s:i, s:i, s:i, s:f, s:s}", "op", v->op, "cases", v->cases, "passed", v->passed,
                                "refused", v->refused, "worst", v->worst, "variants", v->variants);
    if (v->failure[0])
        tx_json_set_string(row, "failure", v->failure);
    return row;
}

typedef struct totals {
    int32_t cases, passed, ops;
    tx_json *rows, *left_out; /* lists for --json, or NULL */
} totals;

/* Checks all ops, or the one of --op. `how` may print each case. */
static int check_each(const settings *o, const tx_target *target, const tx_conformance_options *how, totals *all)
{
    const double begin = tx_now();
    for (int op = 0; op < TX_OP_KERNELS; op++) {
        const char *name = tx_op_info_of((tx_op)op)->name;
        if (o->op && strcmp(name, o->op) != 0)
            continue;
        if (all->ops > 0 && tx_now() - begin > o->seconds) {
            if (o->json)
                tx_json_append_string(all->left_out, name);
            else
                printf("     %s is left out: the time of --seconds is over\n", name);
            continue;
        }
        tx_verdict verdict;
        tx_alive_doing(o->alive, "checking %s", name);
        if (tx_conformance_op(target, (tx_op)op, how, &verdict))
            return failed();
        if (o->json)
            tx_json_append(all->rows, verdict_json(&verdict));
        else
            print_verdict(&verdict);
        if (!o->json)
            tx_alive_printed(o->alive);
        all->cases += verdict.cases;
        all->passed += verdict.passed;
        all->ops++;
    }
    if (all->ops == 0)
        return usage("--op: no such op");
    if (!o->json)
        printf("%d of %d cases passed\n", all->passed, all->cases);
    return all->passed == all->cases ? 0 : 1;
}

static int check_ops(const settings *o, const tx_target *target, const tx_conformance_options *how)
{
    if (!o->json)
        return check_each(o, target, how, &(totals){0});
    tx_json *figures = tx_json_object();
    totals all = {.rows = tx_json_array(), .left_out = tx_json_array()};
    tx_json_set(figures, "rows", all.rows);
    tx_json_set(figures, "left_out", all.left_out);
    const int result = check_each(o, target, how, &all);
    tx_json_set_int(figures, "cases", all.cases);
    tx_json_set_int(figures, "passed", all.passed);
    if (all.ops == 0) {
        tx_json_free(figures);
        return result;
    }
    return tx_bench_print(figures, true, NULL) == TX_OK ? result : failed();
}

static int run_ops(const settings *o, const tx_target *target)
{
    const tx_conformance_options how = {.every = (int32_t)o->every,
                                        .turn = (int32_t)o->turn,
                                        .small = o->small,
                                        .progress = o->verbose ? print_case : NULL};
    return check_ops(o, target, &how);
}

/* ---- threads ------------------------------------------------------------------------------------- */

/* Opens the device. Returns 0, or the exit status of the program on errors. */
static int open_target(const settings *o, int64_t threads, tx_target *target)
{
    tx_status status = tx_target_open(
        o->device, &(tx_open_options){.threads = (int32_t)threads, .report = tx_alive_reporter()}, target);
    if (status)
        return failed(), status == TX_NOT_FOUND ? EXIT_SKIPPED : TX_EXIT_FAILURE;
    const tx_device_info *info = &target->info;
    char types[32] = "";
    if (info->fp16)
        tx_list_add(types, sizeof types, ", ", "fp16");
    if (info->bf16)
        tx_list_add(types, sizeof types, ", ", "bf16");
    if (info->tf32)
        tx_list_add(types, sizeof types, ", ", "tf32");
    if (!o->json)
        printf("device %s: %s; instructions for %s\n", info->id, info->name, types[0] ? types : "fp32 only");
    return 0;
}

/* Checks that several threads give the same bits as one thread, which `target` has. */
static int run_threads(const settings *o, const tx_target *target)
{
    tx_target peer;
    int status = open_target(o, o->threads > 1 ? o->threads : 3, &peer);
    if (status)
        return status;
    const tx_conformance_options how = {.every = (int32_t)o->every,
                                        .turn = (int32_t)o->turn,
                                        .peer = &peer,
                                        .progress = o->verbose ? print_case : NULL};
    status = check_ops(o, target, &how);
    tx_target_close(&peer);
    return status;
}

/* ---- autodiff ---------------------------------------------------------------------------------- */

static void print_graph(void *user, const char *graph, double worst, const char *failure)
{
    (void)user;
    if (failure)
        printf("FAIL %s: %s\n", graph, failure);
    else
        printf("ok   %-36s worst %.2f of tolerance\n", graph, worst);
}

static int run_autodiff(const settings *o, const tx_target *target)
{
    (void)o;
    return tx_conformance_autodiff(target, print_graph, NULL) ? failed() : 0;
}

/* ---- onnx -------------------------------------------------------------------------------------- */

static void print_onnx(const tx_onnx_report *report)
{
    int32_t run = 0, passed = 0, cases = 0;
    for (int32_t i = 0; i < report->ops; i++) {
        const tx_onnx_count *n = &report->op[i];
        cases += n->cases;
        if (!n->known)
            continue;
        run += n->run;
        passed += n->passed;
        printf("%-4s %-24s %3d of %3d passed, of %3d in ONNX%s%s\n", n->passed == n->run ? "ok" : "FAIL", n->op,
               n->passed, n->run, n->cases, n->reasons[0] ? "; unsupported: " : "", n->reasons);
        if (n->failure[0])
            printf("     first failure: %s\n", n->failure);
    }
    printf("no such op in TX:");
    for (int32_t i = 0; i < report->ops; i++)
        if (!report->op[i].known)
            printf(" %s", report->op[i].op);
    printf("\n%d of %d supported cases passed, of %d in ONNX\n", passed, run, cases);
}

static int run_onnx(const settings *o, const tx_target *target)
{
    tx_onnx_report *report = calloc(1, sizeof *report);
    int status = 0;
    if (!report || tx_conformance_onnx(target, o->operands.word[0], report)) {
        status = failed();
    } else {
        print_onnx(report);
        for (int32_t i = 0; i < report->ops; i++)
            if (report->op[i].passed != report->op[i].run)
                status = 1;
    }
    free(report);
    return status;
}

/* ---- selftest ------------------------------------------------------------------------------------ */

static void print_fault(void *user, const char *fault, bool caught, const char *how)
{
    const settings *o = user;
    if (o->verbose || !caught)
        printf("%-4s %s%s%s\n", caught ? "ok" : "FAIL", fault, how[0] ? ": " : "", how);
}

static int run_selftest(const settings *o, const tx_target *target)
{
    settings user = *o;
    (void)target;
    if (tx_conformance_selftest(print_fault, &user))
        return failed();
    printf("every planted fault was caught\n");
    return 0;
}

/* ---- main ---------------------------------------------------------------------------------------- */

/* In the order of `commands`. */
static int (*const runs[])(const settings *o, const tx_target *target) = {run_ops, run_threads, run_autodiff, run_onnx,
                                                                          run_selftest};

static int run(int argc, char **argv)
{
    settings o = {.device = "auto", .seconds = 1e6, .every = 1};
    int32_t command;
    tx_target target = {0};
    int result = tx_options_command(&program, argc, argv, &o, &command);
    if (result == TX_GO_ON && commands[command].program)
        return tx_check_file(argc - 1, argv + 1);
    if (result == TX_GO_ON)
        result = tx_options_parse(&program, argc - 1, argv + 1, &o);
    if (result != TX_GO_ON)
        return result;
    const bool onnx = runs[command] == run_onnx, self = runs[command] == run_selftest;
    if (o.operands.count && !onnx)
        return tx_complain(&program, TX_EXIT_USAGE, "%s: %s takes only options", o.operands.word[0],
                           commands[command].name);
    if (o.turn >= o.every)
        return usage("--turn must be less than --every");
    if (o.json && runs[command] != run_ops && runs[command] != run_threads)
        return usage("--json is only for ops and threads");
    if (onnx && !o.operands.count)
        return usage("onnx needs the folder of the cases");
    o.alive = tx_alive_start(&program, stderr, "checking");
    result = self ? 0 : open_target(&o, runs[command] == run_threads ? 1 : o.threads, &target);
    if (!result) {
        result = runs[command](&o, &target);
        if (!self)
            tx_target_close(&target);
    }
    tx_alive_stop(o.alive);
    return result;
}

int main(int argc, char **argv)
{
    tx_engine_workers(argc, argv);
    return tx_end(&program, run(argc, argv));
}
