/* SPDX-License-Identifier: Apache-2.0
 * Reads files of preferences: objects, prompts and completions, tokens. */
#include "models/task/preference.h"

#include "models/arch/labels.h"
#include "models/task/conversations.h"
#include "models/tokenizer/bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As in TRL, the desirable completions of so many pairs come before the undesirable ones. */
#define UNPAIRED 1000

static const char *const sides[] = {"chosen", "rejected"};

/* The state of reading a file. */
typedef struct reading {
    tx_conversations from;
    tx_preference_method method;
    tx_ids prompt, side[2];       /* of one sample: the prompt, and the prompt with each completion */
    int64_t sequences, desirable; /* added so far */
    /* Numbers of samples: truncated, dropped, with another prompt before completions. */
    int64_t cut, dropped, different;
} reading;

/* As TRL's CPOTrainer and ORPOTrainer do, begins a sequence with bos_token, and ends it with eos_token. */
static tx_status add_ends(const tx_tokenizer *tokenizer, bool asks, tx_ids *ids)
{
    const bool begins = tokenizer->begin >= 0 && (!ids->count || ids->id[0] != tokenizer->begin);
    const bool ends = !asks && tokenizer->end >= 0 && (!ids->count || ids->id[ids->count - 1] != tokenizer->end);
    TX_TRY(tx_ids_reserve(ids, 2));
    if (begins) {
        memmove(ids->id + 1, ids->id, ids->count++ * sizeof *ids->id);
        ids->id[0] = tokenizer->begin;
    }
    if (ends)
        ids->id[ids->count++] = tokenizer->end;
    return TX_OK;
}

/* Encodes the current conversation as the task needs it. */
static tx_status encode_for(reading *r, bool asks, tx_ids *ids)
{
    TX_TRY(tx_conversations_encode(&r->from, asks, ids));
    return r->method & (TX_PREFERENCE_CPO | TX_PREFERENCE_ORPO) ? add_ends(r->from.options->tokenizer, asks, ids)
                                                                : TX_OK;
}

static size_t common(const tx_ids *a, const tx_ids *b)
{
    size_t count = 0;
    while (count < a->count && count < b->count && a->id[count] == b->id[count])
        count++;
    return count;
}

/* Appends a sequence of at most `most` ids. */
static tx_status add_sequence(reading *r, const tx_ids *ids, size_t most, tx_preference_data *d)
{
    const size_t size = ids->count < most ? ids->count : most;
    TX_TRY(tx_task_check_ids(r->from.options, ids->id, size));
    TX_TRY(tx_store_add(&d->from.ids, ids->id, size));
    d->end[r->sequences++] = d->from.ids.count;
    return TX_OK;
}

/* Appends a sample of `sides` sequences. Sequences are truncated to a row. A sample whose prompt fills a row is
 * dropped. KTO also needs completions for shorter prompts, so it keeps as many tokens of them as a row has. */
static tx_status add_sample(reading *r, const tx_ids *side, float value, tx_preference_data *d)
{
    const size_t most = (size_t)r->from.options->block;
    size_t prompt = SIZE_MAX, longest = 0;
    for (int64_t i = 0; i < d->sides; i++) {
        const size_t same = common(&r->prompt, &side[i]);
        prompt = same < prompt ? same : prompt;
        longest = side[i].count > longest ? side[i].count : longest;
    }
    r->different += prompt < r->prompt.count;
    if (r->method == TX_PREFERENCE_REWARD ? longest > most : prompt >= most) {
        r->dropped++;
        return TX_OK;
    }
    r->cut += longest > most;
    for (int64_t i = 0; i < d->sides; i++)
        TX_TRY(add_sequence(r, &side[i], d->sides == 1 ? prompt + most : most, d));
    d->value[d->count] = value;
    r->desirable += value > 0.0f;
    d->prompt[d->count++] = (int64_t)prompt;
    return TX_OK;
}

/* Reads the prompt, and the completions of these keys. */
static tx_status read_sides(reading *r, const tx_json *object, const char *const *keys, int32_t count)
{
    tx_conversations *c = &r->from;
    TX_TRY(tx_conversation_read_side(object, NULL, &c->conversation));
    TX_TRY(tx_conversations_open_chat(c));
    if (r->method != TX_PREFERENCE_REWARD)
        TX_TRY(tx_fail_in(encode_for(r, true, &r->prompt), "prompt"));
    for (int32_t i = 0; i < count; i++) {
        TX_TRY(tx_conversation_read_side(object, keys[i], &c->conversation));
        TX_TRY(tx_fail_in(encode_for(r, false, &r->side[i]), "%s", keys[i]));
    }
    return TX_OK;
}

/* The margin of a pair, which is optional. */
static tx_status read_margin(const tx_json *object, double *margin)
{
    if (tx_json_has(object, "margin") && tx_json_get_number(object, "margin", -1e30, 1e30, margin))
        return tx_fail(TX_FORMAT, "margin: expected a number");
    return TX_OK;
}

/* Adds the samples of an object: a pair, or in KTO's first pass the desirable completion of a pair, and in the second
 * the other one. An object with a label has its sample in the first pass. */
static tx_status read_object(reading *r, const tx_json *object, int32_t pass, tx_preference_data *d)
{
    static const char *const completion[] = {"completion"};
    bool desirable = !pass;
    double margin = 0.0;
    if (d->sides == 2 || tx_json_has(object, "chosen") || tx_json_has(object, "rejected")) {
        TX_TRY(read_sides(r, object, sides, 2));
        if (r->method == TX_PREFERENCE_REWARD)
            TX_TRY(read_margin(object, &margin));
        return add_sample(r, &r->side[d->sides == 1 && pass],
                          d->sides == 2 ? (float)margin
                          : desirable   ? 1.0f
                                        : 0.0f,
                          d);
    }
    if (pass)
        return TX_OK;
    if (tx_json_get_bool(object, "label", &desirable))
        return tx_fail(TX_FORMAT, "label: expected true or false, whether the completion is desirable");
    TX_TRY(read_sides(r, object, completion, 1));
    return add_sample(r, r->side, desirable ? 1.0f : 0.0f, d);
}

static tx_status read_one(reading *r, int64_t number, int32_t pass, tx_preference_data *d)
{
    tx_conversations *c = &r->from;
    tx_json *split = NULL;
    const tx_json *object; /* it and `split` own the conversation's texts */
    tx_status status = tx_rows_read(c->rows, number, &object);
    const bool pairs = !status && (d->sides == 2 || tx_json_has(object, "chosen") || tx_json_has(object, "rejected") ||
                                   tx_json_has(object, "preferred_output"));
    if (pairs && !tx_preference_is_split(object))
        status = tx_preference_split(object, &split);
    TX_THEN(status, read_object(r, split ? split : object, pass, d));
    tx_json_free(split);
    if (status == TX_FORMAT && pass) /* skipped in the first pass */
        return TX_OK;
    return tx_conversations_skip(c, number, status);
}

static void report_counts(const reading *r, const tx_preference_data *d)
{
    const tx_conversations *c = &r->from;
    const tx_reporter *report = &c->options->report;
    const int64_t samples = d->count + r->dropped;
    tx_conversations_report(c);
    if (d->sides == 1)
        tx_reporter_print(report, "%.800s: %" PRId64 " desirable and %" PRId64 " undesirable completions", c->path,
                          r->desirable, d->count - r->desirable);
    if (r->cut)
        tx_reporter_print(report,
                          "%.800s: %" PRId64 " of %" PRId64
                          " samples have a sequence that is longer than max_seq_length "
                          "%" PRId64 " and is truncated",
                          c->path, r->cut, samples, c->options->block);
    if (r->dropped)
        tx_reporter_print(report, "%.800s: %" PRId64 " of %" PRId64 " samples are skipped: %s max_seq_length", c->path,
                          r->dropped, samples,
                          r->method == TX_PREFERENCE_REWARD ? "a sequence is longer than" : "the prompt fills");
    if (r->different)
        tx_reporter_print(report,
                          "%.800s: the tokens of %" PRId64 " of %" PRId64 " prompts change before a completion, which "
                          "then begins at the first different token; end prompts at a token boundary",
                          c->path, r->different, samples);
}

static tx_status write_digest(const tx_preference_data *d, tx_preference_method method, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&d->from.ids, digest));
    tx_digest_add(digest, d->end, (size_t)(d->sides * d->count) * sizeof *d->end);
    tx_digest_add(digest, d->prompt, (size_t)d->count * sizeof *d->prompt);
    if (method & (TX_PREFERENCE_KTO | TX_PREFERENCE_REWARD)) {
        tx_digest_add(digest, d->value, (size_t)d->count * sizeof *d->value);
        tx_digest_add(digest, method == TX_PREFERENCE_KTO ? &d->group : &d->pad, sizeof d->group);
    }
    return tx_digest_finish(digest, text);
}

/* A reward model has one label. Its last token depends on the padding. */
static tx_status prepare_head(const tx_data_options *o, int64_t *pad)
{
    if (o->config->labels != 1 && !o->config->new_head)
        return tx_fail(TX_INVALID, "a reward model has one label, but this classifier has %" PRId64, o->config->labels);
    if (o->config->labels != 1)
        TX_TRY(tx_labels_set(o->config, TX_PROBLEM_NUMBERS, NULL, 1));
    return tx_task_pad(o, pad);
}

static tx_status read_all(reading *r, tx_preference_data *d)
{
    tx_conversations *c = &r->from;
    TX_TRY(tx_conversations_open(c));
    const size_t most = 2 * (size_t)(c->end - c->begin); /* sequences, and samples of KTO */
    d->sides = r->method == TX_PREFERENCE_KTO ? 1 : 2;
    d->group = c->options->set->batch;
    tx_conversation_data_begin(&d->from, c->options);
    d->ld_alpha = r->method == TX_PREFERENCE_DPO ? (float)c->options->set->ld_alpha : 1.0f;
    d->pad = -1;
    if (r->method == TX_PREFERENCE_REWARD)
        TX_TRY(prepare_head(c->options, &d->pad));
    d->end = malloc(most * sizeof *d->end);
    d->prompt = malloc(most * sizeof *d->prompt);
    d->value = malloc(most * sizeof *d->value);
    d->reference = calloc(2 * most, sizeof *d->reference);
    if (!d->end || !d->prompt || !d->value || !d->reference)
        return tx_fail(TX_MEMORY, "no memory for %zu sequences", most);
    for (int64_t first = c->begin; first < c->end; first += UNPAIRED)
        for (int32_t pass = 0; pass < 3 - d->sides; pass++)
            for (int64_t i = first; i < c->end && i < first + UNPAIRED; i++)
                TX_TRY(read_one(r, i, pass, d));
    report_counts(r, d);
    tx_conversations_give_chat(c, &d->from);
    return d->count ? write_digest(d, r->method, d->from.digest)
                    : tx_fail(TX_FORMAT, "no sample has a completion that fits");
}

void tx_preference_data_release(void *data)
{
    tx_preference_data *d = data;
    tx_conversation_data_free(&d->from);
    free(d->end);
    free(d->prompt);
    free(d->value);
    free(d->reference);
    free(d);
}

tx_status tx_preference_data_read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    tx_preference_data *d = samples->own;
    reading r = {.from = {.path = path, .options = options}, .method = tx_preference_of(samples->task)->method};
    const tx_status status = tx_fail_in(read_all(&r, d), "%s", path);
    tx_conversations_close(&r.from);
    free(r.prompt.id);
    free(r.side[0].id);
    free(r.side[1].id);
    samples->count = d->count;
    samples->tokens = d->from.ids.count;
    samples->digest = d->from.digest;
    return status;
}
