/* SPDX-License-Identifier: Apache-2.0
 * Messages between two ranks, piece by piece, and the waiting strategy: a waiting thread makes progress on its
 * messages. */
#include "comm/message.h"

#include "api/base/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

/* A message in progress. */
typedef struct active_message {
    bool begun; /* begun, and wait() has not returned */
    tx_message message;
    int64_t bytes, at; /* bytes before `at` have been passed to the transport */
    bool over;
    tx_status status; /* error that occurred during another wait; returned by the wait for this message */
} active_message;

struct tx_messages {
    tx_messages *next; /* next in the list of `tx_messages` with messages of this thread */
    int32_t begun;
    tx_transport *transport;
    tx_group *group;
    int32_t first;
    int64_t piece;
    tx_waiter waiter;
    active_message active_message[TX_MESSAGE_SLOTS];
};

/* While a thread waits for anything, it makes progress on all messages that it has begun. The rank at the other end
 * may be the one that all others wait for. */
static _Thread_local tx_messages *of_thread;

tx_status tx_messages_create(tx_transport *transport, tx_group *group, int32_t first, int64_t piece,
                             tx_messages **messages)
{
    tx_messages *m = calloc(1, sizeof *m);
    if (!m)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    m->transport = transport;
    m->group = group;
    m->first = first;
    m->piece = piece;
    *messages = m;
    return TX_OK;
}

/* Removes it from this thread's list. */
static void remove_from_thread(const tx_messages *messages)
{
    tx_messages **at = &of_thread;
    while (*at && *at != messages)
        at = &(*at)->next;
    if (*at)
        *at = messages->next;
}

void tx_messages_free(tx_messages *messages)
{
    remove_from_thread(messages);
    free(messages);
}

/* Passes the next piece to the transport. An empty message still has one piece, so that its end is signalled. */
static tx_status start_piece(tx_messages *m, int32_t request)
{
    active_message *p = &m->active_message[request];
    const int64_t left = p->bytes - p->at, length = left < m->piece ? left : m->piece;
    char *data = (char *)p->message.data + p->at;
    const int32_t tag = TX_TAG_PAIR + p->message.number, slot = m->first + request;
    p->at += length;
    return p->message.out ? tx_transport_send(m->transport, data, length, p->message.other, tag, slot)
                          : tx_transport_receive(m->transport, data, length, p->message.other, tag, slot);
}

tx_status tx_messages_begin(tx_messages *m, const tx_message *message, int32_t *request)
{
    int32_t index = 0;
    while (index < TX_MESSAGE_SLOTS && m->active_message[index].begun)
        index++;
    if (index == TX_MESSAGE_SLOTS)
        return tx_fail(TX_INVALID, "%d messages are outstanding; wait for one first", TX_MESSAGE_SLOTS);
    m->active_message[index] = (active_message){
        .begun = true, .message = *message, .bytes = message->count * (int64_t)tx_dtype_size(message->dtype)};
    tx_status status = start_piece(m, index);
    if (status) {
        m->active_message[index].begun = false;
        return status;
    }
    if (m->begun++ == 0) {
        m->next = of_thread;
        of_thread = m;
    }
    *request = index;
    return TX_OK;
}

/* Makes progress on a message until the transport has to wait. */
static tx_status move(tx_messages *m, int32_t request)
{
    active_message *p = &m->active_message[request];
    while (!p->over) {
        int32_t missing = -1;
        TX_TRY(tx_transport_test(m->transport, m->first + request, 1, &missing));
        if (missing >= 0)
            return TX_OK;
        p->over = p->at == p->bytes;
        if (!p->over)
            TX_TRY(start_piece(m, request));
    }
    return TX_OK;
}

/* Makes progress on all messages that this thread has begun, in all communicators. */
static void move_on(void)
{
    for (tx_messages *m = of_thread; m; m = m->next)
        for (int32_t i = 0; i < TX_MESSAGE_SLOTS; i++) {
            active_message *p = &m->active_message[i];
            if (p->begun && !p->over && !p->status)
                p->status = move(m, i);
        }
}

/* ---- Waiting --------------------------------------------------------------------------------- */

enum {
    SPINS = 200,  /* polls without a pause; then sched_yield between polls */
    GRACE = 1000, /* microseconds before the first sleep, unless the last wait was as long */
    BURST = 16,   /* polls between two sleeps, because one poll completes only part of the arrived data */
    SHORT = 50,   /* minimum sleep in microseconds */
    LONG = 500,   /* maximum sleep in microseconds */
    PART = 16,    /* between these limits, the sleep is this fraction (1 / PART) of the wait so far */
};

void tx_waiter_begin(tx_waiter *waiter)
{
    waiter->long_before = waiter->waited >= GRACE;
    waiter->waited = 0.0;
    waiter->tries = 0;
}

/* Pauses; returns true if it slept. */
static bool pause_once(tx_waiter *p)
{
    if (++p->tries < SPINS)
        return false;
    move_on();
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

void tx_waiter_pause(tx_waiter *p, tx_group *group, int32_t rank)
{
    if (!pause_once(p))
        return;
    tx_group_wait_for(group, rank);
    p->announced = true;
}

void tx_waiter_end(tx_waiter *p, tx_group *group)
{
    if (p->announced)
        tx_group_wait_for(group, -1);
    p->announced = false;
}

tx_status tx_messages_wait(tx_messages *m, int32_t request)
{
    if (request < 0 || request >= TX_MESSAGE_SLOTS || !m->active_message[request].begun)
        return tx_fail(TX_INVALID, "wait: message %" PRId32 " was not begun or is done already", request);
    active_message *p = &m->active_message[request];
    tx_waiter_begin(&m->waiter);
    tx_status status = TX_OK;
    for (move_on(); !p->over && !p->status && !(status = tx_comm_abandoned()); move_on())
        tx_waiter_pause(&m->waiter, m->group, p->message.other);
    tx_waiter_end(&m->waiter, m->group);
    p->begun = false;
    if (--m->begun == 0)
        remove_from_thread(m);
    return p->status ? p->status : status;
}
