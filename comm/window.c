/* SPDX-License-Identifier: Apache-2.0
 * Shared memory segments without a name in a file system (memfd), so that nothing remains after the ranks end in any
 * way. Ranks send each other the file descriptors through sockets of the abstract namespace. These leave no name
 * either, and only need a common network namespace. Unlike /proc, they also work between user and process namespaces. A
 * segment is allocated completely when it is created. A lack of memory is therefore an error here, not a signal in the
 * middle of a sum. */
#define _GNU_SOURCE /* memfd_create */
#include "comm/window.h"

#include "api/base/arithmetic.h"
#include "api/base/memory_left.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

enum { TURN = 4 }; /* messages that a rank sends before it receives others */

/* The information that each rank sends to all others about its segment. */
typedef struct offer {
    int32_t status;   /* status so far */
    char mailbox[16]; /* abstract name of the socket that receives its descriptors (without the leading NUL) */
    uint64_t key;     /* sent with the segment's descriptor, because any process of the host may write to a mailbox */
    char text[320];   /* error message */
} offer;

/* State while a window is created. */
typedef struct making {
    tx_transport *transport;
    const tx_comm_layout *layout;
    const tx_comm_rank *ranks;
    const int32_t *member; /* ranks of the group, by place */
    tx_window *window;
    offer own, *all; /* by rank */
    int segment, mailbox;
} making;

/* ---- One segment ----------------------------------------------------------------------------- */

/* Maps a file; with file -1, maps private memory. */
static void *map(int file, int64_t bytes)
{
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* Both calls are best effort: huge pages, and page tables now instead of during the first sum. */
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    madvise(memory, (size_t)bytes, MADV_POPULATE_WRITE);
#endif
    return memory;
}

static tx_status fail_window(const tx_window *w, const char *what, int error)
{
    return tx_fail(error == ENOMEM ? TX_MEMORY : TX_IO,
                   "cannot %s a window of %" PRId32 " x %.1f MB in shared memory: %s; set TX_COMM_SHM=0 to disable "
                   "shared memory",
                   what, w->members, 1e-6 * (double)w->bytes, strerror(error));
}

/* Linux kills processes rather than refusing memory. Enough memory for the whole group must therefore be available
 * before one rank allocates any. */
static tx_status check_room(const tx_window *w)
{
    char owner[200];
    const int64_t left = tx_memory_left("", owner, sizeof owner);
    if (w->members == 1 || w->bytes <= left / w->members)
        return TX_OK;
    return tx_fail(TX_MEMORY,
                   "cannot make a window of %" PRId32 " x %.1f MB in shared memory: %s has %.1f MB of memory left; "
                   "increase it, or run fewer ranks on a host",
                   w->members, 1e-6 * (double)w->bytes, owner, 1e-6 * (double)left);
}

static tx_status make_segment(making *m)
{
    tx_window *w = m->window;
    if (w->members == 1) {
        w->segment[0] = map(-1, w->bytes);
        return w->segment[0] ? TX_OK : tx_fail(TX_MEMORY, "has no memory for a window of %" PRId64 " bytes", w->bytes);
    }
    m->segment = memfd_create("tx", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (m->segment < 0 && errno == EINVAL) /* before Linux 6.3 */
        m->segment = memfd_create("tx", MFD_CLOEXEC);
    int error = m->segment < 0 ? errno : EINTR;
    while (error == EINTR)
        error = posix_fallocate(m->segment, 0, w->bytes);
    if (error)
        return fail_window(w, "make", error);
    w->segment[w->place] = map(m->segment, w->bytes);
    return w->segment[w->place] ? TX_OK : fail_window(w, "map", errno);
}

/* ---- File descriptors ------------------------------------------------------------------------ */

/* Opens a socket with a name that the system chooses. */
static tx_status open_mailbox(making *m)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name;
    m->mailbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (m->mailbox < 0 || bind(m->mailbox, (const struct sockaddr *)&name, sizeof name.sun_family) != 0 ||
        getsockname(m->mailbox, (struct sockaddr *)&name, &size) != 0 ||
        getrandom(&m->own.key, sizeof m->own.key, 0) != (ssize_t)sizeof m->own.key)
        return fail_window(m->window, "share", errno);
    snprintf(m->own.mailbox, sizeof m->own.mailbox, "%.*s", (int)(size - offsetof(struct sockaddr_un, sun_path) - 1),
             name.sun_path + 1);
    return TX_OK;
}

/* A message that carries a key and a file descriptor. */
typedef struct fd_message {
    uint64_t key;
    struct iovec text;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message;
} fd_message;

static void prepare(fd_message *l)
{
    *l = (fd_message){.text = {.iov_len = sizeof l->key}};
    l->text.iov_base = &l->key;
    l->message = (struct msghdr){
        .msg_iov = &l->text, .msg_iovlen = 1, .msg_control = l->control, .msg_controllen = sizeof l->control};
}

static tx_status send_segment(const making *m, int32_t to)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    fd_message l;
    prepare(&l);
    l.key = m->own.key;
    struct cmsghdr *head = CMSG_FIRSTHDR(&l.message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &m->segment, sizeof m->segment);
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s", m->all[to].mailbox);
    l.message.msg_name = &name;
    l.message.msg_namelen = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)length;
    if (sendmsg(m->mailbox, &l.message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return fail_window(m->window, "send its segment of", errno);
    return TX_OK;
}

/* Returns the place of the rank with that key; -1 if the sender is unknown. */
static int32_t place_of(const making *m, uint64_t key)
{
    for (int32_t i = 0; i < m->window->members; i++)
        if (i != m->window->place && m->all[m->member[i]].key == key)
            return i;
    return -1;
}

/* Receives the next message, which has already arrived. Messages of unknown senders are ignored. */
static tx_status receive_segment(const making *m, int32_t *place, int *file)
{
    for (fd_message l;;) {
        prepare(&l);
        if (recvmsg(m->mailbox, &l.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
            return fail_window(m->window, "receive another rank's segment of", errno);
        const struct cmsghdr *head = CMSG_FIRSTHDR(&l.message);
        const bool holds = head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len >= CMSG_LEN(sizeof(int));
        if (holds)
            memcpy(file, CMSG_DATA(head), sizeof *file);
        *place = place_of(m, l.key);
        if (*place >= 0)
            return holds ? TX_OK : fail_window(m->window, "receive another rank's segment of", EMFILE);
        if (holds)
            close(*file);
    }
}

static tx_status take_segment(const making *m)
{
    int32_t place = -1;
    int file = -1;
    TX_TRY(receive_segment(m, &place, &file));
    m->window->segment[place] = map(file, m->window->bytes);
    const int error = errno;
    close(file);
    return m->window->segment[place] ? TX_OK : fail_window(m->window, "map another rank's segment of", error);
}

/* ---- All segments ---------------------------------------------------------------------------- */

void tx_window_free(tx_window *window)
{
    for (int32_t i = 0; window && i < window->members; i++)
        if (window->segment[i])
            munmap(window->segment[i], (size_t)window->bytes);
    free(window);
}

/* Sends this rank's status to all ranks, and returns the same status and message on every rank. */
static tx_status agree(making *m, tx_status status)
{
    m->own.status = (int32_t)status;
    snprintf(m->own.text, sizeof m->own.text, "%s", status ? tx_error() : "");
    TX_TRY(tx_transport_gather(m->transport, &m->own, m->all, sizeof m->own));
    for (int32_t r = 0; r < m->transport->size; r++)
        if (m->all[r].status)
            return tx_fail((tx_status)m->all[r].status, "rank %" PRId32 " on %s %s", r, m->ranks[r].name,
                           m->all[r].text);
    return TX_OK;
}

/* In a turn each rank sends to TURN of the following ranks of its group, and then receives as many messages. All
 * ranks synchronize between the two, and all groups use as many turns as the largest. Nothing therefore waits, and
 * a mailbox holds the messages of at most two turns (Linux allows 10). */
static tx_status exchange(making *m)
{
    const int32_t members = m->window->members;
    tx_status status = TX_OK;
    for (int32_t first = 1;; first += TURN) {
        const int32_t end = first + TURN < members ? first + TURN : members;
        for (int32_t i = first; i < end && !status; i++)
            status = send_segment(m, m->member[(m->window->place + i) % members]);
        TX_TRY(agree(m, status));
        if (first >= m->layout->most_members)
            return TX_OK;
        for (int32_t i = first; i < end && !status; i++)
            status = take_segment(m);
    }
}

static tx_status make_own(making *m)
{
    TX_TRY(make_segment(m));
    return m->window->members > 1 ? open_mailbox(m) : TX_OK;
}

static tx_status fill(making *m)
{
    TX_TRY(agree(m, check_room(m->window)));
    TX_TRY(agree(m, make_own(m)));
    return exchange(m);
}

tx_status tx_window_create(tx_transport *transport, const tx_comm_layout *layout, const tx_comm_rank *ranks,
                           int64_t bytes, tx_window **window)
{
    const int32_t group = layout->group[transport->rank];
    const int32_t members = layout->start[group + 1] - layout->start[group];
    const int64_t page = sysconf(_SC_PAGESIZE);
    if (bytes <= 0 || bytes > INT64_MAX - page)
        return tx_fail(TX_INVALID, "a window of %" PRId64 " bytes is invalid; use at least 1", bytes);
    tx_window *w = calloc(1, sizeof *w + (size_t)members * sizeof *w->segment);
    offer *all = malloc((size_t)transport->size * sizeof *all);
    if (!w || !all) {
        free(w);
        free(all);
        return tx_fail(TX_MEMORY, "no memory for a window's description");
    }
    w->bytes = tx_round_up(bytes, page);
    w->place = layout->place[transport->rank];
    w->members = members;
    making m = {.transport = transport,
                .layout = layout,
                .ranks = ranks,
                .member = layout->member + layout->start[group],
                .window = w,
                .all = all,
                .segment = -1,
                .mailbox = -1};
    tx_status status = fill(&m);
    if (m.segment >= 0)
        close(m.segment);
    if (m.mailbox >= 0)
        close(m.mailbox);
    free(all);
    return TX_RETURN(status, w, window, tx_window_free);
}

const tx_window *tx_window_find(const tx_window *list, const void *data, int64_t bytes)
{
    const uintptr_t at = (uintptr_t)data;
    for (const tx_window *w = list; w; w = w->next) {
        const uintptr_t first = (uintptr_t)w->segment[w->place];
        if (at >= first && at - first < (uintptr_t)w->bytes && (uintptr_t)bytes <= (uintptr_t)w->bytes - (at - first))
            return w;
    }
    return NULL;
}
