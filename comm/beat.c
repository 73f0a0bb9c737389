/* SPDX-License-Identifier: Apache-2.0
 * Heartbeats: the lines, and the rank's end of the connection. */
#include "comm/beat.h"

#include "api/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What stands behind a word: its type, and the least number or the least length of a text. */
typedef struct field {
    enum { INT32, INT64, WORD, REST } type; /* REST: all that follows, cut to its room */
    size_t at, room;
    int64_t least;
} field;

#define FIELD(type, member, least)                                           \
    {                                                                        \
        type, offsetof(tx_beat, member), sizeof((tx_beat *)0)->member, least \
    }
static const field fields[] = {
    ['t'] = FIELD(WORD, token, 1),    ['r'] = FIELD(INT32, rank, 0),   ['n'] = FIELD(INT32, size, 1),
    ['p'] = FIELD(INT64, pid, 1),     ['h'] = FIELD(WORD, host, 1),    ['s'] = FIELD(INT64, step, -1),
    ['b'] = FIELD(INT32, bucket, -1), ['e'] = FIELD(INT32, status, 0), ['f'] = FIELD(REST, text, 1),
    ['m'] = FIELD(REST, text, 0),
};
#undef FIELD

static const struct {
    const char *word, *fields;
} lines[TX_BEAT_COUNT] = {
#define X(name, word, fields) {word, fields},
    TX_BEAT_MAP(X)
#undef X
};

/* ---- Lines ----------------------------------------------------------------------------------------- */

size_t tx_beat_print(const tx_beat *b, char line[TX_BEAT_LINE])
{
    char *at = line + sprintf(line, "%s", lines[b->kind].word); /* all texts together are shorter than the line */
    for (const char *name = lines[b->kind].fields; *name; name++) {
        const field *f = &fields[(unsigned char)*name];
        const void *value = (const char *)b + f->at;
        if (f->type == INT32)
            at += sprintf(at, " %" PRId32, *(const int32_t *)value);
        else if (f->type == INT64)
            at += sprintf(at, " %" PRId64, *(const int64_t *)value);
        else
            at += sprintf(at, " %s", (const char *)value);
    }
    for (char *c = line; c < at; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    *at++ = '\n';
    *at = 0;
    return (size_t)(at - line);
}

/* Takes a blank and the number after it. */
static bool take_number(const char **at, const field *f, void *to)
{
    char *end;
    if ((*at)[0] != ' ' || ((*at)[1] != '-' && ((*at)[1] < '0' || (*at)[1] > '9')))
        return false;
    errno = 0;
    int64_t value = strtoll(*at + 1, &end, 10);
    if (errno || end == *at + 1 || (*end && *end != ' ') || value < f->least ||
        value > (f->type == INT32 ? INT32_MAX : INT64_MAX))
        return false;
    *at = end;
    if (f->type == INT32)
        *(int32_t *)to = (int32_t)value;
    else
        *(int64_t *)to = value;
    return true;
}

/* Takes a blank and the text after it; where it may be empty, the blank may lack. */
static bool take_text(const char **at, const field *f, char *to)
{
    const char *text = **at == ' ' ? *at + 1 : *at;
    const size_t length = f->type == WORD ? strcspn(text, " ") : strlen(text);
    if ((**at && **at != ' ') || length < (size_t)f->least || (f->type == WORD && length >= f->room))
        return false;
    snprintf(to, f->room, "%.*s", (int)length, text);
    *at = text + length;
    return true;
}

bool tx_beat_parse(const char *line, size_t length, tx_beat *beat)
{
    char text[TX_BEAT_LINE];
    if (length >= sizeof text || memchr(line, 0, length))
        return false;
    memcpy(text, line, length);
    text[length] = 0;
    size_t word = strcspn(text, " ");
    int kind = 0;
    while (kind < TX_BEAT_COUNT && (strlen(lines[kind].word) != word || strncmp(text, lines[kind].word, word) != 0))
        kind++;
    if (kind == TX_BEAT_COUNT)
        return false;
    tx_beat read = {.kind = (tx_beat_kind)kind};
    const char *at = text + word;
    for (const char *name = lines[kind].fields; *name; name++) {
        const field *f = &fields[(unsigned char)*name];
        void *to = (char *)&read + f->at;
        if (f->type == INT32 || f->type == INT64 ? !take_number(&at, f, to) : !take_text(&at, f, to))
            return false;
    }
    if (*at || (kind == TX_BEAT_HELLO && read.rank >= read.size))
        return false;
    *beat = read;
    return true;
}

/* ---- The connection ----------------------------------------------------------------------------------- */

/* Waits until the socket can be written to. */
static bool writable(int link, double seconds)
{
    double end = tx_now() + seconds;
    for (;;) {
        double left = end - tx_now();
        struct pollfd wanted = {.fd = link, .events = POLLOUT};
        int ready = poll(&wanted, 1, left > 0.0 ? (int)(1000.0 * left) + 1 : 0);
        if (ready > 0)
            return true;
        if ((ready < 0 && errno != EINTR) || left <= 0.0)
            return false;
    }
}

/* When a process ends, Linux closes its files from the highest number down. What tells the launcher of MPI's ranks that
 * one has ended comes behind this connection then, so that txlaunch hears of it before the others are ended. */
static int on_top(int link)
{
    enum { TOP = 1000 }; /* of the usual 1024 */
    const int top = fcntl(link, F_DUPFD_CLOEXEC, TOP);
    if (top < 0)
        return link;
    close(link);
    return top;
}

/* 0, or the errno of what failed. */
static int connect_to(const struct addrinfo *to, double seconds, int *link)
{
    int made = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
    if (made < 0)
        return errno;
    int fault = connect(made, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (fault == EINPROGRESS || fault == EINTR) {
        socklen_t size = sizeof fault;
        fault = ETIMEDOUT;
        if (writable(made, seconds) && getsockopt(made, SOL_SOCKET, SO_ERROR, &fault, &size) != 0)
            fault = errno;
    }
    if (fault)
        close(made);
    else
        *link = on_top(made);
    return fault;
}

tx_status tx_beat_connect(const char *place, double seconds, int *link, char token[TX_BEAT_TOKEN + 1])
{
    char address[256];
    int written = snprintf(address, sizeof address, "%s", place);
    char *key = strrchr(address, ':');
    if (key)
        *key++ = 0;
    char *port = key ? strrchr(address, ':') : NULL;
    if (port)
        *port++ = 0;
    if (!port || written >= (int)sizeof address || strlen(key) != TX_BEAT_TOKEN)
        return tx_fail(TX_FORMAT, "%s: must be ADDRESS:PORT:TOKEN, as txlaunch sets it", TX_BEAT_VARIABLE);
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fault = getaddrinfo(address, port, &hints, &found);
    if (fault)
        return tx_fail(TX_FORMAT, "%s: %s port %s: %s", TX_BEAT_VARIABLE, address, port, gai_strerror(fault));
    fault = connect_to(found, seconds, link);
    freeaddrinfo(found);
    if (fault)
        return tx_fail(TX_IO, "the launcher at %s port %s cannot be reached: %s", address, port, strerror(fault));
    memcpy(token, key, TX_BEAT_TOKEN + 1);
    return TX_OK;
}

bool tx_beat_send(int link, const tx_beat *beat, double seconds)
{
    char line[TX_BEAT_LINE];
    size_t length = tx_beat_print(beat, line), sent = 0;
    while (sent < length) {
        ssize_t now = send(link, line + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (now > 0) {
            sent += (size_t)now;
            continue;
        }
        if (now < 0 && errno == EINTR)
            continue;
        if (now == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            return false;
        if (sent == 0 && seconds <= 0.0)
            return true; /* the launcher is slow: there will be other lines */
        /* A line must not end half-way. */
        if (!writable(link, seconds > 0.0 ? seconds : 1.0))
            return false;
    }
    return true;
}

bool tx_beat_gone(int link)
{
    char byte;
    ssize_t got = recv(link, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
