/* SPDX-License-Identifier: Apache-2.0
 * How ranks wait, the barrier of those that share memory, and who waits for whom. */
#include "comm/group.h"

#include "api/base/clock.h"
#include "comm/message.h"

#include <inttypes.h>
#include <sched.h>

/* ---- Patience -------------------------------------------------------------------------------------------------- */

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
    tx_messages_move_on();
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

/* ---- Ranks that share memory ------------------------------------------------------------------------------------ */

void tx_group_wait_for(tx_group *group, int32_t rank)
{
    atomic_store_explicit(&group->mark[group->place]->waits_for, rank, memory_order_relaxed);
}

/* Each rank counts the barriers that it came to; it goes on when all have come to as many. */
void tx_group_barrier(tx_group *g)
{
    const long long turn = ++g->barriers;
    bool told = false;
    atomic_store_explicit(&g->mark[g->place]->arrived, turn, memory_order_release);
    tx_patience_begin(&g->patience);
    for (int32_t i = 0; i < g->size; i++)
        while (atomic_load_explicit(&g->mark[i]->arrived, memory_order_acquire) < turn)
            if (tx_patience_pause(&g->patience)) {
                tx_group_wait_for(g, g->member[i]);
                told = true;
            }
    if (told)
        tx_group_wait_for(g, -1);
}

tx_status tx_group_meet(tx_group *g, uint64_t doing)
{
    atomic_store_explicit(&g->mark[g->place]->doing, doing, memory_order_relaxed);
    tx_group_barrier(g);
    for (int32_t i = 0; i < g->size; i++)
        if (atomic_load_explicit(&g->mark[i]->doing, memory_order_relaxed) != doing)
            return tx_fail(TX_INVALID,
                           "ranks %" PRId32 " and %" PRId32 " began different transfers: every rank begins the same "
                           "ones, of the same size and place, in the same order",
                           g->member[g->place], g->member[i]);
    return TX_OK;
}

static int32_t place_of(const tx_group *g, int32_t rank)
{
    for (int32_t i = 0; i < g->size; i++)
        if (g->member[i] == rank)
            return i;
    return -1;
}

int32_t tx_group_laggard(const tx_group *g)
{
    int32_t last = -1;
    for (int32_t i = 0, place = g->place; i < g->size && place >= 0; i++) {
        int32_t next = atomic_load_explicit(&g->mark[place]->waits_for, memory_order_relaxed);
        if (next < 0 || next == g->member[g->place])
            break;
        last = next;
        place = place_of(g, next);
    }
    return last;
}
