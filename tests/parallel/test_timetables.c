/* SPDX-License-Identifier: Apache-2.0
 *
 * Timetables of pipelines: the turns of all ranks together end, each rank keeps as many micro-batches as the schedule
 * requires, and planted faults are found. */
#include "tests/parallel/trial.h"

#include <stdio.h>
#include <string.h>

static tx_status make_tables(tx_pipeline_schedule schedule, int32_t ranks, int32_t each, int32_t times,
                             tx_timetable *table)
{
    for (int32_t r = 0; r < ranks; r++)
        TX_TRY(tx_timetable_make(schedule, r, ranks, each, times, &table[r]));
    return TX_OK;
}

/* Returns the largest number of micro-batches whose forward part is done and whose backward part is not. */
static int32_t most_kept(const tx_timetable *t)
{
    int32_t now = 0, most = 0;
    for (int32_t i = 0; i < t->turns; i++)
        if (t->turn[i].kind == TX_TURN_COMPUTE) {
            now += t->turn[i].backward ? -1 : 1;
            most = now > most ? now : most;
        }
    return most;
}

static int32_t find_turn(const tx_timetable *t, tx_turn_kind kind, bool backward)
{
    int32_t i = 0;
    while (i < t->turns && (t->turn[i].kind != kind || t->turn[i].backward != backward))
        i++;
    return i;
}

/* Stage 0 waits for a gradient before it sends the activation that the gradient depends on. Then a message is received
 * that is never sent. */
static tx_status plant_faults(tx_timetable *table, int32_t stages)
{
    tx_timetable *t = &table[0];
    const int32_t sends = find_turn(t, TX_TURN_SEND, false), waits = find_turn(t, TX_TURN_RECEIVED, true);
    const tx_turn send = t->turn[sends];
    memmove(t->turn + sends, t->turn + sends + 1, (size_t)(waits - sends) * sizeof send);
    t->turn[waits] = send;
    if (try_together(table, stages) != TX_INTERNAL || !strstr(tx_error(), "waits for ever"))
        return tx_fail(TX_INTERNAL, "a circle of waiting stages was not found: %s", tx_error());
    t->turn[waits].kind = TX_TURN_RECEIVE;
    if (try_together(table, stages) != TX_INTERNAL || !strstr(tx_error(), "no other end"))
        return tx_fail(TX_INTERNAL, "a message without another end was not found: %s", tx_error());
    return TX_OK;
}

enum { MOST = 9 }; /* ranks */

/* Returns the largest number of micro-batches that a rank keeps. */
static int32_t kept_by(tx_pipeline_schedule schedule, int32_t rank, int32_t ranks, int32_t each, int32_t times)
{
    const int32_t parts = each * times, behind = ranks - 1 - rank;
    const int32_t few = 1 + (schedule == TX_PIPELINE_INTERLEAVED ? 2 * behind + (each - 1) * ranks : behind);
    return schedule == TX_PIPELINE_GPIPE || few > parts ? parts : few;
}

static tx_status try_tables_of(tx_pipeline_schedule schedule, int32_t ranks, int32_t each, int32_t times)
{
    tx_timetable table[MOST] = {0};
    TX_TRY(make_tables(schedule, ranks, each, times, table));
    tx_status status = try_together(table, ranks);
    for (int32_t r = 0; r < ranks && !status; r++) {
        const int32_t wanted = kept_by(schedule, r, ranks, each, times);
        if (most_kept(&table[r]) != wanted)
            status = tx_fail(TX_INTERNAL, "rank %d of %d keeps %d parts, not %d", (int)r, (int)ranks,
                             (int)most_kept(&table[r]), (int)wanted);
    }
    if (ranks > 1 && times > 1)
        TX_THEN(status, plant_faults(table, ranks));
    for (int32_t r = 0; r < ranks; r++)
        tx_timetable_free(&table[r]);
    return tx_fail_in(status, "schedule %d, %d chunks, %d micro-batches", (int)schedule, (int)each, (int)times);
}

static tx_status try_tables(void)
{
    for (int32_t ranks = 1; ranks <= MOST; ranks++)
        for (int32_t times = 1; times <= 2 * MOST; times += times < 4 ? 1 : 5) {
            TX_TRY(try_tables_of(TX_PIPELINE_1F1B, ranks, 1, times));
            TX_TRY(try_tables_of(TX_PIPELINE_GPIPE, ranks, 1, times));
        }
    for (int32_t ranks = 2; ranks <= MOST; ranks++)
        for (int32_t each = 2; each <= 4; each++)
            for (int32_t rounds = 1; rounds <= 3; rounds++)
                TX_TRY(try_tables_of(TX_PIPELINE_INTERLEAVED, ranks, each, rounds * ranks));
    return TX_OK;
}

int main(void)
{
    if (try_tables()) {
        fprintf(stderr, "test_timetables: %s\n", tx_error());
        return 1;
    }
    return 0;
}
