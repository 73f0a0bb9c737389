/* SPDX-License-Identifier: Apache-2.0
 * The main function of programs with measuring commands. */
#include "tools/bench/bench.h"
#include "tools/cli/alive.h"
#include "tools/cli/waiting.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

int tx_bench_main(const tx_cli *program, const tx_bench_command *const *run, int argc, char **argv)
{
    int32_t command;
    tx_engine_workers(argc, argv);
    tx_wait_passively(argv, 0);
    int result = tx_options_command(program, argc, argv, NULL, &command);
    if (result != TX_GO_ON)
        return result;
    const tx_bench_command *chosen = run[command];
    void *settings = malloc(chosen->settings);
    if (!settings)
        return tx_complain(program, TX_EXIT_FAILURE, "no memory for the options");
    memcpy(settings, chosen->program.values, chosen->settings);
    signal(SIGPIPE, SIG_IGN); /* writing to a peer that has ended becomes an error message */
    result = tx_options_parse(&chosen->program, argc - 1, argv + 1, settings);
    tx_alive *alive = result == TX_GO_ON ? tx_alive_start(program, stderr, "measuring") : NULL;
    if (result == TX_GO_ON)
        result = chosen->run(settings, argv + 1) ? tx_complain(&chosen->program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
    tx_alive_stop(alive);
    free(settings);
    return tx_end(program, result);
}
