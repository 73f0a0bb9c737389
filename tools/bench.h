/* SPDX-License-Identifier: Apache-2.0
 * The subcommands of txbench that lie in files of their own, and what they share. */
#ifndef TX_TOOLS_BENCH_H
#define TX_TOOLS_BENCH_H

#include "tools/options.h"

extern const tx_cli tx_bench_ops_program;
/* txbench ops: argv[0] is "ops". Returns the status to exit with. */
int tx_bench_ops(int argc, char *const *argv);

extern const tx_cli tx_bench_generate_program;
/* txbench generate: argv[0] is "generate". Returns the status to exit with. */
int tx_bench_generate(int argc, char *const *argv);

extern const tx_cli tx_bench_comm_program;
/* txbench comm: argv[0] is "comm". Returns the status to exit with. */
int tx_bench_comm(int argc, char *const *argv);

#define TX_BENCH_PAIRS 99 /* measurements at most */
/* Of `count` values, 1 to TX_BENCH_PAIRS. (bench_generate.c) */
double tx_bench_median(const double *value, int64_t count);

#endif
