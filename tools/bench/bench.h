/* SPDX-License-Identifier: Apache-2.0
 * The subcommands of txbench that lie in files of their own, and what they share. */
#ifndef TX_TOOLS_BENCH_H
#define TX_TOOLS_BENCH_H

#include "api/base/json.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"
#include "tools/bench/scale.h"
#include "tools/cli/options.h"

/* The commands. X(name, help) */
#define TX_BENCH_MAP(X)                                                             \
    X(train, "training steps, alone or beside transformers by PyTorch, or CLBlast") \
    X(copy, "copies on the device, between host and device, and launches")          \
    X(gemm, "the matrix products of a training step, or one")                       \
    X(attention, "attention forward and backward")                                  \
    X(ops, "every op at sizes of GPT-2, beside the device's peaks")                 \
    X(generate, "generation, alone or beside transformers by PyTorch")              \
    X(ddp, "training on several devices: one process for all, or one for each")     \
    X(comm, "sums over the ranks of mpiexec, beside MPI's own and memcpy")          \
    X(scale, "predicted steps of data-parallel training on many ranks")

/* txbench NAME: argv[0] is its name. Returns the status to exit with. */
#define X(name, help)                              \
    extern const tx_cli tx_bench_##name##_program; \
    int tx_bench_##name(int argc, char *const *argv);
TX_BENCH_MAP(X)
#undef X

typedef struct tx_bench_scale_options {
    const char *device;
    int32_t threads;
    int64_t batch, block, steps; /* rows of a micro-batch, tokens of a row; steps that are timed */
} tx_bench_scale_options;

/* Seconds of each layer (tx_scale_layers; zeroed by the caller) and of the update on a device, a micro-batch a step.
 * (bench_scale_measure.c) */
tx_status tx_bench_scale_measure(const tx_config *config, const tx_bench_scale_options *options, tx_scale_layer *layers,
                                 double *update);

/* Fills a batch with random tokens below `vocab`, each the label of the one before; `random` is the state.
 * (txbench.c) */
void tx_bench_tokens(uint64_t *random, int64_t vocab, int64_t batch, int64_t block, int32_t *tokens, int32_t *labels);

/* Finds the model's configuration, which must have positions for `block` tokens, and takes its dropout out. The caller
 * frees it in any case. (txbench.c) */
tx_status tx_bench_config(const char *name, int64_t block, tx_config **config);

/* The training step that is measured: one micro-batch, clip 1, AdamW without decay. (txbench.c) */
tx_trainer_options tx_bench_training(int64_t batch, int64_t block);

/* Sets TX_GEMM, or with NULL takes it out of the environment. Returns what it was, which the caller frees, or NULL.
 * (txbench.c) */
char *tx_bench_swap_gemm(const char *value);

/* Prints the figures as one line of JSON on standard output, and frees them. (txbench.c) */
tx_status tx_bench_print(tx_json *figures);

#define TX_BENCH_PAIRS 99 /* measurements at most */
/* Of `count` values, 1 to TX_BENCH_PAIRS. (bench_generate.c) */
double tx_bench_median(const double *value, int64_t count);

#endif
