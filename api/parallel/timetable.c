/* SPDX-License-Identifier: Apache-2.0
 * Pipeline schedules: computes the timetable of a rank. Pass repeat calls it. */
#include "api/parallel/timetable.h"

#include <stdlib.h>

/* ---- Schedules ---------------------------------------------------------------------------------------- */

/* A forward or backward pass of a micro-batch on one chunk. */
typedef struct pass {
    bool backward;
    int32_t chunk, micro_batch;
} pass;

/* Returns pass `i` of one direction. Groups of as many micro-batches as there are ranks go through all chunks in turn,
 * backward from the last chunk to the first. With one chunk it is micro-batch i. */
static pass pass_of(const tx_timetable *t, bool backward, int32_t i)
{
    const int32_t round = t->ranks * t->chunks, chunk = i % round / t->ranks;
    return (pass){backward, backward ? t->chunks - 1 - chunk : chunk, i / round * t->ranks + i % t->ranks};
}

/* Returns the number of forward passes before the first backward pass, minus one. GPipe (Huang et al., 2019): all, so
 * that gradients are summed as in 1F1B. 1F1B (Narayanan et al., PipeDream-2BW, 2021): the number of later stages, so
 * that a rank holds at most `ranks - rank` micro-batches. Interleaved (Narayanan et al., Megatron-LM, 2021): until the
 * first gradient arrives from the last stage. */
static int32_t warmup_of(const tx_timetable *t, tx_pipeline_schedule schedule)
{
    const int32_t later = t->ranks - 1 - t->rank;
    if (schedule == TX_PIPELINE_GPIPE)
        return t->micro_batches;
    return schedule == TX_PIPELINE_INTERLEAVED ? 2 * later + (t->chunks - 1) * t->ranks : later;
}

/* Orders the forward passes of the warmup, then one forward and one backward pass alternately. */
static void order_passes(const tx_timetable *t, int32_t warmup, pass *order)
{
    const int32_t passes = t->micro_batches * t->chunks;
    int32_t forward = 0, backward = 0;
    for (int32_t i = 0; i < 2 * passes; i++) {
        const bool is_forward = forward < passes && forward - backward <= warmup;
        order[i] = pass_of(t, !is_forward, is_forward ? forward++ : backward++);
    }
}

/* ---- Turns -------------------------------------------------------------------------------------------- */

/* Whether a pass receives its input from another stage. */
static bool receives(const tx_timetable *t, pass p)
{
    const int32_t stage = p.chunk * t->ranks + t->rank;
    return p.backward ? stage < t->chunks * t->ranks - 1 : stage > 0;
}

static bool sends(const tx_timetable *t, pass p)
{
    return receives(t, (pass){!p.backward, p.chunk, p.micro_batch});
}

static void add(tx_timetable *t, tx_turn_kind kind, pass p)
{
    t->turn[t->turns++] = (tx_turn){kind, p.backward, p.chunk, p.micro_batch};
}

/* Each pass starts to receive the next input before it computes, and its output is sent while the next pass computes.
 */
static void add_turns(tx_timetable *t, const pass *order)
{
    const int32_t passes = 2 * t->micro_batches * t->chunks;
    if (receives(t, order[0]))
        add(t, TX_TURN_RECEIVE, order[0]);
    for (int32_t i = 0; i < passes; i++) {
        if (receives(t, order[i]))
            add(t, TX_TURN_RECEIVED, order[i]);
        if (i + 1 < passes && receives(t, order[i + 1]))
            add(t, TX_TURN_RECEIVE, order[i + 1]);
        add(t, TX_TURN_COMPUTE, order[i]);
        if (i > 0 && sends(t, order[i - 1]))
            add(t, TX_TURN_SENT, order[i - 1]);
        if (sends(t, order[i]))
            add(t, TX_TURN_SEND, order[i]);
    }
    if (sends(t, order[passes - 1]))
        add(t, TX_TURN_SENT, order[passes - 1]);
}

tx_status tx_timetable_make(tx_pipeline_schedule schedule, int32_t rank, int32_t ranks, int32_t chunks,
                            int32_t micro_batches, tx_timetable *table)
{
    enum { TURNS = 5 }; /* turns of a pass at most */
    tx_timetable made = {.rank = rank, .ranks = ranks, .chunks = chunks, .micro_batches = micro_batches};
    const size_t passes = 2 * (size_t)micro_batches * (size_t)chunks;
    pass *order = calloc(passes, sizeof *order);
    made.turn = calloc(TURNS * passes, sizeof *made.turn);
    if (!order || !made.turn) {
        free(order);
        free(made.turn);
        return tx_fail(TX_MEMORY, "no memory for a timetable");
    }
    order_passes(&made, warmup_of(&made, schedule), order);
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
