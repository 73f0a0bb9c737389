/* SPDX-License-Identifier: Apache-2.0
 * txbench: runs one of its commands. */
#include "tools/bench/bench.h"

static const tx_cli_command commands[] = {
#define X(name, help) {#name, help, &tx_bench_##name.program},
    TX_BENCH_MAP(X)
#undef X
};

static const tx_bench_command *const runs[] = {
#define X(name, help) &tx_bench_##name,
    TX_BENCH_MAP(X)
#undef X
};

int main(int argc, char **argv)
{
    static const tx_cli program = {
        .name = "txbench",
        .usage = "txbench report|train|copy|gemm|attention|ops|... [options]",
        .about = "Measures speed. txbench train --help, ops --help and so on list the options.",
        .example = "  txbench report --device gpu",
        TX_CLI_COMMANDS(commands),
    };
    return tx_bench_main(&program, runs, argc, argv);
}
