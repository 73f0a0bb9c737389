/* SPDX-License-Identifier: Apache-2.0
 * Reads files of instruction data: objects, conversations, tokens, labels. */
#include "models/task/instruction.h"

#include "models/task/conversations.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Samples -------------------------------------------------------------------------------------------- */

/* The state of reading a file. */
typedef struct reading {
    tx_conversations from;
    tx_ids ids, learnt;   /* of one sample: its ids, and 1 for each id that is learnt */
    tx_ids whole, labels; /* of one sample: its ids with those before the text, and their labels */
    int64_t cut, dropped; /* numbers of truncated samples, and of samples without labels */
    bool has_messages;    /* assistant_only_loss matters */
    bool has_completion;  /* completion_only_loss matters */
} reading;

/* The parts of the current conversation that are learnt. For a prompt and a completion of messages they are those of
 * assistant_only_loss that are also those of completion_only_loss, as in TRL. */
static tx_chat_labels choose_labels(reading *r)
{
    tx_conversation *c = &r->from.conversation;
    const tx_job_settings *set = r->from.options->set;
    const bool answers = c->weighted || set->assistant_only, completion = set->completion_only;
    const bool messages = c->form == TX_CHAT_MESSAGES || c->form == TX_CHAT_SHAREGPT, pair = c->form == TX_CHAT_PAIR;
    r->has_messages = r->has_messages || messages || pair;
    r->has_completion = r->has_completion || (!messages && !(pair && answers));
    for (size_t i = 0; i < c->prompt; i++) {
        r->has_completion = r->has_completion || c->learnt[i];
        c->learnt[i] = c->learnt[i] && !completion;
    }
    if (pair && completion && !answers)
        return TX_CHAT_COMPLETION;
    return (messages || pair ? answers : completion) ? TX_CHAT_ANSWERS : TX_CHAT_NONE;
}

/* Encodes the current conversation, and marks the ids that are learnt. */
static tx_status encode(reading *r)
{
    tx_conversations *c = &r->from;
    const bool plain = tx_conversations_is_plain(c);
    const tx_chat *chat = plain ? &c->plain : c->chat;
    const tx_chat_labels labels = choose_labels(r);
    TX_TRY(plain ? tx_chat_render_plain(chat, &c->conversation, &c->text)
                 : tx_chat_render(chat, &c->conversation, false, labels, &c->text));
    TX_TRY(tx_chat_encode(chat, c->encoder, &c->text, &r->ids, &r->learnt));
    for (size_t i = 0; i < r->learnt.count && labels == TX_CHAT_NONE; i++)
        r->learnt.id[i] = 1;
    return TX_OK;
}

/* Appends a sample. A sample that is longer than a row is truncated. A sample without labels is dropped. */
static tx_status add_sample(reading *r, tx_instruction_data *d)
{
    const tx_data_options *o = r->from.options;
    tx_ids *whole = &r->whole;
    whole->count = r->labels.count = 0;
    if (tx_conversations_is_plain(&r->from))
        TX_TRY(tx_conversations_begin(o->tokenizer, whole));
    const size_t begun = whole->count, most = (size_t)o->block;
    const size_t all = begun + r->ids.count, size = all < most ? all : most;
    bool labelled = false;
    TX_TRY(tx_ids_reserve(whole, r->ids.count));
    TX_TRY(tx_ids_reserve(&r->labels, size));
    if (r->ids.count)
        memcpy(whole->id + begun, r->ids.id, r->ids.count * sizeof *r->ids.id);
    for (size_t t = 0; t < size; t++) {
        const bool has = t + 1 < size && t + 1 >= begun && r->learnt.id[t + 1 - begun];
        r->labels.id[t] = has ? whole->id[t + 1] : TX_IGNORE_LABEL;
        labelled = labelled || has;
    }
    TX_TRY(tx_task_check_ids(o, whole->id, size));
    r->cut += all > most;
    r->dropped += !labelled;
    if (!labelled)
        return TX_OK;
    TX_TRY(tx_store_add(&d->from.ids, whole->id, size));
    TX_TRY(tx_store_add(&d->labels, r->labels.id, size));
    d->end[d->count++] = d->from.ids.count;
    return TX_OK;
}

static tx_status read_one(reading *r, size_t number, tx_instruction_data *d)
{
    tx_conversations *c = &r->from;
    tx_json *own = NULL; /* owns the conversation's texts */
    const tx_json *object;
    tx_status status = tx_objects_read(&c->objects, number, &own, &object);
    TX_THEN(status, tx_conversation_read(object, true, &c->conversation));
    TX_THEN(status, tx_conversations_open_chat(c));
    TX_THEN(status, encode(r));
    tx_json_free(own);
    if (tx_conversations_skip(c, number, status))
        return TX_OK;
    TX_THEN(status, add_sample(r, d));
    return tx_conversations_fail(c, number, status);
}

static void report_counts(const reading *r)
{
    const tx_conversations *c = &r->from;
    const tx_reporter *report = &c->options->report;
    const tx_job_settings *set = c->options->set;
    tx_conversations_report(c);
    if (!set->assistant_only && !r->has_messages)
        tx_reporter_print(report, "%.800s: --assistant_only_loss has no effect: no sample has messages", c->path);
    if (!set->completion_only && !r->has_completion)
        tx_reporter_print(report, "%.800s: --completion_only_loss has no effect: %s", c->path,
                          set->assistant_only && r->has_messages
                              ? "no prompt has an answer; to learn all tokens, give --assistant_only_loss false, too"
                              : "no sample has a completion");
    if (r->cut)
        tx_reporter_print(report,
                          "%.800s: %" PRId64 " of %" PRId64 " samples are longer than max_seq_length %" PRId64
                          " and are truncated",
                          c->path, r->cut, c->end - c->begin, c->options->block);
    if (r->dropped)
        tx_reporter_print(report, "%.800s: %" PRId64 " of %" PRId64 " samples have nothing to learn%s and are skipped",
                          c->path, r->dropped, c->end - c->begin, r->cut ? " after truncation" : "");
}

static tx_status write_digest(const tx_instruction_data *d, char text[TX_DIGEST_TEXT])
{
    const size_t count = (size_t)d->count;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&d->from.ids, digest));
    tx_digest_fail(digest, tx_store_digest(&d->labels, digest));
    tx_digest_add(digest, d->end, count * sizeof *d->end);
    if (d->order)
        tx_digest_add(digest, d->order, count * sizeof *d->order);
    if (d->order)
        tx_digest_add(digest, d->last, (size_t)d->rows * sizeof *d->last);
    return tx_digest_finish(digest, text);
}

static tx_status read_all(reading *r, tx_instruction_data *d)
{
    tx_conversations *c = &r->from;
    TX_TRY(tx_conversations_open(c));
    const int64_t samples = c->end - c->begin;
    tx_conversation_data_begin(&d->from, c->options);
    d->labels = d->from.ids;
    d->end = malloc((size_t)samples * sizeof *d->end);
    if (!d->end)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " samples", samples);
    for (int64_t i = c->begin; i < c->end; i++)
        TX_TRY(read_one(r, (size_t)i, d));
    report_counts(r);
    if (!d->count)
        return tx_fail(TX_FORMAT, "no sample has anything to learn");
    d->rows = d->count;
    if (c->options->set->packing)
        TX_TRY(tx_instruction_pack(d, c->options->block, c->options->seed));
    tx_conversations_give_chat(c, &d->from);
    return write_digest(d, d->from.digest);
}

void tx_instruction_data_release(void *data)
{
    tx_instruction_data *d = data;
    tx_conversation_data_free(&d->from);
    tx_store_free(&d->labels);
    free(d->end);
    free(d->order);
    free(d->last);
    free(d);
}

tx_status tx_instruction_data_read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    tx_instruction_data *d = samples->own;
    reading r = {.from = {.path = path, .options = options}};
    const tx_status status = tx_fail_in(read_all(&r, d), "%s", path);
    tx_conversations_close(&r.from);
    free(r.ids.id);
    free(r.learnt.id);
    free(r.whole.id);
    free(r.labels.id);
    samples->count = d->rows;
    samples->tokens = d->from.ids.count;
    samples->digest = d->from.digest;
    return status;
}
