/* SPDX-License-Identifier: Apache-2.0
 * Generates texts token by token: greedy decoding and sampling. */
#include "models/generate/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tx_status allocate(tx_generator *g)
{
    const size_t rows = (size_t)(g->batch * g->beams);
    g->ids = malloc(rows * (size_t)g->context * sizeof *g->ids);
    g->tokens = malloc(rows * sizeof *g->tokens);
    g->sources = malloc(rows * sizeof *g->sources);
    g->prompts = malloc(rows * sizeof *g->prompts);
    if (!g->ids || !g->tokens || !g->sources || !g->prompts)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    return tx_choice_create(tx_decoder_vocab(g->decoder), &g->choice);
}

tx_status tx_generator_create(tx_model *model, const tx_config *config, const tx_generator_options *options,
                              tx_generator **generator)
{
    const tx_generator_options *o = options;
    if (o->size != sizeof *o || o->batch < 1 || o->beams < 1 || o->batch > INT32_MAX / o->beams)
        return tx_fail(TX_INVALID, "generate: %" PRId64 " prompts with %" PRId64 " beams, options of %zu bytes",
                       o->batch, o->beams, o->size);
    tx_generator *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    made->batch = o->batch;
    made->beams = o->beams;
    made->context = o->context;
    made->keep = o->keep && o->batch == 1 && o->beams == 1;
    tx_status status =
        tx_decoder_create(model, config, o->batch * o->beams, o->prompt, o->context, o->beams > 1, &made->decoder);
    TX_THEN(status, allocate(made));
    return TX_RETURN(status, made, generator, tx_generator_free);
}

void tx_generator_free(tx_generator *generator)
{
    if (!generator)
        return;
    tx_decoder_free(generator->decoder);
    tx_choice_free(&generator->choice);
    free(generator->ids);
    free(generator->tokens);
    free(generator->sources);
    free(generator->prompts);
    free(generator);
}

/* Chooses the next token of each row that is `alive`. `*any` becomes true if a row is still alive then. */
static tx_status choose(const tx_run *run, int64_t generated, bool *alive, bool *any)
{
    tx_generator *g = run->g;
    *any = false;
    for (int64_t r = 0; r < g->batch; r++) {
        g->tokens[r] = -1;
        if (r >= run->count || !alive[r])
            continue;
        const int64_t prompt = run->prompts[r].count, count = prompt + generated;
        int32_t *ids = g->ids + r * g->context, id = 0;
        const tx_history history = {ids, count, generated, run->first + (uint64_t)r};
        TX_TRY(tx_sample(run->how, &history, tx_decoder_logits(g->decoder, r), &g->choice, &id));
        ids[count] = g->tokens[r] = id;
        alive[r] = run->sink->emit(run->sink->context, r, id) && !tx_run_ends(run, ids, count + 1) &&
                   generated + 1 < tx_run_limit(run, r);
        *any = *any || alive[r];
        if (!alive[r])
            g->tokens[r] = -1;
    }
    return TX_OK;
}

static tx_status run_rows(const tx_run *run)
{
    bool any = true, *alive = malloc((size_t)run->count * sizeof *alive);
    if (!alive)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    tx_status status = TX_OK;
    for (int64_t r = 0; r < run->count; r++)
        alive[r] = true;
    for (int64_t n = 0; n < run->most && any && !status; n++) {
        status = choose(run, n, alive, &any);
        if (!status && any)
            status = tx_decoder_step(run->g->decoder, run->g->tokens, NULL);
    }
    free(alive);
    return status;
}

/* Passes the prompts to the decoder, each to all its beams. Rows without a prompt get the first one. */
static tx_status start(const tx_run *run)
{
    tx_generator *g = run->g;
    for (int64_t r = 0; r < g->batch * g->beams; r++) {
        g->prompts[r] = run->prompts[r / g->beams < run->count ? r / g->beams : 0];
        g->sources[r] = (int32_t)r;
        memcpy(g->ids + r * g->context, g->prompts[r].ids, (size_t)g->prompts[r].count * sizeof *g->ids);
    }
    return tx_decoder_start(g->decoder, g->prompts, g->keep);
}

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
    if (count < 1 || count > g->batch || how->num_beams != g->beams)
        return tx_fail(TX_INVALID,
                       "generate: %" PRId64 " prompts, %" PRId64 " beams; compiled for 1 to %" PRId64
                       " prompts and %" PRId64 " beams",
                       count, how->num_beams, g->batch, g->beams);
    tx_run run = {g, prompts, count, how, sink, first, 0};
    TX_TRY(tx_generation_check(how));
    for (int64_t i = 0; i < count; i++) {
        TX_TRY(check_prompt(g, &prompts[i], how));
        run.most = tx_run_limit(&run, i) > run.most ? tx_run_limit(&run, i) : run.most;
    }
    if (run.most == 0)
        return TX_OK;
    TX_TRY(start(&run));
    return g->beams > 1 ? tx_run_beams(&run) : run_rows(&run);
}
