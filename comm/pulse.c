/* SPDX-License-Identifier: Apache-2.0
 * The pulse of the ranks, by datagrams. */
#include "comm/pulse.h"

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
    ADDRESSES = 12, /* of rank 0's host at most */
    TOKEN = 32,     /* characters */
    DATAGRAM = 256, /* bytes at most */
    REPEATS = 3,
};

static const double patience = 2.0; /* seconds in which the first datagrams arrive */

/* Where rank 0 is reached. IPv4 addresses are written as IPv6 has them (::ffff:a.b.c.d). */
typedef struct place {
    uint32_t port; /* 0: it has no socket */
    int32_t count;
    struct in6_addr address[ADDRESSES];
    char token[TOKEN + 4];
} place;

typedef struct peer {
    tx_comm_peer known;
    bool reached; /* `at` is where a datagram of it came from */
    struct sockaddr_in6 at;
} peer;

struct tx_pulse {
    int32_t rank, size;
    int socket; /* -1: none */
    int family; /* of the socket: AF_INET where the kernel has no IPv6 */
    place zero;
    peer *peer; /* by rank */
};

/* ---- Addresses ------------------------------------------------------------------------------------------------ */

static struct in6_addr mapped(struct in_addr four)
{
    struct in6_addr six = {.s6_addr = {[10] = 0xFF, [11] = 0xFF}};
    memcpy(&six.s6_addr[12], &four, sizeof four);
    return six;
}

/* The kernel's form of an address for a socket of this family; 0 where the family does not have it. */
static socklen_t to_kernel(int family, const struct sockaddr_in6 *from, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    if (family == AF_INET6) {
        memcpy(to, from, sizeof *from);
        return sizeof *from;
    }
    if (!IN6_IS_ADDR_V4MAPPED(&from->sin6_addr))
        return 0;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = from->sin6_port};
    memcpy(&four.sin_addr, &from->sin6_addr.s6_addr[12], sizeof four.sin_addr);
    memcpy(to, &four, sizeof four);
    return sizeof four;
}

static void from_kernel(const struct sockaddr_storage *from, struct sockaddr_in6 *to)
{
    struct sockaddr_in four;
    if (from->ss_family == AF_INET6) {
        memcpy(to, from, sizeof *to);
        return;
    }
    memcpy(&four, from, sizeof four);
    *to =
        (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = four.sin_port, .sin6_addr = mapped(four.sin_addr)};
}

/* A socket on any free port; false where there is none. */
static bool open_socket(tx_pulse *p, uint32_t *port)
{
    const int off = 0;
    struct sockaddr_storage own = {.ss_family = AF_INET6};
    struct sockaddr_in6 at;
    socklen_t size = sizeof own;
    p->family = AF_INET6;
    p->socket = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->socket >= 0)
        setsockopt(p->socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (p->socket < 0 || bind(p->socket, (struct sockaddr *)&own, sizeof at) != 0) {
        if (p->socket >= 0)
            close(p->socket);
        p->family = AF_INET;
        own.ss_family = AF_INET;
        p->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (p->socket >= 0 && bind(p->socket, (struct sockaddr *)&own, sizeof(struct sockaddr_in)) != 0) {
            close(p->socket);
            p->socket = -1;
        }
    }
    if (p->socket < 0 || getsockname(p->socket, (struct sockaddr *)&own, &size) != 0)
        return false;
    from_kernel(&own, &at);
    *port = ntohs(at.sin6_port);
    return true;
}

static void add_address(place *z, const struct sockaddr *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (z->count == ADDRESSES)
        return;
    if (address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        z->address[z->count++] = mapped(four.sin_addr);
    } else if (address->sa_family == AF_INET6) {
        memcpy(&six, address, sizeof six);
        if (!IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) /* needs the other host's number of an interface */
            z->address[z->count++] = six.sin6_addr;
    }
}

/* The addresses of this host, and a token. */
static void describe(place *z)
{
    unsigned char random[TOKEN / 2] = {0};
    struct ifaddrs *list = NULL;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random || getifaddrs(&list) != 0) {
        z->port = 0;
        return;
    }
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && (i->ifa_flags & IFF_UP))
            add_address(z, i->ifa_addr);
    freeifaddrs(list);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(z->token + 2 * i, 3, "%02x", random[i]);
}

void tx_pulse_close(tx_pulse *p)
{
    if (!p)
        return;
    if (p->socket >= 0)
        close(p->socket);
    free(p->peer);
    free(p);
}

/* ---- Datagrams ------------------------------------------------------------------------------------------------- */

/* What does not go out now is followed by another. */
static void send_to(const tx_pulse *p, const struct sockaddr_in6 *to, const char *text, size_t length)
{
    struct sockaddr_storage at;
    socklen_t size = to_kernel(p->family, to, &at);
    if (size)
        (void)sendto(p->socket, text, length, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&at, size);
}

/* TOKEN RANK STEP WAITS_FOR BUCKET DOING */
static void take(tx_pulse *p, const char *text, const struct sockaddr_storage *from)
{
    tx_comm_peer told = {0};
    int32_t rank = -1;
    int used = 0;
    if (strncmp(text, p->zero.token, TOKEN) != 0 ||
        sscanf(text + TOKEN, " %" SCNd32 " %" SCNd64 " %" SCNd32 " %" SCNd32 " %n", &rank, &told.step, &told.waits_for,
               &told.bucket, &used) != 4 ||
        rank < 0 || rank >= p->size || rank == p->rank || told.waits_for < -1 || told.waits_for >= p->size)
        return;
    peer *sender = &p->peer[rank];
    told.beats = sender->known.beats + 1;
    snprintf(told.doing, sizeof told.doing, "%.*s", (int)sizeof told.doing - 1, text + TOKEN + used);
    sender->known = told;
    sender->reached = true;
    from_kernel(from, &sender->at);
}

static void take_all(tx_pulse *p)
{
    char text[DATAGRAM + 1];
    struct sockaddr_storage from = {0};
    for (int32_t i = 0; i < 2 * p->size + 64; i++) { /* a flood is left to the next time */
        socklen_t size = sizeof from;
        ssize_t got = recvfrom(p->socket, text, DATAGRAM, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
        if (got < 0)
            return;
        text[got] = 0;
        if (got > TOKEN)
            take(p, text, &from);
    }
}

/* To rank 0: where its answer came from, or all its addresses until one has come. */
static void tell_zero(const tx_pulse *p, const char *text, size_t length)
{
    if (p->peer[0].reached) {
        send_to(p, &p->peer[0].at, text, length);
        return;
    }
    for (int32_t i = 0; i < p->zero.count; i++) {
        const struct sockaddr_in6 at = {
            .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)p->zero.port), .sin6_addr = p->zero.address[i]};
        send_to(p, &at, text, length);
    }
}

void tx_pulse_tell(tx_pulse *p, const tx_comm_peer *own)
{
    char text[DATAGRAM];
    if (p->socket < 0 || !p->zero.port)
        return;
    int length = snprintf(text, sizeof text, "%s %" PRId32 " %" PRId64 " %" PRId32 " %" PRId32 " %s", p->zero.token,
                          p->rank, own->step, own->waits_for, own->bucket, own->doing);
    take_all(p);
    if (p->rank > 0)
        tell_zero(p, text, (size_t)length);
    for (int32_t r = 1; r < p->size && p->rank == 0; r++)
        if (p->peer[r].reached)
            send_to(p, &p->peer[r].at, text, (size_t)length);
}

bool tx_pulse_hear(const tx_pulse *p, int32_t rank, tx_comm_peer *told)
{
    *told = p->peer[rank].known;
    return p->peer[rank].known.beats > 0;
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

static bool hears_all(const tx_pulse *p)
{
    for (int32_t r = p->rank == 0 ? 1 : 0; r < (p->rank == 0 ? p->size : 1); r++)
        if (p->peer[r].known.beats == 0)
            return false;
    return true;
}

/* Until each rank has heard those that it hears, so that from now on silence is a sign; who is not heard by then is not
 * heard at all. */
static void greet(tx_pulse *p)
{
    const tx_comm_peer own = {.step = -1, .waits_for = -1, .bucket = -1, .doing = "joining"};
    const double end = tx_now() + patience;
    do {
        tx_pulse_tell(p, &own);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (!hears_all(p) && tx_now() < end);
    for (int32_t i = 0; i < REPEATS; i++) /* the last that was told may be lost */
        tx_pulse_tell(p, &own);
}

tx_status tx_pulse_open(tx_comm *comm, tx_pulse **pulse)
{
    tx_pulse *p = calloc(1, sizeof *p);
    place *all = calloc((size_t)comm->size, sizeof *all);
    peer *peers = calloc((size_t)comm->size, sizeof *peers);
    if (!p || !all || !peers) {
        free(p);
        free(all);
        free(peers);
        return tx_fail(TX_MEMORY, "no memory for the pulse of %" PRId32 " ranks", comm->size);
    }
    *p = (tx_pulse){.rank = comm->rank, .size = comm->size, .socket = -1, .peer = peers};
    if (open_socket(p, &all[comm->rank].port) && comm->rank == 0)
        describe(&all[0]);
    tx_status status = tx_comm_share(comm, all, sizeof *all);
    p->zero = all[0];
    free(all);
    if (status) {
        tx_pulse_close(p);
        return status;
    }
    greet(p);
    *pulse = p;
    return TX_OK;
}
