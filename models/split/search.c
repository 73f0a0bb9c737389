/* SPDX-License-Identifier: Apache-2.0
 * Searches for the fastest splits that fit. */
#include "models/split/split.h"

#include <math.h>

#define LARGEST_BATCH 8   /* rows of a micro-batch */
#define SMALLEST_PART 256 /* minimum number of tokens of a row on a context-parallel rank */
#define LARGEST_CHUNKS 4  /* of a rank */
#define LARGEST_AXIS 4096

static void insert(tx_split_search *list, const tx_split_found *one)
{
    int32_t at = list->count < TX_SPLIT_MOST ? list->count++ : TX_SPLIT_MOST;
    for (; at > 0 && one->figures.seconds < list->found[at - 1].figures.seconds; at--)
        if (at < TX_SPLIT_MOST)
            list->found[at] = list->found[at - 1];
    if (at < TX_SPLIT_MOST)
        list->found[at] = *one;
}

typedef struct search_state {
    const tx_split_model *model;
    const tx_split_machine *machine;
    const tx_split_limits *limits;
    tx_split_search *search;
} search_state;

/* Evaluates one split. Among equally fast splits the first one, with the smaller axes, comes first. */
static void consider(const search_state *l, const tx_split *split)
{
    tx_split_found one = {.split = *split};
    if (l->limits->built && !tx_split_is_built(split))
        return;
    tx_split_predict(l->model, l->machine, split, &one.figures);
    l->search->least = fmin(l->search->least, one.figures.memory);
    if (one.figures.memory <= l->machine->memory * TX_SPLIT_MEMORY)
        insert(l->search, &one);
}

/* Tries the schedules of a split with given micro-batches. */
static void try_schedules(const search_state *l, tx_split s)
{
    for (int again = 0; again < 2; again++) {
        if (l->limits->again >= 0 && l->limits->again != again)
            continue;
        s.again = again;
        s.chunks = 1;
        s.schedule = TX_PIPELINE_1F1B;
        consider(l, &s);
        s.schedule = TX_PIPELINE_GPIPE;
        if (s.pipeline > 1)
            consider(l, &s);
        s.schedule = TX_PIPELINE_INTERLEAVED;
        for (s.chunks = 2; s.chunks <= LARGEST_CHUNKS && s.pipeline > 1 && s.micro % s.pipeline == 0; s.chunks *= 2)
            if (l->model->layers % (s.pipeline * s.chunks) == 0)
                consider(l, &s);
    }
}

static bool wanted(int64_t value, int64_t limit)
{
    return limit == 0 || value == limit;
}

/* Tries a ZeRO stage over all ranks, and within hosts if several hosts have several of the ranks each. */
static void try_sharding(const search_state *l, tx_split s)
{
    const int32_t limit = l->limits->hybrid;
    if (limit <= 0)
        try_schedules(l, s);
    s.hybrid = true;
    const int64_t shards = tx_split_shards(l->machine, &s), ranks = s.data * s.context;
    if (limit != 0 && s.zero > 0 && s.expert == 1 && shards > 1 && shards < ranks && ranks % shards == 0)
        try_schedules(l, s);
}

/* Tries the micro-batches and ZeRO stages of a split with given axes. */
static void try_batches(const search_state *l, tx_split s)
{
    const int64_t rows = l->limits->tokens / l->model->block;
    const int64_t least = l->limits->batch ? l->limits->batch : 1, most = l->limits->batch ? least : LARGEST_BATCH;
    for (s.batch = least; s.batch <= most; s.batch *= 2) {
        s.micro = rows / (s.data * s.batch);
        if (s.micro * s.data * s.batch != rows || s.micro < 1)
            continue;
        for (s.zero = 0; s.zero < 4 && (s.zero == 0 || s.data * s.context > 1 || s.zero == l->limits->zero); s.zero++)
            if (l->limits->zero < 0 || s.zero == l->limits->zero)
                try_sharding(l, s);
    }
}

/* Whether the model can be divided by these axes, without a check of its experts. */
static bool divides(const tx_split_model *m, const tx_split_limits *limits, const tx_split *s)
{
    return wanted(s->tensor, limits->tensor) && wanted(s->pipeline, limits->pipeline) &&
           wanted(s->context, limits->context) && limits->devices % (s->tensor * s->pipeline * s->context) == 0 &&
           m->layers >= s->pipeline && s->pipeline <= TX_SPLIT_STAGES &&
           (s->context == 1 || (m->block % s->context == 0 && m->block / s->context >= SMALLEST_PART));
}

void tx_split_search_all(const tx_split_model *model, const tx_split_machine *machine, const tx_split_limits *limits,
                         tx_split_search *search)
{
    const search_state l = {model, machine, limits, search};
    *search = (tx_split_search){.least = HUGE_VAL};
    tx_split s = {.chunks = 1};
    for (s.tensor = 1; s.tensor <= model->tensor; s.tensor *= 2)
        for (s.pipeline = 1; s.pipeline <= LARGEST_AXIS; s.pipeline *= 2)
            for (s.context = 1; s.context <= LARGEST_AXIS; s.context *= 2) {
                if (!divides(model, limits, &s))
                    continue;
                s.data = limits->devices / (s.tensor * s.pipeline * s.context);
                for (s.expert = 1; s.expert <= (model->experts ? model->experts : 1); s.expert *= 2)
                    if (wanted(s.expert, limits->expert) && s.data * s.context % s.expert == 0 &&
                        (s.expert == 1 || model->experts % s.expert == 0))
                        try_batches(&l, s);
            }
}
