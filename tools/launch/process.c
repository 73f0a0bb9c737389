/* SPDX-License-Identifier: Apache-2.0
 * Starts the launcher, and ends it with all its descendants. */
#define _GNU_SOURCE /* pipe2 */
#include "tools/launch/txlaunch.h"
#include "tools/process/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Starting -------------------------------------------------------------------------------------------- */

tx_status tx_launch_spawn(const char *const *argv, const sigset_t *mask, int output, int errors, pid_t *pid)
{
    return tx_child_spawn(
        argv,
        &(tx_child_spawning){.output = output,
                             .errors = errors,
                             .group = true,
                             .orphan = SIGTERM,
                             .mask = mask,
                             .advice = "give --launcher, the launcher of the MPI that TX was built with"},
        pid);
}

/* ---- Ending ------------------------------------------------------------------------------------------------- */

void tx_launch_reap(tx_launch_child *child, int32_t count)
{
    int code;
    for (pid_t pid; (pid = waitpid(-1, &code, WNOHANG)) > 0;)
        for (int32_t i = 0; i < count; i++)
            if (child[i].pid == pid && !child[i].ended) {
                child[i].ended = true;
                child[i].status = WIFSIGNALED(code) ? 128 + WTERMSIG(code) : WEXITSTATUS(code);
            }
}

static pid_t parent_of(const char *process)
{
    char path[300], text[1024];
    snprintf(path, sizeof path, "/proc/%.100s/stat", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0)
        close(file);
    if (length <= 0)
        return -1;
    text[length] = 0;
    char *name_end = strrchr(text, ')'); /* the name may contain any characters */
    int parent = -1;
    return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : -1;
}

bool tx_launch_signal(int64_t pid, int number)
{
    char name[24];
    int64_t at = pid;
    while (at > 1 && at != getpid()) {
        snprintf(name, sizeof name, "%" PRId64, at);
        at = parent_of(name);
    }
    return at == getpid() && kill((pid_t)pid, number) == 0;
}

/* Kills the children of this process. Their orphans become its children. */
static void kill_children(void)
{
    DIR *dir = opendir("/proc");
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == getpid())
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
    if (dir)
        closedir(dir);
}

void tx_launch_kill_all(pid_t pid)
{
    double end = tx_now() + 10.0; /* do not wait forever for a process that hangs in the kernel */
    if (pid > 0)
        kill(-pid, SIGKILL);
    for (bool first = true; tx_now() < end; first = false) {
        pid_t child;
        do
            child = waitpid(-1, NULL, WNOHANG);
        while (child > 0);
        if (child < 0 && errno == ECHILD)
            return;
        if (!first)
            kill_children();
        poll(NULL, 0, 10);
    }
}

/* ---- Small programs ----------------------------------------------------------------------------------------- */

/* True if a blocked signal that ends this program is pending. */
static bool end_pending(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1 ||
                                         sigismember(&pending, SIGHUP) == 1);
}

bool tx_launch_try(const char *const *argv, double seconds, char *text, size_t room, tx_status *started)
{
    int ends[2];
    tx_launch_child child = {0};
    sigset_t none;
    sigemptyset(&none);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        *started = tx_fail(TX_MEMORY, "%s: cannot be started: %s", argv[0], strerror(errno));
        return false;
    }
    *started = tx_launch_spawn(argv, &none, ends[1], ends[1], &child.pid);
    close(ends[1]);
    if (*started == TX_OK) {
        const double end = tx_now() + seconds;
        while (tx_launch_reap(&child, 1), !child.ended && tx_now() < end && !end_pending())
            poll(NULL, 0, 5);
        tx_launch_kill_all(child.pid);
        const ssize_t length = read(ends[0], text, room - 1);
        text[length > 0 ? length : 0] = 0;
    }
    close(ends[0]);
    return *started == TX_OK && child.ended && child.status == 0;
}
