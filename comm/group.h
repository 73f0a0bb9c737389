/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that reach each other's memory: where they stand, a barrier of their own (one of MPI's takes 8 ms where two
 * ranks share a core, this one microseconds), and whom each of them waits for. A rank alone is a group too. */
#ifndef TX_COMM_GROUP_H
#define TX_COMM_GROUP_H

#include "comm/comm.h"

#include <stdatomic.h>

#if ATOMIC_LLONG_LOCK_FREE != 2 || ATOMIC_INT_LOCK_FREE != 2
#error "processes share these atomics: they must be free of locks"
#endif

/* How a rank waits for others: it tries again at once some times, then gives its core away between tries, and when
 * nothing came for a while it sleeps between them, so that whoever computes on the same core keeps it. After a long
 * wait the next one comes to sleeping sooner. */
typedef struct tx_waiter {
    bool long_before; /* what the last wait was */
    bool told;        /* the group knows of this wait */
    int32_t tries;
    double began, waited; /* when this wait passed its first tries, and the microseconds since */
} tx_waiter;

/* What a rank tells the others of its group, in memory of its own that they map. */
typedef struct tx_mark {
    _Alignas(64) atomic_llong arrived; /* barriers that it has come to */
    atomic_ullong doing;               /* a digest of the transfer that it is in */
    atomic_int waits_for;              /* a rank, -1: none */
} tx_mark;

typedef struct tx_group {
    int32_t place, size;
    const int32_t *member; /* ranks by place */
    tx_mark *const *mark;  /* by place */
    int64_t barriers;
    tx_waiter waiter;
} tx_group;

void tx_group_barrier(tx_group *group);
/* Barrier, and INVALID on every rank where one of them is doing something else. */
tx_status tx_group_meet(tx_group *group, uint64_t doing);
/* Tells the group that this rank waits for `rank`, or with -1 that it waits no longer. */
static inline void tx_group_wait_for(tx_group *group, int32_t rank)
{
    atomic_store_explicit(&group->mark[group->place]->waits_for, rank, memory_order_relaxed);
}
/* Begins a wait. It remembers the length of the last one. */
void tx_waiter_begin(tx_waiter *waiter);
/* Lets some time pass in a wait for `rank` and moves on the messages of this thread (message.c). If it sleeps, the
 * group learns of the wait. */
void tx_waiter_pause(tx_waiter *waiter, tx_group *group, int32_t rank);
/* Ends a wait. */
void tx_waiter_end(tx_waiter *waiter, tx_group *group);
/* The rank at the end of the chain that this one waits in, -1 when it waits for none. Any thread may ask. */
int32_t tx_group_laggard(const tx_group *group);

#endif
