/* SPDX-License-Identifier: Apache-2.0
 * The barrier of ranks that share memory, and the detection of the rank that each waits for. */
#include "comm/group.h"

#include <inttypes.h>

/* Each rank counts the barriers that it has reached. It continues when the counts of all ranks are at least its
 * own. */
tx_status tx_group_barrier(tx_group *g)
{
    const long long turn = ++g->barriers;
    tx_status status = TX_OK;
    atomic_store_explicit(&g->mark[g->place]->arrived, turn, memory_order_release);
    tx_waiter_begin(&g->waiter);
    for (int32_t i = 0; i < g->size && !status; i++)
        while (atomic_load_explicit(&g->mark[i]->arrived, memory_order_acquire) < turn &&
               !(status = tx_comm_abandoned()))
            tx_waiter_pause(&g->waiter, g, g->member[i]);
    tx_waiter_end(&g->waiter, g);
    return status;
}

tx_status tx_group_meet(tx_group *g, uint64_t doing)
{
    atomic_store_explicit(&g->mark[g->place]->doing, doing, memory_order_relaxed);
    TX_TRY(tx_group_barrier(g));
    for (int32_t i = 0; i < g->size; i++)
        if (atomic_load_explicit(&g->mark[i]->doing, memory_order_relaxed) != doing)
            return tx_fail(TX_INVALID,
                           "ranks %" PRId32 " and %" PRId32 " began different transfers; all ranks must begin the same "
                           "transfers, with equal size and offset, in the same order",
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
