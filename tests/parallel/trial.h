/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the timetables of a pipeline's ranks: whether all of them together end. */
#ifndef TX_TESTS_TRIAL_H
#define TX_TESTS_TRIAL_H

#include "api/parallel/timetable.h"

#include <inttypes.h>
#include <stdlib.h>

static int32_t stage_of(const tx_timetable *t, int32_t chunk)
{
    return chunk * t->ranks + t->rank;
}

typedef struct trial {
    const tx_timetable *table;
    int32_t ranks;
    int32_t *done; /* turns, by rank */
} trial;

/* The first turn, from number `from` on, of that kind for the part of `of` by a stage of the rank; the number
 * of turns if there is none. */
static int32_t find(const tx_timetable *t, int32_t from, tx_turn_kind kind, const tx_turn *of, int32_t stage)
{
    for (int32_t i = from; i < t->turns; i++) {
        const tx_turn *turn = &t->turn[i];
        if (turn->kind == kind && turn->backward == of->backward && turn->micro_batch == of->micro_batch &&
            stage_of(t, turn->chunk) == stage)
            return i;
    }
    return t->turns;
}

static bool has_done(const trial *t, int32_t stage, tx_turn_kind kind, const tx_turn *of)
{
    const tx_timetable *table = &t->table[(stage + t->ranks) % t->ranks];
    return find(table, 0, kind, of, stage) < t->done[table->rank];
}

/* Whether a rank's next turn does not wait. */
static bool can_go_on(const trial *t, int32_t rank)
{
    const tx_turn *next = &t->table[rank].turn[t->done[rank]];
    const int32_t stage = stage_of(&t->table[rank], next->chunk), ahead = next->backward ? -1 : 1;
    if (next->kind == TX_TURN_SENT)
        return has_done(t, stage, TX_TURN_SEND, next) && has_done(t, stage + ahead, TX_TURN_RECEIVE, next);
    if (next->kind == TX_TURN_RECEIVED)
        return has_done(t, stage, TX_TURN_RECEIVE, next) && has_done(t, stage - ahead, TX_TURN_SEND, next);
    if (next->kind == TX_TURN_SEND)
        return has_done(t, stage, TX_TURN_COMPUTE, next);
    return true;
}

static bool receives(const tx_timetable *t, bool backward, int32_t stage)
{
    return backward ? stage < t->chunks * t->ranks - 1 : stage > 0;
}

/* Checks that each stage computes both parts of a micro-batch once, after receiving their inputs, and sends the
 * outputs. */
static tx_status check_parts(const tx_timetable *t, int32_t chunk, int32_t micro_batch)
{
    for (int backward = 0; backward < 2; backward++) {
        const tx_turn turn = {TX_TURN_COMPUTE, backward, chunk, micro_batch}, forward = {.micro_batch = micro_batch};
        const int32_t stage = stage_of(t, chunk);
        const bool in = receives(t, backward, stage), out = receives(t, !backward, stage);
        const bool wanted[] = {true, in, in, out, out};
        int32_t at[TX_TURN_SENT + 1];
        for (int32_t kind = TX_TURN_COMPUTE; kind <= TX_TURN_SENT; kind++) {
            at[kind] = find(t, 0, (tx_turn_kind)kind, &turn, stage);
            if ((at[kind] < t->turns) != wanted[kind] ||
                find(t, at[kind] + 1, (tx_turn_kind)kind, &turn, stage) < t->turns)
                return tx_fail(TX_INTERNAL,
                               "timetable: stage %" PRId32 ", micro-batch %" PRId32
                               ": a message has no other end, or a part is missing",
                               stage, micro_batch);
        }
        if ((wanted[TX_TURN_RECEIVED] && at[TX_TURN_RECEIVED] > at[TX_TURN_COMPUTE]) ||
            (backward && find(t, 0, TX_TURN_COMPUTE, &forward, stage) > at[TX_TURN_COMPUTE]))
            return tx_fail(TX_INTERNAL, "timetable: stage %" PRId32 " computes micro-batch %" PRId32 " before it can",
                           stage, micro_batch);
    }
    return TX_OK;
}

static tx_status go_through(const trial *t)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int32_t r = 0; r < t->ranks; r++)
            while (t->done[r] < t->table[r].turns && can_go_on(t, r)) {
                t->done[r]++;
                moved = true;
            }
    }
    for (int32_t r = 0; r < t->ranks; r++)
        if (t->done[r] < t->table[r].turns)
            return tx_fail(TX_INTERNAL, "timetable: rank %" PRId32 " waits for ever in its turn %" PRId32, r,
                           t->done[r]);
    return TX_OK;
}

/* Runs the timetables of all ranks in turns, as if each message were sent only when its receiver posts the receive.
 * MPI_Ssend does so, and no MPI library has to do better. Fails with TX_INTERNAL if a rank waits for ever or a message
 * has no sender or no receiver. It also fails unless a stage computes each micro-batch once, forward before
 * backward. */
static tx_status try_together(const tx_timetable *table, int32_t ranks)
{
    trial t = {table, ranks, calloc((size_t)ranks, sizeof *t.done)};
    tx_status status = t.done ? TX_OK : tx_fail(TX_MEMORY, "no memory for a timetable");
    for (int32_t r = 0; r < ranks; r++)
        for (int32_t m = 0; m < table[r].micro_batches; m++)
            for (int32_t c = 0; c < table[r].chunks && !status; c++)
                status = check_parts(&table[r], c, m);
    TX_THEN(status, go_through(&t));
    free(t.done);
    return status;
}

#endif
