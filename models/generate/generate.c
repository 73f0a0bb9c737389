/* SPDX-License-Identifier: Apache-2.0
 * Generates texts for a sink: by the batch of requests, or by beam search. */
#include "models/generate/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tx_status allocate(tx_generator *g)
{
    const size_t rows = (size_t)(g->batch * g->beams);
    g->ids = malloc(rows * (size_t)g->context * sizeof *g->ids);
    g->slot = malloc(rows * sizeof *g->slot);
    g->tokens = malloc(rows * sizeof *g->tokens);
    g->sources = malloc(rows * sizeof *g->sources);
    if (!g->ids || !g->slot || !g->tokens || !g->sources)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    return g->texts ? TX_OK : tx_choice_create(tx_slots_vocab(g->slots), &g->choice);
}

tx_status tx_generator_create(tx_model *model, const tx_config *config, const tx_generator_options *options,
                              tx_generator **generator)
{
    tx_generator_options o = *options;
    if (o.size != sizeof o || o.batch < 1 || o.beams < 1 || o.batch > INT32_MAX / o.beams)
        return tx_fail(TX_INVALID, "generate: %" PRId64 " prompts with %" PRId64 " beams, options of %zu bytes",
                       o.batch, o.beams, o.size);
    if (o.draft_tokens > 0 &&
        (tx_arch_pairs(config) || config->architecture->restarts || config->architecture->head == TX_HEAD_SEQ2SEQ))
        return tx_fail(TX_UNSUPPORTED, "guesses of tokens: %s is not supported", config->architecture->type);
    const tx_slots_options sizes = {o.batch * o.beams, o.context, o.prompt, o.beams, o.draft_tokens, o.q8_0,
                                    o.autocast,        o.ranks,   o.copies, false};
    tx_generator *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    created->batch = o.batch;
    created->beams = o.beams;
    created->context = o.context;
    created->comm = o.comm;
    o.keep = o.keep && o.batch == 1;
    tx_status status = tx_slots_create(model, config, &sizes, &created->slots);
    if (!status && o.beams == 1) {
        status = tx_batch_over(created->slots, &o, NULL, &created->texts);
        created->slots = status ? NULL : created->slots;
    }
    TX_THEN(status, allocate(created));
    return TX_RETURN(status, created, generator, tx_generator_free);
}

void tx_generator_free(tx_generator *generator)
{
    if (!generator)
        return;
    if (generator->texts)
        tx_batch_free(generator->texts);
    else
        tx_slots_free(generator->slots);
    tx_choice_free(&generator->choice);
    free(generator->ids);
    free(generator->slot);
    free(generator->tokens);
    free(generator->sources);
    free(generator);
}

tx_status tx_generator_prove(tx_generator *generator)
{
    return tx_slots_prove(generator->slots);
}

void tx_generator_draft_tokens(const tx_generator *generator, int64_t *drafted, int64_t *accepted)
{
    const tx_speculator *g = generator->texts ? tx_batch_speculator(generator->texts) : &(tx_speculator){0};
    *drafted = g->drafted;
    *accepted = g->accepted;
}

/* ---- Texts of a batch ------------------------------------------------------------------------------------- */

typedef struct texts texts;

/* A text that is being generated. */
typedef struct row {
    texts *all;
    int64_t index, count;
    int32_t *ids; /* [context]: prompt and new tokens; NULL if the row is free */
} row;

struct texts {
    const tx_run *run;
    row *row; /* [batch] */
    bool stopped;
    tx_status status;
};

static bool take(void *context, const tx_batch_token *token)
{
    row *r = context;
    const tx_sink *sink = r->all->run->sink;
    r->ids[r->count++] = token->id;
    return sink->emit(sink->context, r->index, token->id) &&
           !(sink->ends && sink->ends(sink->context, r->ids, r->count));
}

static bool is_stopped(void *context)
{
    return ((const row *)context)->all->stopped;
}

static void end(void *context, tx_batch_end how)
{
    row *r = context;
    texts *t = r->all;
    const tx_sink *sink = t->run->sink;
    char reason[1024];
    r->ids = NULL;
    if (how == TX_BATCH_FAILED && !t->status) {
        snprintf(reason, sizeof reason, "%s", tx_error());
        t->status = tx_fail(TX_INVALID, "%s", reason);
    }
    const bool more = !sink->end || sink->end(sink->context, r->index);
    t->stopped = t->stopped || t->status || !more;
}

static tx_status add(texts *t, int64_t index)
{
    const tx_run *run = t->run;
    const tx_prompt *prompt = &run->prompts[index];
    int64_t i = 0;
    while (t->row[i].ids)
        i++;
    row *r = &t->row[i];
    *r = (row){t, index, prompt->count, run->g->ids + i * run->g->context};
    memcpy(r->ids, prompt->ids, (size_t)prompt->count * sizeof *r->ids);
    const tx_batch_request request = {.size = sizeof request,
                                      .ids = prompt->ids,
                                      .count = prompt->count,
                                      .how = run->how,
                                      .sample = run->sample + (uint64_t)index,
                                      .context = r,
                                      .token = take,
                                      .cancelled = is_stopped,
                                      .end = end};
    const tx_status status = tx_batch_add(run->g->texts, &request);
    r->ids = status ? NULL : r->ids;
    return status;
}

static tx_status run_texts(const tx_run *run)
{
    texts t = {.run = run, .row = calloc((size_t)run->g->batch, sizeof *t.row)};
    if (!t.row)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    bool running = true;
    for (int64_t next = 0; running || (next < run->count && !t.stopped);) {
        while (next < run->count && !t.stopped && !t.status && tx_batch_free_slots(run->g->texts) > 0)
            t.status = add(&t, next++);
        t.stopped = t.stopped || t.status;
        const tx_status status = tx_batch_step(run->g->texts, &running);
        t.status = t.status ? t.status : status;
    }
    free(t.row);
    return t.status;
}

/* ---- Runs --------------------------------------------------------------------------------------------------- */

/* Checks that a prompt and its text fit. */
static tx_status check_prompt(const tx_generator *g, const tx_prompt *prompt, const tx_generation *how)
{
    const int64_t limit = tx_generation_limit(how, prompt->count);
    if (how->max_new_tokens < 0 && limit < 1)
        return tx_fail(TX_INVALID,
                       "generate: the prompt has %" PRId64 " tokens, but max_length, which includes the prompt, is "
                       "%" PRId64 "; max_new_tokens counts only new tokens",
                       prompt->count, how->max_length);
    if (prompt->count < 1 || prompt->count > g->context - limit)
        return tx_fail(TX_INVALID,
                       "generate: a prompt of %" PRId64 " and %" PRId64 " new tokens; compiled for %" PRId64 " in all",
                       prompt->count, limit, g->context);
    return TX_OK;
}

tx_status tx_generator_run(tx_generator *generator, const tx_prompt *prompts, int64_t count, uint64_t first,
                           const tx_generation *how, const tx_sink *sink)
{
    tx_generator *g = generator;
    if (count < 1 || how->num_beams != g->beams)
        return tx_fail(TX_INVALID, "generate: %" PRId64 " prompts, %" PRId64 " beams; compiled for %" PRId64 " beams",
                       count, how->num_beams, g->beams);
    TX_TRY(tx_generation_check(how));
    for (int64_t i = 0; i < count; i++)
        TX_TRY(check_prompt(g, &prompts[i], how));
    if (g->texts)
        tx_batch_forget(g->texts);
    if (g->texts)
        TX_TRY(run_texts(&(tx_run){g, prompts, count, how, sink, first, 0}));
    for (int64_t i = 0; i < count && !g->texts; i += g->batch)
        TX_TRY(tx_run_beams(
            &(tx_run){g, prompts + i, count - i < g->batch ? count - i : g->batch, how, sink, first + (uint64_t)i, i}));
    return tx_run_wait(g->slots, g->comm);
}
