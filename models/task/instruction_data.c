/* SPDX-License-Identifier: Apache-2.0
 * Reads files of instruction data: objects, conversations, tokens, labels. */
#include "models/task/instruction.h"

#include "models/task/objects.h"
#include "models/text/bpe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Samples -------------------------------------------------------------------------------------------- */

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
    tx_ids ids, learnt;     /* of one sample: its ids, and 1 for each id that is learnt */
    int64_t bad, first_bad; /* number of skipped objects, and the first of them */
    int64_t cut, dropped;   /* numbers of truncated samples, and of samples without labels */
} reading;

tx_status tx_instruction_begin(const tx_tokenizer *tokenizer, tx_ids *ids)
{
    const tx_template *t = &tokenizer->post_processor.of[0];
    for (size_t i = 0; i < t->count && t->item[i].id >= 0; i++) {
        TX_TRY(tx_ids_reserve(ids, 1));
        ids->id[ids->count++] = t->item[i].id;
    }
    return TX_OK;
}

tx_status tx_instruction_chat(const tx_data_options *o, tx_chat_form form, tx_chat **chat)
{
    if (*chat)
        return TX_OK;
    tx_status status = tx_chat_create(o->set->chat_template, o->tokenizer, &o->report, chat);
    bool replaces = false;
    if (!status && o->set->chat_template && o->split == TX_DATA_TRAIN)
        status = tx_chat_replaces(*chat, &replaces);
    if (replaces)
        tx_reporter_print(&o->report,
                          "--chat_template %s replaces the model's own chat template, also in the saved folders",
                          o->set->chat_template);
    if (status == TX_NOT_FOUND && !o->set->chat_template && form == TX_CHAT_INSTRUCTION)
        status = tx_chat_create("alpaca", o->tokenizer, &o->report, chat);
    return status;
}

/* Whether the texts are used without a template. */
static bool is_plain(const reading *r)
{
    return r->conversation.form == TX_CHAT_PLAIN && !r->options->set->chat_template;
}

/* Encodes the current conversation, and marks the ids that are learnt. */
static tx_status encode(reading *r, const tx_instruction_data *d)
{
    const tx_data_options *o = r->options;
    const tx_chat_form form = r->conversation.form;
    const bool plain = is_plain(r);
    const tx_chat *chat = plain ? &r->plain : d->chat;
    const bool learns =
        form == TX_CHAT_MESSAGES || form == TX_CHAT_SHAREGPT ? o->set->assistant_only : o->set->completion_only;
    TX_TRY(plain ? tx_chat_render_plain(chat, &r->conversation, &r->text)
                 : tx_chat_render(chat, &r->conversation, false, learns, &r->text));
    TX_TRY(tx_chat_encode(chat, r->encoder, &r->text, &r->ids, &r->learnt));
    for (size_t i = 0; i < r->learnt.count && !learns; i++)
        r->learnt.id[i] = 1;
    return TX_OK;
}

/* Appends a sample. A sample that is longer than a row is truncated. A sample without labels is dropped. */
static tx_status add_sample(reading *r, tx_instruction_data *d)
{
    const tx_data_options *o = r->options;
    const size_t before = d->ids.count;
    if (is_plain(r))
        TX_TRY(tx_instruction_begin(o->tokenizer, &d->ids));
    const size_t begun = d->ids.count - before, most = (size_t)o->block;
    const size_t all = begun + r->ids.count, size = all < most ? all : most;
    bool labelled = false;
    TX_TRY(tx_ids_reserve(&d->ids, r->ids.count));
    TX_TRY(tx_ids_reserve(&d->labels, size));
    if (r->ids.count)
        memcpy(d->ids.id + d->ids.count, r->ids.id, r->ids.count * sizeof *r->ids.id);
    for (size_t t = 0; t < size; t++) {
        const bool has = t + 1 < size && t + 1 >= begun && r->learnt.id[t + 1 - begun];
        d->labels.id[before + t] = has ? d->ids.id[before + t + 1] : TX_IGNORE_LABEL;
        labelled = labelled || has;
    }
    TX_TRY(tx_task_check_ids(o, d->ids.id + before, size));
    r->cut += all > most;
    r->dropped += !labelled;
    d->ids.count = d->labels.count = before + (labelled ? size : 0);
    if (labelled)
        d->end[d->count++] = (int64_t)d->ids.count;
    return TX_OK;
}

/* Reads one object. The message of a failure has the position of the object, unless the template is wrong. */
static tx_status read_one(reading *r, size_t number, tx_instruction_data *d)
{
    tx_json *own = NULL; /* owns the conversation's texts */
    const tx_json *object;
    bool of_object = true;
    tx_status status = tx_objects_read(&r->objects, number, &own, &object);
    TX_THEN(status, tx_conversation_read(object, true, &r->conversation));
    if (!status && !is_plain(r)) {
        status = tx_instruction_chat(r->options, r->conversation.form, &d->chat);
        of_object = status == TX_OK;
    }
    TX_THEN(status, encode(r, d));
    tx_json_free(own);
    if (status == TX_FORMAT && of_object && r->bad < r->options->set->skip_bad) {
        r->first_bad = r->bad++ ? r->first_bad : (int64_t)number;
        return TX_OK;
    }
    TX_THEN(status, add_sample(r, d));
    return of_object ? tx_objects_fail(&r->objects, number, status) : status;
}

static void report_counts(const reading *r)
{
    const tx_reporter *report = &r->options->report;
    const char *ignored = r->conversation.ignored;
    if (*ignored)
        tx_reporter_print(report, "%.800s: keys that TX ignores: %s", r->path, ignored);
    tx_objects_report(&r->objects, r->path, r->bad, r->first_bad, report);
    if (r->cut)
        tx_reporter_print(report,
                          "%.800s: %" PRId64 " of %" PRId64 " samples are longer than max_seq_length %" PRId64
                          " and are truncated",
                          r->path, r->cut, r->end - r->begin, r->options->block);
    if (r->dropped)
        tx_reporter_print(report, "%.800s: %" PRId64 " of %" PRId64 " samples have nothing to learn%s and are skipped",
                          r->path, r->dropped, r->end - r->begin, r->cut ? " after truncation" : "");
}

static tx_status write_digest(const tx_instruction_data *d, char text[TX_DIGEST_TEXT])
{
    const size_t count = (size_t)d->count;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, d->ids.id, d->ids.count * sizeof *d->ids.id);
    tx_digest_add(digest, d->labels.id, d->labels.count * sizeof *d->labels.id);
    tx_digest_add(digest, d->end, count * sizeof *d->end);
    if (d->order)
        tx_digest_add(digest, d->order, count * sizeof *d->order);
    if (d->order)
        tx_digest_add(digest, d->last, (size_t)d->rows * sizeof *d->last);
    return tx_digest_finish(digest, text);
}

static tx_status read_all(reading *r, const tx_task *task, tx_instruction_data *d)
{
    const tx_data_options *o = r->options;
    TX_TRY(tx_objects_open(r->path, &r->objects));
    TX_TRY(tx_task_choose_range(o, (int64_t)r->objects.count, "samples", &r->begin, &r->end));
    const int64_t samples = r->end - r->begin;
    r->plain.tokenizer = o->tokenizer;
    d->eos = tx_tokenizer_end(o->tokenizer);
    if (tx_tokenizer_end(o->tokenizer) >= 0)
        TX_TRY(
            tx_tokenizer_piece(o->tokenizer, tx_tokenizer_end(o->tokenizer), false, &r->plain.eos, &r->plain.eos_size));
    TX_TRY(tx_encoder_create(o->tokenizer, &r->encoder));
    d->end = malloc((size_t)samples * sizeof *d->end);
    if (!d->end)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " samples", samples);
    for (int64_t i = r->begin; i < r->end; i++)
        TX_TRY(read_one(r, (size_t)i, d));
    report_counts(r);
    if (!d->count)
        return tx_fail(TX_FORMAT, "no sample has anything to learn");
    d->rows = d->count;
    if (task == &tx_instruction_packed)
        TX_TRY(tx_instruction_pack(d, o->block, o->seed));
    return write_digest(d, d->digest);
}

static void free_data(tx_instruction_data *d)
{
    free(d->ids.id);
    free(d->labels.id);
    free(d->end);
    free(d->order);
    free(d->last);
    tx_chat_free(d->chat);
    free(d);
}

tx_status tx_instruction_open(const tx_task *task, const char *path, const tx_data_options *options,
                              tx_samples *samples)
{
    reading r = {.path = path, .options = options};
    TX_TRY(tx_task_need_tokenizer(path, options));
    tx_instruction_data *d = calloc(1, sizeof *d);
    tx_status status =
        d ? tx_fail_in(read_all(&r, task, d), "%s", path) : tx_fail(TX_MEMORY, "%s: out of memory", path);
    tx_objects_close(&r.objects);
    tx_encoder_free(r.encoder);
    tx_conversation_free(&r.conversation);
    tx_chat_text_free(&r.text);
    free(r.ids.id);
    free(r.learnt.id);
    if (status) {
        if (d)
            free_data(d);
        return status;
    }
    *samples = (tx_samples){.task = task,
                            .data = d,
                            .count = d->rows,
                            .block = options->block,
                            .tokens = (int64_t)d->ids.count,
                            .digest = d->digest};
    return TX_OK;
}

void tx_instruction_close(const tx_samples *samples)
{
    free_data((void *)(uintptr_t)samples->data);
}

tx_text_end tx_instruction_end(const tx_samples *samples)
{
    const tx_instruction_data *d = samples->data;
    tx_text_end end = {.id = d->eos};
    if (d->chat)
        end.id = tx_chat_end_token(d->chat, &end.keeps_eos);
    return end;
}

tx_status tx_instruction_save(const tx_samples *samples, const char *folder)
{
    const tx_instruction_data *d = samples->data;
    return d->chat && !d->chat->is_own ? tx_chat_save(d->chat, folder) : TX_OK;
}
