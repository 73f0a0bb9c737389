/* SPDX-License-Identifier: Apache-2.0
 * Two steps of placement: choosing GPUs that are close to each other, and assigning cores evenly. */
#include "comm/topology/placement.h"

#include <stdlib.h>
#include <string.h>

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Returns the closeness of two GPUs: first partitions of one chip, then direct links by rate or number, then PCI
 * classes. */
static int64_t closeness(const tx_topology *t, int32_t a, int32_t b)
{
    const tx_topo_pair *pair = tx_topo_pair_of(t, a, b);
    if (pair->class_ == TX_TOPO_LOC)
        return 1000000;
    if (pair->link != TX_TOPO_NO_LINK && pair->link != TX_TOPO_LINK_UNKNOWN)
        return 10000 + (int64_t)(10 * (pair->link_rate > 0 ? pair->link_rate : pair->links));
    return (int64_t)TX_TOPO_UNKNOWN - (int64_t)pair->class_;
}

typedef struct choice {
    int64_t worst, sum;
    int32_t crowded; /* GPUs without a core of their own */
} choice;

static bool better(const choice *a, const choice *b)
{
    if (a->worst != b->worst)
        return a->worst > b->worst;
    if (a->crowded != b->crowded)
        return a->crowded < b->crowded;
    return a->sum > b->sum;
}

typedef struct chooser {
    int32_t gpus;
    int64_t *closeness;                 /* [a * gpus + b] */
    const int32_t *group, *cores;       /* by GPU: its group, and the number of cores close to it */
    int32_t users[TX_TOPO_DEVICES_MAX]; /* by group */
    struct {
        int64_t worst, sum; /* minimum and total closeness to the chosen GPUs */
        bool chosen;
    } each[TX_TOPO_DEVICES_MAX];
} chooser;

static void choose(chooser *c, int32_t gpu)
{
    c->each[gpu].chosen = true;
    c->users[c->group[gpu]]++;
    for (int32_t i = 0; i < c->gpus; i++) {
        int64_t pair = c->closeness[(int64_t)gpu * c->gpus + i];
        c->each[i].sum += pair;
        if (pair < c->each[i].worst)
            c->each[i].worst = pair;
    }
}

/* Starts with `seed` and repeatedly adds the GPU that yields the best set. */
static choice grow(chooser *c, int32_t seed, int32_t count)
{
    choice set = {.worst = INT64_MAX, .crowded = c->cores[seed] < 1};
    memset(c->users, 0, sizeof c->users);
    memset(c->each, 0, sizeof c->each);
    for (int32_t i = 0; i < c->gpus; i++)
        c->each[i].worst = INT64_MAX;
    choose(c, seed);
    for (int32_t k = 1; k < count; k++) {
        choice best = {.worst = -1};
        int32_t next = -1;
        for (int32_t i = 0; i < c->gpus; i++) {
            choice with = {c->each[i].worst < set.worst ? c->each[i].worst : set.worst, set.sum + c->each[i].sum,
                           set.crowded + (c->users[c->group[i]] >= c->cores[i])};
            if (!c->each[i].chosen && better(&with, &best)) {
                best = with;
                next = i;
            }
        }
        set = best;
        choose(c, next);
    }
    return set;
}

tx_status tx_topo_choose_gpus(const tx_topology *t, const int32_t *group, const int32_t *cores, int32_t count,
                              int32_t *chosen)
{
    const size_t n = (size_t)t->gpus;
    choice best = {.worst = -1};
    chooser c = {.gpus = t->gpus, .group = group, .cores = cores, .closeness = calloc(n * n, sizeof *c.closeness)};
    if (!c.closeness)
        return tx_fail(TX_MEMORY, "placement among %zu GPUs: out of memory", n);
    for (int32_t i = 0; i < count; i++) /* the result if all GPUs are chosen */
        chosen[i] = i;
    for (int32_t a = 0; a < t->gpus; a++)
        for (int32_t b = 0; b < t->gpus; b++)
            c.closeness[(size_t)a * n + (size_t)b] = a == b ? 0 : closeness(t, a, b);
    for (int32_t seed = 0; seed < c.gpus && count < c.gpus; seed++) {
        choice set = grow(&c, seed, count);
        if (!better(&set, &best))
            continue;
        best = set;
        for (int32_t i = 0, k = 0; i < c.gpus; i++)
            if (c.each[i].chosen)
                chosen[k++] = i;
    }
    free(c.closeness);
    return TX_OK;
}

/* ---- Cores ----------------------------------------------------------------------------------- */

typedef struct sharing {
    const int32_t *group;
    int32_t ranks, cores, groups;
    const bool *allowed;
    int32_t *owner, *borrowed;
    int32_t *total;   /* by rank: cores assigned so far */
    int32_t *pending; /* by rank: cores of the current kind that are not yet assigned */
    int32_t *kind;    /* by core: the first core that is allowed for the same groups */
    int32_t *users;   /* by core */
    int32_t *members; /* by group */
} sharing;

static bool is_allowed(const sharing *s, int32_t rank, int32_t core)
{
    return s->allowed[(int64_t)s->group[rank] * s->cores + core];
}

static bool same_groups(const sharing *s, int32_t a, int32_t b)
{
    for (int32_t g = 0; g < s->groups; g++)
        if (s->allowed[(int64_t)g * s->cores + a] != s->allowed[(int64_t)g * s->cores + b])
            return false;
    return true;
}

static int32_t ranks_of(const sharing *s, int32_t core)
{
    int32_t count = 0;
    for (int32_t g = 0; g < s->groups; g++)
        count += s->allowed[(int64_t)g * s->cores + core] ? s->members[g] : 0;
    return count;
}

/* Assigns the cores of one kind. First each core is counted for the rank with the fewest cores. The cores are then
 * assigned in blocks, so that the cores of a rank are contiguous. */
static void share_kind(sharing *s, int32_t kind)
{
    memset(s->pending, 0, (size_t)s->ranks * sizeof *s->pending);
    for (int32_t c = kind; c < s->cores; c++) {
        int32_t fewest = -1;
        for (int32_t r = 0; s->kind[c] == kind && r < s->ranks; r++)
            if (is_allowed(s, r, kind) && (fewest < 0 || s->total[r] < s->total[fewest]))
                fewest = r;
        if (fewest < 0)
            continue;
        s->total[fewest]++;
        s->pending[fewest]++;
    }
    int32_t rank = 0;
    for (int32_t c = kind; c < s->cores; c++) {
        if (s->kind[c] != kind)
            continue;
        while (rank < s->ranks && s->pending[rank] == 0)
            rank++;
        if (rank == s->ranks)
            return;
        s->owner[c] = rank;
        s->users[c]++;
        s->pending[rank]--;
    }
}

/* A rank without a core shares the one with the fewest users. */
static void borrow(sharing *s)
{
    for (int32_t r = 0; r < s->ranks; r++) {
        int32_t best = -1;
        for (int32_t c = 0; s->total[r] == 0 && c < s->cores; c++)
            if (is_allowed(s, r, c) && (best < 0 || s->users[c] < s->users[best]))
                best = c;
        s->borrowed[r] = best;
        if (best >= 0)
            s->users[best]++;
    }
}

static void share(sharing *s)
{
    for (int32_t r = 0; r < s->ranks; r++)
        s->members[s->group[r]]++;
    for (int32_t c = 0; c < s->cores; c++) {
        s->owner[c] = -1;
        s->kind[c] = c;
        for (int32_t k = 0; k < c && s->kind[c] == c; k++)
            if (s->kind[k] == k && same_groups(s, k, c))
                s->kind[c] = k;
    }
    /* Cores that few ranks may use are assigned first. Their ranks then leave other cores to the other ranks. */
    for (int32_t users = 1; users <= s->ranks; users++)
        for (int32_t c = 0; c < s->cores; c++)
            if (s->kind[c] == c && ranks_of(s, c) == users)
                share_kind(s, c);
    borrow(s);
}

tx_status tx_topo_share_cores(const int32_t *group, int32_t ranks, const bool *allowed, int32_t cores, int32_t *owner,
                              int32_t *borrowed)
{
    sharing s = {
        .group = group, .ranks = ranks, .cores = cores, .allowed = allowed, .owner = owner, .borrowed = borrowed};
    for (int32_t r = 0; r < ranks; r++)
        s.groups = group[r] >= s.groups ? group[r] + 1 : s.groups;
    int32_t *numbers = calloc(2 * (size_t)ranks + 2 * (size_t)cores + (size_t)s.groups, sizeof *numbers);
    if (!numbers)
        return tx_fail(TX_MEMORY, "placement of %d ranks: out of memory", (int)ranks);
    s.total = numbers;
    s.pending = s.total + ranks;
    s.kind = s.pending + ranks;
    s.users = s.kind + cores;
    s.members = s.users + cores;
    share(&s);
    free(numbers);
    return TX_OK;
}
