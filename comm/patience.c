/* SPDX-License-Identifier: Apache-2.0
 * Waiting that leaves the core to others. */
#include "comm/patience.h"
#include "api/base/clock.h"

#include <sched.h>

enum {
    SPINS = 200,  /* tries at once; then sched_yield between them */
    GRACE = 1000, /* microseconds before the first sleep, unless the last wait was as long */
    BURST = 16,   /* tries at once between two sleeps: one try moves but a part of what has arrived */
    SHORT = 50,   /* microseconds slept at least ... */
    LONG = 500,   /* ... and at most, */
    PART = 16,    /* else this part of the time waited so far */
};

void tx_patience_begin(tx_patience *patience)
{
    patience->long_before = patience->waited >= GRACE;
    patience->waited = 0.0;
    patience->tries = 0;
}

bool tx_patience_pause(tx_patience *p)
{
    if (++p->tries < SPINS)
        return false;
    if (p->tries == SPINS)
        p->began = tx_now();
    if (p->tries % BURST != 0 && p->waited >= GRACE)
        return false;
    p->waited = 1e6 * (tx_now() - p->began);
    if (p->waited < GRACE && !p->long_before) {
        sched_yield();
        return false;
    }
    if (p->tries % BURST != 0)
        return false;
    double pause = p->waited / PART < SHORT ? SHORT : p->waited / PART > LONG ? LONG : p->waited / PART;
    nanosleep(&(struct timespec){.tv_nsec = (long)(1000.0 * pause)}, NULL);
    return true;
}
