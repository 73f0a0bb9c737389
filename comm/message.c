/* SPDX-License-Identifier: Apache-2.0
 * Messages from one rank to another, piece by piece, and how a thread waits: it moves its messages on. */
#include "comm/message.h"

#include "api/base/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

/* One that is on its way. */
typedef struct passing {
    bool begun; /* and not waited for */
    tx_message message;
    int64_t bytes, at; /* those before `at` have been given to the transport */
    bool over;
    tx_status status; /* what went wrong while something else was waited for; told when this is */
} passing;

struct tx_messages {
    tx_messages *next; /* of those of which this thread has begun some */
    int32_t begun;
    tx_transport *transport;
    tx_group *group;
    int32_t first;
    int64_t piece;
    tx_waiter waiter;
    passing passing[TX_MESSAGE_SLOTS];
};

/* A thread that waits for anything moves on what it has begun, for the rank at the other end may be the one that all
 * wait for. */
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

/* Takes it off this thread's list. */
static void leave(const tx_messages *messages)
{
    tx_messages **at = &of_thread;
    while (*at && *at != messages)
        at = &(*at)->next;
    if (*at)
        *at = messages->next;
}

void tx_messages_free(tx_messages *messages)
{
    leave(messages);
    free(messages);
}

/* Gives the transport the next piece; one of no bytes has one all the same, so that its end is told. */
static tx_status start_piece(tx_messages *m, int32_t request)
{
    passing *p = &m->passing[request];
    const int64_t left = p->bytes - p->at, length = left < m->piece ? left : m->piece;
    char *data = (char *)p->message.data + p->at;
    const int32_t tag = TX_TAG_PAIR + p->message.number, slot = m->first + request;
    p->at += length;
    return p->message.out ? tx_transport_send(m->transport, data, length, p->message.other, tag, slot)
                          : tx_transport_receive(m->transport, data, length, p->message.other, tag, slot);
}

tx_status tx_messages_begin(tx_messages *m, const tx_message *message, int32_t *request)
{
    int32_t free_one = 0;
    while (free_one < TX_MESSAGE_SLOTS && m->passing[free_one].begun)
        free_one++;
    if (free_one == TX_MESSAGE_SLOTS)
        return tx_fail(TX_INVALID, "%d messages are outstanding: wait for one first", TX_MESSAGE_SLOTS);
    m->passing[free_one] =
        (passing){.begun = true, .message = *message, .bytes = message->count * (int64_t)tx_dtype_size(message->dtype)};
    tx_status status = start_piece(m, free_one);
    if (status) {
        m->passing[free_one].begun = false;
        return status;
    }
    if (m->begun++ == 0) {
        m->next = of_thread;
        of_thread = m;
    }
    *request = free_one;
    return TX_OK;
}

/* Moves a message on as far as it goes. */
static tx_status move(tx_messages *m, int32_t request)
{
    passing *p = &m->passing[request];
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

/* Moves on all messages that this thread has begun, of all communicators. */
static void move_on(void)
{
    for (tx_messages *m = of_thread; m; m = m->next)
        for (int32_t i = 0; i < TX_MESSAGE_SLOTS; i++) {
            passing *p = &m->passing[i];
            if (p->begun && !p->over && !p->status)
                p->status = move(m, i);
        }
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

enum {
    SPINS = 200,  /* tries at once; then sched_yield between them */
    GRACE = 1000, /* microseconds before the first sleep, unless the last wait was as long */
    BURST = 16,   /* tries at once between two sleeps: one try moves but a part of what has arrived */
    SHORT = 50,   /* microseconds slept at least ... */
    LONG = 500,   /* ... and at most, */
    PART = 16,    /* else this part of the time waited so far */
};

void tx_waiter_begin(tx_waiter *waiter)
{
    waiter->long_before = waiter->waited >= GRACE;
    waiter->waited = 0.0;
    waiter->tries = 0;
}

/* Lets some time pass; true when it slept. */
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
    p->told = true;
}

void tx_waiter_end(tx_waiter *p, tx_group *group)
{
    if (p->told)
        tx_group_wait_for(group, -1);
    p->told = false;
}

tx_status tx_messages_wait(tx_messages *m, int32_t request)
{
    if (request < 0 || request >= TX_MESSAGE_SLOTS || !m->passing[request].begun)
        return tx_fail(TX_INVALID, "wait: message %" PRId32 " was not begun or is done already", request);
    passing *p = &m->passing[request];
    tx_waiter_begin(&m->waiter);
    for (move_on(); !p->over && !p->status; move_on())
        tx_waiter_pause(&m->waiter, m->group, p->message.other);
    tx_waiter_end(&m->waiter, m->group);
    p->begun = false;
    if (--m->begun == 0)
        leave(m);
    return p->status;
}
