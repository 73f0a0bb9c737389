/* SPDX-License-Identifier: Apache-2.0
 * Schedules of a pipeline's ranks, and their trial. */
#include "api/parallel/timetable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Schedules ---------------------------------------------------------------------------------------- */

/* A part of a micro-batch. */
typedef struct part {
    bool backward;
    int32_t chunk, micro_batch;
} part;

/* All forward parts, then all backward ones (Huang et al., GPipe, 2019); both in the order of the micro-batches, so
 * that gradients are summed as 1F1B sums them. */
static void gpipe(int32_t micro_batches, part *order)
{
    for (int32_t i = 0; i < 2 * micro_batches; i++)
        order[i] = (part){i >= micro_batches, 0, i % micro_batches};
}

/* A stage begins with as many forward parts as there are stages behind it, then does one forward and one backward part
 * in turns (Narayanan et al., PipeDream-2BW and Megatron-LM, 2021): it holds what at most `ranks - rank`
 * micro-batches keep. */
static void one_forward_one_backward(const tx_timetable *t, part *order)
{
    const int32_t behind = t->ranks - 1 - t->rank;
    int32_t forward = 0, backward = 0;
    for (int32_t i = 0; i < 2 * t->micro_batches; i++) {
        const bool is_forward = forward < t->micro_batches && forward - backward <= behind;
        order[i] = is_forward ? (part){false, 0, forward++} : (part){true, 0, backward++};
    }
}

/* Part number i of those of one direction: as many micro-batches as there are ranks go through all chunks, then the
 * next ones; back from the last chunk to the first. */
static part interleaved_part(const tx_timetable *t, bool backward, int32_t i)
{
    const int32_t round = t->ranks * t->chunks, chunk = i % round / t->ranks;
    return (part){backward, backward ? t->chunks - 1 - chunk : chunk, i / round * t->ranks + i % t->ranks};
}

/* Megatron-LM's (Narayanan et al., 2021): forward parts up to the first gradient, which has to come from the last
 * stage, then one forward and one backward part in turns. */
static void interleaved(const tx_timetable *t, part *order)
{
    const int32_t parts = t->micro_batches * t->chunks;
    const int32_t first = 2 * (t->ranks - 1 - t->rank) + (t->chunks - 1) * t->ranks;
    int32_t forward = 0, backward = 0;
    for (int32_t i = 0; i < 2 * parts; i++) {
        const bool is_forward = forward < parts && forward - backward <= first;
        order[i] = interleaved_part(t, !is_forward, is_forward ? forward++ : backward++);
    }
}

/* ---- Turns -------------------------------------------------------------------------------------------- */

static int32_t stage_of(const tx_timetable *t, int32_t chunk)
{
    return chunk * t->ranks + t->rank;
}

/* Whether a stage comes before this part's, whose result it reads, or behind it. */
static bool receives(const tx_timetable *t, part p)
{
    const int32_t stage = stage_of(t, p.chunk);
    return p.backward ? stage < t->chunks * t->ranks - 1 : stage > 0;
}

static bool sends(const tx_timetable *t, part p)
{
    return receives(t, (part){!p.backward, p.chunk, p.micro_batch});
}

static void add(tx_timetable *t, tx_turn_kind kind, part p)
{
    t->turn[t->turns++] = (tx_turn){kind, p.backward, p.chunk, p.micro_batch};
}

/* What the next part reads is called for before a part is computed, and what a part made is on its way while the next
 * one is. */
static void add_turns(tx_timetable *t, const part *order)
{
    const int32_t parts = 2 * t->micro_batches * t->chunks;
    if (receives(t, order[0]))
        add(t, TX_TURN_RECEIVE, order[0]);
    for (int32_t i = 0; i < parts; i++) {
        if (receives(t, order[i]))
            add(t, TX_TURN_RECEIVED, order[i]);
        if (i + 1 < parts && receives(t, order[i + 1]))
            add(t, TX_TURN_RECEIVE, order[i + 1]);
        add(t, TX_TURN_COMPUTE, order[i]);
        if (i > 0 && sends(t, order[i - 1]))
            add(t, TX_TURN_SENT, order[i - 1]);
        if (sends(t, order[i]))
            add(t, TX_TURN_SEND, order[i]);
    }
    if (sends(t, order[parts - 1]))
        add(t, TX_TURN_SENT, order[parts - 1]);
}

tx_status tx_timetable_make(tx_pipeline_schedule schedule, int32_t rank, int32_t ranks, int32_t chunks,
                            int32_t micro_batches, tx_timetable *table)
{
    enum { TURNS = 5 }; /* of a part at most */
    tx_timetable made = {.rank = rank, .ranks = ranks, .chunks = chunks, .micro_batches = micro_batches};
    const size_t parts = 2 * (size_t)micro_batches * (size_t)chunks;
    part *order = calloc(parts, sizeof *order);
    made.turn = calloc(TURNS * parts, sizeof *made.turn);
    if (!order || !made.turn) {
        free(order);
        free(made.turn);
        return tx_fail(TX_MEMORY, "no memory for a timetable");
    }
    if (schedule == TX_PIPELINE_GPIPE)
        gpipe(micro_batches, order);
    else if (schedule == TX_PIPELINE_INTERLEAVED)
        interleaved(&made, order);
    else
        one_forward_one_backward(&made, order);
    add_turns(&made, order);
    free(order);
    *table = made;
    return TX_OK;
}

void tx_timetable_free(tx_timetable *table)
{
    free(table->turn);
    *table = (tx_timetable){0};
}

/* ---- Trial -------------------------------------------------------------------------------------------- */

typedef struct trial {
    const tx_timetable *table;
    int32_t ranks;
    int32_t *done; /* turns, by rank */
} trial;

/* The first turn, from number `from` on, of that kind for the part of `of` by a stage of the rank; behind the last
 * where there is none. */
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

/* Of a micro-batch each stage computes both parts once, has what they read, and gives what they make. */
static tx_status check_parts(const tx_timetable *t, int32_t chunk, int32_t micro_batch)
{
    for (int backward = 0; backward < 2; backward++) {
        const part p = {backward, chunk, micro_batch};
        const tx_turn turn = {TX_TURN_COMPUTE, backward, chunk, micro_batch}, forward = {.micro_batch = micro_batch};
        const bool wanted[] = {true, receives(t, p), receives(t, p), sends(t, p), sends(t, p)};
        const int32_t stage = stage_of(t, chunk);
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

tx_status tx_timetable_try(const tx_timetable *table, int32_t ranks)
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
