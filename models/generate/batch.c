/* SPDX-License-Identifier: Apache-2.0
 * Continuous batching: gives each request a slot. */
#include "models/generate/batch.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    b->serves = owner != NULL;
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

/* Where the caches of a request come from: `slot` continues the first `count` tokens of slot `from`. */
typedef struct beginning {
    int64_t slot, from, count;
} beginning;

/* Returns a free slot, or -1: the first, or of a server the one whose request is the oldest. */
static int64_t free_slot(const tx_batch *b)
{
    const tx_batch_sequence *s = b->sequence;
    int64_t found = -1;
    for (int64_t i = 0; i < b->count; i++)
        if (!s[i].used && (found < 0 || (b->serves && s[i].ticket < s[found].ticket)))
            found = i;
    return found;
}

/* Chooses a free slot. A request of a server continues the slot with the longest beginning of its prompt, if the slot
 * has little more: it is probably the next turn of a conversation. Otherwise the beginning is copied to another slot.
 */
static beginning find_beginning(const tx_batch *b, const tx_batch_request *r)
{
    const int64_t any = free_slot(b);
    beginning best = {any, any, 0};
    if (b->keep)
        best.count = tx_slots_shared(b->slots, any, r->adapter, r->ids, r->count);
    for (int64_t i = 0; i < b->count && b->serves && !r->echo; i++) {
        const tx_batch_sequence *s = &b->sequence[i];
        const int64_t count = tx_slots_begun(b->slots, i, r->adapter, r->ids, r->count);
        const bool continues = !s->used && 2 * count > s->prompt + s->generated;
        if (count > best.count && (continues || b->copies || i == any))
            best = (beginning){continues ? i : any, i, count};
    }
    return best;
}

tx_status tx_batch_add(tx_batch *batch, const tx_batch_request *request)
{
    TX_NEEDS(batch && request, TX_INVALID);
    const bool unset = request->how && request->how->max_new_tokens < 0 && request->how->max_length < 0;
    const int64_t limit = !request->how ? 0
                          : unset       ? batch->context - request->count
                                        : tx_generation_limit(request->how, request->count);
    TX_TRY(check(batch, request, limit));
    if (tx_batch_free_slots(batch) == 0)
        return tx_fail(TX_INVALID, "tx_batch_add: all %" PRId64 " slots are in use", batch->count);
    const beginning from = find_beginning(batch, request);
    const int64_t i = from.slot;
    TX_TRY(tx_slots_adapt(batch->slots, i, request->adapter));
    if (from.count > 0)
        TX_TRY(tx_slots_begin(batch->slots, from.from, from.count, i));
    tx_constraint *constraint = NULL;
    tx_generation how = *request->how;
    if (batch->owner.lm)
        TX_TRY(batch->owner.prepare(batch->owner.lm, &how));
    if (how.grammar)
        TX_TRY(tx_constraint_create(how.grammar, &constraint));
    tx_batch_sequence *s = &batch->sequence[i];
    *s = (tx_batch_sequence){.used = true,
                             .request = *request,
                             .how = how,
                             .ticket = batch->tickets++,
                             .ids = s->ids,
                             .prompt = request->count,
                             .computed = from.count,
                             .cached = from.count,
                             .limit = limit,
                             .constraint = constraint};
    memcpy(s->ids, request->ids, (size_t)request->count * sizeof *s->ids);
    return TX_OK;
}

void tx_batch_forget(tx_batch *batch)
{
    batch->last.count = 0;
    for (int64_t i = 0; i < batch->count && batch->copies; i++)
        tx_slots_keep(batch->slots, i, 0);
}
