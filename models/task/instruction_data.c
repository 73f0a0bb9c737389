/* SPDX-License-Identifier: Apache-2.0
 * Reads files of instruction data: objects, conversations, tokens, labels. */
#include "models/task/instruction.h"

#include "models/task/conversations.h"

#include <inttypes.h>
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

static tx_status read_one(reading *r, int64_t number, tx_instruction_data *d)
{
    tx_conversations *c = &r->from;
    const tx_json *object; /* owns the conversation's texts */
    tx_status status = tx_rows_read(c->rows, number, &object);
    TX_THEN(status, tx_conversation_read(object, true, &c->conversation));
    TX_THEN(status, tx_conversations_open_chat(c));
    TX_THEN(status, encode(r));
    TX_THEN(status, add_sample(r, d));
    return tx_conversations_skip(c, number, status);
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

/* ---- Packing ---------------------------------------------------------------------------------------------- */

/* The free positions of all rows, as the leaves of a binary tree. A node has the maximum of its children. */
typedef struct rows {
    int64_t leaves; /* a power of two */
    int64_t *room;  /* [2 * leaves]: node i has the children 2 i and 2 i + 1; the root is 1 */
} rows;

/* Finds the first row with `length` free positions and reserves them. */
static int64_t reserve(const rows *r, int64_t length)
{
    int64_t node = 1;
    while (node < r->leaves)
        node = 2 * node + (r->room[2 * node] < length);
    const int64_t row = node - r->leaves;
    r->room[node] -= length;
    for (node /= 2; node; node /= 2)
        r->room[node] = r->room[2 * node] > r->room[2 * node + 1] ? r->room[2 * node] : r->room[2 * node + 1];
    return row;
}

/* Sorts the samples of `from` by their rows, row_of, and keeps their order within a row. */
static void sort(tx_instruction_data *d, const int64_t *from, const int64_t *row_of)
{
    memset(d->last, 0, (size_t)d->count * sizeof *d->last);
    for (int64_t i = 0; i < d->count; i++)
        d->last[row_of[i]]++;
    for (int64_t r = 1; r < d->count; r++)
        d->last[r] += d->last[r - 1];
    for (int64_t i = d->count - 1; i >= 0; i--)
        d->order[--d->last[row_of[i]]] = from[i];
    /* The loop has turned the ends of the rows into their beginnings. */
    memmove(d->last, d->last + 1, (size_t)(d->count - 1) * sizeof *d->last);
    d->last[d->count - 1] = d->count;
}

/* Packs the samples first-fit: each is added to the first row of `block` positions in which it fits. Their order
 * depends only on the seed and their number. Sets rows, order and last. No sample is longer than `block`. */
static tx_status pack(tx_instruction_data *d, int64_t block, uint64_t seed)
{
    const tx_sample_order order = {.shuffle = true, .seed = seed};
    const size_t bytes = (size_t)d->count * sizeof(int64_t);
    rows r = {.leaves = 1};
    while (r.leaves < d->count)
        r.leaves *= 2;
    r.room = malloc((size_t)(2 * r.leaves) * sizeof *r.room);
    d->order = malloc(bytes);
    d->last = malloc(bytes);
    int64_t *from = malloc(bytes), *row_of = malloc(bytes);
    const bool fits = r.room && d->order && d->last && from && row_of;
    for (int64_t i = 0; fits && i < 2 * r.leaves; i++)
        r.room[i] = block;
    d->rows = 0;
    for (int64_t i = 0; fits && i < d->count; i++) {
        const int64_t sample = from[i] = tx_sample_order_at(&order, d->count, i);
        row_of[i] = reserve(&r, d->end[sample] - tx_sample_begin(d->end, sample));
        d->rows = row_of[i] >= d->rows ? row_of[i] + 1 : d->rows;
    }
    if (fits)
        sort(d, from, row_of);
    free(r.room);
    free(from);
    free(row_of);
    return fits ? TX_OK : tx_fail(TX_MEMORY, "no memory to pack %zu samples", (size_t)d->count);
}

/* ---- Reading --------------------------------------------------------------------------------------------- */

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
        TX_TRY(read_one(r, i, d));
    report_counts(r);
    if (!d->count)
        return tx_fail(TX_FORMAT, "no sample has anything to learn");
    d->rows = d->count;
    if (c->options->set->packing)
        TX_TRY(pack(d, c->options->block, c->options->seed));
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
