/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: a process that opens a device, and builds and stores a program for each request on its standard input. It
 * ends with its requests, also if the other process is killed: a thread waits for the end of the socket.
 */
#include "backends/opencl/runtime/worker.h"

#include "api/base/thread.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_BYTES 16384 /* options have at most a few hundred */

/* Ends the process, whatever its driver does, when there are no more requests. */
static void *watch(void *unused)
{
    struct pollfd requests = {.fd = STDIN_FILENO};
    (void)unused;
    while (poll(&requests, 1, -1) < 0)
        continue;
    _exit(0);
}

static tx_status build_one(tx_context *context, const tx_cl_request *r, const char *end)
{
    const char *source = r->names, *kernel = source + strlen(source) + 1, *options = kernel + strlen(kernel) + 1;
    tx_cl_program *program;
    if (options >= end || r->device != tx_cl_device_key(context))
        return TX_INVALID;
    memcpy(context->driver.missing, r->missing, sizeof r->missing);
    TX_TRY(tx_cl_want_program(context, source, options, kernel, false, &program));
    const tx_status status = tx_cl_store_built(context, program, r->shipped);
    tx_cl_release_programs(context);
    return status;
}

static _Noreturn void work(int32_t device)
{
    static union {
        tx_cl_request r;
        char bytes[REQUEST_BYTES];
    } got;
    const struct rlimit none = {0, 0};
    tx_context *context = NULL;
    pthread_t watcher;
    ssize_t size;
    prctl(PR_SET_NAME, TX_CL_WORKER);
    setrlimit(RLIMIT_CORE, &none);
    (void)!nice(5);
    if (!tx_thread_start(&watcher, watch, NULL) || tx_cl_open_plain(device, &context))
        _exit(0);
    tx_status status = TX_OK; /* the device is open */
    while (send(STDIN_FILENO, &status, sizeof status, MSG_NOSIGNAL) >= 0 &&
           (size = recv(STDIN_FILENO, got.bytes, sizeof got.bytes - 3, 0)) > (ssize_t)sizeof(tx_cl_request)) {
        memset(got.bytes + size, 0, 3); /* so that there are three names */
        status = build_one(context, &got.r, got.bytes + size);
    }
    _exit(0);
}

void tx_cl_workers(int argc, char *const *argv)
{
    if (argc < 1 || !argv)
        return;
    if (argc == 2 && strcmp(argv[0], TX_CL_WORKER) == 0)
        work((int32_t)atoi(argv[1]));
    tx_cl_allow_workers();
}
