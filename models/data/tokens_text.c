/* SPDX-License-Identifier: Apache-2.0
 * Tokenises texts in several threads. The file is read in rounds: in each round every thread has a range of whole
 * lines, and their results are passed on in order. */
#include "api/base/thread.h"
#include "models/data/lines.h"
#include "models/data/tokens.h"
#include "models/tokenizer/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Minimum bytes for each thread. */
#define LEAST_BYTES ((int64_t)1 << 16)
/* Bytes for each thread in a round. Tokens take up to four times as much memory. */
#define ROUND_BYTES ((int64_t)8 << 20)
#define MESSAGE_BYTES 1024
#define REPORT_EVERY ((size_t)1 << 17) /* tokens of a part between two progress reports */

/* The work of one thread: a range of the file, and its result. */
typedef struct part {
    const char *path;
    tx_lines lines;
    const tx_dataset_options *options;
    tx_text_form form;

    pthread_t thread;
    bool started;
    tx_status status;
    char message[MESSAGE_BYTES];

    tx_tokens_piece piece; /* the result */
    int64_t bad, first_bad;
    char reason[MESSAGE_BYTES]; /* fault of the first malformed line */

    atomic_llong *read; /* bytes of all parts that are tokenised, of `total` */
    int64_t total;
    int64_t done;    /* tokenised bytes of this part that are not yet in `read` */
    size_t reported; /* tokens at the last progress report */
    tx_encoder *encoder;
    tx_ids encoded; /* ids of the current text that are not yet in `ids` */
    size_t text;    /* number of that text's tokens in `ids` */
} part;

/* Moves encoded ids to the part's ids. */
static tx_status drain(void *context, tx_ids *encoded)
{
    part *p = context;
    const size_t count = encoded->count;
    TX_TRY(tx_fail_in(
        tx_array_reserve(&p->piece.ids, &p->piece.room, p->piece.count + count, (size_t)p->piece.width, "tokens"), "%s",
        p->path));
    for (size_t i = 0; i < count; i++)
        if (p->piece.width == 2)
            ((uint16_t *)p->piece.ids)[p->piece.count + i] = (uint16_t)encoded->id[i];
        else
            ((uint32_t *)p->piece.ids)[p->piece.count + i] = (uint32_t)encoded->id[i];
    p->piece.count += count;
    p->text += count;
    encoded->count = 0;
    if (p->piece.count - p->reported >= REPORT_EVERY) {
        const int64_t before = (int64_t)atomic_fetch_add(p->read, p->done);
        tx_report_progress(&p->options->report, p->path, before + p->done, p->total);
        p->reported = p->piece.count;
        p->done = 0;
    }
    return TX_OK;
}

static tx_status add_text(part *p, const char *text, size_t size)
{
    p->text = 0;
    TX_TRY(tx_fail_in(tx_encoder_text(p->encoder, text, size, &p->encoded), "%s", p->path));
    p->done += (int64_t)size;
    TX_TRY(drain(p, &p->encoded));
    if (p->text > UINT32_MAX)
        return tx_fail(TX_UNSUPPORTED, "%s: a text of %zu tokens is too long; split it into lines", p->path, p->text);
    TX_TRY(tx_fail_in(tx_array_reserve(&p->piece.lengths, &p->piece.texts_room, p->piece.texts + 1,
                                       sizeof *p->piece.lengths, "texts"),
                      "%s", p->path));
    p->piece.lengths[p->piece.texts++] = (uint32_t)p->text;
    return TX_OK;
}

/* ---- Lines ------------------------------------------------------------------------------------------- */

/* Finds the fault of a malformed line. */
static tx_status find_fault(const part *p, char *line, size_t size, const char *where)
{
    tx_json *json = NULL;
    const char *text;
    size_t length;
    if (p->form != TX_TEXT_JSONL)
        return tx_fail_in(tx_text_check(line, size), "%s", where);
    const tx_status status = tx_jsonl_text(line, size, where, &json, &text, &length);
    tx_json_free(json);
    return status;
}

/* Counts a malformed line, which was just read, and keeps the fault of the first one. */
static tx_status note_bad(part *p, char *line, size_t size)
{
    char where[32];
    if (p->bad++ > 0)
        return TX_OK;
    TX_TRY(tx_lines_count(p->lines.file, p->lines.given, &p->first_bad));
    p->first_bad++;
    snprintf(where, sizeof where, "line %" PRId64, p->first_bad);
    const tx_status status = find_fault(p, line, size, where);
    if (status == TX_MEMORY)
        return tx_fail_in(status, "%s", p->path);
    snprintf(p->reason, sizeof p->reason, "%s", tx_error());
    return TX_OK;
}

static tx_status add_line(part *p, char *line, size_t size)
{
    const size_t end = p->form == TX_TEXT_BARE && line[size - 1] == '\n';
    return tx_utf8_prefix(line, size) == size ? add_text(p, line, size - end) : note_bad(p, line, size);
}

static tx_status add_json(part *p, char *line, size_t size)
{
    tx_json *json;
    const char *text;
    size_t length;
    size -= line[size - 1] == '\n';
    if (tx_line_is_blank(line, size))
        return TX_OK;
    tx_status status = tx_jsonl_text(line, size, p->path, &json, &text, &length);
    if (status == TX_FORMAT)
        return note_bad(p, line, size);
    if (status)
        return status;
    status = add_text(p, text, length);
    tx_json_free(json);
    return status;
}

/* ---- Threads ----------------------------------------------------------------------------------------- */

static tx_status run_lines(part *p)
{
    char *line = NULL;
    size_t size = 1;
    while (size > 0 && p->bad <= p->options->skip_bad) {
        TX_TRY(tx_lines_next(&p->lines, &line, &size));
        if (size > 0)
            TX_TRY(p->form == TX_TEXT_JSONL ? add_json(p, line, size) : add_line(p, line, size));
    }
    return TX_OK;
}

static void run_part(part *p)
{
    p->encoded.drain = drain;
    p->encoded.context = p;
    p->status = p->encoder ? TX_OK : tx_encoder_create(p->options->tokenizer, &p->encoder);
    if (!p->status)
        p->status = run_lines(p);
    if (p->status)
        snprintf(p->message, sizeof p->message, "%s", tx_error());
    free(p->lines.data);
}

static void *run_thread(void *argument)
{
    run_part(argument);
    return NULL;
}

/* Runs all parts, the first one in this thread. If the system refuses threads, warns and runs their parts here, too. */
static void run_parts(part *parts, size_t count, const tx_reporter *report)
{
    int error = 0;
    for (size_t i = 1; i < count && !error; i++) {
        parts[i].started = tx_thread_start(&parts[i].thread, run_thread, &parts[i]);
        error = parts[i].started ? 0 : errno;
    }
    if (error)
        tx_reporter_print(
            report, "%.100s: the system refuses some of the %zu threads for tokenising (%s); continuing with fewer",
            parts[0].path, count, strerror(error));
    for (size_t i = 0; i < count; i++)
        if (!parts[i].started)
            run_part(&parts[i]);
    for (size_t i = 0; i < count; i++)
        if (parts[i].started)
            pthread_join(parts[i].thread, NULL);
}

/* The first byte of the texts, after a byte order mark. */
static tx_status find_begin(const tx_text_range *texts, int64_t *begin)
{
    const tx_data_file *file = texts->file;
    char mark[3] = "";
    *begin = texts->begin;
    TX_TRY(file->size < 3 || texts->begin ? TX_OK : tx_data_file_read(file, 0, mark, sizeof mark));
    if (memcmp(mark, "\xEF\xBB\xBF", 3) == 0)
        *begin = 3;
    return TX_OK;
}

/* Gives the parts of a round ranges of similar size that end with a line. The round begins at `*at`, which moves to its
 * end. */
static tx_status cut_ranges(part *parts, size_t most, const tx_text_range *texts, int64_t *at, size_t *count)
{
    const tx_data_file *file = texts->file;
    const tx_lines_form form = texts->form == TX_TEXT_JSONL ? TX_LINES_PLAIN : TX_LINES_TEXT;
    int64_t end = texts->end;
    if (end - *at > (int64_t)most * ROUND_BYTES)
        TX_TRY(tx_lines_after(file, *at + (int64_t)most * ROUND_BYTES, &end));
    for (size_t i = 0; i < most && (*at < end || i == 0); i++) {
        int64_t to = end;
        if (i + 1 < most)
            TX_TRY(tx_lines_after(file, *at + (end - *at) / (int64_t)(most - i), &to));
        parts[i].lines = (tx_lines){.file = file, .at = *at, .end = to, .form = form};
        parts[i].started = false;
        *count = i + 1;
        *at = to;
    }
    return TX_OK;
}

/* Returns the failure of the first failed part, or fails if there are more malformed lines than allowed. */
static tx_status check_parts(const part *parts, size_t most, tx_tokens *result)
{
    int64_t allowed = parts[0].options->skip_bad;
    const char *reason = "";
    result->bad = 0;
    for (size_t i = 0; i < most; i++) {
        if (parts[i].status)
            return tx_fail(parts[i].status, "%s", parts[i].message);
        if (parts[i].bad && (!result->bad || parts[i].first_bad < result->first_bad)) {
            result->first_bad = parts[i].first_bad;
            reason = parts[i].reason;
        }
        result->bad += parts[i].bad;
    }
    if (result->bad <= allowed)
        return TX_OK;
    if (allowed == 0)
        return tx_fail(TX_FORMAT, "%s: %s", parts[0].path, reason);
    return tx_fail(TX_FORMAT, "%s: more than %" PRId64 " malformed lines, the first: %s", parts[0].path, allowed,
                   reason);
}

/* Passes the results of a round on. */
static tx_status pass(part *parts, size_t count, const tx_tokens_sink *sink, tx_tokens *result)
{
    for (size_t i = 0; i < count; i++) {
        part *p = &parts[i];
        result->count += (int64_t)p->piece.count;
        result->texts += (int64_t)p->piece.texts;
        TX_TRY(sink->take(sink->context, &p->piece));
        p->piece.count = p->piece.texts = p->reported = 0;
    }
    return TX_OK;
}

tx_status tx_tokens_stream(const tx_text_range *texts, const tx_dataset_options *options, const tx_tokens_sink *sink,
                           tx_tokens *tokens)
{
    const tx_data_file *file = texts->file;
    size_t most = (size_t)options->threads, worth = (size_t)((texts->end - texts->begin) / LEAST_BYTES) + 1, count = 0;
    if (most > worth)
        most = worth;
    part *parts = calloc(most, sizeof *parts);
    if (!parts)
        return tx_fail(TX_MEMORY, "%s: no memory to tokenise it", file->path);
    atomic_llong read = texts->begin;
    const part common = {
        .path = file->path,
        .read = &read,
        .total = file->size,
        .options = options,
        .form = texts->form,
        .piece.width = tx_tokenizer_size(options->tokenizer) <= UINT16_MAX + 1 ? 2 : 4,
    };
    for (size_t i = 0; i < most; i++)
        parts[i] = common;
    tx_tokens result = {.width = common.piece.width, .of_texts = true};
    int64_t at = 0;
    tx_status status = find_begin(texts, &at);
    while (!status && at < texts->end) {
        status = cut_ranges(parts, most, texts, &at, &count);
        if (!status) {
            run_parts(parts, count, &options->report);
            status = check_parts(parts, most, &result);
        }
        TX_THEN(status, pass(parts, count, sink, &result));
    }
    for (size_t i = 0; i < most; i++) {
        tx_encoder_free(parts[i].encoder);
        free(parts[i].encoded.id);
        free(parts[i].piece.ids);
        free(parts[i].piece.lengths);
    }
    free(parts);
    if (!status)
        *tokens = result;
    return status;
}

/* ---- In memory --------------------------------------------------------------------------------------- */

typedef struct memory {
    const char *path;
    tx_tokens_piece all;
} memory;

static tx_status keep(void *context, tx_tokens_piece *piece)
{
    memory *m = context;
    tx_tokens_piece *all = &m->all;
    const size_t width = (size_t)piece->width;
    if (!all->count && !all->texts) {
        tx_tokens_piece none = {.width = piece->width};
        free(all->ids);
        free(all->lengths);
        *all = *piece;
        *piece = none;
        return TX_OK;
    }
    tx_status status = tx_array_reserve(&all->ids, &all->room, all->count + piece->count, width, "tokens");
    TX_THEN(status, tx_array_reserve(&all->lengths, &all->texts_room, all->texts + piece->texts, sizeof *all->lengths,
                                     "texts"));
    TX_TRY(tx_fail_in(status, "%s", m->path));
    if (piece->count)
        memcpy((char *)all->ids + all->count * width, piece->ids, piece->count * width);
    if (piece->texts)
        memcpy(all->lengths + all->texts, piece->lengths, piece->texts * sizeof *all->lengths);
    all->count += piece->count;
    all->texts += piece->texts;
    return TX_OK;
}

tx_status tx_tokens_of_text(const tx_text_range *texts, const tx_dataset_options *options, tx_tokens *tokens)
{
    memory m = {.path = texts->file->path};
    const tx_tokens_sink sink = {keep, &m};
    const tx_status status = tx_tokens_stream(texts, options, &sink, tokens);
    if (status) {
        free(m.all.ids);
        free(m.all.lengths);
        return status;
    }
    tokens->ids = m.all.ids;
    tokens->lengths = m.all.lengths;
    return TX_OK;
}
