/* SPDX-License-Identifier: Apache-2.0
 * The contents of slots, which others may take over: caches and states of recurrent layers. */
#include "models/generate/slots_plans.h"

#include "api/base/arithmetic.h"

#include <inttypes.h>
#include <string.h>

const tx_slots_pass *tx_slots_pass_for(const tx_slots_passes *of, int64_t left)
{
    int32_t i = of->count - 1;
    while (i > 0 && of->pass[i].length > left && of->pass[i].length - left > of->padding)
        i--;
    return &of->pass[i];
}

void tx_slots_hold(tx_slots *s, int64_t slot, const int32_t *ids, int64_t count)
{
    memmove(s->held + slot * s->context, ids, (size_t)count * sizeof *ids);
    s->filled[slot] = (int32_t)count;
}

void tx_slots_mark_piece(tx_slots *s, int64_t slot, int64_t first, int64_t at, int64_t end, int64_t length)
{
    int32_t *piece = s->piece + slot * s->context;
    const int64_t from = at < first ? 0 : at;
    memset(piece + from, 0, (size_t)(end - from) * sizeof *piece);
    piece[at] = at < first || at + length > end ? 0 : (int32_t)length;
}

void tx_slots_keep(tx_slots *slots, int64_t slot, int64_t count)
{
    slots->filled[slot] = (int32_t)count;
}

/* ---- The beginning of a prompt in a slot ---------------------------------------------------------------- */

int64_t tx_slots_same(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count)
{
    const int64_t most = slots->adapter[slot] == adapter ? tx_min(slots->filled[slot], count - 1) : 0;
    int64_t same = 0;
    while (same < most && slots->held[slot * slots->context + same] == ids[same])
        same++;
    return same;
}

int64_t tx_slots_shared(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count)
{
    const int64_t same = tx_slots_same(slots, slot, adapter, ids, count);
    return slots->recurs && same < slots->filled[slot] ? 0 : same;
}

int64_t tx_slots_begun(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count)
{
    const tx_slots *s = slots;
    const int64_t same = s->pairs ? 0 : tx_slots_same(s, slot, adapter, ids, count);
    const int64_t most = s->recurs ? tx_min(same, s->kept[slot]) : same;
    for (int64_t first = 0;;) {
        const int64_t length = tx_slots_pass_for(&s->prefill, count - first)->length;
        if (first + length > most || s->piece[slot * s->context + first] != length)
            return s->recurs && first < s->kept[slot] ? 0 : first;
        first += length;
    }
}

bool tx_slots_holds(const tx_slots *slots, int64_t slot, int64_t adapter, const int32_t *ids, int64_t count)
{
    const tx_slots *s = slots;
    const int64_t filled = s->filled[slot];
    return (filled == count || (filled > count && !s->recurs && !s->pairs)) && !s->mixed[slot] &&
           s->adapter[slot] == adapter && memcmp(s->held + slot * s->context, ids, (size_t)count * sizeof *ids) == 0;
}

/* ---- Copies --------------------------------------------------------------------------------------------- */

/* Sets the inputs of copiers: rows `to` of the states become row `from`. */
static void set_states(tx_slots *s, int64_t from, const int32_t *to, int64_t copies)
{
    for (int64_t i = 0; i < s->count + s->spare; i++)
        s->states[i] = (int32_t)i;
    for (int64_t i = 0; i < copies; i++)
        s->states[to[i]] = (int32_t)from;
}

/* Copies a row of states to another one. */
static tx_status copy_states(tx_slots *s, int64_t from, int64_t to)
{
    set_states(s, from, &(int32_t){(int32_t)to}, 1);
    return tx_slots_run_copies(s, &s->keeper);
}

tx_status tx_slots_keep_states(tx_slots *s, int64_t from, int64_t slot, int64_t count)
{
    s->kept[slot] = 0; /* after a failure there are none */
    if (from != s->count + slot)
        TX_TRY(copy_states(s, from, s->count + slot));
    s->kept[slot] = (int32_t)count;
    return TX_OK;
}

tx_status tx_slots_copy(tx_slots *slots, int64_t from, int64_t count, const int32_t *to, int64_t copies)
{
    tx_slots *s = slots;
    const size_t rates = (size_t)s->pairs * sizeof *s->rates;
    if (!s->copier.plan)
        return tx_fail(TX_INVALID, "generate: these slots were compiled without copies");
    for (int64_t i = 0; i < s->count; i++) {
        s->rows[i] = (int32_t)i;
        s->positions[i] = (int32_t)count;
    }
    for (int64_t i = 0; i < copies; i++) {
        s->rows[to[i]] = (int32_t)from;
        s->filled[to[i]] = 0; /* after a failure the cache is invalid */
    }
    set_states(s, from, to, copies);
    TX_TRY(tx_slots_run_copies(s, &s->copier));
    for (int64_t i = 0; i < copies; i++) {
        tx_slots_hold(s, to[i], s->held + from * s->context, count);
        memcpy(s->piece + to[i] * s->context, s->piece + from * s->context, (size_t)count * sizeof *s->piece);
        s->adapter[to[i]] = s->adapter[from];
        s->place[to[i]] = s->place[from];
        s->mixed[to[i]] = false;
        s->kept[to[i]] = 0;
        memcpy(s->rates + to[i] * s->pairs, s->rates + from * s->pairs, rates);
    }
    return TX_OK;
}

tx_status tx_slots_begin(tx_slots *slots, int64_t from, int64_t count, int64_t to)
{
    tx_slots *s = slots;
    if (from != to)
        TX_TRY(tx_slots_copy(s, from, count, &(int32_t){(int32_t)to}, 1));
    if (!s->keeps)
        return TX_OK;
    s->filled[to] = 0; /* after a failure the cache is invalid */
    TX_TRY(tx_slots_keep_states(s, s->count + from, to, count));
    TX_TRY(copy_states(s, s->count + to, to));
    s->filled[to] = (int32_t)count;
    return TX_OK;
}

/* ---- Draft tokens --------------------------------------------------------------------------------------- */

tx_status tx_slots_mark(tx_slots *slots, int64_t slot)
{
    tx_slots *s = slots;
    if (!s->spare)
        return TX_OK;
    s->marked = s->filled[slot];
    memcpy(s->marked_ids, s->held + slot * s->context, (size_t)s->marked * sizeof *s->held);
    return copy_states(s, slot, s->count);
}

tx_status tx_slots_go_back(tx_slots *slots, int64_t slot, int64_t *count)
{
    tx_slots *s = slots;
    const int32_t *held = s->held + slot * s->context;
    if (s->recurs && *count < s->filled[slot]) {
        s->filled[slot] = 0; /* after a failure the cache is invalid */
        const size_t bytes = (size_t)s->marked * sizeof *held;
        *count = s->spare && *count >= s->marked && memcmp(s->marked_ids, held, bytes) == 0 ? s->marked : 0;
        if (*count > 0)
            TX_TRY(copy_states(s, s->count, slot));
    }
    tx_slots_keep(s, slot, *count);
    return TX_OK;
}
