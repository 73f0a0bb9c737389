/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of txbench, and what their options have in common. */
#ifndef TX_TOOLS_BENCH_H
#define TX_TOOLS_BENCH_H

#include "tools/bench/figures.h"

/* X(name, help) */
#define TX_BENCH_MAP(X)                                                                        \
    X(report, "a device from end to end, into a file to send; or several of them on one page") \
    X(device, "what a device says of itself, and what TX takes it for")                        \
    X(train, "training steps, alone or beside transformers by PyTorch")                        \
    X(copy, "copies on the device, between host and device, and launches")                     \
    X(gemm, "the matrix products of a training step, or one")                                  \
    X(attention, "attention forward and backward")                                             \
    X(ops, "every op at sizes of GPT-2, beside the device's peaks")                            \
    X(generate, "generation, alone or beside transformers by PyTorch")                         \
    X(comm, "sums over the ranks of mpiexec, beside MPI's own and memcpy")

typedef struct tx_bench_command {
    tx_cli program;  /* whose values are the defaults of the settings */
    size_t settings; /* bytes of those */
    /* Measures and prints; argv[0] is the command's name, NULL ends it. */
    tx_status (*run)(const void *settings, char *const *argv);
} tx_bench_command;

#define X(name, help) extern const tx_bench_command tx_bench_##name;
TX_BENCH_MAP(X)
#undef X

/* Runs the command that the arguments name; `run` has those of program->commands. Returns the status to exit with. */
int tx_bench_main(const tx_cli *program, const tx_bench_command *const *run, int argc, char **argv);

#ifndef TX_BENCH_PROGRAM
#define TX_BENCH_PROGRAM "txbench" /* whose commands are defined */
#endif

/* Defines a command from the file's rows `options`, settings `defaults` and function `run`; `before` begins its usage.
 */
#define TX_BENCH_COMMAND(name_, before, about_)                       \
    const tx_bench_command tx_bench_##name_ = {                       \
        {                                                             \
            .name = TX_BENCH_PROGRAM,                                 \
            .usage = before TX_BENCH_PROGRAM " " #name_ " [options]", \
            .about = about_,                                          \
            .options = options,                                       \
            .count = (int32_t)(sizeof options / sizeof options[0]),   \
            .values = &defaults,                                      \
        },                                                            \
        sizeof defaults,                                              \
        run,                                                          \
    }

/* Where a field lies in the settings of a command, whose type has the name `settings` in its file. */
#define AT(field) offsetof(settings, field)

/* Rows of options; AT(field) is where the field lies. */
/* clang-format off */
#define TX_BENCH_MODEL(AT)                                                                                            \
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",                                                    \
     .help = "a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; dropout is off"}
#define TX_BENCH_BATCH(AT)                                                                                            \
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "blocks of a rank's micro-batch"},                       \
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens a block"}
#define TX_BENCH_DEVICE(AT)                                                                                           \
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",                          \
     .help = "where to compute"},                                                                                     \
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend, and a peer; 0: all there are"}
#define TX_BENCH_MEASUREMENTS(AT)                                                                                     \
    {TX_OPTION_INTEGER, "pairs", AT(pairs), 1, TX_BENCH_PAIRS, "N",                                                   \
     "measurements; with a peer each is a pair, taken in turn"},                                                      \
    {TX_OPTION_REAL, "seconds", AT(seconds), 0, 1e6, "X", "no measurement but the first begins after so many"}
#define TX_BENCH_JSON(AT)                                                                                             \
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object"}
/* clang-format on */

#endif
