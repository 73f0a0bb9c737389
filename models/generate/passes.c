/* SPDX-License-Identifier: Apache-2.0
 * Forward passes over texts in batches, sorted by length. */
#include "models/generate/passes.h"

#include "api/base/arithmetic.h"
#include "models/arch/labels.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_BATCH 32

/* ---- Opening ------------------------------------------------------------------------------------------- */

tx_status tx_passes_open(const tx_lm_options *options, tx_passes *passes)
{
    tx_lm_options o = *options;
    o.batch_size = o.batch_size ? o.batch_size : DEFAULT_BATCH;
    return tx_lm_open(&o, &passes->lm);
}

tx_status tx_passes_begin(tx_passes *passes, int64_t most)
{
    const int64_t positions = passes->lm->config->positions;
    TX_TRY(tx_lm_open_tokenizer(passes->lm));
    passes->pad = tx_pad_token(passes->lm->config);
    passes->pad = passes->pad < 0 ? tx_tokenizer_pad(passes->lm->tokenizer) : passes->pad;
    most = most ? most : tx_tokenizer_limit(passes->lm->tokenizer);
    passes->most = most && most < positions ? most : positions;
    TX_TRY(tx_joiner_open(passes->lm->tokenizer, &passes->joiner));
    tx_joiner_follow(&passes->joiner, passes->lm->config->architecture->type);
    return tx_joiner_check(&passes->joiner, true, passes->most);
}

void tx_passes_close(tx_passes *passes)
{
    for (int i = 0; i < TX_PASSES_PLANS; i++)
        tx_pass_free(passes->plan[i].pass);
    tx_joiner_close(&passes->joiner);
    tx_lm_free(passes->lm);
    free(passes->ids.id);
    free(passes->types.id);
    free(passes->text);
    *passes = (tx_passes){0};
}

/* ---- Plans --------------------------------------------------------------------------------------------- */

/* Rounds a length up, by at most a quarter, so that few plans serve all lengths. */
static int64_t round_length(int64_t count, int64_t most)
{
    int64_t unit = 8;
    while (unit * 8 < count)
        unit *= 2;
    const int64_t rounded = tx_round_up(count, unit);
    return rounded < most ? rounded : most;
}

/* Rounds a number of rows up to a power of two, at most `batch`. */
static int64_t round_rows(int64_t count, int64_t batch)
{
    int64_t rows = 1;
    while (rows < count)
        rows *= 2;
    return rows < batch ? rows : batch;
}

/* Finds the plan of a shape, or compiles it instead of the one that was used least recently. */
static tx_status find_plan(tx_passes *s, int64_t rows, int64_t length, struct tx_passes_plan **found)
{
    struct tx_passes_plan *oldest = s->plan;
    for (struct tx_passes_plan *p = s->plan; p < s->plan + TX_PASSES_PLANS; p++) {
        if (p->rows == rows && p->length == length) {
            *found = p;
            return TX_OK;
        }
        if (p->used < oldest->used)
            oldest = p;
    }
    const tx_pass_spec spec = {s->lm->model, s->lm->config, s->pooling, s->pad, TX_F32, "forward"};
    tx_pass_free(oldest->pass);
    *oldest = (struct tx_passes_plan){0};
    TX_TRY(tx_pass_create(&spec, rows, length, &oldest->pass));
    oldest->rows = rows;
    oldest->length = length;
    *found = oldest;
    return TX_OK;
}

/* ---- Texts --------------------------------------------------------------------------------------------- */

void tx_passes_clear(tx_passes *passes)
{
    passes->ids.count = passes->types.count = passes->texts = 0;
}

tx_status tx_passes_add(tx_passes *passes, int64_t prompt)
{
    tx_passes *s = passes;
    const struct tx_passes_text *last = s->texts ? &s->text[s->texts - 1] : NULL;
    const size_t begin = last ? last->begin + (size_t)last->count : 0;
    const int64_t count = (int64_t)(s->ids.count - begin);
    if (count == 0)
        return tx_fail(TX_INVALID, "text %zu has no tokens", s->texts + 1);
    TX_TRY(tx_check_ids(s->ids.id + begin, count, s->lm->config->vocab_size));
    TX_TRY(tx_array_reserve(&s->text, &s->room, s->texts + 1, sizeof *s->text, "texts"));
    s->text[s->texts] = (struct tx_passes_text){begin, count, prompt, (int64_t)s->texts};
    s->texts++;
    return TX_OK;
}

/* Computes `count` texts, of which the first is the longest. */
static tx_status run_batch(tx_passes *s, const struct tx_passes_text *text, int64_t count, tx_passes_take *take,
                           void *context)
{
    struct tx_passes_plan *plan;
    const float *output;
    int64_t stride;
    TX_TRY(tx_lm_create_model(s->lm, &(tx_lm_sizes){.tokens = s->most}));
    TX_TRY(find_plan(s, round_rows(count, s->lm->batch), round_length(text->count, s->most), &plan));
    plan->used = ++s->used;
    TX_TRY(tx_lm_load(s->lm));
    for (int64_t r = 0; r < plan->rows; r++) {
        const struct tx_passes_text *t = &text[r];
        tx_pass_set(plan->pass, r,
                    r < count ? (tx_pass_text){s->ids.id + t->begin, s->types.id + t->begin, t->count, t->prompt}
                              : (tx_pass_text){0});
    }
    TX_TRY(tx_pass_run(plan->pass, &output, &stride));
    for (int64_t r = 0; r < count; r++)
        take(context, text[r].index, output + r * stride);
    return TX_OK;
}

/* The longest text first; equal ones in their order. */
static int by_length(const void *a, const void *b)
{
    const struct tx_passes_text *one = a, *other = b;
    const int64_t longer = other->count - one->count, later = one->index - other->index;
    return longer ? (longer > 0) - (longer < 0) : (later > 0) - (later < 0);
}

tx_status tx_passes_run(tx_passes *passes, tx_passes_take *take, void *context)
{
    tx_passes *s = passes;
    const int64_t texts = (int64_t)s->texts, batch = s->lm->batch;
    if (texts)
        qsort(s->text, s->texts, sizeof *s->text, by_length);
    for (int64_t at = 0; at < texts; at += batch)
        TX_TRY(run_batch(s, s->text + at, texts - at < batch ? texts - at : batch, take, context));
    return TX_OK;
}
