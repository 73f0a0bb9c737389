/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds programs in other processes, because drivers lock their compilers. A worker is this program again, if it
 * called tx_engine_workers. Each thread of compile.c has one: it holds the program's lock and its entry in the journal
 * while the worker builds, and then loads the program from the cache. So all rules about caches and failures are in
 * the process that needs the program. A driver's crash in a worker is a failure of the program that it built.
 *
 * A worker has a process group of its own, so that a terminal's signals do not reach it.
 */
#define _GNU_SOURCE /* environ */
#include "backends/opencl/runtime/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_SECONDS 60  /* of a worker, which is then not used */
#define HANG_SECONDS 300  /* of a build, which is then ended */
#define MEMORY_EACH (2e9) /* bytes of a GPU's memory for each worker; drivers need a few hundred MB for a context */

static bool allowed;

void tx_cl_allow_workers(void)
{
    allowed = true;
}

int64_t tx_cl_workers_most(const tx_context *context, int64_t most)
{
    if (!allowed || most < 2 || !context->cache || context->cache_is_fixed)
        return 0;
    return context->info.type == TX_DEVICE_GPU
               ? tx_cl_least(most, 1 + (int64_t)((double)context->info.memory / MEMORY_EACH))
               : most;
}

/* Ends the worker, and returns true if its driver failed: it crashed or left. */
static bool end(tx_cl_worker *w, bool hangs)
{
    int state = 0;
    pid_t ended;
    if (hangs)
        kill(w->process, SIGKILL);
    close(w->socket);
    while ((ended = waitpid(w->process, &state, 0)) < 0 && errno == EINTR)
        continue;
    w->process = 0;
    if (ended < 0 || (WIFSIGNALED(state) && (WTERMSIG(state) == SIGKILL || WTERMSIG(state) == SIGTERM)))
        return hangs; /* another program ended it, or the system, for want of memory */
    return WIFSIGNALED(state) || WEXITSTATUS(state) != 0;
}

/* Receives an answer. Returns false if there is none in time, or if the worker ended. */
static bool receive(const tx_cl_worker *w, int seconds, tx_status *status, bool *late)
{
    struct pollfd answer = {.fd = w->socket, .events = POLLIN};
    int ready;
    while ((ready = poll(&answer, 1, seconds * 1000)) < 0 && errno == EINTR)
        continue;
    *late = ready == 0;
    return ready > 0 && recv(w->socket, status, sizeof *status, 0) == (ssize_t)sizeof *status;
}

/* Starts the worker, with a socket for requests and answers. */
static void start(const tx_context *context, tx_cl_worker *w)
{
    char device[16];
    char *const argv[] = {TX_CL_WORKER, device, NULL};
    int ends[2];
    sigset_t none, all;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    w->process = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    snprintf(device, sizeof device, "%s", strchr(context->info.id, ':') + 1);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&w->process, "/proc/self/exe", &files, &how, argv, environ))
        w->process = -1;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    close(ends[1]);
    w->socket = ends[0];
    if (w->process < 0)
        close(ends[0]);
}

/* Returns true if there is a worker. It says that it has opened the device; other programs, such as an interpreter of
 * this one, do not. */
static bool is_ready(const tx_context *context, tx_cl_worker *w)
{
    tx_status status;
    bool late;
    if (w->process != 0)
        return w->process > 0;
    start(context, w);
    if (w->process > 0 && !receive(w, START_SECONDS, &status, &late)) {
        end(w, true);
        w->process = -1; /* not again */
    }
    return w->process > 0;
}

void tx_cl_worker_end(tx_cl_worker *w)
{
    if (w->process > 0)
        end(w, false);
}

/* Sends the request. If this fails there is no answer either. */
static void ask(const tx_context *context, const tx_cl_worker *w, const tx_cl_program *p, bool shipped)
{
    tx_cl_request head = {.device = tx_cl_device_key(context), .shipped = shipped};
    memcpy(head.missing, context->driver.missing, sizeof head.missing);
    struct iovec parts[] = {{&head, offsetof(tx_cl_request, names)},
                            {(char *)p->source, strlen(p->source) + 1},
                            {(char *)p->kernel, strlen(p->kernel) + 1},
                            {(char *)p->options, strlen(p->options) + 1}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = sizeof parts / sizeof parts[0]};
    (void)!sendmsg(w->socket, &message, MSG_NOSIGNAL);
}

tx_cl_built tx_cl_worker_build(const tx_context *context, tx_cl_worker *w, const tx_cl_program *p, bool shipped)
{
    tx_status status;
    bool late;
    if (!w || p->text || !is_ready(context, w))
        return TX_CL_DECLINED;
    ask(context, w, p, shipped);
    if (receive(w, HANG_SECONDS, &status, &late))
        return status ? TX_CL_DECLINED : TX_CL_BUILT;
    if (end(w, late))
        return TX_CL_CRASHED;
    w->process = -1;
    return TX_CL_DECLINED;
}
