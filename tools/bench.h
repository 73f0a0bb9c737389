/* SPDX-License-Identifier: Apache-2.0
 * The subcommands of txbench that lie in files of their own, and what they share. */
#ifndef TX_TOOLS_BENCH_H
#define TX_TOOLS_BENCH_H

#include "api/json.h"
#include "models/train/trainer.h"
#include "tools/options.h"
#include "tools/scale.h"

extern const tx_cli tx_bench_copy_program;
/* txbench copy: argv[0] is "copy". Returns the status to exit with. */
int tx_bench_copy(int argc, char *const *argv);

extern const tx_cli tx_bench_gemm_program;
/* txbench gemm: argv[0] is "gemm". Returns the status to exit with. */
int tx_bench_gemm(int argc, char *const *argv);

extern const tx_cli tx_bench_attention_program;
/* txbench attention: argv[0] is "attention". Returns the status to exit with. */
int tx_bench_attention(int argc, char *const *argv);

extern const tx_cli tx_bench_ops_program;
/* txbench ops: argv[0] is "ops". Returns the status to exit with. */
int tx_bench_ops(int argc, char *const *argv);

extern const tx_cli tx_bench_generate_program;
/* txbench generate: argv[0] is "generate". Returns the status to exit with. */
int tx_bench_generate(int argc, char *const *argv);

extern const tx_cli tx_bench_ddp_program;
/* txbench ddp: argv[0] is "ddp". Returns the status to exit with. */
int tx_bench_ddp(int argc, char *const *argv);

extern const tx_cli tx_bench_comm_program;
/* txbench comm: argv[0] is "comm". Returns the status to exit with. */
int tx_bench_comm(int argc, char *const *argv);

extern const tx_cli tx_bench_scale_program;
/* txbench scale: argv[0] is "scale". Returns the status to exit with. */
int tx_bench_scale(int argc, char *const *argv);

typedef struct tx_bench_scale_options {
    const char *device;
    int32_t threads;
    int64_t batch, block, steps; /* rows of a micro-batch, tokens of a row; steps that are timed */
} tx_bench_scale_options;

/* Seconds of each layer (tx_scale_layers; zeroed by the caller) and of the update on a device, a micro-batch a step.
 * (bench_scale_measure.c) */
tx_status tx_bench_scale_measure(const tx_gpt2_config *config, const tx_bench_scale_options *options,
                                 tx_scale_layer *layers, double *update);

/* Fills a batch with random tokens below `vocab`, each the label of the one before; `random` is the state.
 * (txbench.c) */
void tx_bench_tokens(uint64_t *random, int64_t vocab, int64_t batch, int64_t block, int32_t *tokens, int32_t *labels);

/* The training step that is measured: one micro-batch, clip 1, AdamW without decay. (txbench.c) */
tx_trainer_options tx_bench_training(int64_t batch, int64_t block);

/* Prints the figures as one line of JSON on standard output, and frees them. (txbench.c) */
tx_status tx_bench_print(tx_json *figures);

#define TX_BENCH_PAIRS 99 /* measurements at most */
/* Of `count` values, 1 to TX_BENCH_PAIRS. (bench_generate.c) */
double tx_bench_median(const double *value, int64_t count);

#endif
