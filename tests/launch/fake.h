/* SPDX-License-Identifier: Apache-2.0
 * A watch on a simulated communicator: the states of the other ranks, and the watch's messages and actions. */
#ifndef TX_TESTS_LAUNCH_FAKE_H
#define TX_TESTS_LAUNCH_FAKE_H

#include "comm/watch.h"

#include <stdatomic.h>
#include <time.h>

#include "tests/unit.h"

/* Simulated states of the other ranks. */
typedef enum other { UNHEARD, SILENT, BUSY, WAITING } other;

/* Actions of the watch. */
typedef struct record {
    char line[1200];
    atomic_int lines, ends, status;
} record;

typedef struct fake {
    tx_comm base;
    tx_comm_rank ranks[4];
    tx_comm_laggard laggard;
    bool waits;
    _Atomic other others[4]; /* by rank */
    int32_t awaited[4];      /* by rank: the rank that it waits for, if it is WAITING */
    int beats;
    _Atomic int64_t told;
    char doing[96];
    atomic_bool closed; /* the communicator is not to be touched */
    atomic_int touched;
    record did; /* the watch */
} fake;

static inline void send_status(tx_comm *comm, int64_t step, const char *doing)
{
    fake *f = (fake *)comm;
    f->touched += f->closed;
    snprintf(f->doing, sizeof f->doing, "%s", doing);
    f->told = step;
}

static inline bool read_status(tx_comm *comm, int32_t rank, tx_comm_peer *peer)
{
    fake *f = (fake *)comm;
    const other what = f->others[rank];
    *peer = (tx_comm_peer){
        .beats = what == SILENT ? 1 : ++f->beats + 1, .step = 41, .waits_for = what == WAITING ? f->awaited[rank] : -1};
    snprintf(peer->doing, sizeof peer->doing, "compiling");
    return what != UNHEARD;
}

static inline bool laggard(tx_comm *comm, tx_comm_laggard *found)
{
    fake *f = (fake *)comm;
    f->touched += f->closed;
    if (f->waits)
        *found = f->laggard;
    return f->waits;
}

static const tx_comm_table table = {
    .name = "fake", .send_status = send_status, .read_status = read_status, .laggard = laggard};

/* Ranks 0 and 1 are on host one, 2 and 3 on host two. */
static inline void make(fake *f, int32_t rank, int32_t size)
{
    *f = (fake){.base = {.table = &table, .rank = rank, .size = size, .ranks = f->ranks}, .told = -1};
    for (int32_t r = 0; r < 4; r++) {
        f->ranks[r].host = r / 2;
        snprintf(f->ranks[r].name, sizeof f->ranks[r].name, r < 2 ? "one" : "two");
        f->others[r] = BUSY;
    }
}

/* Makes the watch wait for `rank`, whose state is `what`. */
static inline void await(fake *f, int32_t rank, int32_t bucket, other what)
{
    f->waits = true;
    f->laggard = (tx_comm_laggard){.rank = rank, .bucket = bucket};
    f->others[rank] = what;
}

static inline void on_print(void *context, const char *line)
{
    record *r = context;
    snprintf(r->line, sizeof r->line, "%s", line);
    r->lines++;
}

static inline void on_end(void *context, int status)
{
    record *r = context;
    r->status = status;
    r->ends++;
}

/* In the middle of training, where `timeout` holds from the first step on. */
static inline tx_watchdog *begin(fake *f, double timeout)
{
    tx_watchdog *watch = NULL;
    const tx_watchdog_options options = {.size = sizeof options,
                                         .program = "train",
                                         .advice = "start again",
                                         .timeout = timeout,
                                         .print = on_print,
                                         .end = on_end,
                                         .context = &f->did};
    assert_int_equal(tx_watchdog_start(&options, &watch), TX_OK);
    assert_int_equal(tx_watchdog_join(watch, &f->base), TX_OK);
    tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
    return watch;
}

static inline void rest(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)(1e9 * (seconds - (double)time.tv_sec));
    nanosleep(&time, NULL);
}

static inline void await_end(const fake *f)
{
    while (f->did.ends == 0)
        rest(0.005);
}

#endif
