/* SPDX-License-Identifier: Apache-2.0
 * All-reduces of up to 64 ranks on hosts of their own over simulated links: the exchange of the communicators runs with
 * threads as ranks, and with messages that take a + V / B in each direction of a host's link. Sums are exact, and the
 * time is that of the performance model (models/split/split.h). */
#include "comm/common.h"
#include "comm/exchange.h"
#include "models/split/split.h"
#include "tests/unit.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, SLOTS = 1024, WAITING = 64 /* messages of one tag between two ranks */ };

static const tx_split_link link_of = {1.25e9, 20e-6}; /* 10 Gbit/s */

/* A message on its way: its first byte leaves the sender at `left`. */
typedef struct message {
    void *data;
    int64_t bytes;
    double left;
} message;

/* Messages of one tag from one rank to another. */
typedef struct line {
    message message[WAITING];
    int64_t sent, posted; /* numbers of the next message and of the next receive */
} line;

typedef struct slot {
    bool receives;
    void *data;
    int32_t other, tag;
    int64_t number; /* of the message in its line */
    double end;     /* of a message that is sent */
} slot;

typedef struct rank {
    tx_transport transport;
    double clock, out, in; /* seconds until now, and until its link is free in each direction */
    slot slot[SLOTS];
    const tx_comm_layout *layout;
    float *data;
    int64_t count;
    tx_status status;
    pthread_cond_t come; /* a message for this rank was sent */
} rank;

static rank ranks[MOST];
static line lines[MOST][MOST][2]; /* by sender, receiver and tag */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static rank *self_of(tx_transport *transport)
{
    return (rank *)(void *)transport; /* its first member */
}

tx_status tx_transport_send(tx_transport *transport, const void *data, int64_t bytes, int32_t to, int32_t tag,
                            int32_t number)
{
    rank *r = self_of(transport);
    line *l = &lines[transport->rank][to][tag];
    void *copy = malloc((size_t)bytes);
    if (!copy)
        return TX_MEMORY;
    memcpy(copy, data, (size_t)bytes);
    pthread_mutex_lock(&lock);
    r->out = fmax(r->out, r->clock);
    l->message[l->sent++ % WAITING] = (message){copy, bytes, r->out};
    r->out += (double)bytes / link_of.rate;
    r->slot[number] = (slot){.end = r->out};
    pthread_cond_signal(&ranks[to].come);
    pthread_mutex_unlock(&lock);
    return TX_OK;
}

tx_status tx_transport_receive(tx_transport *transport, void *data, int64_t bytes, int32_t from, int32_t tag,
                               int32_t number)
{
    (void)bytes;
    self_of(transport)->slot[number] = (slot){true, data, from, tag, lines[from][transport->rank][tag].posted++, 0.0};
    return TX_OK;
}

static int by_time(const void *a, const void *b)
{
    const message *one = a, *other = b;
    return (one->left > other->left) - (one->left < other->left);
}

/* Takes messages from the receiver's link in the order in which they were sent. */
static void arrive(rank *r, message *come, int32_t count)
{
    qsort(come, (size_t)count, sizeof *come, by_time);
    for (int32_t i = 0; i < count; i++)
        r->in = fmax(r->in, come[i].left + link_of.latency) + (double)come[i].bytes / link_of.rate;
    r->clock = count > 0 ? fmax(r->clock, r->in) : r->clock;
}

tx_status tx_transport_test(tx_transport *transport, int32_t first, int32_t count, int32_t *missing)
{
    rank *r = self_of(transport);
    message come[SLOTS];
    int32_t arrived = 0;
    *missing = -1; /* it waits for all messages itself */
    pthread_mutex_lock(&lock);
    for (int32_t i = first; i < first + count; i++)
        while (r->slot[i].receives &&
               lines[r->slot[i].other][transport->rank][r->slot[i].tag].sent <= r->slot[i].number)
            pthread_cond_wait(&r->come, &lock);
    for (int32_t i = first; i < first + count; i++) {
        slot *s = &r->slot[i];
        if (s->receives) {
            come[arrived] = lines[s->other][transport->rank][s->tag].message[s->number % WAITING];
            memcpy(s->data, come[arrived].data, (size_t)come[arrived].bytes);
            free(come[arrived++].data);
        }
        r->clock = fmax(r->clock, s->end);
        *s = (slot){0};
    }
    arrive(r, come, arrived);
    pthread_mutex_unlock(&lock);
    return TX_OK;
}

/* ---- Ranks --------------------------------------------------------------------------------------------------- */

static void *run(void *context)
{
    rank *r = context;
    tx_mark mark = {0}, *marks[] = {&mark};
    tx_group group = {.size = 1, .member = &r->transport.rank, .mark = marks};
    const tx_transfer sum = {
        .kind = TX_ALL_REDUCE, .dtype = TX_F32, .wire = TX_F32, .bucket = -1, .data = r->data, .count = r->count};
    char *segment = (char *)r->data;
    tx_comm_traffic traffic = {0};
    tx_exchange *exchange = NULL;
    r->status = tx_exchange_create(r->layout, &r->transport, &group, &exchange);
    if (!r->status && tx_exchange_slots(exchange) > SLOTS)
        r->status = TX_INTERNAL;
    TX_THEN(r->status, tx_exchange_run(exchange, &sum, &segment, &traffic));
    tx_exchange_free(exchange);
    return NULL;
}

/* The seconds of an all-reduce of `bytes` over `size` ranks. */
static double simulate(int32_t size, int64_t bytes)
{
    pthread_t thread[MOST];
    int32_t group[MOST];
    tx_comm_layout *layout = NULL;
    double seconds = 0.0;
    const int64_t count = bytes / (int64_t)sizeof(float);
    memset(lines, 0, sizeof lines);
    for (int32_t r = 0; r < size; r++)
        group[r] = r;
    assert_int_equal(tx_comm_layout_create(group, size, &layout), TX_OK);
    for (int32_t r = 0; r < size; r++) {
        ranks[r] = (rank){.transport = {r, size}, .layout = layout, .count = count};
        pthread_cond_init(&ranks[r].come, NULL);
        ranks[r].data = malloc((size_t)bytes);
        assert_non_null(ranks[r].data);
        for (int64_t i = 0; i < count; i++)
            ranks[r].data[i] = (float)(r + i % 7);
    }
    for (int32_t r = 0; r < size; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run, &ranks[r]), 0);
    for (int32_t r = 0; r < size; r++) {
        pthread_join(thread[r], NULL);
        assert_int_equal(ranks[r].status, TX_OK);
        for (int64_t i = 0; i < count; i++)
            assert_true(ranks[r].data[i] == (float)(size * (size - 1) / 2 + size * (i % 7)));
        seconds = fmax(seconds, ranks[r].clock);
        free(ranks[r].data);
    }
    free(layout);
    return seconds;
}

static void test_time(void **state)
{
    const tx_split_machine machine = {.host = 1, .inside = link_of, .outside = link_of};
    (void)state;
    for (int64_t bytes = 1 << 20; bytes <= 4 << 20; bytes *= 4)
        for (int32_t size = 2; size <= MOST; size *= 2) {
            const double simulated = simulate(size, bytes), predicted = tx_split_sum(&machine, 1, size, (double)bytes);
            print_message("%2d ranks, %2d MiB: simulated %7.3f ms, predicted %7.3f ms, %+.1f %%\n", (int)size,
                          (int)(bytes >> 20), 1e3 * simulated, 1e3 * predicted, 100.0 * (predicted / simulated - 1.0));
            assert_true(fabs(predicted / simulated - 1.0) <= 0.15);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
