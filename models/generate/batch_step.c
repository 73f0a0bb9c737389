/* SPDX-License-Identifier: Apache-2.0
 * The steps of a batch: compute prompts and tokens, and report them. */
#include "models/generate/batch.h"

#include "api/base/arithmetic.h"
#include "api/base/needs.h"
#include "models/generate/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of prompts that are computed between two steps, so that texts somebody waits for are not late. */
#define PROMPT_TOKENS 256

/* Whether the slot of a request, maybe an earlier one, still has the prompt that was computed last. It must have been
 * the request's whole prompt, since other pieces may give other bits. */
static bool holds_last(const tx_batch *b, const tx_batch_sequence *s)
{
    return b->last.count > 0 && s->prompt == b->last.count && !s->request.echo &&
           tx_slots_holds(b->slots, s - b->sequence, b->last.adapter, b->last.ids, b->last.count);
}

static void end_request(tx_batch *b, tx_batch_sequence *s, tx_batch_end end)
{
    const tx_batch_request request = s->request;
    s->used = false;
    tx_constraint_free(s->constraint);
    s->constraint = NULL;
    if (!b->keep && !b->serves)
        tx_slots_keep(b->slots, s - b->sequence, holds_last(b, s) ? b->last.count : 0);
    request.end(request.context, end);
}

/* ---- Log-probabilities ---------------------------------------------------------------------------------- */

/* Reports a token; `logits` [vocab] are those that predicted it, or NULL for the first token of a prompt. */
static bool report(const tx_batch *b, const tx_batch_sequence *s, int32_t id, bool prompt, const float *logits)
{
    const tx_batch_request *r = &s->request;
    tx_batch_likely top[TX_BATCH_TOP];
    tx_batch_token token = {.id = id, .prompt = prompt, .cached = s->cached, .logprob = NAN, .top = top};
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
static tx_status choose_allowed(tx_batch *b, tx_batch_sequence *s, tx_history history, const float *logits, int32_t *id,
                                bool *complete)
{
    tx_allowed allowed;
    TX_TRY(tx_constraint_allowed(s->constraint, &allowed));
    history.allowed = &allowed;
    TX_TRY(tx_sample(&s->how, &history, logits, &b->choice, id));
    return tx_generation_ends(&s->how, *id) ? TX_OK : tx_constraint_add(s->constraint, *id, complete);
}

/* Chooses the next token of a request from its logits, and ends the request if it is the last. */
static void choose(tx_batch *b, tx_batch_sequence *s, const float *logits)
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
static bool echo(const tx_batch *b, const tx_batch_sequence *s, int64_t first, const float *all, int64_t stride)
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
static void remember(tx_batch *b, const tx_batch_sequence *s)
{
    if (!b->copies || s->request.echo)
        return;
    b->last.count = s->prompt;
    b->last.adapter = s->request.adapter;
    memcpy(b->last.ids, s->ids, (size_t)s->prompt * sizeof *s->ids);
    memcpy(b->last.logits, tx_slots_logits(b->slots, s - b->sequence), (size_t)b->vocab * sizeof(float));
}

/* Computes the next piece of a prompt. */
static tx_status compute_prompt(tx_batch *b, tx_batch_sequence *s)
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
    const tx_batch_prompt *last = &b->last;
    int64_t from = 0, count = 0, copies = 0;
    while (from < b->count && !holds_last(b, &b->sequence[from]))
        from++;
    for (int64_t i = 0; i < b->count && from < b->count; i++) {
        const tx_batch_sequence *s = &b->sequence[i];
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
        tx_batch_sequence *s = &b->sequence[b->slot[i]];
        s->computed = s->cached = s->prompt;
        tx_slots_keep(b->slots, b->slot[i], s->prompt);
        choose(b, s, last->logits);
    }
    return TX_OK;
}

/* The request that has waited longest for its prompt, or NULL. */
static tx_batch_sequence *oldest_prompt(const tx_batch *b)
{
    tx_batch_sequence *oldest = NULL;
    for (int64_t i = 0; i < b->count; i++) {
        tx_batch_sequence *s = &b->sequence[i];
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
        const tx_batch_sequence *s = &b->sequence[i];
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
    for (int64_t left = b->serves ? PROMPT_TOKENS : INT64_MAX; left > 0;) {
        tx_batch_sequence *s = oldest_prompt(b);
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
static tx_status compute_draft(tx_batch *b, tx_batch_sequence *s, bool *done)
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
        const tx_batch_sequence *s = &b->sequence[i];
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
        tx_batch_sequence *s = &b->sequence[i];
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
