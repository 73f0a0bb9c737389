/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of txbench, and the options that they share. */
#ifndef TX_TOOLS_BENCH_H
#define TX_TOOLS_BENCH_H

#include "tools/bench/figures.h"
#include "tools/cli/alive.h"
#include "tx_train.h"

/* X(name, help) */
#define TX_BENCH_MAP(X)                                                                \
    X(report, "full report of a device as a file to send; or compare several reports") \
    X(device, "properties that the driver reports and that TX derives")                \
    X(train, "training steps, optionally compared with transformers on PyTorch")       \
    X(copy, "copies on the device and between host and device, and kernel launches")   \
    X(gemm, "the matrix products of a training step, or one product")                  \
    X(attention, "attention forward and backward")                                     \
    X(ops, "every op at sizes of GPT-2, compared with the device's peaks")             \
    X(curve, "losses of a small training on the device and on the CPU")                \
    X(generate, "generation, optionally compared with transformers or llama.cpp")      \
    X(comm, "all-reduce over MPI ranks, compared with MPI_Allreduce and memcpy")

typedef struct tx_bench_command {
    tx_cli program;  /* its `values` are the defaults of the settings */
    size_t settings; /* size of the settings in bytes */
    /* Measures and prints. argv[0] is the command's name; argv is NULL-terminated. */
    tx_status (*run)(const void *settings, char *const *argv);
} tx_bench_command;

#define X(name, help) extern const tx_bench_command tx_bench_##name;
TX_BENCH_MAP(X)
#undef X

/* Runs the command that the arguments name. `run` has the commands in the order of program->commands. Returns the exit
 * status. */
int tx_bench_main(const tx_cli *program, const tx_bench_command *const *run, int argc, char **argv);

#ifndef TX_BENCH_PROGRAM
#define TX_BENCH_PROGRAM "txbench" /* the program of the commands */
#endif

#ifndef TX_BENCH_ONE_PROCESS /* see tx_cli.one_process */
#define TX_BENCH_ONE_PROCESS "start it without the launcher"
#endif

/* Defines a command from the file's `options`, `defaults` and `run`. The usage begins with `before`. */
#define TX_BENCH_COMMAND(name_, before, about_)                       \
    const tx_bench_command tx_bench_##name_ = {                       \
        {                                                             \
            .name = TX_BENCH_PROGRAM,                                 \
            .one_process = TX_BENCH_ONE_PROCESS,                      \
            .usage = before TX_BENCH_PROGRAM " " #name_ " [options]", \
            .about = about_,                                          \
            .table = {TX_CLI_OPTIONS(options)},                       \
            .values = &defaults,                                      \
        },                                                            \
        sizeof defaults,                                              \
        run,                                                          \
    }

/* The offset of a field in the settings of a command; each file calls their type `settings`. */
#define AT(field) offsetof(settings, field)

/* Rows of options. AT(field) is the offset of a field. */
/* clang-format off */
#define TX_BENCH_MODEL(AT)                                                                                            \
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",                                                    \
     .help = "a config.json, a folder with one, or " TX_PRESETS "; dropout is off"}
#define TX_BENCH_BATCH(AT)                                                                                            \
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "rows of a rank's micro-batch"},                         \
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens of a row"}
#define TX_BENCH_DEVICE(AT) \
    {TX_OPTION_TEXT, "device", AT(device), .choices = "auto|cpu|opencl|opencl:N|opencl:NAME|gpu", \
     .help = "device to measure"}, \
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "threads of the cpu backend and of a peer; 0 uses all"}
#define TX_BENCH_MEASUREMENTS(AT)                                                                                     \
    {TX_OPTION_INTEGER, "pairs", AT(pairs), 1, TX_BENCH_PAIRS, "N",                                                   \
     "number of measurements; with a peer, TX and the peer alternate"},                                               \
    {TX_OPTION_REAL, "seconds", AT(seconds), 0, 1e6, "X", "start no new measurement after X seconds, except the first"}
#define TX_BENCH_JSON(AT)                                                                                             \
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object"}
/* clang-format on */

#endif
