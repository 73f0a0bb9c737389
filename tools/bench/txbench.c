/* SPDX-License-Identifier: Apache-2.0
 * txbench: runs one of its commands. */
#include "tools/bench/bench.h"
#include "tools/cli/alive.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

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
        .usage = "txbench report|methods|train|copy|gemm|attention|ops|sizes|... [options]",
        .about = "Measures speed. txbench train --help, ops --help and so on list the options.",
        .commands = commands,
        .command_count = (int32_t)(sizeof commands / sizeof commands[0]),
    };
    int32_t command;
    int result = tx_options_command(&program, argc, argv, NULL, &command);
    if (result != TX_GO_ON)
        return result;
    const tx_bench_command *run = runs[command];
    void *settings = malloc(run->settings);
    if (!settings)
        return tx_complain(&program, TX_EXIT_FAILURE, "no memory for the options");
    memcpy(settings, run->program.values, run->settings);
    signal(SIGPIPE, SIG_IGN); /* a peer that ended is an error message, not the end of this program */
    result = tx_options_parse(&run->program, argc - 1, argv + 1, settings);
    tx_alive *alive = result == TX_GO_ON ? tx_alive_start(&program, stderr, "measuring") : NULL;
    if (result == TX_GO_ON)
        result = run->run(settings, argv + 1) ? tx_complain(&run->program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
    tx_alive_stop(alive);
    free(settings);
    return tx_end(&program, result);
}
