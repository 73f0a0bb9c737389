/* SPDX-License-Identifier: Apache-2.0
 * Forward, prefill and decode plans. */
#include "models/generate/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Prompts are padded to a multiple of this, so that few plans serve many lengths. */
#define PROMPT_MULTIPLE 32

/* One sequence of `count` tokens through the model. */
typedef struct stage {
    tx_graph *graph;
    tx_tensor *tokens, *positions, *rows, *logits;
    tx_plan *plan;
    int64_t count;
} stage;

/* `cache` 0: logits of all positions; else with caches of that length and the logits of one row. */
static tx_status build(tx_model *model, const tx_gpt2_config *config, const char *name, int64_t count, int64_t cache,
                       stage *made)
{
    tx_status status = tx_graph_create(model, &made->graph);
    if (status)
        return status;
    made->count = count;
    made->tokens = tx_input(made->graph, "tokens", TX_I32, TX_SHAPE(1, count));
    if (cache)
        made->positions = tx_input(made->graph, "positions", TX_I32, TX_SHAPE(1));
    if (cache)
        made->rows = tx_input(made->graph, "rows", TX_I32, TX_SHAPE(1));
    tx_gpt2_options options = {
        .size = sizeof options, .cache = cache, .positions = made->positions, .rows = made->rows};
    made->logits = tx_output(tx_gpt2_logits(made->graph, config, made->tokens, &options));
    return tx_plan_create(made->graph, name, &made->plan);
}

static void release(stage *s)
{
    tx_plan_free(s->plan);
    tx_graph_free(s->graph);
}

static tx_status check_ids(const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tx_fail(TX_INVALID, "token %" PRId64 ": id %" PRId32 " is outside the vocabulary of %" PRId64, i,
                           ids[i], vocab);
    return TX_OK;
}

/* ---- forward ----------------------------------------------------------------------------------- */

struct tx_forward {
    stage stage;
    int64_t vocab, padded;
    float *logits; /* [count, padded] */
};

tx_status tx_forward_create(tx_model *model, const tx_gpt2_config *config, int64_t count, tx_forward **forward)
{
    if (count < 1 || count > config->n_positions)
        return tx_fail(TX_INVALID, "%" PRId64 " tokens: the model takes 1 to %" PRId64, count, config->n_positions);
    tx_forward *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "forward: out of memory");
    made->vocab = config->vocab_size;
    made->padded = tx_gpt2_padded_vocab(config);
    made->logits = malloc((size_t)(count * made->padded) * sizeof *made->logits);
    tx_status status = made->logits ? build(model, config, "forward", count, 0, &made->stage)
                                    : tx_fail(TX_MEMORY, "forward: no memory for the logits");
    if (status) {
        tx_forward_free(made);
        return status;
    }
    *forward = made;
    return TX_OK;
}

void tx_forward_free(tx_forward *forward)
{
    if (!forward)
        return;
    release(&forward->stage);
    free(forward->logits);
    free(forward);
}

tx_status tx_forward_run(tx_forward *forward, const int32_t *ids, float *logits)
{
    stage *s = &forward->stage;
    tx_status status = check_ids(ids, s->count, forward->vocab);
    if (!status)
        status = tx_plan_write(s->plan, s->tokens, ids, (size_t)s->count * sizeof *ids);
    if (!status)
        status = tx_plan_run(s->plan);
    if (!status)
        status = tx_plan_read(s->plan, s->logits, forward->logits,
                              (size_t)(s->count * forward->padded) * sizeof *forward->logits);
    for (int64_t t = 0; t < s->count && !status; t++)
        memcpy(logits + t * forward->vocab, forward->logits + t * forward->padded,
               (size_t)forward->vocab * sizeof *logits);
    return status;
}

/* ---- generation -------------------------------------------------------------------------------- */

struct tx_generator {
    tx_model *model;
    stage prefill, decode;
    int64_t vocab, padded, prompt, context;
    int64_t end;             /* id that ends a text, or -1 */
    int32_t *ids;            /* the prompt, padded */
    float *logits, *scratch; /* of one row */
};

static int64_t round_up(int64_t value, int64_t most)
{
    int64_t up = (value + PROMPT_MULTIPLE - 1) / PROMPT_MULTIPLE * PROMPT_MULTIPLE;
    return up < most ? up : most;
}

static tx_status prepare(tx_generator *g, const tx_gpt2_config *config, int64_t prompt)
{
    /* A padded prompt fills cache rows beyond its end; the tokens that come later overwrite them before any query
     * may look there. */
    int64_t padded_prompt = round_up(prompt, config->n_positions);
    int64_t cache = round_up(g->context, config->n_positions);
    g->ids = calloc((size_t)padded_prompt, sizeof *g->ids);
    g->logits = malloc((size_t)g->padded * sizeof *g->logits);
    g->scratch = malloc((size_t)g->padded * sizeof *g->scratch);
    if (!g->ids || !g->logits || !g->scratch)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    tx_status status = build(g->model, config, "prefill", padded_prompt, cache, &g->prefill);
    return status ? status : build(g->model, config, "decode", 1, cache, &g->decode);
}

tx_status tx_generator_create(tx_model *model, const tx_gpt2_config *config, int64_t prompt, int64_t context,
                              tx_generator **generator)
{
    if (prompt < 1 || context < prompt || context > config->n_positions)
        return tx_fail(TX_INVALID,
                       "a prompt of %" PRId64 " tokens and %" PRId64 " new ones: the model has %" PRId64
                       " positions; shorten the prompt or ask for fewer",
                       prompt, context - prompt, config->n_positions);
    tx_generator *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    made->model = model;
    made->vocab = config->vocab_size;
    made->padded = tx_gpt2_padded_vocab(config);
    made->prompt = prompt;
    made->context = context;
    made->end = config->eos_token_id;
    tx_status status = prepare(made, config, prompt);
    if (status) {
        tx_generator_free(made);
        return status;
    }
    *generator = made;
    return TX_OK;
}

void tx_generator_free(tx_generator *generator)
{
    if (!generator)
        return;
    release(&generator->decode);
    release(&generator->prefill);
    free(generator->ids);
    free(generator->logits);
    free(generator->scratch);
    free(generator);
}

/* Runs a stage whose first token stands at `position` and reads the logits of its token `row`. */
static tx_status step(tx_generator *g, stage *s, const int32_t *ids, int64_t position, int32_t row)
{
    int32_t at = (int32_t)position;
    tx_status status = tx_plan_write(s->plan, s->positions, &at, sizeof at);
    if (!status)
        status = tx_plan_write(s->plan, s->tokens, ids, (size_t)s->count * sizeof *ids);
    if (!status)
        status = tx_plan_write(s->plan, s->rows, &row, sizeof row);
    if (!status)
        status = tx_plan_run(s->plan);
    return status ? status : tx_plan_read(s->plan, s->logits, g->logits, (size_t)g->padded * sizeof *g->logits);
}

tx_status tx_generator_run(tx_generator *generator, const int32_t *ids, int64_t count, int64_t most,
                           const tx_sampling *sampling, tx_emit *emit, void *context)
{
    tx_generator *g = generator;
    if (count < 1 || count > g->prompt || most < 0 || count + most > g->context)
        return tx_fail(TX_INVALID,
                       "generate: %" PRId64 " + %" PRId64 " tokens; compiled for a prompt of 1 to %" PRId64
                       " and %" PRId64 " in all",
                       count, most, g->prompt, g->context);
    tx_status status = check_ids(ids, count, g->vocab);
    if (status)
        return status;
    memset(g->ids, 0, (size_t)g->prefill.count * sizeof *g->ids);
    memcpy(g->ids, ids, (size_t)count * sizeof *g->ids);
    for (int64_t n = 0; n < most; n++) {
        int32_t id = 0;
        if (n == 0)
            status = step(g, &g->prefill, g->ids, 0, (int32_t)(count - 1));
        else
            status = step(g, &g->decode, g->ids, count + n - 1, 0);
        if (!status)
            status = tx_sample(g->logits, g->vocab, sampling, (uint64_t)n, g->scratch, &id);
        if (status || !emit(context, id) || id == g->end)
            return status;
        g->ids[0] = id; /* the prompt is in the caches by now */
    }
    return TX_OK;
}
