/* SPDX-License-Identifier: Apache-2.0
 * The communicator of one rank. The sum over the ranks is the rank's own data. */
#include "comm/common.h"
#include "comm/heartbeat.h"
#include "comm/queue.h"

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
    window *windows;
    struct self *sub; /* first subgroup; each subgroup points to the next */
} self;

extern const tx_comm_table tx_comm_self_table;

static tx_status make(tx_comm **comm)
{
    self *created = calloc(1, sizeof *created);
    if (!created || tx_queue_create(&created->base, NULL)) {
        free(created);
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    }
    struct utsname names;
    snprintf(created->only.name, sizeof created->only.name, "%.63s", uname(&names) == 0 ? names.nodename : "this host");
    created->base.table = &tx_comm_self_table;
    created->base.size = created->base.local_size = 1;
    created->base.ranks = &created->only;
    *comm = &created->base;
    return TX_OK;
}

static tx_status self_open(int *argc, char ***argv, tx_comm **comm)
{
    (void)argc;
    (void)argv;
#ifdef TX_MPI
    const char *advice = "start a program of one rank without a launcher";
#else
    const char *advice = "this build of TX has no MPI; start one process, or build with -DTX_MPI=ON";
#endif
    TX_TRY(tx_launcher_check(1, advice, false));
    return make(comm);
}

static tx_status self_sub(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub)
{
    self *s = (self *)parent;
    (void)colour;
    (void)key;
    TX_TRY(make(sub));
    ((self *)*sub)->sub = s->sub;
    s->sub = (self *)*sub;
    return TX_OK;
}

static void self_close(tx_comm *comm)
{
    self *s = (self *)comm;
    if (s && s->sub)
        self_close(&s->sub->base);
    while (s && s->windows) {
        window *next = s->windows->next;
        free(s->windows->memory);
        free(s->windows);
        s->windows = next;
    }
    if (s)
        tx_queue_free(s->base.queue);
    free(s);
}

static tx_status self_window(tx_comm *comm, int64_t bytes, void **memory)
{
    self *s = (self *)comm;
    TX_TRY(tx_queue_check_empty(comm, "window"));
    if (bytes <= 0)
        return tx_fail(TX_INVALID, "a window of %" PRId64 " bytes is invalid; use at least 1", bytes);
    window *created = calloc(1, sizeof *created);
    if (!created || posix_memalign(&created->memory, (size_t)sysconf(_SC_PAGESIZE), (size_t)bytes) != 0) {
        free(created);
        return tx_fail(TX_MEMORY, "no memory for a window of %" PRId64 " bytes", bytes);
    }
    memset(created->memory, 0, (size_t)bytes);
    created->next = s->windows;
    s->windows = created;
    *memory = created->memory;
    return TX_OK;
}

static tx_status self_begin_message(tx_comm *comm, const tx_message *message, int32_t *request)
{
    (void)request;
    return tx_comm_check_message(comm, message); /* there is no other rank */
}

static tx_status self_wait_message(tx_comm *comm, int32_t request)
{
    (void)comm;
    return tx_fail(TX_INVALID, "wait: message %" PRId32 " was not begun", request);
}

static void self_traffic(const tx_comm *comm, tx_comm_traffic *traffic)
{
    (void)comm;
    *traffic = (tx_comm_traffic){0};
}

static bool self_laggard(tx_comm *comm, tx_comm_laggard *laggard)
{
    (void)comm;
    laggard->begun = 0;
    return false;
}

const tx_comm_table tx_comm_self_table = {
    .name = "self",
    .open = self_open,
    .close = self_close,
    .sub = self_sub,
    .window = self_window,
    .begin = tx_queue_begin,
    .wait = tx_queue_wait,
    .background = tx_queue_background,
    .begin_message = self_begin_message,
    .wait_message = self_wait_message,
    .traffic = self_traffic,
    .send_status = tx_heartbeat_send,
    .read_status = tx_heartbeat_read,
    .laggard = self_laggard,
};

const tx_comm_table *tx_comm_self(void)
{
    return &tx_comm_self_table;
}
