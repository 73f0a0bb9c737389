/* SPDX-License-Identifier: Apache-2.0
 * Continuous batching: gives each request a slot, computes prompts and tokens, and reports them. */
#include "models/tx_batch.h"

#include "api/base/arithmetic.h"
#include "api/base/needs.h"
#include "models/generate/lm.h"
#include "models/generate/run.h"
#include "models/generate/sample.h"
#include "models/generate/slots.h"
#include "models/generate/speculate.h"
#include "models/generate/stream.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of prompts that are computed between two steps, so that texts somebody waits for are not late. */
#define PROMPT_TOKENS 256

/* A slot's request. */
typedef struct sequence {
    bool used;
    tx_batch_request request;
    tx_generation how;
    uint64_t ticket;          /* order of arrival */
    int32_t *ids;             /* [context]: prompt and new tokens */
    int64_t prompt, computed; /* tokens of the prompt; those that are computed */
    int64_t generated, limit; /* new tokens; their largest number */
    tx_constraint *constraint;
} sequence;

/* The prompt that was computed last. Requests with the same one copy its caches from a slot that still has them. */
typedef struct last_prompt {
    int32_t *ids;    /* [context] */
    int64_t count;   /* 0 if there is none */
    int64_t adapter; /* with which it was computed */
    float *logits;   /* [vocab]: for the token after it */
} last_prompt;

struct tx_batch {
    tx_batch_owner owner; /* all NULL without */
    bool keep, whole;     /* keep caches of ended requests; compute the first prompts at once */
    bool copies;          /* requests with the same prompt copy its caches */
    int64_t draft_tokens; /* the most that a step computes */
    tx_speculator speculator;
    tx_slots *slots;
    tx_comm *comm;      /* see tx_generator_options */
    sequence *sequence; /* [count] */
    int64_t count, context, vocab;
    uint64_t tickets;
    tx_choice choice;
    int32_t *ids;           /* [count, context] */
    int32_t *slot, *tokens; /* [count]: inputs of a step */
    tx_prompt *prompts;     /* [count] */
    last_prompt last;
};

/* ---- Creation ------------------------------------------------------------------------------------------- */

tx_status tx_batch_over(tx_slots *slots, const tx_generator_options *sizes, const tx_batch_owner *owner,
                        tx_batch **batch)
{
    tx_batch *b = calloc(1, sizeof *b);
    if (!b) {
        tx_slots_free(slots);
        return tx_fail(TX_MEMORY, "generate: out of memory");
    }
    b->slots = slots;
    b->comm = sizes->comm;
    b->owner = owner ? *owner : (tx_batch_owner){NULL, NULL, NULL};
    b->count = sizes->batch;
    b->context = sizes->context;
    b->keep = sizes->keep;
    b->copies = sizes->copies;
    b->draft_tokens = sizes->draft_tokens;
    b->whole = sizes->prompt > 0 && b->count > 1;
    b->vocab = tx_slots_vocab(slots);
    b->sequence = calloc((size_t)b->count, sizeof *b->sequence);
    b->ids = malloc((size_t)(b->count * b->context) * sizeof *b->ids);
    b->slot = malloc((size_t)b->count * sizeof *b->slot);
    b->tokens = malloc((size_t)b->count * sizeof *b->tokens);
    b->prompts = malloc((size_t)b->count * sizeof *b->prompts);
    b->last.ids = malloc((size_t)b->context * sizeof *b->last.ids);
    b->last.logits = malloc((size_t)b->vocab * sizeof *b->last.logits);
    const bool has = b->last.ids && b->last.logits;
    tx_status status = has && b->sequence && b->ids && b->slot && b->tokens && b->prompts
                           ? tx_choice_create(b->vocab, &b->choice)
                           : tx_fail(TX_MEMORY, "generate: out of memory");
    TX_THEN(status, tx_speculator_open(&b->speculator, sizes->draft, b->vocab));
    for (int64_t i = 0; i < b->count && !status; i++)
        b->sequence[i].ids = b->ids + i * b->context;
    return TX_RETURN(status, b, batch, tx_batch_free);
}

void tx_batch_free(tx_batch *batch)
{
    if (!batch)
        return;
    for (int64_t i = 0; i < batch->count && batch->sequence; i++)
        tx_constraint_free(batch->sequence[i].constraint);
    tx_slots_free(batch->slots);
    if (batch->owner.lm)
        batch->owner.release(batch->owner.lm);
    tx_choice_free(&batch->choice);
    tx_speculator_close(&batch->speculator);
    free(batch->sequence);
    free(batch->ids);
    free(batch->slot);
    free(batch->tokens);
    free(batch->prompts);
    free(batch->last.ids);
    free(batch->last.logits);
    free(batch);
}

int64_t tx_batch_context(const tx_batch *batch)
{
    TX_NEEDS(batch, 0);
    return batch->context;
}

bool tx_batch_uses(const tx_batch *batch, int64_t adapter)
{
    for (int64_t i = 0; i < batch->count; i++)
        if (batch->sequence[i].used && batch->sequence[i].request.adapter == adapter)
            return true;
    return false;
}

tx_lm *tx_batch_lm(const tx_batch *batch)
{
    return batch->owner.lm;
}

tx_slots *tx_batch_slots(const tx_batch *batch)
{
    return batch->slots;
}

const tx_speculator *tx_batch_speculator(const tx_batch *batch)
{
    return &batch->speculator;
}

int64_t tx_batch_free_slots(const tx_batch *batch)
{
    TX_NEEDS(batch, 0);
    int64_t free_slots = 0;
    for (int64_t i = 0; i < batch->count; i++)
        free_slots += !batch->sequence[i].used;
    return free_slots;
}

/* ---- Requests ------------------------------------------------------------------------------------------- */

static tx_status check(const tx_batch *b, const tx_batch_request *r, int64_t limit)
{
    if (r->size != sizeof *r)
        return tx_fail(TX_INVALID, "tx_batch_add: the request's size field is %zu, expected %zu", r->size, sizeof *r);
    TX_NEEDS(r->ids && r->how && r->token && r->end, TX_INVALID);
    TX_TRY(tx_generation_check(r->how));
    if (r->how->num_beams > 1)
        return tx_fail(TX_UNSUPPORTED, "num_beams %" PRId64 ": a batch of requests has no beams", r->how->num_beams);
    if (r->top < 0 || r->top > TX_BATCH_TOP)
        return tx_fail(TX_INVALID, "%" PRId32 " alternatives: at most %d are supported", r->top, TX_BATCH_TOP);
    if (r->count < 1 || r->count > b->context)
        return tx_fail(TX_INVALID, "the prompt has %" PRId64 " tokens; the context is 1 to %" PRId64 " tokens",
                       r->count, b->context);
    if (limit < 0 || limit > b->context - r->count)
        return tx_fail(TX_INVALID,
                       "the prompt has %" PRId64 " tokens and %" PRId64 " new ones are requested; the context is "
                       "%" PRId64 " tokens: shorten the prompt or request fewer",
                       r->count, limit, b->context);
    for (int32_t i = 0; i < r->how->bias_count; i++)
        TX_TRY(tx_fail_in(tx_check_ids(&r->how->logit_bias[i].id, 1, b->vocab), "logit_bias"));
    return tx_check_ids(r->ids, r->count, b->vocab);
}

tx_status tx_batch_add(tx_batch *batch, const tx_batch_request *request)
{
    TX_NEEDS(batch && request, TX_INVALID);
    const bool unset = request->how && request->how->max_new_tokens < 0 && request->how->max_length < 0;
    const int64_t limit = !request->how ? 0
                          : unset       ? batch->context - request->count
                                        : tx_generation_limit(request->how, request->count);
    TX_TRY(check(batch, request, limit));
    int64_t i = 0;
    while (i < batch->count && batch->sequence[i].used)
        i++;
    if (i == batch->count)
        return tx_fail(TX_INVALID, "tx_batch_add: all %" PRId64 " slots are in use", batch->count);
    TX_TRY(tx_slots_adapt(batch->slots, i, request->adapter));
    tx_constraint *constraint = NULL;
    tx_generation how = *request->how;
    if (batch->owner.lm)
        TX_TRY(batch->owner.prepare(batch->owner.lm, &how));
    if (how.grammar)
        TX_TRY(tx_constraint_create(how.grammar, &constraint));
    sequence *s = &batch->sequence[i];
    const tx_batch_request *r = request;
    *s = (sequence){.used = true,
                    .request = *request,
                    .how = how,
                    .ticket = batch->tickets++,
                    .ids = s->ids,
                    .prompt = request->count,
                    .computed = batch->keep ? tx_slots_shared(batch->slots, i, r->adapter, r->ids, r->count) : 0,
                    .limit = limit,
                    .constraint = constraint};
    memcpy(s->ids, request->ids, (size_t)request->count * sizeof *s->ids);
    return TX_OK;
}

/* Whether the slot of a request, maybe an earlier one, still has the prompt that was computed last. It must have been
 * the request's whole prompt, since other pieces may give other bits. */
static bool holds_last(const tx_batch *b, const sequence *s)
{
    return b->last.count > 0 && s->prompt == b->last.count && !s->request.echo &&
           tx_slots_holds(b->slots, s - b->sequence, b->last.adapter, b->last.ids, b->last.count);
}

void tx_batch_forget(tx_batch *batch)
{
    batch->last.count = 0;
    for (int64_t i = 0; i < batch->count && batch->copies; i++)
        tx_slots_keep(batch->slots, i, 0);
}

static void end_request(tx_batch *b, sequence *s, tx_batch_end end)
{
    const tx_batch_request request = s->request;
    s->used = false;
    tx_constraint_free(s->constraint);
    s->constraint = NULL;
    if (!b->keep)
        tx_slots_keep(b->slots, s - b->sequence, holds_last(b, s) ? b->last.count : 0);
    request.end(request.context, end);
}

/* ---- Log-probabilities ---------------------------------------------------------------------------------- */

/* Reports a token; `logits` [vocab] are those that predicted it, or NULL for the first token of a prompt. */
static bool report(const tx_batch *b, const sequence *s, int32_t id, bool prompt, const float *logits)
{
    const tx_batch_request *r = &s->request;
    tx_batch_likely top[TX_BATCH_TOP];
    tx_batch_token token = {.id = id, .prompt = prompt, .logprob = NAN, .top = top};
    if (logits && r->logprobs) {
        const double all = tx_log_sum(logits, b->vocab);
        token.logprob = (double)logits[id] - all;
        for (int32_t i = 0; i < b->vocab; i++) {
            const double logprob = (double)logits[i] - all;
            int32_t at = token.top_count;
            while (at > 0 && logprob > top[at - 1].logprob)
                at--;
            if (at >= r->top)
                continue;
            token.top_count += token.top_count < r->top;
            memmove(top + at + 1, top + at, (size_t)(token.top_count - 1 - at) * sizeof *top);
            top[at] = (tx_batch_likely){i, logprob};
        }
    }
    return r->token(r->context, &token);
}

/* ---- Steps ---------------------------------------------------------------------------------------------- */

/* Chooses a token that the grammar allows. Sets *complete if no other may follow. */
static tx_status choose_allowed(tx_batch *b, sequence *s, tx_history history, const float *logits, int32_t *id,
                                bool *complete)
{
    tx_allowed allowed;
    TX_TRY(tx_constraint_allowed(s->constraint, &allowed));
    history.allowed = &allowed;
    TX_TRY(tx_sample(&s->how, &history, logits, &b->choice, id));
    return tx_generation_ends(&s->how, *id) ? TX_OK : tx_constraint_add(s->constraint, *id, complete);
}

/* Chooses the next token of a request from its logits, and ends the request if it is the last. */
static void choose(tx_batch *b, sequence *s, const float *logits)
{
    const int64_t count = s->prompt + s->generated;
    const tx_history history = {s->ids, count, s->generated, s->request.sample, NULL};
    const tx_lm *lm = b->owner.lm;
    const tx_stop stop = {lm ? lm->tokenizer : NULL, s->how.stop_strings, lm ? s->how.stop_count : 0};
    int32_t id = 0;
    bool complete = false;
    if (s->generated >= s->limit) {
        end_request(b, s, TX_BATCH_LIMIT);
        return;
    }
    if (s->constraint ? choose_allowed(b, s, history, logits, &id, &complete)
                      : tx_sample(&s->how, &history, logits, &b->choice, &id)) {
        end_request(b, s, TX_BATCH_FAILED);
        return;
    }
    s->ids[count] = id;
    s->generated++;
    if (!report(b, s, id, false, logits))
        end_request(b, s, TX_BATCH_CANCELLED);
    else if (complete || tx_generation_ends(&s->how, id) || tx_stop_reached(&stop, s->ids + s->prompt, s->generated))
        end_request(b, s, TX_BATCH_STOPPED);
    else if (s->generated >= s->limit)
        end_request(b, s, TX_BATCH_LIMIT);
}

/* Reports the prompt's tokens first..computed-1. Their successors have the logits `all`. */
static bool echo(const tx_batch *b, const sequence *s, int64_t first, const float *all, int64_t stride)
{
    if (first == 0 && !report(b, s, s->ids[0], true, NULL))
        return false;
    for (int64_t t = first; t < s->computed && t + 1 < s->prompt; t++)
        if (!report(b, s, s->ids[t + 1], true, all + (t - first) * stride))
            return false;
    return true;
}

/* Remembers a prompt that has been computed, for requests with the same one. A prompt with `echo` has other pieces, and
 * so maybe other bits. */
static void remember(tx_batch *b, const sequence *s)
{
    if (!b->copies || s->request.echo)
        return;
    b->last.count = s->prompt;
    b->last.adapter = s->request.adapter;
    memcpy(b->last.ids, s->ids, (size_t)s->prompt * sizeof *s->ids);
    memcpy(b->last.logits, tx_slots_logits(b->slots, s - b->sequence), (size_t)b->vocab * sizeof(float));
}

/* Computes the next piece of a prompt. */
static tx_status compute_prompt(tx_batch *b, sequence *s)
{
    const float *all = NULL;
    const int64_t first = s->computed;
    int64_t stride = 0;
    TX_TRY(tx_slots_prefill(b->slots, s - b->sequence, s->ids, s->prompt, &s->computed, s->request.echo ? &all : NULL,
                            &stride));
    if (s->request.echo && !echo(b, s, first, all, stride)) {
        end_request(b, s, TX_BATCH_CANCELLED);
    } else if (s->computed == s->prompt) {
        remember(b, s);
        choose(b, s, tx_slots_logits(b->slots, s - b->sequence));
    }
    return TX_OK;
}

/* Copies the prompt that was computed last to all requests that wait for the same one, if a slot still has it. Sets
 * *done if there are any. */
static tx_status copy_prompt(tx_batch *b, bool *done)
{
    const last_prompt *last = &b->last;
    int64_t from = 0, count = 0, copies = 0;
    while (from < b->count && !holds_last(b, &b->sequence[from]))
        from++;
    for (int64_t i = 0; i < b->count && from < b->count; i++) {
        const sequence *s = &b->sequence[i];
        if (s->used && s->computed < s->prompt && !s->request.echo && s->prompt == last->count &&
            s->request.adapter == last->adapter && memcmp(s->ids, last->ids, (size_t)last->count * sizeof *s->ids) == 0)
            b->slot[count++] = (int32_t)i;
    }
    *done = count > 0;
    for (int64_t i = 0; i < count; i++)
        if (!holds_last(b, &b->sequence[b->slot[i]])) /* the others need only the logits */
            b->tokens[copies++] = b->slot[i];
    if (copies)
        TX_TRY(tx_slots_copy(b->slots, from, last->count, b->tokens, copies));
    for (int64_t i = 0; i < count; i++) {
        sequence *s = &b->sequence[b->slot[i]];
        s->computed = s->prompt;
        tx_slots_keep(b->slots, b->slot[i], s->prompt);
        choose(b, s, last->logits);
    }
    return TX_OK;
}

/* The request that has waited longest for its prompt, or NULL. */
static sequence *oldest_prompt(const tx_batch *b)
{
    sequence *oldest = NULL;
    for (int64_t i = 0; i < b->count; i++) {
        sequence *s = &b->sequence[i];
        if (s->used && s->computed < s->prompt && (!oldest || s->ticket < oldest->ticket))
            oldest = s;
    }
    return oldest;
}

/* Computes the prompts at once if no request has begun. */
static tx_status start(tx_batch *b)
{
    int64_t count = 0, used = 0;
    for (int64_t i = 0; i < b->count && b->whole; i++) {
        const sequence *s = &b->sequence[i];
        b->prompts[i] = (tx_prompt){s->ids, s->prompt};
        used += s->used;
        count += s->used && !s->computed && i == count;
    }
    if (count < 2 || count < used)
        return TX_OK;
    TX_TRY(tx_slots_start(b->slots, b->prompts, count));
    for (int64_t i = 0; i < count; i++) {
        b->sequence[i].computed = b->sequence[i].prompt;
        choose(b, &b->sequence[i], tx_slots_logits(b->slots, i));
    }
    return TX_OK;
}

static tx_status compute_prompts(tx_batch *b)
{
    TX_TRY(start(b));
    for (int64_t left = b->owner.lm ? PROMPT_TOKENS : INT64_MAX; left > 0;) {
        sequence *s = oldest_prompt(b);
        if (!s)
            return TX_OK;
        const int64_t before = s->computed;
        bool copied;
        TX_TRY(copy_prompt(b, &copied));
        if (copied)
            continue;
        TX_TRY(compute_prompt(b, s));
        left -= s->computed - before;
    }
    return TX_OK;
}

/* Computes the next tokens of the only request together, as far as they are drafted. Sets *done if there are draft
 * tokens.
 */
static tx_status compute_draft(tx_batch *b, sequence *s, bool *done)
{
    const int64_t slot = s - b->sequence, count = s->prompt + s->generated, limit = s->limit - s->generated - 1;
    const int64_t asked = b->speculator.draft ? s->how.num_assistant_tokens : s->how.prompt_lookup_num_tokens;
    const tx_history history = {s->ids, count, s->generated, s->request.sample, NULL};
    int64_t most = asked < b->draft_tokens ? asked : b->draft_tokens, first = count - 1, stride = 0;
    const float *all = NULL;
    most = tx_min(tx_min(most, limit), tx_slots_scored(b->slots, first) - 1);
    TX_TRY(tx_speculate(&b->speculator, &s->how, history, s->ids, &most));
    *done = most > 0;
    if (!*done)
        return TX_OK;
    TX_TRY(tx_slots_mark(b->slots, slot));
    TX_TRY(tx_slots_prefill(b->slots, slot, s->ids, count + most, &first, &all, &stride));
    b->speculator.drafted += most;
    for (int64_t i = 0; i <= most && s->used; i++) {
        const int32_t drafted = i < most ? s->ids[count + i] : -1;
        choose(b, s, all + i * stride);
        if (s->ids[count + i] != drafted)
            break;
        b->speculator.accepted++;
    }
    if (!s->used)
        return TX_OK;
    const int64_t accepted = s->prompt + s->generated - 1; /* the last token is not computed yet */
    first = accepted;
    TX_TRY(tx_slots_go_back(b->slots, slot, &first));
    while (first < accepted)
        TX_TRY(tx_slots_prefill(b->slots, slot, s->ids, accepted, &first, &all, &stride));
    return TX_OK;
}

/* Computes the next token of each request whose prompt is complete. */
static tx_status compute_tokens(tx_batch *b)
{
    bool done = false;
    int64_t count = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const sequence *s = &b->sequence[i];
        if (!s->used || s->computed < s->prompt)
            continue;
        b->slot[count] = (int32_t)i;
        b->tokens[count++] = s->ids[s->prompt + s->generated - 1];
    }
    if (count == 1)
        TX_TRY(compute_draft(b, &b->sequence[b->slot[0]], &done));
    if (!count || done)
        return TX_OK;
    TX_TRY(tx_run_step(b->slots, b->comm, b->slot, b->tokens, count, NULL));
    for (int64_t i = 0; i < count; i++)
        choose(b, &b->sequence[b->slot[i]], tx_slots_logits(b->slots, b->slot[i]));
    return TX_OK;
}

tx_status tx_batch_step(tx_batch *batch, bool *running)
{
    TX_NEEDS(batch && running, TX_INVALID);
    tx_batch *b = batch;
    for (int64_t i = 0; i < b->count; i++) {
        sequence *s = &b->sequence[i];
        if (s->used && s->request.cancelled && s->request.cancelled(s->request.context))
            end_request(b, s, TX_BATCH_CANCELLED);
    }
    tx_status status = tx_batch_free_slots(b) == b->count ? tx_slots_idle(b->slots) : TX_OK;
    TX_THEN(status, compute_tokens(b));
    TX_THEN(status, compute_prompts(b));
    b->last.count = status ? 0 : b->last.count; /* after a failure the caches are invalid */
    *running = false;
    for (int64_t i = 0; i < b->count; i++)
        if (b->sequence[i].used && status)
            end_request(b, &b->sequence[i], TX_BATCH_FAILED);
        else
            *running = *running || b->sequence[i].used;
    return status;
}
