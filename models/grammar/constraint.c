/* SPDX-License-Identifier: Apache-2.0
 * Follows a grammar byte by byte, and finds the tokens that may be next.
 *
 * A state is a set of places: an expression for the next byte, and the stack of expressions after it.
 * Frames are shared by all stacks. Equal sets are one state, and the states that follow it are kept by byte, so that
 * most steps are a look-up. When the states become many they are all forgotten but the current one. */
#include "models/grammar/constraint.h"

#include "models/grammar/grammar.h"
#include "models/grammar/vocabulary.h"

#include "api/base/grow.h"
#include "models/tokenizer/hash.h"

#include <stdlib.h>
#include <string.h>

enum {
    FULL = 2048,      /* states after which they are forgotten between two tokens */
    STATES = 1 << 14, /* the most */
    FRAMES = 1 << 18,
    PLACES = 1 << 20,
    WORK = 1 << 14,  /* frames, places of all states, places of a step */
    STEPS = 1 << 22, /* work for the tokens of one state */
    MASKS = 64,      /* states whose tokens are kept */
    VISITS = 1 << 15 /* slots of the table of visited places, a power of 2 */
};
enum { UNKNOWN = 0, DEAD = 1, FIRST = 2 }; /* states; the first ones are none */
#define DONE UINT32_MAX                    /* an expression: the end of the text */

/* A stack: after this, `parent`. `times` is the number of repetitions begun of a loop, or NEW for any expression.
 * `alike` is a stack that allows the same tokens: its loops are as far from their bounds as a token cannot count. */
typedef struct frame {
    uint32_t expr, times, parent, alike;
} frame;
#define NEW UINT32_MAX

/* A place; while a step is computed, `fresh` frames of its stack were made after the last byte. */
typedef struct place {
    uint32_t expr, frame, fresh;
} place;

typedef struct state {
    uint32_t first, count; /* in `place` */
    uint32_t alike;        /* a state that allows the same tokens; 0 while unknown */
    int32_t mask;          /* the number of its tokens, or -1 */
    bool ends;
    uint32_t next[256];
} state;

struct tx_constraint {
    const tx_grammar *g;
    frame *frame; /* number 0 is the empty stack */
    place *place;
    state **state; /* [STATES] */
    int32_t frames, places, states, masks;
    tx_index frame_index, state_index;
    uint32_t at; /* the current state */
    uint32_t *mask[MASKS];
    int64_t steps;
    /* The current step: places to follow, its result, and the places that it has seen. */
    place work[WORK], found[WORK];
    int32_t working, founds;
    bool ends;
    struct {
        uint32_t epoch;
        place place;
    } seen[VISITS];
    uint32_t epoch, seens;
};

static tx_status too_ambiguous(void)
{
    return tx_fail(TX_UNSUPPORTED,
                   "the grammar or schema is too ambiguous: repetitions within repetitions match the same "
                   "text in too many ways");
}

/* ---- Frames and places ----------------------------------------------------------------------------------- */

static bool same_frame(const void *things, uint32_t number, const void *key)
{
    const frame *a = (const frame *)things + number, *b = key;
    return a->expr == b->expr && a->times == b->times && a->parent == b->parent;
}

/* Finds or makes a frame, which is alike itself. */
static tx_status intern(tx_constraint *c, uint32_t expr, uint32_t times, uint32_t parent, uint32_t *to)
{
    const frame key = {expr, times, parent, (uint32_t)c->frames};
    const uint64_t hash = tx_hash_mix(tx_hash_pair((int32_t)expr, (int32_t)times) + parent);
    *to = tx_index_find(&c->frame_index, hash, same_frame, c->frame, &key);
    if (*to != TX_INDEX_NONE)
        return TX_OK;
    if (c->frames == FRAMES)
        return too_ambiguous();
    frame *grown = tx_grown(c->frame, c->frames, sizeof *grown);
    if (!grown)
        return tx_fail(TX_MEMORY, "no memory for a constraint");
    c->frame = grown;
    c->frame[c->frames] = key;
    *to = (uint32_t)c->frames++;
    return tx_index_add(&c->frame_index, hash, *to);
}

static tx_status push(tx_constraint *c, uint32_t expr, uint32_t times, uint32_t parent, uint32_t *to)
{
    const tx_expr *e = &c->g->expr[expr];
    uint32_t same = times, alike;
    if (times != NEW && times + TX_TOKEN_BYTES < e->b)
        same = 1;
    else if (times != NEW && times >= e->b && e->c != TX_GRAMMAR_FOREVER && times + TX_TOKEN_BYTES < e->c)
        same = e->b > 0 ? e->b : 1;
    TX_TRY(intern(c, expr, times, parent, to));
    if (same == times && c->frame[parent].alike == parent)
        return TX_OK;
    TX_TRY(intern(c, expr, same, c->frame[parent].alike, &alike));
    c->frame[*to].alike = alike;
    return TX_OK;
}

/* Adds a place to follow, unless it was added before in this step. */
static tx_status enter(tx_constraint *c, uint32_t expr, uint32_t at, uint32_t fresh)
{
    const place key = {expr, at, fresh};
    if (!c->g->expr[expr].possible)
        return TX_OK;
    for (size_t slot = tx_hash_bytes((const char *)&key, sizeof key);; slot++) {
        slot &= VISITS - 1;
        if (c->seen[slot].epoch != c->epoch) {
            if (c->working == WORK || c->seens == VISITS / 2 || c->steps++ > STEPS)
                return too_ambiguous();
            c->seen[slot].epoch = c->epoch;
            c->seen[slot].place = key;
            c->seens++;
            c->work[c->working++] = key;
            return TX_OK;
        }
        if (memcmp(&c->seen[slot].place, &key, sizeof key) == 0)
            return TX_OK;
    }
}

/* Begins repetition number `times`, from 0, of a loop, or leaves it. */
static tx_status repeat(tx_constraint *c, uint32_t expr, uint32_t times, uint32_t parent, uint32_t fresh)
{
    const tx_expr *e = &c->g->expr[expr];
    uint32_t inner, more = times + 1;
    if (e->c == TX_GRAMMAR_FOREVER && more > e->b)
        more = e->b; /* those after the least are all alike */
    if (times < e->c) {
        TX_TRY(push(c, expr, more, parent, &inner));
        TX_TRY(enter(c, e->a, inner, fresh + 1));
    }
    return times >= e->b ? enter(c, TX_EMPTY, parent, fresh) : TX_OK;
}

/* Follows a stack after an expression has matched. */
static tx_status resume(tx_constraint *c, uint32_t at, uint32_t fresh)
{
    const frame f = c->frame[at];
    if (at == 0) {
        c->ends = true;
        return TX_OK;
    }
    if (f.times == NEW)
        return enter(c, f.expr, f.parent, fresh ? fresh - 1 : 0);
    /* A repetition without bytes would only count. */
    return fresh ? TX_OK : repeat(c, f.expr, f.times, f.parent, 0);
}

/* Follows all places up to their next bytes. */
static tx_status follow(tx_constraint *c)
{
    while (c->working > 0) {
        const place p = c->work[--c->working];
        const tx_expr *e = &c->g->expr[p.expr];
        uint32_t inner;
        switch (e->kind) {
        case TX_EMPTY:
            TX_TRY(resume(c, p.frame, p.fresh));
            break;
        case TX_BYTE:
            if (c->founds == WORK)
                return too_ambiguous();
            c->found[c->founds++] = (place){p.expr, p.frame, 0};
            break;
        case TX_SEQ:
            TX_TRY(push(c, e->b, NEW, p.frame, &inner));
            TX_TRY(enter(c, e->a, inner, p.fresh + 1));
            break;
        case TX_ALT:
            TX_TRY(enter(c, e->a, p.frame, p.fresh));
            TX_TRY(enter(c, e->b, p.frame, p.fresh));
            break;
        case TX_LOOP:
            TX_TRY(repeat(c, p.expr, 0, p.frame, p.fresh));
            break;
        case TX_RULE:
            TX_TRY(enter(c, c->g->rule[e->a], p.frame, p.fresh));
            break;
        }
    }
    return TX_OK;
}

/* ---- States ---------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->expr != y->expr ? (x->expr > y->expr) - (x->expr < y->expr)
                              : (x->frame > y->frame) - (x->frame < y->frame);
}

typedef struct state_key {
    const tx_constraint *c;
    uint32_t count;
    bool ends;
} state_key;

static bool same_state(const void *things, uint32_t number, const void *key)
{
    const state_key *k = key;
    const state *s = ((state *const *)things)[number];
    return s->count == k->count && s->ends == k->ends &&
           (!k->count || memcmp(k->c->place + s->first, k->c->found, k->count * sizeof(place)) == 0);
}

static void begin_step(tx_constraint *c)
{
    c->working = c->founds = 0;
    c->ends = false;
    c->epoch++;
    c->seens = 0;
}

/* Finds or makes the state of the places that a step found. */
static tx_status settle(tx_constraint *c, uint32_t *to)
{
    *to = DEAD;
    if (!c->founds && !c->ends)
        return TX_OK;
    qsort(c->found, (size_t)c->founds, sizeof *c->found, by_place);
    int32_t count = 0;
    for (int32_t i = 0; i < c->founds; i++) /* the same place may be found with several numbers of fresh frames */
        if (!count || by_place(&c->found[count - 1], &c->found[i]) != 0)
            c->found[count++] = c->found[i];
    const state_key key = {c, (uint32_t)count, c->ends};
    const uint64_t hash = tx_hash_bytes((const char *)c->found, (size_t)count * sizeof *c->found) + c->ends;
    *to = tx_index_find(&c->state_index, hash, same_state, c->state, &key);
    if (*to != TX_INDEX_NONE)
        return TX_OK;
    if (c->states == STATES || c->places + count > PLACES)
        return too_ambiguous();
    state *s = calloc(1, sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "no memory for a constraint");
    *s = (state){.first = (uint32_t)c->places, .count = (uint32_t)count, .mask = -1, .ends = c->ends};
    *to = (uint32_t)c->states;
    c->state[c->states++] = s;
    for (int32_t i = 0; i < count; i++) {
        place *grown = tx_grown(c->place, c->places, sizeof *grown);
        if (!grown)
            return tx_fail(TX_MEMORY, "no memory for a constraint");
        c->place = grown;
        c->place[c->places++] = c->found[i];
    }
    return tx_index_add(&c->state_index, hash, *to);
}

/* The state after one more byte. */
static tx_status step(tx_constraint *c, uint32_t from, uint8_t byte, uint32_t *to)
{
    const state *s = c->state[from];
    *to = s->next[byte];
    if (*to != UNKNOWN)
        return TX_OK;
    begin_step(c);
    for (uint32_t i = 0; i < s->count; i++) {
        const place p = c->place[s->first + i];
        const tx_expr *e = &c->g->expr[p.expr];
        c->steps++;
        if (byte >= e->low && byte <= e->high)
            TX_TRY(enter(c, TX_EMPTY, p.frame, 0));
    }
    TX_TRY(follow(c));
    TX_TRY(settle(c, to));
    c->state[from]->next[byte] = *to;
    return TX_OK;
}

/* Frees all states, and the frames and places that they share. */
static void forget(tx_constraint *c)
{
    for (int32_t i = FIRST; i < c->states; i++)
        free(c->state[i]);
    while (c->masks > 0)
        free(c->mask[--c->masks]);
    free(c->frame);
    free(c->place);
    free(c->frame_index.slot);
    free(c->state_index.slot);
    c->frame = NULL;
    c->place = NULL;
    c->frame_index = c->state_index = (tx_index){0};
    c->places = c->frames = 0;
    c->states = FIRST;
}

/* Adds the stack of a frame in `old` to the new frames. Stacks share frames, so `map` has those that were added. */
static tx_status keep_stack(tx_constraint *c, const frame *old, uint32_t at, uint32_t *map)
{
    uint32_t top = at, below;
    uint32_t *path = malloc(((size_t)at + 1) * sizeof *path);
    size_t size = 0;
    tx_status status = path ? TX_OK : tx_fail(TX_MEMORY, "no memory for a constraint");
    for (; path && top && !map[top]; top = old[top].parent) /* parents have lower numbers */
        path[size++] = top;
    below = map[top];
    while (size-- > 0 && !status) {
        status = push(c, old[path[size]].expr, old[path[size]].times, below, &map[path[size]]);
        below = map[path[size]];
    }
    free(path);
    return status;
}

/* Forgets all states except the current one. */
static tx_status renew(tx_constraint *c)
{
    const state *s = c->state[c->at];
    frame *old = malloc((size_t)c->frames * sizeof *old);
    uint32_t *map = calloc((size_t)c->frames, sizeof *map), none;
    tx_status status = old && map ? TX_OK : tx_fail(TX_MEMORY, "no memory for a constraint");
    if (!status) {
        begin_step(c);
        c->ends = s->ends;
        c->founds = (int32_t)s->count;
        for (uint32_t i = 0; i < s->count; i++)
            c->found[i] = c->place[s->first + i];
        memcpy(old, c->frame, (size_t)c->frames * sizeof *old);
        forget(c);
        status = intern(c, DONE, NEW, 0, &none);
    }
    for (int32_t i = 0; i < c->founds && !status; i++) {
        status = keep_stack(c, old, c->found[i].frame, map);
        c->found[i].frame = map[c->found[i].frame];
    }
    TX_THEN(status, settle(c, &c->at));
    free(old);
    free(map);
    return status;
}

/* ---- Tokens ---------------------------------------------------------------------------------------------- */

/* Finds the state alike the current one, whose tokens are known more often. */
static tx_status find_alike(tx_constraint *c, uint32_t *alike)
{
    state *s = c->state[c->at];
    if (!s->alike) {
        begin_step(c);
        c->ends = s->ends;
        for (uint32_t i = 0; i < s->count; i++) {
            const place p = c->place[s->first + i];
            c->found[c->founds++] = (place){p.expr, c->frame[p.frame].alike, 0};
        }
        TX_TRY(settle(c, &s->alike));
    }
    *alike = s->alike;
    return TX_OK;
}

/* Walks the trie of tokens with the states from `from` on. */
static tx_status find_allowed(tx_constraint *c, uint32_t from, uint32_t *mask)
{
    const tx_vocabulary *v = c->g->vocabulary;
    uint32_t at[TX_TOKEN_BYTES + 1] = {from};
    c->steps = 0;
    for (uint32_t i = 0; i < v->nodes;) {
        const tx_vocabulary_node *node = &v->node[i];
        uint32_t next = c->state[at[node->depth]]->next[node->byte];
        if (next == UNKNOWN)
            TX_TRY(step(c, at[node->depth], node->byte, &next));
        if (next == DEAD) {
            i = node->skip;
            continue;
        }
        at[node->depth + 1] = next;
        for (uint32_t k = node->first; k < node->first + node->count; k++)
            mask[v->ids[k] / 32] |= UINT32_C(1) << v->ids[k] % 32;
        i++;
    }
    return TX_OK;
}

/* Forgets the tokens of all states. */
static void forget_masks(tx_constraint *c)
{
    for (int32_t i = FIRST; i < c->states; i++)
        c->state[i]->mask = -1;
    while (c->masks > 0)
        free(c->mask[--c->masks]);
}

tx_status tx_constraint_allowed(tx_constraint *constraint, tx_allowed *allowed)
{
    tx_constraint *c = constraint;
    const int64_t count = c->g->vocabulary->size;
    uint32_t alike;
    if (c->states > FULL || c->frames > FRAMES / 2 || c->places > PLACES / 2)
        TX_TRY(renew(c));
    TX_TRY(find_alike(c, &alike));
    if (c->state[alike]->mask < 0) {
        if (c->masks == MASKS)
            forget_masks(c);
        uint32_t *mask = calloc((size_t)count / 32 + 1, sizeof *mask);
        const tx_status status = mask ? find_allowed(c, alike, mask) : tx_fail(TX_MEMORY, "no memory for a constraint");
        if (status) {
            free(mask);
            return status;
        }
        c->mask[c->masks] = mask;
        c->state[alike]->mask = c->masks++;
    }
    *allowed = (tx_allowed){c->mask[c->state[alike]->mask], count, c->state[alike]->ends};
    return TX_OK;
}

tx_status tx_constraint_add(tx_constraint *constraint, int32_t id, bool *complete)
{
    tx_constraint *c = constraint;
    const char *bytes;
    size_t size;
    uint32_t at = c->at;
    TX_TRY(tx_tokenizer_piece(c->g->vocabulary->tokenizer, id, true, &bytes, &size));
    c->steps = 0;
    for (size_t i = 0; i < size && at != DEAD; i++)
        TX_TRY(step(c, at, (uint8_t)bytes[i], &at));
    if (!size || at == DEAD)
        return tx_fail(TX_INVALID, "token %d does not follow the grammar", (int)id);
    c->at = at;
    *complete = c->state[at]->ends && !c->state[at]->count;
    return TX_OK;
}

tx_status tx_constraint_create(const tx_grammar *grammar, tx_constraint **constraint)
{
    tx_constraint *c = calloc(1, sizeof *c);
    uint32_t none;
    if (!c || !(c->state = calloc(STATES, sizeof *c->state))) {
        free(c);
        return tx_fail(TX_MEMORY, "no memory for a constraint");
    }
    c->g = grammar;
    c->states = FIRST;
    begin_step(c);
    tx_status status = intern(c, DONE, NEW, 0, &none);
    TX_THEN(status, enter(c, grammar->start, 0, 0));
    TX_THEN(status, follow(c));
    TX_THEN(status, settle(c, &c->at));
    return TX_RETURN(status, c, constraint, tx_constraint_free);
}

void tx_constraint_free(tx_constraint *constraint)
{
    if (!constraint)
        return;
    forget(constraint);
    free(constraint->state);
    free(constraint);
}

/* Steps of a probe, and those after which it ends unless there are many places. */
enum { PROBE = 192, PROBE_FEW = 48, FEW = 64 };

tx_status tx_constraint_probe(const tx_grammar *grammar)
{
    tx_constraint *c = NULL;
    TX_TRY(tx_constraint_create(grammar, &c));
    tx_status status = TX_OK;
    for (int n = 0; n < PROBE && !status; n++) { /* each step leads to the state with most places */
        uint32_t best = DEAD;
        for (int byte = 0; byte < 256 && !status; byte++) {
            uint32_t next = DEAD;
            status = step(c, c->at, (uint8_t)byte, &next);
            if (next > DEAD && (best == DEAD || c->state[next]->count > c->state[best]->count))
                best = next;
        }
        if (best == DEAD || (n >= PROBE_FEW && c->state[best]->count < FEW))
            break;
        c->at = best;
    }
    tx_constraint_free(c);
    return status;
}
