/* SPDX-License-Identifier: Apache-2.0
 * The agent: MPI's launcher starts one for each rank, and the agent starts the command. The agent outlives the command
 * and reports how it ended before the launcher notices and ends the other ranks. */
#include "comm/report.h"
#include "tools/launch/txlaunch.h"
#include "tools/process/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHANNEL = 200 }; /* lowest descriptor for reports; shells use only low descriptors */
static const struct timespec moment = {.tv_nsec = 100L * 1000000L}; /* the time for the launcher to forward a report */

/* Duplicates standard error for reports, because the command may redirect its own. */
static int open_channel(void)
{
    char text[16];
    const int high = fcntl(STDERR_FILENO, F_DUPFD, CHANNEL);
    const int channel = high >= 0 ? high : STDERR_FILENO;
    snprintf(text, sizeof text, "%d", channel);
    setenv(TX_REPORT_VARIABLE, text, 1);
    return channel;
}

/* Waits for the end of the command, and passes signals on to it. Returns its status as in a shell. */
static int wait_for_end(pid_t command, const sigset_t *signals, bool *killed)
{
    int code = 0, number;
    while (waitpid(command, &code, WNOHANG) == 0)
        if (sigwait(signals, &number) == 0 && number != SIGCHLD)
            kill(command, number);
    *killed = WIFSIGNALED(code);
    return *killed ? 128 + WTERMSIG(code) : WEXITSTATUS(code);
}

/* Finds a program of TX in the folder of this one. Other programs, and paths, stay as they are. */
static const char *find_program(const char *name, char *path, size_t size)
{
    const bool beside = !strchr(name, '/') && !tx_process_beside(name, path, size) && access(path, X_OK) == 0;
    return beside ? path : name;
}

int tx_launch_agent(const char **argv)
{
    char path[4096];
    sigset_t all, before;
    char host[64] = "";
    pid_t command;
    int status = TX_LAUNCH_NO_PROGRAM;
    bool killed = false;
    const int channel = open_channel();
    const int32_t rank = tx_launcher_rank() < 0 ? 0 : tx_launcher_rank(), ranks = tx_launcher_ranks(NULL);
    /* The command has a process group of its own, so that the launcher ends only the agent if another rank has died.
     * The command then ends too, unless it has its last step to save (tx_watchdog_keep). */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    gethostname(host, sizeof host - 1);
    argv[0] = find_program(argv[0], path, sizeof path);
    if (tx_child_spawn(
            argv, &(tx_child_spawning){.output = -1, .errors = -1, .group = true, .orphan = SIGKILL, .mask = &before},
            &command) == TX_OK) {
        tx_report(channel, 5.0, "%" PRId32 " hello %" PRId32 " %s %ld", rank, ranks < 1 ? 1 : ranks, host,
                  (long)command);
        status = wait_for_end(command, &all, &killed);
    } else
        tx_print_line(stderr, "txlaunch: %s", tx_error());
    tx_report(channel, 5.0, "%" PRId32 " left %d", rank, status);
    if (status != 0)
        nanosleep(&moment, NULL);
    if (killed)
        raise(SIGKILL); /* makes the launcher end all ranks at once */
    return status;
}
