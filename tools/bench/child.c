/* SPDX-License-Identifier: Apache-2.0
 * Programs that a command starts. */
#include "tools/bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

tx_status tx_child_start(char *const arguments[], const char *advice, tx_child *child)
{
    int end[4] = {-1, -1, -1, -1}; /* of its input: it reads, we write; of its output: we read, it writes */
    int error = pipe(end) || pipe(end + 2) ? errno : 0;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, end[3], STDOUT_FILENO);
    for (int i = 0; i < 4; i++)
        posix_spawn_file_actions_addclose(&actions, end[i]);
    *child = (tx_child){0};
    if (!error)
        error = posix_spawnp(&child->process, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(end[0]);
    close(end[3]);
    child->to = fdopen(end[1], "w");
    child->from = fdopen(end[2], "r");
    if (!error && child->to && child->from)
        return TX_OK;
    if (error)
        child->process = 0;
    tx_child_end(child);
    return tx_fail(TX_NOT_FOUND, "%s: cannot be started: %s; %s", arguments[0], strerror(error ? error : ENOMEM),
                   advice);
}

tx_status tx_child_spawn(char *const arguments[], int output, int errors, pid_t *process)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    const int error = posix_spawn(process, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error ? tx_fail(TX_NOT_FOUND, "%s: cannot be started: %s", arguments[0], strerror(error)) : TX_OK;
}

int tx_child_end(tx_child *child)
{
    int state = 0;
    if (child->to)
        fclose(child->to);
    if (child->from)
        fclose(child->from);
    while (child->process && waitpid(child->process, &state, 0) < 0 && errno == EINTR)
        ;
    *child = (tx_child){0};
    return state;
}

tx_status tx_child_self(char *path, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 ? TX_OK
                      : tx_fail(TX_IO, "/proc/self/exe: cannot tell the path of this program: %s", strerror(errno));
}
