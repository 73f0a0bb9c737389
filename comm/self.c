/* SPDX-License-Identifier: Apache-2.0
 * The communicator of one rank: the sum over the ranks is the rank's own data. */
#include "comm/common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

typedef struct window {
    void *memory;
    struct window *next;
} window;

typedef struct self {
    tx_comm base;
    tx_comm_rank only;
    tx_requests requests;
    window *windows;
} self;

extern const tx_comm_table tx_comm_self_table;

static tx_status self_open(int *argc, char ***argv, tx_comm **comm)
{
    (void)argc;
    (void)argv;
#ifdef TX_MPI
    const char *advice = "a program of one rank is started without a launcher";
#else
    const char *advice = "this build of TX has no MPI: start one process, or build with -DTX_MPI=ON";
#endif
    tx_status status = tx_launcher_check(1, advice, false);
    if (status)
        return status;
    self *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    struct utsname names;
    snprintf(made->only.name, sizeof made->only.name, "%.63s", uname(&names) == 0 ? names.nodename : "this host");
    made->base = (tx_comm){.table = &tx_comm_self_table, .size = 1, .local_size = 1, .ranks = &made->only};
    *comm = &made->base;
    return TX_OK;
}

static void self_close(tx_comm *comm)
{
    self *s = (self *)comm;
    while (s && s->windows) {
        window *next = s->windows->next;
        free(s->windows->memory);
        free(s->windows);
        s->windows = next;
    }
    free(s);
}

static tx_status self_window(tx_comm *comm, int64_t bytes, void **memory)
{
    self *s = (self *)comm;
    tx_status status = tx_requests_idle(&s->requests, "window");
    if (status)
        return status;
    if (bytes <= 0)
        return tx_fail(TX_INVALID, "a window of %" PRId64 " bytes is none", bytes);
    window *made = calloc(1, sizeof *made);
    if (!made || posix_memalign(&made->memory, (size_t)sysconf(_SC_PAGESIZE), (size_t)bytes) != 0) {
        free(made);
        return tx_fail(TX_MEMORY, "no memory for a window of %" PRId64 " bytes", bytes);
    }
    memset(made->memory, 0, (size_t)bytes);
    made->next = s->windows;
    s->windows = made;
    *memory = made->memory;
    return TX_OK;
}

static tx_status self_begin(tx_comm *comm, const tx_transfer *transfer, int32_t *request)
{
    tx_status status = tx_comm_check(comm, transfer);
    if (!status)
        *request = tx_requests_begin(&((self *)comm)->requests);
    return status;
}

static tx_status self_wait(tx_comm *comm, int32_t request)
{
    return tx_requests_end(&((self *)comm)->requests, request);
}

static tx_status self_background(tx_comm *comm, bool on)
{
    (void)on; /* nothing moves */
    return tx_requests_idle(&((self *)comm)->requests, "background");
}

static tx_status self_send(tx_comm *comm, const void *data, int64_t count, tx_dtype dtype, int32_t to)
{
    return tx_comm_check_pair(comm, "send", data, count, dtype, to);
}

static tx_status self_receive(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t from)
{
    return tx_comm_check_pair(comm, "receive", data, count, dtype, from);
}

static void self_traffic(const tx_comm *comm, tx_comm_traffic *traffic)
{
    (void)comm;
    *traffic = (tx_comm_traffic){0};
}

static void self_tell(tx_comm *comm, int64_t step, const char *doing)
{
    (void)comm;
    (void)step;
    (void)doing;
}

static bool self_hear(tx_comm *comm, int32_t rank, tx_comm_peer *peer)
{
    (void)comm;
    (void)rank;
    (void)peer;
    return false;
}

static bool self_laggard(tx_comm *comm, tx_comm_laggard *laggard)
{
    (void)comm;
    (void)laggard;
    return false;
}

const tx_comm_table tx_comm_self_table = {
    .version = TX_COMM_VERSION,
    .name = "self",
    .open = self_open,
    .close = self_close,
    .window = self_window,
    .begin = self_begin,
    .wait = self_wait,
    .background = self_background,
    .send = self_send,
    .receive = self_receive,
    .traffic = self_traffic,
    .tell = self_tell,
    .hear = self_hear,
    .laggard = self_laggard,
};

const tx_comm_table *tx_comm_self(void)
{
    return &tx_comm_self_table;
}
