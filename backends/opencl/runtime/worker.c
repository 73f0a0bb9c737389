/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds programs in other processes, because drivers lock their compilers. A worker is this program again, if it
 * called tx_engine_workers: it opens the device, and builds and stores a program for each request on its standard
 * input. Each thread of compile.c has one. The thread holds the program's lock and its entry in the journal, and then
 * loads the program from the cache. So all rules about caches and failures are in the process that needs the program.
 *
 * A worker ends with its requests, also if the other process is killed: a thread waits for the end of the socket. It
 * has a process group of its own, so that a terminal's signals do not reach it, and a driver's crash in it is not one
 * of the program.
 */
#define _GNU_SOURCE /* environ */
#include "backends/opencl/runtime/internal.h"

#include "api/base/hash.h"
#include "api/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "tx-kernels"   /* argv[0] of a worker; argv[1] is the index of its device */
#define HANG_SECONDS 300    /* of a build, which is then ended */
#define MEMORY_EACH (2e9)   /* bytes of a GPU's memory for each worker; drivers need a few hundred MB for a context */
#define REQUEST_BYTES 16384 /* options have at most a few hundred */

/* A request: names follow, each with a NUL. The answer is a status. */
typedef struct request {
    uint64_t identity; /* of the device and its driver */
    bool missing[TX_CL_BUILTINS];
    char names[]; /* source, kernel, options */
} request;

static bool allowed;

static uint64_t identity_of(const tx_context *context)
{
    return tx_hash(TX_HASH_START, context->identity, strlen(context->identity));
}

/* ---- The worker ----------------------------------------------------------------------------------------------- */

/* Ends the process, whatever its driver does, when there are no more requests. */
static void *watch(void *unused)
{
    struct pollfd requests = {.fd = STDIN_FILENO};
    (void)unused;
    while (poll(&requests, 1, -1) < 0)
        continue;
    _exit(0);
}

static tx_status build_one(tx_context *context, const request *r, const char *end)
{
    const char *source = r->names, *kernel = source + strlen(source) + 1, *options = kernel + strlen(kernel) + 1;
    tx_cl_program *program;
    if (options >= end || r->identity != identity_of(context))
        return TX_INVALID;
    memcpy(context->driver.missing, r->missing, sizeof r->missing);
    TX_TRY(tx_cl_want_program(context, source, options, kernel, false, &program));
    const tx_status status = tx_cl_store_built(context, program);
    tx_cl_release_programs(context);
    return status;
}

static _Noreturn void work(int32_t device)
{
    static union {
        request r;
        char bytes[REQUEST_BYTES];
    } got;
    const struct rlimit none = {0, 0};
    tx_context *context = NULL;
    pthread_t watcher;
    ssize_t size;
    setrlimit(RLIMIT_CORE, &none);
    (void)!nice(5);
    if (!tx_thread_start(&watcher, watch, NULL) || tx_cl_open_plain(device, &context))
        _exit(0);
    while ((size = recv(STDIN_FILENO, got.bytes, sizeof got.bytes - 3, 0)) > (ssize_t)sizeof(request)) {
        memset(got.bytes + size, 0, 3); /* so that there are three names */
        const tx_status status = build_one(context, &got.r, got.bytes + size);
        if (send(STDIN_FILENO, &status, sizeof status, MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

void tx_cl_workers(int argc, char *const *argv)
{
    allowed = argc > 0 && argv;
    if (allowed && argc == 2 && strcmp(argv[0], NAME) == 0)
        work((int32_t)atoi(argv[1]));
}

/* ---- The process that needs the programs ------------------------------------------------------------------------ */

int64_t tx_cl_workers_most(const tx_context *context, int64_t most)
{
    if (!allowed || most < 2 || !context->cache || context->cache_is_fixed)
        return 0;
    return context->info.type == TX_DEVICE_GPU
               ? tx_cl_least(most, 1 + (int64_t)((double)context->info.memory / MEMORY_EACH))
               : most;
}

/* Starts the worker, with a socket for requests and answers. */
static bool start(const tx_context *context, tx_cl_worker *w)
{
    char device[16];
    char *const argv[] = {NAME, device, NULL};
    int ends[2];
    sigset_t none, all;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    if (w->process || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return w->process > 0;
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
        w->process = -1; /* not again */
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    close(ends[1]);
    w->socket = ends[0];
    if (w->process < 0)
        close(ends[0]);
    return w->process > 0;
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

void tx_cl_worker_end(tx_cl_worker *w)
{
    if (w->process > 0)
        end(w, false);
}

/* Sends the request. */
static bool ask(const tx_context *context, const tx_cl_worker *w, const tx_cl_program *p)
{
    request head = {.identity = identity_of(context)};
    memcpy(head.missing, context->driver.missing, sizeof head.missing);
    struct iovec parts[] = {{&head, offsetof(request, names)},
                            {(char *)p->source, strlen(p->source) + 1},
                            {(char *)p->kernel, strlen(p->kernel) + 1},
                            {(char *)p->options, strlen(p->options) + 1}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = sizeof parts / sizeof parts[0]};
    return sendmsg(w->socket, &message, MSG_NOSIGNAL) >= 0;
}

tx_cl_built tx_cl_worker_build(const tx_context *context, tx_cl_worker *w, const tx_cl_program *p)
{
    tx_status status = TX_INTERNAL;
    int ready;
    if (!w || !start(context, w))
        return TX_CL_DECLINED;
    struct pollfd answer = {.fd = w->socket, .events = POLLIN};
    (void)ask(context, w, p); /* if it fails there is no answer either */
    while ((ready = poll(&answer, 1, HANG_SECONDS * 1000)) < 0 && errno == EINTR)
        continue;
    if (ready > 0 && recv(w->socket, &status, sizeof status, 0) == (ssize_t)sizeof status)
        return status ? TX_CL_DECLINED : TX_CL_BUILT;
    if (end(w, ready == 0))
        return TX_CL_CRASHED;
    w->process = -1;
    return TX_CL_DECLINED;
}
