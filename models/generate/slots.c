/* SPDX-License-Identifier: Apache-2.0
 * Decodes sequences that come and go, each in a slot of KV caches that all plans share. */
#include "models/generate/slots_plans.h"

#include "api/base/arithmetic.h"
#include "models/lora/bank.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sets the frequencies of a slot for a text of `length` tokens. Returns true if they change. */
static bool set_rates(tx_slots *s, int64_t slot, int64_t length)
{
    return tx_arch_set_rates(s->config, length, s->rates + slot * s->pairs);
}

/* ---- Prompts -------------------------------------------------------------------------------------------- */

static void set_logits(tx_slots *s, int64_t slot, int64_t row)
{
    memcpy(s->logits + slot * s->padded, s->read + row * s->padded, (size_t)s->padded * sizeof *s->logits);
}

/* Of slots without a token in this step: */
enum { NO_ROW = -1, SPARE_ROW = -2 };

/* Chooses a slot for a row without a token: of those without a row the one with the fewest tokens, which costs least.
 */
static int64_t take_spare(tx_slots *s)
{
    int64_t least = -1;
    for (int64_t i = 0; i < s->count; i++)
        if (s->new[i] == NO_ROW && (least < 0 || s->filled[i] < s->filled[least]))
            least = i;
    s->new[least] = SPARE_ROW;
    return least;
}

/* Runs a decode plan. Its rows without a token compute one for other slots, at a position that their next token or
 * piece of a prompt overwrites. It does not change their states. */
static tx_status step(tx_slots *s, const tx_slots_pass *p, const int32_t *slot, const int32_t *tokens, int64_t count,
                      const int32_t *sources)
{
    for (int64_t i = 0; i < s->count; i++)
        s->new[i] = NO_ROW;
    for (int64_t i = 0; i < count; i++) {
        s->new[slot[i]] = tokens[i];
        s->mixed[slot[i]] = set_rates(s, slot[i], s->filled[slot[i]] + 1) || s->mixed[slot[i]];
    }
    for (int64_t i = 0; i < p->rows; i++) {
        const int64_t at = !p->slots ? i : i < count ? slot[i] : take_spare(s);
        s->rows[i] = (int32_t)at;
        s->tokens[i] = s->new[at] >= 0 ? s->new[at] : 0;
        s->counts[i] = s->new[at] >= 0;
        s->positions[i] = (int32_t)tx_min(s->filled[at], s->context - 1);
        s->chosen[i] = (int32_t)i;
    }
    const tx_status status = tx_slots_run(s, p, sources);
    for (int64_t i = 0; i < count && status && s->recurs; i++)
        s->filled[slot[i]] = 0; /* states may have advanced */
    TX_TRY(status);
    for (int64_t i = 0; i < count; i++) {
        set_logits(s, slot[i], p->slots ? i : slot[i]);
        const int64_t at = slot[i] * s->context + s->filled[slot[i]]++;
        s->held[at] = tokens[i];
        s->piece[at] = 0;
    }
    return TX_OK;
}

/* Whether the caches end within a piece from `first` on. States cannot go back, so their piece must fit. */
static bool must_step(const tx_slots *s, const tx_slots_pass *p, int64_t first)
{
    return s->recurs && first + p->length > s->context;
}

/* Sets row `row` of a prefill plan to the prompt's tokens from `first` on. Returns the first position: if the cache
 * ends within the piece, the piece starts earlier; tokens that are computed again give the same result. Padding after a
 * prompt fills positions that later tokens overwrite before any query attends to them. */
static int64_t set_piece(tx_slots *s, const tx_slots_pass *p, int64_t row, int64_t slot, const tx_prompt *prompt,
                         int64_t first)
{
    const int64_t at = tx_min(first, s->context - p->length), last = prompt->count - 1 - at;
    for (int64_t t = 0; t < p->length; t++)
        s->tokens[row * p->length + t] = at + t < prompt->count ? prompt->ids[at + t] : 0;
    s->positions[row] = (int32_t)at;
    s->counts[row] = (int32_t)tx_max(0, tx_min(prompt->count - at, p->length));
    s->rows[row] = (int32_t)slot;
    s->chosen[row] = (int32_t)(row * p->length + (last < 0 ? 0 : tx_min(last, p->length - 1)));
    return at;
}

/* Reads a prompt as source, and computes the token with which the decoder begins. */
static tx_status read_source(tx_slots *s, int64_t slot, const tx_prompt *prompt)
{
    int32_t begin, at = (int32_t)slot;
    s->filled[slot] = 0;
    TX_TRY(tx_source_read(s->source, slot, prompt, &begin));
    return step(s, &s->decode.pass[0], &at, &begin, 1, NULL);
}

static tx_status start_each(tx_slots *s, const tx_prompt *prompts, int64_t count)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t first = 0; first < prompts[r].count;)
            TX_TRY(tx_slots_prefill(s, r, prompts[r].ids, prompts[r].count, &first, NULL, NULL));
    return TX_OK;
}

/* Rows without a prompt compute the first one. */
tx_status tx_slots_start(tx_slots *slots, const tx_prompt *prompts, int64_t count)
{
    tx_slots *s = slots;
    for (int64_t r = 0; r < count && s->source; r++)
        TX_TRY(read_source(s, r, &prompts[r]));
    if (s->source)
        return TX_OK;
    const tx_slots_pass *p = &s->start.pass[0];
    int64_t longest = 0;
    for (int64_t r = 0; r < s->count; r++) {
        const tx_prompt *prompt = &prompts[r < count ? r : 0];
        longest = prompt->count > longest ? prompt->count : longest;
        set_rates(s, r, prompt->count);
        s->mixed[r] = false;
        s->filled[r] = 0; /* after a failure the caches are invalid */
    }
    if (must_step(s, p, (longest - 1) / p->length * p->length))
        return start_each(s, prompts, count);
    for (int64_t first = 0; first < longest; first += p->length) {
        for (int64_t r = 0; r < s->count; r++)
            set_piece(s, p, r, r, &prompts[r < count ? r : 0], first);
        TX_TRY(tx_slots_run(s, p, NULL));
        for (int64_t r = 0; r < count; r++)
            if (prompts[r].count > first && prompts[r].count <= first + p->length)
                set_logits(s, r, r);
    }
    for (int64_t r = 0; r < count; r++) {
        tx_slots_hold(s, r, prompts[r].ids, prompts[r].count);
        tx_slots_mark_piece(s, r, 0, 0, prompts[r].count, 0);
    }
    return TX_OK;
}

/* Computes the next token of a prompt by a decode plan. */
static tx_status step_prompt(tx_slots *s, int64_t slot, const int32_t *ids, int64_t *first, const float **all,
                             int64_t *stride)
{
    s->filled[slot] = (int32_t)*first;
    TX_TRY(step(s, &s->decode.pass[0], &(int32_t){(int32_t)slot}, ids + *first, 1, NULL));
    ++*first;
    if (all) {
        *all = tx_slots_logits(s, slot);
        *stride = s->padded;
    }
    return TX_OK;
}

tx_status tx_slots_prefill(tx_slots *slots, int64_t slot, const int32_t *ids, int64_t count, int64_t *first,
                           const float **all, int64_t *stride)
{
    tx_slots *s = slots;
    if (slot < 0 || slot >= s->count || *first < 0 || *first >= count || count > s->context)
        return tx_fail(TX_INVALID, "a prompt of %" PRId64 " tokens from %" PRId64 " on; a slot has 1 to %" PRId64,
                       count, *first, s->context);
    if (s->source) {
        *first = count;
        return read_source(s, slot, &(tx_prompt){ids, count});
    }
    if (set_rates(s, slot, count) || s->mixed[slot]) /* keys with other frequencies are computed again */
        *first = 0;
    s->mixed[slot] = false;
    s->kept[slot] = *first < s->kept[slot] ? 0 : s->kept[slot];
    const tx_slots_pass *p = tx_slots_pass_for(all ? &s->score : &s->prefill, count - *first);
    if (must_step(s, p, *first) && !all)
        p = tx_slots_pass_for(&s->prefill, 1);
    if (must_step(s, p, *first))
        return step_prompt(s, slot, ids, first, all, stride);
    const int64_t at = set_piece(s, p, 0, slot, &(tx_prompt){ids, count}, *first), end = tx_min(count, at + p->length);
    for (int64_t i = 0; i < p->outputs && all; i++)
        s->chosen[i] = (int32_t)i;
    s->filled[slot] = 0; /* after a failure the cache is invalid */
    TX_TRY(tx_slots_run(s, p, NULL));
    tx_slots_hold(s, slot, ids, end);
    tx_slots_mark_piece(s, slot, *first, at, end, all ? 0 : p->length);
    if (s->keeps && p == s->prefill.pass + s->prefill.count - 1 && end - *first == p->length)
        TX_TRY(tx_slots_keep_states(s, slot, slot, end));
    if (end == count)
        set_logits(s, slot, all ? end - 1 - at : 0);
    if (all) {
        *all = s->read + (*first - at) * s->padded;
        *stride = s->padded;
    }
    *first = end;
    return TX_OK;
}

tx_status tx_slots_adapt(tx_slots *slots, int64_t slot, int64_t adapter)
{
    tx_slots *s = slots;
    const int64_t place = adapter && s->config->bank ? tx_lora_bank_place(s->config->bank, adapter) : -1;
    if (adapter && place < 0)
        return tx_fail(TX_NOT_FOUND, "adapter %" PRId64 " is not loaded", adapter);
    if (s->adapter[slot] != adapter)
        s->filled[slot] = 0;
    s->adapter[slot] = adapter;
    s->place[slot] = (int32_t)place;
    return TX_OK;
}

/* ---- Draft tokens --------------------------------------------------------------------------------------- */

int64_t tx_slots_scored(const tx_slots *slots, int64_t first)
{
    const tx_slots_pass *p = slots->score.pass;
    return slots->score.count == 0 || must_step(slots, p, first) ? 1 : p->length;
}

/* ---- Steps ---------------------------------------------------------------------------------------------- */

/* Computes a slot again if its keys have different frequencies, as transformers does for some architectures. */
static tx_status restart(tx_slots *s, int64_t slot)
{
    const int64_t count = s->filled[slot];
    for (int64_t done = s->mixed[slot] ? 0 : count; done < count;)
        TX_TRY(tx_slots_prefill(s, slot, s->held + slot * s->context, count, &done, NULL, NULL));
    return TX_OK;
}

/* Moves rows of `size` bytes: row i becomes row sources[i]. `old` has room for all rows. */
static void move_rows(void *rows, size_t size, const int32_t *sources, int64_t count, void *old)
{
    memcpy(old, rows, size * (size_t)count);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)rows + (size_t)i * size, (char *)old + (size_t)sources[i] * size, size);
}

/* Exchanges the slots' states as beam search exchanges their caches. */
static tx_status exchange(tx_slots *s, const int32_t *sources)
{
    const size_t row = (size_t)s->context * sizeof *s->held, rates = (size_t)s->pairs * sizeof *s->rates;
    char *old = malloc((size_t)s->count * (row > rates ? row : rates));
    if (!old)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    move_rows(s->held, row, sources, s->count, old);
    move_rows(s->piece, row, sources, s->count, old);
    move_rows(s->filled, sizeof *s->filled, sources, s->count, old);
    move_rows(s->mixed, sizeof *s->mixed, sources, s->count, old);
    move_rows(s->rates, rates, sources, s->count, old);
    free(old);
    return TX_OK;
}

tx_status tx_slots_step(tx_slots *slots, const int32_t *slot, const int32_t *tokens, int64_t count,
                        const int32_t *sources)
{
    tx_slots *s = slots;
    if (count < 1 || count > s->count)
        return tx_fail(TX_INVALID, "generate: a step of %" PRId64 " of %" PRId64 " slots", count, s->count);
    for (int64_t k = 0; k < count; k++)
        if (s->filled[slot[k]] >= s->context)
            return tx_fail(TX_INVALID, "generate: the cache of slot %" PRId32 " is full", slot[k]);
    if (sources)
        TX_TRY(exchange(s, sources));
    for (int64_t done = 0, some; done < count; done += some) {
        const tx_slots_pass *p = s->decode.pass;
        while (p->rows < count - done && p < s->decode.pass + s->decode.count - 1)
            p++;
        some = tx_min(count - done, p->rows);
        TX_TRY(step(s, p, slot + done, tokens + done, some, sources));
    }
    for (int64_t k = 0; k < count && s->config->architecture->restarts; k++)
        TX_TRY(restart(s, slot[k]));
    return TX_OK;
}

const float *tx_slots_logits(const tx_slots *slots, int64_t slot)
{
    return slots->logits + slot * slots->padded;
}

int64_t tx_slots_vocab(const tx_slots *slots)
{
    return slots->vocab;
}

int64_t tx_slots_context(const tx_slots *slots)
{
    return slots->context;
}

/* ---- Proof of equal bits -------------------------------------------------------------------------------- */

#define PROOF_STEPS 3 /* steps of the test, at most the context */
/* Rows that share one read of the weights. On two AVX-512 cores larger plans were up to 1.4 times as fast for 32 texts,
 * but without the smallest plan a single text took three to four times as long. */
#define ENOUGH 8

/* Computes the same tokens in all rows of a plan, and compares all their logits with those in `want`. Writes those of
 * the first row there if `first`. */
static tx_status compare(tx_slots *s, const tx_slots_pass *p, bool first, float *want, bool *equal)
{
    tx_status status = TX_OK;
    *equal = true;
    memset(s->filled, 0, (size_t)s->count * sizeof *s->filled);
    for (int64_t t = 0; t < tx_min(PROOF_STEPS, s->context) && !status; t++, want += s->vocab) {
        for (int64_t i = 0; i < p->rows; i++) { /* the step itself would write these numbers there */
            s->rows[i] = (int32_t)i;
            s->tokens[i] = (int32_t)((t + 1) * s->vocab / (PROOF_STEPS + 1));
        }
        status = step(s, p, s->rows, s->tokens, p->rows, NULL);
        if (first && !status)
            memcpy(want, s->logits, (size_t)s->vocab * sizeof *want);
        for (int64_t i = 0; i < p->rows && !status; i++)
            *equal = *equal && memcmp(want, tx_slots_logits(s, i), (size_t)s->vocab * sizeof *want) == 0;
    }
    memset(s->filled, 0, (size_t)s->count * sizeof *s->filled);
    return status;
}

static void set_places(tx_slots *s, int32_t place)
{
    for (int64_t i = 0; i < s->count; i++)
        s->place[i] = place;
}

tx_status tx_slots_prove(tx_slots *slots)
{
    tx_slots_passes *of = &slots->decode;
    const int32_t count = of->count, last = count - 1;
    float *want = malloc(PROOF_STEPS * (size_t)slots->vocab * sizeof *want);
    bool equal[TX_SLOTS_PASSES], enough = false;
    tx_status status = want ? TX_OK : tx_fail(TX_MEMORY, "generate: out of memory");
    set_places(slots, slots->config->bank ? 0 : -1);
    /* The rows of the largest plan may differ from each other; the smallest one has only one row. */
    for (int32_t attempt = 0; attempt < 3 && !enough && !status; attempt++) {
        const int32_t reference = attempt == 1 ? last : 0;
        for (int32_t n = 0; n < count; n++) { /* the reference first, then the others */
            const int32_t i = (reference + n) % count;
            TX_THEN(status, compare(slots, &of->pass[i], n == 0, want, &equal[i]));
            enough = enough || (!status && equal[i] && (i == last || of->pass[i].rows >= ENOUGH));
        }
    }
    for (int32_t i = of->count = 0; i < count; i++) /* keep a plan by moving it down, or free it */
        if (status || equal[i])
            of->pass[of->count++] = of->pass[i];
        else
            tx_slots_pass_free(&of->pass[i]);
    set_places(slots, -1);
    free(want);
    return status;
}
