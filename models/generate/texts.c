/* SPDX-License-Identifier: Apache-2.0
 * tx_lm_generate: encodes prompts, resolves limits, and reports texts in order. tx_batch_create: a batch of requests.
 */
#include "api/base/needs.h"
#include "models/generate/dry.h"
#include "models/generate/lm.h"
#include "models/generate/run.h"
#include "models/generate/stream.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Default number of new tokens, if the model has enough positions. */
#define DEFAULT_NEW_TOKENS 200

/* A call of tx_lm_generate. */
typedef struct texts {
    const tx_lm_listener *to;
    const tx_tokenizer *tokenizer;
    tx_stop stop;
    tx_generation how; /* with resolved limits */
    tx_prompt *prompts;
    tx_ids *encoded; /* ids of prompts that are texts */
    int64_t count, longest;
    int64_t context;  /* maximum tokens of a prompt and its text */
    tx_ids *waiting;  /* of each text: new tokens that are reported after the texts before it */
    bool *ended;      /* of each text */
    int64_t index;    /* of the text that is being reported */
    bool begun;       /* it has begun */
    tx_stream stream; /* of that text */
    bool stopped;
    tx_status status; /* of storing tokens */
    int64_t tokens;
} texts;

/* ---- Prompts -------------------------------------------------------------------------------------------- */

/* Encodes a prompt. An empty text is replaced by bos_token_id. */
static tx_status encode(tx_lm *lm, const tx_lm_prompt *prompt, tx_ids *ids)
{
    const int64_t begin = lm->config->bos_token_id;
    const size_t size = prompt->size ? prompt->size : strlen(prompt->text);
    TX_TRY(tx_lm_open_tokenizer(lm));
    TX_TRY(tx_encoder_text(lm->encoder, prompt->text, size, ids));
    if (ids->count > 0)
        return TX_OK;
    if (begin < 0)
        return tx_fail(TX_INVALID, "prompt: it is empty, and the model has no bos_token_id");
    TX_TRY(tx_ids_reserve(ids, 1));
    ids->id[ids->count++] = (int32_t)begin;
    return TX_OK;
}

static tx_status encode_prompts(texts *t, tx_lm *lm, const tx_lm_prompt *prompts, int64_t count)
{
    if (count < 1)
        return tx_fail(TX_INVALID, "generate: %" PRId64 " prompts", count);
    t->prompts = calloc((size_t)count, sizeof *t->prompts);
    t->encoded = calloc((size_t)count, sizeof *t->encoded);
    t->waiting = calloc((size_t)count, sizeof *t->waiting);
    t->ended = calloc((size_t)count, sizeof *t->ended);
    if (!t->prompts || !t->encoded || !t->waiting || !t->ended)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    t->count = count;
    for (int64_t i = 0; i < count; i++) {
        const tx_lm_prompt *p = &prompts[i];
        tx_ids *ids = &t->encoded[i];
        if (!p->ids && !p->text)
            return tx_fail(TX_INVALID, "generate: prompt %" PRId64 " has neither text nor ids", i);
        if (!p->ids)
            TX_TRY(encode(lm, p, ids));
        t->prompts[i] = p->ids ? (tx_prompt){p->ids, p->count} : (tx_prompt){ids->id, (int64_t)ids->count};
        t->longest = t->prompts[i].count > t->longest ? t->prompts[i].count : t->longest;
    }
    return TX_OK;
}

/* Opens the tokenizer and the breakers that settings need. */
static tx_status prepare(tx_lm *lm, tx_generation *how)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    const bool breaks = tx_dry_is_on(how) && !how->dry_breakers;
    if (how->stop_count > 0)
        TX_TRY(tx_lm_open_tokenizer(lm));
    const tx_status status = breaks && !lm->breakers ? tx_lm_open_tokenizer(lm) : TX_OK;
    if (breaks && !lm->breakers && !status)
        TX_TRY(tx_breakers_create(lm->tokenizer, breakers, sizeof breakers / sizeof *breakers, &lm->breakers));
    how->dry_breakers = breaks ? lm->breakers : how->dry_breakers;
    return status == TX_NOT_FOUND ? TX_OK : status;
}

/* ---- Limits --------------------------------------------------------------------------------------------- */

bool tx_lm_is_limited(const tx_lm *lm, const tx_generation *how)
{
    TX_NEEDS(lm && how, false);
    return how->max_new_tokens < 0 && how->max_length >= 0 && how->max_length <= lm->config->positions;
}

/* Unless max_length limits each text by itself, all texts get the same number of new tokens. */
static tx_status set_limits(texts *t, const tx_lm *lm)
{
    tx_generation *how = &t->how;
    const bool reads = tx_lm_has_source(lm);
    if (reads && !(fabs(how->repetition_penalty - 1.0) <= 0.0))
        return tx_fail(TX_UNSUPPORTED, "repetition_penalty is not implemented for an encoder with a decoder");
    if (reads) /* lengths count the token with which the decoder begins, not the source */
        how->min_new_tokens = tx_generation_least(how, 1);
    if (reads && tx_lm_is_limited(lm, how))
        how->max_new_tokens = how->max_length - 1;
    if (tx_lm_is_limited(lm, how)) {
        t->context = how->max_length;
        if (t->longest >= t->context)
            return tx_fail(TX_INVALID,
                           "a prompt has %" PRId64 " tokens, but max_length of generation_config.json is %" PRId64
                           ": use --max_new_tokens",
                           t->longest, t->context);
        return TX_OK;
    }
    if (how->max_new_tokens < 0) {
        const int64_t room = t->longest < lm->config->positions ? lm->config->positions - t->longest : 0;
        how->max_new_tokens = how->max_length >= 0 || room < DEFAULT_NEW_TOKENS ? room : DEFAULT_NEW_TOKENS;
    }
    t->context = t->longest + how->max_new_tokens;
    return TX_OK;
}

/* ---- Reporting ------------------------------------------------------------------------------------------ */

static void report_text(void *context, const char *bytes, size_t size)
{
    const texts *t = context;
    t->to->text(t->to->context, t->index, bytes, size);
}

static void report_token(texts *t, int32_t id)
{
    const char *bytes;
    size_t size;
    if (t->to->token)
        t->to->token(t->to->context, t->index, id);
    if (t->to->text && tx_tokenizer_piece(t->tokenizer, id, true, &bytes, &size) == TX_OK)
        tx_stream_add(&t->stream, bytes, size, report_text, t);
}

/* Begins the text that is being reported, unless it has begun. */
static void begin(texts *t)
{
    tx_ids *waiting = &t->waiting[t->index];
    if (t->begun)
        return;
    t->begun = true;
    if (t->to->begin)
        t->to->begin(t->to->context, t->index);
    for (size_t i = 0; i < waiting->count; i++)
        report_token(t, waiting->id[i]);
}

/* ---- Generation ----------------------------------------------------------------------------------------- */

/* Reports tokens of the current text at once, and stores those of the others. */
static bool emit(void *context, int64_t row, int32_t id)
{
    texts *t = context;
    tx_ids *waiting = &t->waiting[row];
    if (t->stopped)
        return false;
    t->tokens++;
    if (row == t->index) {
        report_token(t, id);
    } else {
        TX_THEN(t->status, tx_ids_reserve(waiting, 1));
        if (!t->status)
            waiting->id[waiting->count++] = id;
    }
    t->stopped = t->status || (t->to->stop && t->to->stop(t->to->context));
    return !t->stopped;
}

static bool ends(void *context, const int32_t *ids, int64_t count)
{
    return tx_stop_reached(&((const texts *)context)->stop, ids, count);
}

static bool end(void *context, int64_t row)
{
    texts *t = context;
    for (t->ended[row] = true; t->index < t->count && t->ended[t->index]; t->begun = false) {
        begin(t);
        tx_stream_end(&t->stream, report_text, t);
        if (t->to->end)
            t->to->end(t->to->context, t->index);
        t->index++;
    }
    if (t->index < t->count && !t->stopped)
        begin(t);
    return !t->stopped;
}

static tx_status run(texts *t, tx_lm *lm)
{
    const tx_sink sink = {emit, t->stop.count > 0 ? ends : NULL, end, t};
    tx_generator_options sizes = {.size = sizeof sizes,
                                  .batch = t->count < lm->batch ? t->count : lm->batch,
                                  .beams = t->how.num_beams,
                                  .prompt = t->longest,
                                  .context = t->context,
                                  .keep = lm->keep};
    TX_TRY(tx_lm_draft_tokens(lm, &t->how, &sizes.draft_tokens));
    TX_TRY(tx_lm_compile(lm, &sizes));
    const double begun = tx_now();
    begin(t);
    TX_TRY(tx_generator_run(lm->generator, t->prompts, t->count, 0, &t->how, &sink));
    TX_TRY(t->status);
    if (t->to->done)
        t->to->done(t->to->context, t->tokens, tx_now() - begun);
    return TX_OK;
}

static void release(texts *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        free(t->encoded[i].id);
        free(t->waiting[i].id);
    }
    free(t->encoded);
    free(t->prompts);
    free(t->waiting);
    free(t->ended);
}

tx_status tx_lm_generate(tx_lm *lm, const tx_lm_prompt *prompts, int64_t count, const tx_generation *how,
                         const tx_lm_listener *listener)
{
    TX_NEEDS(lm && (prompts || !count), TX_INVALID);
    static const tx_lm_listener nobody = {.size = sizeof nobody};
    texts t = {.to = listener ? listener : &nobody};
    if (t.to->size != sizeof *t.to)
        return tx_fail(TX_INVALID, "tx_lm_generate: the listener's size field is %zu, expected %zu", t.to->size,
                       sizeof *t.to);
    how = how ? how : &lm->generation;
    TX_TRY(tx_generation_check(how));
    tx_status status = TX_OK;
    t.how = *how;
    if (t.to->text)
        status = tx_lm_open_tokenizer(lm);
    TX_THEN(status, prepare(lm, &t.how));
    TX_THEN(status, encode_prompts(&t, lm, prompts, count));
    TX_THEN(status, set_limits(&t, lm));
    t.tokenizer = lm->tokenizer;
    t.stop = (tx_stop){lm->tokenizer, t.how.stop_strings, t.how.stop_count};
    TX_THEN(status, run(&t, lm));
    release(&t);
    lm->generated = status == TX_OK;
    return status;
}

tx_status tx_batch_create(tx_lm *lm, int64_t slots, int64_t context, tx_batch **batch)
{
    TX_NEEDS(lm && batch, TX_INVALID);
    const tx_generator_options sizes = {.size = sizeof sizes,
                                        .batch = slots,
                                        .beams = 1,
                                        .context = context ? context : tx_lm_positions(lm),
                                        .copies = lm->devices < 2};
    const tx_batch_owner owner = {lm, prepare, tx_lm_drop};
    tx_slots *created = NULL;
    TX_TRY(tx_lm_compile_slots(lm, &sizes, &created));
    const tx_status status = lm->ranks ? tx_slots_lead(created, lm->watch) : TX_OK;
    if (status) {
        tx_slots_free(created);
        return status;
    }
    return tx_batch_over(created, &sizes, &owner, batch);
}
