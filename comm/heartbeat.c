/* SPDX-License-Identifier: Apache-2.0
 * The heartbeat of the ranks, by datagrams. */
#include "comm/heartbeat.h"

#include "api/base/clock.h"

#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ADDRESSES = 12, /* maximum number of addresses of rank 0's host */
    TOKEN = 32,     /* characters */
    DATAGRAM = 256, /* maximum bytes */
    REPEATS = 3,
};

static const double first_wait = 2.0; /* seconds to wait for the first datagrams */

/* The family selects the member. The port is at the same offset in both. */
typedef union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} address;

/* The addresses of rank 0; count 0 if there are none. */
typedef struct place {
    int32_t count;
    address address[ADDRESSES];
    char token[TOKEN + 4];
} place;

typedef struct peer {
    tx_comm_peer known;
    bool reached; /* `at` is the source address of one of its datagrams */
    address at;
} peer;

struct tx_heartbeat {
    int32_t rank, size;
    int32_t first, end; /* ranks whose datagrams this rank receives and which it sends to */
    int socket[2];      /* by is_six(); -1 if closed */
    place zero;
    peer *peer; /* by rank */
};

/* ---- Addresses ------------------------------------------------------------------------------- */

static bool is_six(const struct sockaddr *at)
{
    return at->sa_family == AF_INET6;
}

static socklen_t size_of(const struct sockaddr *at)
{
    return is_six(at) ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* Opens a socket on any free port; -1 on failure. */
static int open_socket(int family)
{
    const address any = {.any.sa_family = (sa_family_t)family};
    const int result = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (result >= 0 && bind(result, &any.any, size_of(&any.any)) == 0)
        return result;
    if (result >= 0)
        close(result);
    return -1;
}

/* Adds an address of this host with the port of the corresponding socket. */
static void add_address(const tx_heartbeat *p, place *z, const struct sockaddr *at)
{
    address result, own;
    socklen_t size = sizeof own;
    if (z->count == ADDRESSES || (at->sa_family != AF_INET && !is_six(at)) ||
        getsockname(p->socket[is_six(at)], &own.any, &size) != 0)
        return;
    memcpy(&result, at, size_of(at));
    if (is_six(at) && IN6_IS_ADDR_LINKLOCAL(&result.six.sin6_addr)) /* needs the other host's interface number */
        return;
    result.four.sin_port = own.four.sin_port;
    z->address[z->count++] = result;
}

/* Collects the addresses of this host and creates a token. */
static void collect_addresses(const tx_heartbeat *p, place *z)
{
    unsigned char random[TOKEN / 2] = {0};
    struct ifaddrs *list = NULL;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random || getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && (i->ifa_flags & IFF_UP))
            add_address(p, z, i->ifa_addr);
    freeifaddrs(list);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(z->token + 2 * i, 3, "%02x", random[i]);
}

void tx_heartbeat_close(tx_heartbeat *p)
{
    if (!p)
        return;
    for (int i = 0; i < 2; i++)
        if (p->socket[i] >= 0)
            close(p->socket[i]);
    free(p->peer);
    free(p);
}

/* ---- Datagrams ------------------------------------------------------------------------------- */

/* A datagram that cannot be sent now is replaced by the next one. */
static void send_to(const tx_heartbeat *p, const address *to, const char *text, size_t length)
{
    (void)sendto(p->socket[is_six(&to->any)], text, length, MSG_NOSIGNAL | MSG_DONTWAIT, &to->any, size_of(&to->any));
}

/* Parses a datagram: TOKEN RANK STEP WAITS_FOR DOING */
static void parse_datagram(tx_heartbeat *p, const char *text, const address *from)
{
    tx_comm_peer received = {0};
    int32_t rank = -1;
    int used = 0;
    if (strncmp(text, p->zero.token, TOKEN) != 0 ||
        sscanf(text + TOKEN, " %" SCNd32 " %" SCNd64 " %" SCNd32 " %n", &rank, &received.step, &received.waits_for,
               &used) != 3 ||
        rank < 0 || rank >= p->size || rank == p->rank || received.waits_for < -1 || received.waits_for >= p->size)
        return;
    peer *sender = &p->peer[rank];
    received.beats = sender->known.beats + 1;
    snprintf(received.doing, sizeof received.doing, "%.*s", (int)sizeof received.doing - 1, text + TOKEN + used);
    *sender = (peer){received, true, *from};
}

static void receive_all(tx_heartbeat *p, int from)
{
    char text[DATAGRAM + 1];
    address at = {0};
    for (int32_t i = 0; i < 2 * p->size + 64; i++) { /* limits the work per call; the rest is read next time */
        socklen_t size = sizeof at;
        ssize_t got = recvfrom(from, text, DATAGRAM, MSG_DONTWAIT, &at.any, &size);
        if (got < 0)
            return;
        text[got] = 0;
        if (got > TOKEN)
            parse_datagram(p, text, &at);
    }
}

void tx_heartbeat_send(tx_comm *comm, int64_t step, const char *doing)
{
    tx_heartbeat *p = comm->heartbeat;
    char text[DATAGRAM];
    tx_comm_laggard late;
    if (!p || !p->zero.count)
        return;
    comm->table->laggard(comm, &late);
    size_t length = (size_t)snprintf(text, sizeof text, "%s %" PRId32 " %" PRId64 " %" PRId32 " %.*s", p->zero.token,
                                     p->rank, step, late.rank, (int)sizeof p->peer->known.doing - 1, doing);
    receive_all(p, p->socket[0]);
    receive_all(p, p->socket[1]);
    for (int32_t r = p->first; r < p->end; r++)
        if (p->peer[r].reached)
            send_to(p, &p->peer[r].at, text, length);
    for (int32_t i = 0; i < p->zero.count && p->rank > 0 && !p->peer[0].reached; i++)
        send_to(p, &p->zero.address[i], text, length); /* until a reply shows which address works */
}

bool tx_heartbeat_read(tx_comm *comm, int32_t rank, tx_comm_peer *received)
{
    if (!comm->heartbeat)
        return false;
    *received = comm->heartbeat->peer[rank].known;
    return received->beats > 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool has_heard_all(const tx_heartbeat *p)
{
    for (int32_t r = p->first; r < p->end; r++)
        if (p->peer[r].known.beats == 0)
            return false;
    return true;
}

/* Sends and receives until each rank has heard its peers. From then on, silence indicates a failure. A rank that is
 * not heard within the waiter is ignored by the watchdog. */
static void exchange_first(tx_comm *comm)
{
    const double end = tx_now() + first_wait;
    do {
        tx_heartbeat_send(comm, -1, "joining");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (!has_heard_all(comm->heartbeat) && tx_now() < end);
    for (int32_t i = 0; i < REPEATS; i++) /* the last datagram may be lost */
        tx_heartbeat_send(comm, -1, "joining");
}

tx_status tx_heartbeat_open(tx_comm *comm)
{
    tx_heartbeat *p = calloc(1, sizeof *p);
    peer *peers = calloc((size_t)comm->size, sizeof *peers);
    if (!p || !peers) {
        free(p);
        free(peers);
        return tx_fail(TX_MEMORY, "no memory for the heartbeat of %" PRId32 " ranks", comm->size);
    }
    *p = (tx_heartbeat){.rank = comm->rank,
                        .size = comm->size,
                        .first = comm->rank == 0,
                        .end = comm->rank == 0 ? comm->size : 1,
                        .socket = {open_socket(AF_INET), open_socket(AF_INET6)},
                        .peer = peers};
    if (p->rank == 0)
        collect_addresses(p, &p->zero);
    tx_status status = tx_comm_collect(comm, TX_BROADCAST, &p->zero, sizeof p->zero / sizeof(int32_t), TX_I32, 0);
    if (status) {
        tx_heartbeat_close(p);
        return status;
    }
    comm->heartbeat = p;
    exchange_first(comm);
    return TX_OK;
}
