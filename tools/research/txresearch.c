/* SPDX-License-Identifier: Apache-2.0
 * txresearch: runs one of its commands. */
#include "tools/research/research.h"

static const tx_cli_command commands[] = {
#define X(name, help) {#name, help, &tx_bench_##name.program},
    TX_RESEARCH_MAP(X)
#undef X
};

static const tx_bench_command *const runs[] = {
#define X(name, help) &tx_bench_##name,
    TX_RESEARCH_MAP(X)
#undef X
};

int main(int argc, char **argv)
{
    static const tx_cli program = {
        .name = "txresearch",
        .usage = "txresearch predict|splits [options]",
        .about = "Predicts speed on other devices. txresearch COMMAND --help lists the options.",
        TX_CLI_COMMANDS(commands),
    };
    return tx_bench_main(&program, runs, argc, argv);
}
