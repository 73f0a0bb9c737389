/* SPDX-License-Identifier: Apache-2.0
 * Starts and ends the ranks of a program. */
#include "tools/cli/ranks.h"

#include "tx_engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int errors = -1; /* standard error of a rank that does not print */

int32_t tx_ranks_started(void)
{
    const char *variable = "";
    const int32_t ranks = tx_launcher_ranks(&variable);
    return ranks > 1 && strcmp(variable, "SLURM_NTASKS") != 0 ? ranks : 1;
}

void tx_ranks_hush(void)
{
    const int nothing = tx_ranks_started() > 1 && tx_launcher_rank() > 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (nothing < 0)
        return;
    errors = dup(STDERR_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    close(nothing);
}

tx_status tx_ranks_join(tx_comm **ranks)
{
    int32_t devices;
    if (tx_ranks_started() == 1)
        return TX_OK;
    TX_TRY(tx_device_count(&devices)); /* starts a child process, which is unsafe once MPI has registered memory */
    return tx_comm_open(NULL, NULL, ranks);
}

void tx_ranks_speak(void)
{
    if (errors < 0)
        return;
    fflush(stderr);
    dup2(errors, STDERR_FILENO);
    close(errors);
    errors = -1;
}

int tx_ranks_leave(const tx_cli *program, tx_status status, tx_comm *ranks)
{
    if (!status && ranks)
        tx_comm_close(ranks);
    if (!status)
        return 0;
    if (errors >= 0)
        nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
    tx_ranks_speak();
    return tx_complain(program, TX_EXIT_FAILURE, "%s", tx_error());
}
