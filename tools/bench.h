/* SPDX-License-Identifier: Apache-2.0
 * The subcommands of txbench that lie in files of their own. */
#ifndef TX_TOOLS_BENCH_H
#define TX_TOOLS_BENCH_H

#include "tools/options.h"

extern const tx_cli tx_bench_ops_program;
/* txbench ops: argv[0] is "ops". Returns the status to exit with. */
int tx_bench_ops(int argc, char *const *argv);

#endif
