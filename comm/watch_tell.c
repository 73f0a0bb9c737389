/* SPDX-License-Identifier: Apache-2.0
 * What the watch tells: lines to the user, heartbeats to txlaunch. */
#include "comm/watch_state.h"

#include "api/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double beat_every = 0.5; /* seconds between heartbeats at the most */

/* ---- Lines --------------------------------------------------------------------------------------------- */

void tx_watch_say(const tx_watch *w, const char *format, ...)
{
    char line[1200];
    size_t length = (size_t)snprintf(line, sizeof line / 2, "%s: ", w->o.program);
    va_list args;
    va_start(args, format);
    vsnprintf(line + length, sizeof line - 1 - length, format, args);
    va_end(args);
    if (w->o.tell) {
        w->o.tell(w->o.context, line);
        return;
    }
    length = strlen(line);
    line[length++] = '\n';
    for (size_t at = 0; at < length;) {
        ssize_t done = write(STDERR_FILENO, line + at, length - at);
        if (done < 0 && errno != EINTR)
            return;
        at += done > 0 ? (size_t)done : 0;
    }
}

/* ---- Heartbeats, under the lock --------------------------------------------------------------------------- */

static void leave_launcher(tx_watch *w)
{
    close(w->link);
    w->link = -1;
    if (!w->over && w->rank == 0)
        tx_watch_say(w, "the launcher is gone; the run goes on without it");
}

void tx_watch_send(tx_watch *w, const tx_beat *beat, double seconds)
{
    if (w->link >= 0 && (tx_beat_gone(w->link) || !tx_beat_send(w->link, beat, seconds)))
        leave_launcher(w);
}

void tx_watch_send_step(tx_watch *w, double least)
{
    double now = tx_now();
    if (w->link < 0 || now - w->beat < least)
        return;
    w->beat = now;
    tx_watch_send(w, &(tx_beat){.kind = TX_BEAT_STEP, .step = w->step}, 0.0);
}

void tx_watch_join_launcher(tx_watch *w)
{
    const char *place = getenv(TX_BEAT_VARIABLE);
    if (!place || !*place)
        return;
    if (tx_beat_connect(place, 5.0, &w->link, w->token)) {
        tx_watch_say(w, "rank %" PRId32 ": %.400s; the run goes on without it", w->rank, tx_error());
        return;
    }
    tx_beat hello = {.kind = TX_BEAT_HELLO, .rank = w->rank, .size = w->size, .pid = getpid()};
    snprintf(hello.token, sizeof hello.token, "%s", w->token);
    snprintf(hello.host, sizeof hello.host, "%s", w->host);
    for (char *c = hello.host; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    tx_watch_send(w, &hello, 5.0);
}

void tx_watch_beat(tx_watch *w)
{
    if (w->link >= 0 && tx_beat_gone(w->link))
        leave_launcher(w);
    if (w->link < 0 || tx_now() - w->beat < beat_every)
        return;
    tx_watch_send_step(w, 0.0);
    tx_comm_laggard other;
    if (w->link >= 0 && !w->over && w->comm && w->quiet > 2.0 * beat_every && w->comm->table->laggard(w->comm, &other))
        tx_watch_send(w, &(tx_beat){.kind = TX_BEAT_WAIT, .rank = other.rank, .step = -1, .bucket = other.bucket}, 0.0);
}
