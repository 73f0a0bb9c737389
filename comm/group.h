/* SPDX-License-Identifier: Apache-2.0
 *
 * A group of ranks that share memory: its members, its barrier, and the rank that each member waits for. This
 * barrier takes microseconds; MPI's takes 8 ms if two ranks share a core. A single rank is also a group. */
#ifndef TX_COMM_GROUP_H
#define TX_COMM_GROUP_H

#include "comm/comm.h"

#include <stdatomic.h>

#if ATOMIC_LLONG_LOCK_FREE != 2 || ATOMIC_INT_LOCK_FREE != 2
#error "processes share these atomics: they must be free of locks"
#endif

/* The waiting strategy of a rank. It first polls, then yields its core between polls, and finally sleeps between
 * polls so that computing threads keep the core. After a long wait, the next wait sleeps sooner. */
typedef struct tx_waiter {
    bool long_before; /* the last wait was long */
    bool announced;   /* the group knows that this rank waits */
    int32_t tries;
    double began, waited; /* start of the wait after the first polls, and the microseconds since then */
} tx_waiter;

/* State that a rank publishes to its group, in memory that the others map. */
typedef struct tx_mark {
    _Alignas(64) atomic_llong arrived; /* barriers that this rank has reached */
    atomic_ullong doing;               /* digest of its current transfer */
    atomic_int waits_for;              /* rank that it waits for; -1 if none */
} tx_mark;

typedef struct tx_group {
    int32_t place, size;
    const int32_t *member; /* ranks by place */
    tx_mark *const *mark;  /* marks by place */
    int64_t barriers;
    tx_waiter waiter;
} tx_group;

/* Fails only after tx_comm_abandon. */
tx_status tx_group_barrier(tx_group *group);
/* Executes a barrier. Returns INVALID on every rank if the digests `doing` differ. */
tx_status tx_group_meet(tx_group *group, uint64_t doing);
/* Publishes to the group that this rank waits for `rank`; -1 if it no longer waits. */
static inline void tx_group_wait_for(tx_group *group, int32_t rank)
{
    atomic_store_explicit(&group->mark[group->place]->waits_for, rank, memory_order_relaxed);
}
/* Begins a wait. The waiter remembers the length of the previous one. */
void tx_waiter_begin(tx_waiter *waiter);
/* Pauses during a wait for `rank` and makes progress on the messages of this thread (message.c). If it sleeps, it
 * publishes the wait to the group. */
void tx_waiter_pause(tx_waiter *waiter, tx_group *group, int32_t rank);
/* Ends a wait. */
void tx_waiter_end(tx_waiter *waiter, tx_group *group);
/* Returns the rank at the end of the chain of waiting ranks that begins here; -1 if this rank does not wait. Any
 * thread may call it. */
int32_t tx_group_laggard(const tx_group *group);

#endif
