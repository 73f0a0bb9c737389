/* SPDX-License-Identifier: Apache-2.0
 *
 * txcheck: proves a device. Every op against a reference in double precision, gradients against finite differences,
 * the ONNX backend node cases, and the checker itself against planted faults. */
#include "api/op.h"
#include "tests/ops/conformance.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *device, *op;
    int32_t threads;
    bool quick, verbose;
} options;

static const char usage_text[] = "usage: txcheck ops [--device D] [--op NAME] [--threads N] [--quick] [--verbose]\n"
                                 "       txcheck autodiff [--device D] [--threads N] [--verbose]\n"
                                 "       txcheck onnx DIR [--device D] [--threads N] [--verbose]\n"
                                 "       txcheck selftest [--verbose]\n"
                                 "\n"
                                 "  ops       every op against a reference in double precision\n"
                                 "  autodiff  gradients of graphs against finite differences\n"
                                 "  onnx      the ONNX backend node cases in DIR (manifest.jsonl and *.safetensors)\n"
                                 "  selftest  plants faults in a mock device and checks that each is caught\n"
                                 "\n"
                                 "  -d, --device D   cpu, opencl, opencl:N, gpu or opencl:TEXT (default cpu)\n"
                                 "  -o, --op NAME    this op only\n"
                                 "  -t, --threads N  of the cpu (default: all that this process may use)\n"
                                 "  -q, --quick      every fourth case\n"
                                 "  -v, --verbose    a line a case\n"
                                 "  -h, --help       this text\n"
                                 "\n"
                                 "Exit status: 0 all passed, 1 something failed, 2 wrong usage, 77 no such device.\n";

static int usage(const char *problem)
{
    fprintf(stderr, "txcheck: %s; see txcheck --help\n", problem);
    return 2;
}

static int failed(void)
{
    fprintf(stderr, "txcheck: %s\n", tx_error());
    return 1;
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
    fflush(stdout);
}

/* Opens the device; the program's exit status where that fails. */
static int open_target(const options *o, tx_target *target)
{
    tx_status status = tx_target_open(o->device, o->threads, false, target);
    if (!status) {
        printf("device %s: %s\n", target->info.id, target->info.name);
        return 0;
    }
    failed();
    return status == TX_NOT_FOUND ? 77 : 1;
}

static int run_ops(const options *o)
{
    tx_op only = TX_OP_KERNELS;
    for (int op = 0; op < TX_OP_KERNELS && o->op; op++)
        if (strcmp(tx_op_info_of((tx_op)op)->name, o->op) == 0)
            only = (tx_op)op;
    if (o->op && only == TX_OP_KERNELS)
        return usage("there is no op of that name");
    tx_target target;
    int opened = open_target(o, &target);
    if (opened)
        return opened;
    tx_status status = TX_OK;
    tx_conformance_options how = {.quick = o->quick, .progress = o->verbose ? print_case : NULL};
    int32_t cases = 0, passed = 0;
    for (int op = 0; op < TX_OP_KERNELS && !status; op++) {
        if (o->op && (tx_op)op != only)
            continue;
        tx_verdict verdict;
        status = tx_conformance_op(&target, (tx_op)op, &how, &verdict);
        if (status)
            break;
        print_verdict(&verdict);
        cases += verdict.cases;
        passed += verdict.passed;
    }
    tx_target_close(&target);
    if (status)
        return failed();
    printf("%d of %d cases passed\n", passed, cases);
    return passed == cases ? 0 : 1;
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

static int run_autodiff(const options *o)
{
    tx_target target;
    int status = open_target(o, &target);
    if (status)
        return status;
    if (tx_conformance_autodiff(&target, print_graph, NULL))
        status = failed();
    tx_target_close(&target);
    return status;
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
               n->passed, n->run, n->cases, n->reasons[0] ? "; others: " : "", n->reasons);
        if (n->failure[0])
            printf("     first failure: %s\n", n->failure);
    }
    printf("no such op in TX:");
    for (int32_t i = 0; i < report->ops; i++)
        if (!report->op[i].known)
            printf(" %s", report->op[i].op);
    printf("\n%d of %d cases passed that TX's ops can say, of %d\n", passed, run, cases);
}

static int run_onnx(const options *o, const char *folder)
{
    tx_target target;
    int status = open_target(o, &target);
    if (status)
        return status;
    tx_onnx_report *report = calloc(1, sizeof *report);
    if (!report || tx_conformance_onnx(&target, folder, report)) {
        status = failed();
    } else {
        print_onnx(report);
        for (int32_t i = 0; i < report->ops; i++)
            if (report->op[i].passed != report->op[i].run)
                status = 1;
    }
    free(report);
    tx_target_close(&target);
    return status;
}

/* ---- selftest ------------------------------------------------------------------------------------ */

static void print_fault(void *user, const char *fault, bool caught, const char *how)
{
    const options *o = user;
    if (o->verbose || !caught)
        printf("%-4s %s%s%s\n", caught ? "ok" : "FAIL", fault, how[0] ? ": " : "", how);
}

static int run_selftest(options *o)
{
    if (tx_conformance_selftest(print_fault, o))
        return failed();
    printf("every planted fault was caught\n");
    return 0;
}

/* ---- main ---------------------------------------------------------------------------------------- */

static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {
        {"device", required_argument, NULL, 'd'},
        {"op", required_argument, NULL, 'o'},
        {"threads", required_argument, NULL, 't'},
        {"quick", no_argument, NULL, 'q'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c;
    while ((c = getopt_long(argc, argv, "d:o:t:qvh", longs, NULL)) != -1) {
        char *end = NULL;
        long n;
        switch (c) {
        case 'd':
            o->device = optarg;
            break;
        case 'o':
            o->op = optarg;
            break;
        case 't':
            n = strtol(optarg, &end, 10);
            if (*end || end == optarg || n < 1 || n > 4096)
                return usage("--threads wants a number from 1 to 4096");
            o->threads = (int32_t)n;
            break;
        case 'q':
            o->quick = true;
            break;
        case 'v':
            o->verbose = true;
            break;
        case 'h':
            fputs(usage_text, stdout);
            exit(0);
        default: /* getopt has said what is wrong */
            return 2;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o = {.device = "cpu"};
    int status = parse(argc, argv, &o);
    if (status)
        return status;
    if (optind >= argc)
        return usage("a command is missing: ops, autodiff, onnx or selftest");
    const char *command = argv[optind];
    int left = argc - optind - 1;
    if (left > (strcmp(command, "onnx") == 0 ? 1 : 0))
        return usage("too many arguments");
    if (strcmp(command, "ops") == 0)
        return run_ops(&o);
    if (strcmp(command, "onnx") == 0)
        return left == 1 ? run_onnx(&o, argv[optind + 1]) : usage("onnx wants the folder of the cases");
    if (strcmp(command, "autodiff") == 0)
        return run_autodiff(&o);
    if (strcmp(command, "selftest") == 0)
        return run_selftest(&o);
    return usage("unknown command: ops, autodiff, onnx and selftest are known");
}
