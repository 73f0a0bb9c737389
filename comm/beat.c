/* SPDX-License-Identifier: Apache-2.0
 * Heartbeats: the lines, and the rank's end of the connection. */
#include "comm/beat.h"

#include "api/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const words[TX_BEAT_COUNT] = {
#define X(name, word) word,
    TX_BEAT_MAP(X)
#undef X
};

/* ---- Lines ----------------------------------------------------------------------------------------- */

size_t tx_beat_print(const tx_beat *b, char line[TX_BEAT_LINE])
{
    char *end = line + TX_BEAT_LINE - 1;
    int length = snprintf(line, TX_BEAT_LINE - 1, "%s", words[b->kind]);
    char *at = line + length;
    size_t room = (size_t)(end - at);
    switch (b->kind) {
    case TX_BEAT_HELLO:
        length = snprintf(at, room, " %s %" PRId32 " %" PRId32 " %" PRId64 " %s", b->token, b->rank, b->size, b->pid,
                          b->host);
        break;
    case TX_BEAT_STEP:
        length = snprintf(at, room, " %" PRId64, b->step);
        break;
    case TX_BEAT_WAIT:
    case TX_BEAT_LOST:
        length = snprintf(at, room, " %" PRId32 " %" PRId64 " %" PRId32, b->rank, b->step, b->bucket);
        break;
    case TX_BEAT_SAVED:
        length = snprintf(at, room, " %s", b->text);
        break;
    case TX_BEAT_FAILED:
        length = snprintf(at, room, " %" PRId32 " %s", b->status, b->text);
        break;
    default:
        length = 0;
    }
    at += length; /* every text is shorter than the line */
    for (char *c = line; c < at; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    *at++ = '\n';
    *at = 0;
    return (size_t)(at - line);
}

/* Takes a blank and the number after it. */
static bool take_number(const char **at, int64_t least, int64_t most, int64_t *number)
{
    char *end;
    if ((*at)[0] != ' ' || ((*at)[1] != '-' && ((*at)[1] < '0' || (*at)[1] > '9')))
        return false;
    errno = 0;
    int64_t value = strtoll(*at + 1, &end, 10);
    if (errno || end == *at + 1 || (*end && *end != ' ') || value < least || value > most)
        return false;
    *at = end;
    *number = value;
    return true;
}

static bool take_small(const char **at, int32_t least, int32_t *number)
{
    int64_t value;
    if (!take_number(at, least, INT32_MAX, &value))
        return false;
    *number = (int32_t)value;
    return true;
}

/* Takes a blank and a word of 1 to room - 1 characters. */
static bool take_word(const char **at, char *word, size_t room)
{
    if (**at != ' ')
        return false;
    size_t length = strcspn(*at + 1, " ");
    if (length == 0 || length >= room)
        return false;
    memcpy(word, *at + 1, length);
    word[length] = 0;
    *at += 1 + length;
    return true;
}

/* Takes a blank and the rest, cut to its room; no text at all is an empty one. */
static bool take_text(const char **at, char *text, size_t room)
{
    if (**at && **at != ' ')
        return false;
    snprintf(text, room, "%.*s", (int)room - 1, **at ? *at + 1 : "");
    *at += strlen(*at);
    return true;
}

static bool parse_rest(const char **at, tx_beat *b)
{
    switch (b->kind) {
    case TX_BEAT_HELLO:
        return take_word(at, b->token, sizeof b->token) && take_small(at, 0, &b->rank) && take_small(at, 1, &b->size) &&
               take_number(at, 1, INT64_MAX, &b->pid) && take_word(at, b->host, sizeof b->host) && b->rank < b->size;
    case TX_BEAT_STEP:
        return take_number(at, -1, INT64_MAX, &b->step);
    case TX_BEAT_WAIT:
    case TX_BEAT_LOST:
        return take_small(at, 0, &b->rank) && take_number(at, -1, INT64_MAX, &b->step) &&
               take_small(at, -1, &b->bucket);
    case TX_BEAT_SAVED:
        return take_text(at, b->text, sizeof b->text) && b->text[0];
    case TX_BEAT_FAILED:
        return take_small(at, 0, &b->status) && take_text(at, b->text, sizeof b->text);
    default:
        return true;
    }
}

bool tx_beat_parse(const char *line, size_t length, tx_beat *beat)
{
    char text[TX_BEAT_LINE];
    if (length >= sizeof text || memchr(line, 0, length))
        return false;
    memcpy(text, line, length);
    text[length] = 0;
    size_t word = strcspn(text, " ");
    for (int kind = 0; kind < TX_BEAT_COUNT; kind++) {
        if (strlen(words[kind]) != word || strncmp(text, words[kind], word) != 0)
            continue;
        tx_beat read = {.kind = (tx_beat_kind)kind};
        const char *at = text + word;
        if (!parse_rest(&at, &read) || *at)
            return false;
        *beat = read;
        return true;
    }
    return false;
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
        *link = made;
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
