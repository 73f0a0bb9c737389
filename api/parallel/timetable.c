/* SPDX-License-Identifier: Apache-2.0
 * Schedules of a pipeline's ranks. */
#include "api/parallel/timetable.h"

#include <stdlib.h>

/* ---- Schedules ---------------------------------------------------------------------------------------- */

/* A part of a micro-batch. */
typedef struct part {
    bool backward;
    int32_t chunk, micro_batch;
} part;

/* Part number i of those of one direction: as many micro-batches as there are ranks go through all chunks, then the
 * next ones; back from the last chunk to the first. With one chunk: micro-batch i. */
static part part_of(const tx_timetable *t, bool backward, int32_t i)
{
    const int32_t round = t->ranks * t->chunks, chunk = i % round / t->ranks;
    return (part){backward, backward ? t->chunks - 1 - chunk : chunk, i / round * t->ranks + i % t->ranks};
}

/* Forward parts that come before the first backward part, besides one. GPipe (Huang et al., 2019): all, so that
 * gradients are summed as 1F1B sums them. 1F1B (Narayanan et al., PipeDream-2BW, 2021): as many as there are later
 * stages, so that a rank holds at most `ranks - rank` micro-batches. Interleaved (Narayanan et al., Megatron-LM, 2021):
 * up to the first gradient, which has to come from the last stage. */
static int32_t lead_of(const tx_timetable *t, tx_pipeline_schedule schedule)
{
    const int32_t later = t->ranks - 1 - t->rank;
    if (schedule == TX_PIPELINE_GPIPE)
        return t->micro_batches;
    return schedule == TX_PIPELINE_INTERLEAVED ? 2 * later + (t->chunks - 1) * t->ranks : later;
}

/* Forward parts up to the lead, then one forward and one backward part in turns. */
static void put_in_order(const tx_timetable *t, int32_t lead, part *order)
{
    const int32_t parts = t->micro_batches * t->chunks;
    int32_t forward = 0, backward = 0;
    for (int32_t i = 0; i < 2 * parts; i++) {
        const bool is_forward = forward < parts && forward - backward <= lead;
        order[i] = part_of(t, !is_forward, is_forward ? forward++ : backward++);
    }
}

/* ---- Turns -------------------------------------------------------------------------------------------- */

/* Whether a stage comes before this part's, whose result it reads, or behind it. */
static bool receives(const tx_timetable *t, part p)
{
    const int32_t stage = p.chunk * t->ranks + t->rank;
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
    put_in_order(&made, lead_of(&made, schedule), order);
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
