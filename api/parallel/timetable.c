/* SPDX-License-Identifier: Apache-2.0
 * Schedules of a pipeline's stages, and their trial. */
#include "api/parallel/timetable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Schedules ---------------------------------------------------------------------------------------- */

/* A part of a micro-batch. */
typedef struct part {
    bool backward;
    int32_t micro_batch;
} part;

/* All forward parts, then all backward ones (Huang et al., GPipe, 2019); both in the order of the micro-batches, so
 * that gradients are summed as 1F1B sums them. */
static void gpipe(int32_t micro_batches, part *order)
{
    for (int32_t i = 0; i < 2 * micro_batches; i++)
        order[i] = (part){i >= micro_batches, i % micro_batches};
}

/* A stage begins with as many forward parts as there are stages behind it, then does one forward and one backward part
 * in turns (Narayanan et al., PipeDream-2BW and Megatron-LM, 2021): it holds what at most `stages - stage`
 * micro-batches keep. */
static void one_forward_one_backward(int32_t stage, int32_t stages, int32_t micro_batches, part *order)
{
    const int32_t behind = stages - 1 - stage;
    int32_t forward = 0, backward = 0;
    for (int32_t i = 0; i < 2 * micro_batches; i++) {
        const bool is_forward = forward < micro_batches && forward - backward <= behind;
        order[i] = is_forward ? (part){false, forward++} : (part){true, backward++};
    }
}

/* ---- Turns -------------------------------------------------------------------------------------------- */

static bool receives(const tx_timetable *t, part p)
{
    return p.backward ? t->stage < t->stages - 1 : t->stage > 0;
}

static bool sends(const tx_timetable *t, part p)
{
    return p.backward ? t->stage > 0 : t->stage < t->stages - 1;
}

static void add(tx_timetable *t, tx_turn_kind kind, part p)
{
    t->turn[t->turns++] = (tx_turn){kind, p.backward, p.micro_batch};
}

/* What the next part reads is called for before a part is computed, and what a part made is on its way while the next
 * one is. */
static void add_turns(tx_timetable *t, const part *order)
{
    const int32_t parts = 2 * t->micro_batches;
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

tx_status tx_timetable_make(tx_pipeline_schedule schedule, int32_t stage, int32_t stages, int32_t micro_batches,
                            tx_timetable *table)
{
    enum { TURNS = 5 }; /* of a part at most */
    tx_timetable made = {.stage = stage, .stages = stages, .micro_batches = micro_batches};
    part *order = calloc(2 * (size_t)micro_batches, sizeof *order);
    made.turn = calloc(TURNS * 2 * (size_t)micro_batches, sizeof *made.turn);
    if (!order || !made.turn) {
        free(order);
        free(made.turn);
        return tx_fail(TX_MEMORY, "no memory for a timetable");
    }
    if (schedule == TX_PIPELINE_GPIPE)
        gpipe(micro_batches, order);
    else
        one_forward_one_backward(stage, stages, micro_batches, order);
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
    int32_t stages;
    int32_t *done; /* turns, by stage */
} trial;

static bool is_turn(const tx_turn *t, tx_turn_kind kind, bool backward, int32_t micro_batch)
{
    return t->kind == kind && t->backward == backward && t->micro_batch == micro_batch;
}

/* How often a stage has such a turn among its first `turns`. */
static int32_t count(const tx_timetable *t, int32_t turns, tx_turn_kind kind, bool backward, int32_t micro_batch)
{
    int32_t found = 0;
    for (int32_t i = 0; i < turns; i++)
        found += is_turn(&t->turn[i], kind, backward, micro_batch);
    return found;
}

static bool has_done(const trial *t, int32_t stage, tx_turn_kind kind, const tx_turn *of)
{
    return stage >= 0 && stage < t->stages &&
           count(&t->table[stage], t->done[stage], kind, of->backward, of->micro_batch) > 0;
}

/* Whether a stage's next turn does not wait. */
static bool can_go_on(const trial *t, int32_t stage)
{
    const tx_turn *next = &t->table[stage].turn[t->done[stage]];
    const int32_t ahead = next->backward ? stage - 1 : stage + 1, behind = next->backward ? stage + 1 : stage - 1;
    if (next->kind == TX_TURN_SENT)
        return has_done(t, stage, TX_TURN_SEND, next) && has_done(t, ahead, TX_TURN_RECEIVE, next);
    if (next->kind == TX_TURN_RECEIVED)
        return has_done(t, stage, TX_TURN_RECEIVE, next) && has_done(t, behind, TX_TURN_SEND, next);
    if (next->kind == TX_TURN_SEND)
        return has_done(t, stage, TX_TURN_COMPUTE, next);
    return true;
}

/* Of a micro-batch each stage computes both parts once, has what they read, and gives what they make. */
static tx_status check_parts(const tx_timetable *t, int32_t stages, int32_t micro_batch)
{
    for (int backward = 0; backward < 2; backward++) {
        const part p = {backward, micro_batch};
        const tx_timetable at = {.stage = t->stage, .stages = stages};
        const int32_t wanted[] = {1, receives(&at, p), receives(&at, p), sends(&at, p), sends(&at, p)};
        int32_t computed = -1;
        for (int32_t kind = TX_TURN_COMPUTE; kind <= TX_TURN_SENT; kind++)
            if (count(t, t->turns, (tx_turn_kind)kind, backward, micro_batch) != wanted[kind])
                return tx_fail(TX_INTERNAL,
                               "timetable: stage %" PRId32 ", micro-batch %" PRId32
                               ": a message has no other end, or a part is missing",
                               t->stage, micro_batch);
        for (int32_t i = 0; i < t->turns; i++) {
            if (is_turn(&t->turn[i], TX_TURN_COMPUTE, backward, micro_batch))
                computed = i;
            const bool late = is_turn(&t->turn[i], TX_TURN_RECEIVED, backward, micro_batch) ||
                              (backward && is_turn(&t->turn[i], TX_TURN_COMPUTE, false, micro_batch));
            if (late && computed >= 0)
                return tx_fail(TX_INTERNAL,
                               "timetable: stage %" PRId32 " computes micro-batch %" PRId32 " before it can", t->stage,
                               micro_batch);
        }
    }
    return TX_OK;
}

static tx_status go_through(const trial *t)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int32_t s = 0; s < t->stages; s++)
            while (t->done[s] < t->table[s].turns && can_go_on(t, s)) {
                t->done[s]++;
                moved = true;
            }
    }
    for (int32_t s = 0; s < t->stages; s++)
        if (t->done[s] < t->table[s].turns)
            return tx_fail(TX_INTERNAL, "timetable: stage %" PRId32 " waits for ever in its turn %" PRId32, s,
                           t->done[s]);
    return TX_OK;
}

tx_status tx_timetable_try(const tx_timetable *table, int32_t stages)
{
    trial t = {table, stages, calloc((size_t)stages, sizeof *t.done)};
    tx_status status = t.done ? TX_OK : tx_fail(TX_MEMORY, "no memory for a timetable");
    for (int32_t s = 0; s < stages; s++)
        for (int32_t m = 0; m < table[s].micro_batches && !status; m++)
            status = check_parts(&table[s], stages, m);
    if (!status)
        status = go_through(&t);
    free(t.done);
    return status;
}
