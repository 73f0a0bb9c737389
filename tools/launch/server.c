/* SPDX-License-Identifier: Apache-2.0
 * The heartbeats' other end. Lines are read by epoll, and closed connections by a second one, which hands them out in
 * the order in which they closed: after a rank died the launcher ends the others within milliseconds, and it matters
 * who was first. */
#include "api/base/clock.h"
#include "tools/launch/txlaunch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STRANGERS = 64, /* connections besides those of the ranks */
    EVENTS = 64,
    READS = 64, /* of one connection before the others have their turn */
};
static const double hello_within = 10.0; /* seconds */

typedef struct connection {
    int socket;   /* -1: none */
    int32_t rank; /* -1: it said no hello */
    double since;
    bool skips; /* the rest of a line that is too long */
    size_t used;
    char line[TX_BEAT_LINE];
} connection;

struct tx_launch_server {
    int listener, lines, ends; /* the socket; what there is to read; who closed */
    char address[64];          /* as ranks are told it, with the port */
    char token[TX_BEAT_TOKEN + 1];
    connection *connection;
    int32_t count; /* room for ranks and strangers */
};

/* ---- Opening ---------------------------------------------------------------------------------------------- */

/* Listens on an address of this host; false where it is none. */
static bool listen_on(const struct addrinfo *at, int *listener)
{
    int made = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0 && bind(made, at->ai_addr, at->ai_addrlen) == 0 && listen(made, 1024) == 0) {
        *listener = made;
        return true;
    }
    int error = errno;
    if (made >= 0)
        close(made);
    errno = error;
    return false;
}

static tx_status look_up(const char *name, struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    int fault = getaddrinfo(name, NULL, &hints, found);
    return fault ? tx_fail(TX_NOT_FOUND, "%s: no such host: %s", name, gai_strerror(fault)) : TX_OK;
}

static tx_status listen_at(const char *name, int *listener)
{
    struct addrinfo *found = NULL;
    TX_TRY(look_up(name, &found));
    bool done = false;
    for (const struct addrinfo *at = found; at && !done; at = at->ai_next)
        done = listen_on(at, listener);
    const int error = errno;
    freeaddrinfo(found);
    return done ? TX_OK
                : tx_fail(TX_IO, "%s: cannot listen there: %s; --address takes an address of this host", name,
                          strerror(error));
}

/* Listens on the address from which packets to `to` leave. */
static bool listen_towards(const struct addrinfo *to, int *listener)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } there, own;
    socklen_t size = sizeof own;
    struct addrinfo at = *to;
    memcpy(&there, to->ai_addr, to->ai_addrlen);
    there.any.sa_data[1] = 9; /* the port's place is the same in both families; no packet is sent */
    int made = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = made >= 0 && connect(made, &there.any, to->ai_addrlen) == 0 && getsockname(made, &own.any, &size) == 0;
    if (made >= 0)
        close(made);
    if (!known)
        return false;
    own.any.sa_data[0] = own.any.sa_data[1] = 0; /* any port */
    at.ai_addr = &own.any;
    at.ai_addrlen = size;
    return listen_on(&at, listener);
}

/* Where ranks of the hosts reach this one. */
static tx_status listen_for(const tx_launch_hosts *hosts, int *listener)
{
    for (int32_t i = 0; i < hosts->count; i++) {
        struct addrinfo *found = NULL;
        int here = -1;
        TX_TRY(look_up(hosts->host[i].name, &found));
        bool local = listen_on(found, &here);
        bool done = !local && listen_towards(found, listener);
        freeaddrinfo(found);
        if (here >= 0)
            close(here);
        if (done)
            return TX_OK;
        if (!local)
            return tx_fail(TX_IO, "%s: no way there: %s; --address names the address of this host", hosts->host[i].name,
                           strerror(errno));
    }
    return listen_at("127.0.0.1", listener);
}

static tx_status name_address(tx_launch_server *s)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char host[48], port[8];
    if (getsockname(s->listener, (struct sockaddr *)&own, &size) != 0 ||
        getnameinfo((struct sockaddr *)&own, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return tx_fail(TX_IO, "the address of a socket is not known: %s", strerror(errno));
    snprintf(s->address, sizeof s->address, "%s:%s", host, port);
    return TX_OK;
}

static tx_status watch_for(int poll, int socket, uint32_t what, uint64_t number)
{
    struct epoll_event event = {.events = what, .data.u64 = number};
    return epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event) == 0
               ? TX_OK
               : tx_fail(TX_IO, "cannot wait for a socket: %s", strerror(errno));
}

/* Numbers of what is waited for beside the connections. */
#define LISTENER UINT64_MAX
#define ENDS (UINT64_MAX - 1)

static tx_status open_server(tx_launch_server *s, const char *address, const tx_launch_hosts *hosts)
{
    if (s->lines < 0 || s->ends < 0)
        return tx_fail(TX_MEMORY, "no descriptor for the heartbeats");
    TX_TRY(address ? listen_at(address, &s->listener) : listen_for(hosts, &s->listener));
    TX_TRY(name_address(s));
    TX_TRY(watch_for(s->lines, s->listener, EPOLLIN, LISTENER));
    return watch_for(s->lines, s->ends, EPOLLIN, ENDS);
}

tx_status tx_launch_server_open(const char *address, const tx_launch_hosts *hosts, tx_launch_server **server)
{
    tx_launch_server *s = calloc(1, sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "no memory for the heartbeats");
    s->listener = -1;
    s->lines = epoll_create1(EPOLL_CLOEXEC);
    s->ends = epoll_create1(EPOLL_CLOEXEC);
    tx_status status = open_server(s, address, hosts);
    if (status)
        tx_launch_server_close(s);
    else
        *server = s;
    return status;
}

static void drop(connection *c)
{
    if (c->socket >= 0)
        close(c->socket);
    c->socket = c->rank = -1;
}

void tx_launch_server_close(tx_launch_server *s)
{
    if (!s)
        return;
    for (int32_t i = 0; i < s->count; i++)
        drop(&s->connection[i]);
    const int open[] = {s->listener, s->lines, s->ends};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        if (open[i] >= 0)
            close(open[i]);
    free(s->connection);
    free(s);
}

tx_status tx_launch_server_begin(tx_launch_server *s, int32_t ranks, char place[128])
{
    unsigned char random[TX_BEAT_TOKEN / 2];
    for (int32_t i = 0; i < s->count; i++)
        drop(&s->connection[i]);
    free(s->connection);
    s->count = 0;
    s->connection = calloc((size_t)ranks + STRANGERS, sizeof *s->connection);
    if (!s->connection)
        return tx_fail(TX_MEMORY, "no memory for the heartbeats of %" PRId32 " ranks", ranks);
    s->count = ranks + STRANGERS;
    for (int32_t i = 0; i < s->count; i++)
        s->connection[i].socket = s->connection[i].rank = -1;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return tx_fail(TX_IO, "no random number: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(s->token + 2 * i, 3, "%02x", random[i]);
    snprintf(place, 128, "%s:%s", s->address, s->token);
    return TX_OK;
}

/* ---- Lines ---------------------------------------------------------------------------------------------------- */

static void accept_all(tx_launch_server *s)
{
    for (int made; (made = accept(s->listener, NULL, NULL)) >= 0;) {
        int32_t free_one = 0;
        while (free_one < s->count && s->connection[free_one].socket >= 0)
            free_one++;
        fcntl(made, F_SETFD, FD_CLOEXEC);
        if (free_one == s->count || watch_for(s->lines, made, EPOLLIN, (uint64_t)free_one) ||
            watch_for(s->ends, made, EPOLLRDHUP, (uint64_t)free_one)) {
            close(made);
            continue;
        }
        s->connection[free_one] = (connection){.socket = made, .rank = -1, .since = tx_now()};
    }
}

/* A whole line; false where the connection is not to be listened to any more. */
static bool take_line(tx_launch_server *s, connection *c, size_t length, tx_launch_job *job)
{
    tx_beat beat;
    bool read = tx_beat_parse(c->line, length, &beat);
    if (c->rank < 0) {
        if (!read || beat.kind != TX_BEAT_HELLO || strcmp(beat.token, s->token) != 0 ||
            !tx_launch_job_hear(job, beat.rank, &beat, tx_now()))
            return false;
        c->rank = beat.rank;
    } else if (read && beat.kind != TX_BEAT_HELLO) {
        tx_launch_job_hear(job, c->rank, &beat, tx_now());
    }
    return true;
}

/* Reads what there is; false at the end of the connection. */
static bool read_lines(tx_launch_server *s, connection *c, tx_launch_job *job)
{
    for (int turn = 0; turn < READS; turn++) {
        ssize_t got = recv(c->socket, c->line + c->used, sizeof c->line - c->used, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        c->used += (size_t)got;
        for (char *end; (end = memchr(c->line, '\n', c->used));) {
            size_t length = (size_t)(end - c->line);
            if (!c->skips && !take_line(s, c, length, job))
                return false;
            c->skips = false;
            c->used -= length + 1;
            memmove(c->line, end + 1, c->used);
        }
        if (c->used == sizeof c->line) {
            if (c->rank < 0)
                return false;
            c->skips = true;
            c->used = 0;
        }
    }
    return true;
}

static void read_connection(tx_launch_server *s, uint64_t number, tx_launch_job *job)
{
    connection *c = number < (uint64_t)s->count ? &s->connection[number] : NULL;
    if (!c || c->socket < 0 || read_lines(s, c, job))
        return;
    int32_t rank = c->rank;
    drop(c);
    if (rank >= 0)
        tx_launch_job_close(job, rank);
}

void tx_launch_server_wait(tx_launch_server *s, tx_launch_job *job, double seconds, const sigset_t *open)
{
    struct epoll_event event[EVENTS], end[EVENTS];
    int count = epoll_pwait(s->lines, event, EVENTS, seconds > 0.0 ? (int)(1000.0 * seconds) + 1 : 0, open);
    for (int ends; (ends = epoll_wait(s->ends, end, EVENTS, 0)) > 0;)
        for (int i = 0; i < ends; i++)
            read_connection(s, end[i].data.u64, job);
    for (int i = 0; i < count; i++)
        if (event[i].data.u64 == LISTENER)
            accept_all(s);
        else if (event[i].data.u64 != ENDS)
            read_connection(s, event[i].data.u64, job);
    for (int32_t i = 0; i < s->count; i++)
        if (s->connection[i].socket >= 0 && s->connection[i].rank < 0 &&
            tx_now() - s->connection[i].since > hello_within)
            drop(&s->connection[i]);
}
