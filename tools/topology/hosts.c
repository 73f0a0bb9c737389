/* SPDX-License-Identifier: Apache-2.0
 * Messages between hosts, timed: one pair of hosts at a time, so that no other's messages are in the way. */
#include "tools/topology/txtopo.h"

#include "api/base/clock.h"
#include "comm/topology/measure.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST = 1 << 18, /* words of 4 bytes to guess the rate by */
    MOST = 1 << 24,  /* words of the longest message */
    WARM = 5,
    RUNS = 5,
    SMALL_RUNS = 51,
};
#define RUN_SECONDS 0.03 /* of one message, at most about this */

/* One rank's part in measuring one direction. */
typedef struct side {
    tx_comm *comm;
    int32_t *words; /* room for MOST */
    int32_t other;
    bool sends;
    tx_status status;
} side;

static void pass(side *s, int64_t count, bool send)
{
    if (!s->status && send)
        s->status = s->comm->table->send(s->comm, s->words, count, TX_I32, s->other);
    else if (!s->status)
        s->status = s->comm->table->receive(s->comm, s->words, count, TX_I32, s->other);
}

/* So many words one way, and one word back; seconds for both. */
static double bounce(side *s, int64_t words)
{
    double start = tx_now();
    pass(s, words, s->sends);
    pass(s, 1, !s->sends);
    return tx_now() - start;
}

static double median(side *s, int64_t words, int32_t runs)
{
    double times[SMALL_RUNS] = {0};
    for (int32_t i = 0; i < runs; i++)
        times[i] = bounce(s, words);
    return tx_topo_median(times, runs);
}

/* Both ranks call it; the sender gets the rates. */
static tx_status one_way(side *s, float rates[2])
{
    int64_t words = FIRST;
    for (int32_t i = 0; i < WARM; i++)
        bounce(s, 1);
    double latency = median(s, 1, SMALL_RUNS) / 2;
    bounce(s, words);
    double expected = bounce(s, words);
    for (; s->sends && 2 * expected <= RUN_SECONDS && 2 * words <= MOST; expected *= 2)
        words *= 2;
    if (s->sends)
        s->words[0] = (int32_t)words;
    pass(s, 1, s->sends);
    words = s->words[0];
    if (!s->status && (words < 1 || words > MOST))
        return tx_fail(TX_FORMAT, "rank %" PRId32 " announces a message of %" PRId64 " words", s->other, words);
    double seconds = median(s, words, RUNS) - latency; /* the word back takes no part in the bandwidth */
    if (s->sends && !s->status && seconds > 0) {
        rates[0] = (float)((double)words * 4 / seconds / 1e9);
        rates[1] = (float)(latency * 1e6);
    }
    return s->status;
}

/* The part of this rank, if it has one, in measuring hosts a and b. */
static tx_status measure_pair(side *s, const tx_txtopo_host *hosts, int32_t count, int32_t a, int32_t b, float *rates)
{
    const int32_t self = s->comm->rank;
    const int32_t ends[2][2] = {{a, b}, {b, a}};
    tx_status status = TX_OK;
    for (int i = 0; i < 2 && !status; i++) {
        const int32_t from = ends[i][0], to = ends[i][1];
        s->sends = self == hosts[from].rank;
        s->other = hosts[s->sends ? to : from].rank;
        if (s->sends || self == hosts[to].rank)
            status = one_way(s, &rates[2 * ((int64_t)from * count + to)]);
    }
    return status;
}

tx_status tx_txtopo_between(tx_comm *comm, const tx_txtopo_host *hosts, int32_t count, bool (*stopped)(void),
                            float **rates, bool *partial)
{
    const int64_t size = 2 * (int64_t)count * count;
    side s = {.comm = comm, .words = calloc(MOST, sizeof(int32_t))};
    float *found = calloc((size_t)size, sizeof *found);
    int32_t stops = 0; /* of all ranks: they have to agree on the end */
    tx_status status =
        s.words && found ? TX_OK : tx_fail(TX_MEMORY, "rates between %" PRId32 " hosts: no memory", count);
    for (int32_t a = 0; a < count && !status && !stops; a++)
        for (int32_t b = a + 1; b < count && !status && !stops; b++) {
            stops = stopped();
            status = tx_comm_collect(comm, TX_ALL_REDUCE, &stops, 1, TX_I32, 0);
            if (!status && !stops)
                status = measure_pair(&s, hosts, count, a, b, found);
        }
    TX_THEN(status, tx_comm_collect(comm, TX_ALL_REDUCE, found, size, TX_F32, 0));
    free(s.words);
    if (status) {
        free(found);
        return status;
    }
    *rates = found;
    *partial = stops > 0;
    return TX_OK;
}
