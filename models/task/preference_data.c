/* SPDX-License-Identifier: Apache-2.0
 * Reads files of preferences: objects, prompts and completions, tokens. */
#include "models/task/preference.h"

#include "models/task/instruction.h"
#include "models/task/objects.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const sides[] = {"chosen", "rejected"};

/* The state of reading a file. */
typedef struct reading {
    const char *path;
    const tx_data_options *options;
    tx_objects objects;
    int64_t begin, end; /* range of the objects to use */
    tx_chat plain;      /* for texts without a template */
    tx_encoder *encoder;
    tx_conversation conversation;
    tx_chat_text text;
    tx_ids prompt, side[2]; /* of one sample: the prompt, and the prompt with each completion */
    int64_t bad, first_bad; /* number of skipped objects, and the first of them */
    int64_t cut, dropped,
        different; /* numbers of samples: truncated, dropped, with another prompt before completions */
} reading;

/* Whether the texts are used without a template. */
static bool is_plain(const reading *r)
{
    return r->conversation.form == TX_CHAT_PLAIN && !r->options->set->chat_template;
}

/* Encodes the current conversation. As in TRL, eos_token ends a completion that does not end with it. */
static tx_status encode(reading *r, const tx_preference_data *d, bool asks, tx_ids *ids)
{
    ids->count = 0;
    if (!is_plain(r)) {
        TX_TRY(tx_chat_render(d->chat, &r->conversation, asks, false, &r->text));
        return tx_chat_encode(d->chat, r->encoder, &r->text, ids, NULL);
    }
    tx_chat plain = r->plain;
    const char *said;
    size_t size;
    TX_TRY(tx_json_get_text(tx_conversation_message(&r->conversation, r->conversation.count - 1), "content", &said,
                            &size));
    const bool ends = plain.eos_size && size >= plain.eos_size &&
                      memcmp(said + size - plain.eos_size, plain.eos, plain.eos_size) == 0;
    if (asks || ends)
        plain.eos_size = 0;
    TX_TRY(tx_chat_render_plain(&plain, &r->conversation, &r->text));
    TX_TRY(tx_chat_encode(&plain, r->encoder, &r->text, ids, NULL));
    tx_ids whole = {0};
    tx_status status = tx_instruction_begin(plain.tokenizer, &whole);
    TX_THEN(status, tx_ids_reserve(&whole, ids->count));
    if (!status && ids->count)
        memcpy(whole.id + whole.count, ids->id, ids->count * sizeof *ids->id);
    whole.count += status ? 0 : ids->count;
    free(ids->id);
    *ids = whole;
    return status;
}

static size_t common(const tx_ids *a, const tx_ids *b)
{
    size_t count = 0;
    while (count < a->count && count < b->count && a->id[count] == b->id[count])
        count++;
    return count;
}

/* Appends a pair. Each sequence is truncated to a row. A pair whose prompt fills a row is dropped. */
static tx_status add_pair(reading *r, tx_preference_data *d)
{
    const size_t most = (size_t)r->options->block,
                 of[] = {common(&r->prompt, &r->side[0]), common(&r->prompt, &r->side[1])};
    const size_t prompt = of[0] < of[1] ? of[0] : of[1];
    r->different += prompt < r->prompt.count;
    if (prompt >= most) {
        r->dropped++;
        return TX_OK;
    }
    r->cut += r->side[0].count > most || r->side[1].count > most;
    for (int i = 0; i < 2; i++) {
        const size_t size = r->side[i].count < most ? r->side[i].count : most;
        TX_TRY(tx_task_check_ids(r->options, r->side[i].id, size));
        TX_TRY(tx_ids_reserve(&d->ids, size));
        if (size)
            memcpy(d->ids.id + d->ids.count, r->side[i].id, size * sizeof *d->ids.id);
        d->ids.count += size;
        d->end[2 * d->count + i] = (int64_t)d->ids.count;
    }
    d->prompt[d->count++] = (int64_t)prompt;
    return TX_OK;
}

/* Reads the prompt and both sides of an object. `*of_object` is false if the template is wrong. */
static tx_status read_pair(reading *r, const tx_json *object, tx_preference_data *d, bool *of_object)
{
    TX_TRY(tx_conversation_read_side(object, NULL, &r->conversation));
    if (!is_plain(r)) {
        const tx_status status = tx_instruction_chat(r->options, r->conversation.form, &d->chat);
        *of_object = status == TX_OK;
        TX_TRY(status);
    }
    TX_TRY(tx_fail_in(encode(r, d, true, &r->prompt), "prompt"));
    for (int i = 0; i < 2; i++) {
        TX_TRY(tx_conversation_read_side(object, sides[i], &r->conversation));
        TX_TRY(tx_fail_in(encode(r, d, false, &r->side[i]), "%s", sides[i]));
    }
    return TX_OK;
}

/* Reads one object. The message of a failure has the position of the object, unless the template is wrong. */
static tx_status read_one(reading *r, size_t number, tx_preference_data *d)
{
    tx_json *own = NULL, *split = NULL; /* they own the conversation's texts */
    const tx_json *object;
    bool of_object = true;
    tx_status status = tx_objects_read(&r->objects, number, &own, &object);
    if (!status && tx_json_type_of(object) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "expected an object");
    if (!status && !tx_json_has(object, "prompt"))
        status = tx_preference_split(object, &split);
    TX_THEN(status, read_pair(r, split ? split : object, d, &of_object));
    tx_json_free(split);
    tx_json_free(own);
    if (status == TX_FORMAT && of_object && r->bad < r->options->set->skip_bad) {
        r->first_bad = r->bad++ ? r->first_bad : (int64_t)number;
        return TX_OK;
    }
    TX_THEN(status, add_pair(r, d));
    return of_object ? tx_objects_fail(&r->objects, number, status) : status;
}

static void report_counts(const reading *r)
{
    const tx_reporter *report = &r->options->report;
    const int64_t pairs = r->end - r->begin;
    if (*r->conversation.ignored)
        tx_reporter_print(report, "%.800s: keys that TX ignores: %s", r->path, r->conversation.ignored);
    tx_objects_report(&r->objects, r->path, r->bad, r->first_bad, report);
    if (r->cut)
        tx_reporter_print(report,
                          "%.800s: %" PRId64 " of %" PRId64 " pairs have a sequence that is longer than max_seq_length "
                          "%" PRId64 " and is truncated",
                          r->path, r->cut, pairs, r->options->block);
    if (r->dropped)
        tx_reporter_print(report,
                          "%.800s: %" PRId64 " of %" PRId64 " pairs are skipped: the prompt fills max_seq_length",
                          r->path, r->dropped, pairs);
    if (r->different)
        tx_reporter_print(report,
                          "%.800s: the tokens of %" PRId64 " of %" PRId64 " prompts change before a completion, which "
                          "then begins at the first different token; end prompts at a token boundary",
                          r->path, r->different, pairs);
}

static tx_status write_digest(const tx_preference_data *d, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, d->ids.id, d->ids.count * sizeof *d->ids.id);
    tx_digest_add(digest, d->end, 2 * (size_t)d->count * sizeof *d->end);
    tx_digest_add(digest, d->prompt, (size_t)d->count * sizeof *d->prompt);
    return tx_digest_finish(digest, text);
}

static tx_status read_all(reading *r, tx_preference_data *d)
{
    const tx_data_options *o = r->options;
    TX_TRY(tx_objects_open(r->path, &r->objects));
    TX_TRY(tx_task_choose_range(o, (int64_t)r->objects.count, "samples", &r->begin, &r->end));
    const size_t pairs = (size_t)(r->end - r->begin);
    r->plain.tokenizer = o->tokenizer;
    d->eos = tx_tokenizer_end(o->tokenizer);
    if (d->eos >= 0)
        TX_TRY(tx_tokenizer_piece(o->tokenizer, d->eos, false, &r->plain.eos, &r->plain.eos_size));
    TX_TRY(tx_encoder_create(o->tokenizer, &r->encoder));
    d->end = malloc(2 * pairs * sizeof *d->end);
    d->prompt = malloc(pairs * sizeof *d->prompt);
    d->reference = calloc(2 * pairs, sizeof *d->reference);
    if (!d->end || !d->prompt || !d->reference)
        return tx_fail(TX_MEMORY, "no memory for %zu pairs", pairs);
    for (int64_t i = r->begin; i < r->end; i++)
        TX_TRY(read_one(r, (size_t)i, d));
    report_counts(r);
    return d->count ? write_digest(d, d->digest) : tx_fail(TX_FORMAT, "no pair has a completion that fits");
}

static void free_data(tx_preference_data *d)
{
    free(d->ids.id);
    free(d->end);
    free(d->prompt);
    free(d->reference);
    tx_chat_free(d->chat);
    free(d);
}

tx_status tx_preference_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples)
{
    reading r = {.path = path, .options = options};
    TX_TRY(tx_task_need_tokenizer(path, options));
    tx_preference_data *d = calloc(1, sizeof *d);
    const tx_status status =
        d ? tx_fail_in(read_all(&r, d), "%s", path) : tx_fail(TX_MEMORY, "%s: out of memory", path);
    tx_objects_close(&r.objects);
    tx_encoder_free(r.encoder);
    tx_conversation_free(&r.conversation);
    tx_chat_text_free(&r.text);
    free(r.prompt.id);
    free(r.side[0].id);
    free(r.side[1].id);
    if (status) {
        if (d)
            free_data(d);
        return status;
    }
    *samples = (tx_samples){.task = task,
                            .data = d,
                            .count = d->count,
                            .block = options->block,
                            .tokens = (int64_t)d->ids.count,
                            .digest = d->digest};
    return TX_OK;
}

void tx_preference_close(const tx_samples *samples)
{
    free_data((void *)(uintptr_t)samples->data);
}

tx_text_end tx_preference_end(const tx_samples *samples)
{
    const tx_preference_data *d = samples->data;
    tx_text_end end = {.id = d->eos};
    if (d->chat)
        end.id = tx_chat_end_token(d->chat, &end.keeps_eos);
    return end;
}

tx_status tx_preference_save(const tx_samples *samples, const char *folder)
{
    const tx_preference_data *d = samples->data;
    return d->chat && !d->chat->is_own ? tx_chat_save(d->chat, folder) : TX_OK;
}
