/* SPDX-License-Identifier: Apache-2.0
 * Texts to tokens, by several threads: each has a range of whole lines, and their results are put end to end. */
#include "models/text/thread.h"
#include "models/text/tokens.h"

#include "api/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread is worth starting for so many bytes. */
#define LEAST_BYTES ((size_t)1 << 16)
#define MESSAGE_BYTES 1024

/* What one thread makes of its range of the file. */
typedef struct part {
    const char *path, *file; /* the file's first byte, to count lines from */
    const char *begin, *end;
    const tx_dataset_options *options;
    tx_text_form form;
    int32_t width;

    pthread_t thread;
    bool started;
    tx_status status;
    char message[MESSAGE_BYTES];

    void *ids;
    size_t count, room;
    uint32_t *lengths;
    size_t texts, texts_room;
    int64_t bad, first_bad;
    char reason[MESSAGE_BYTES]; /* what is wrong with the first bad line */

    tx_encoder *encoder;
    tx_ids encoded; /* of one text */
    char *line;     /* a line whose end had to be changed */
    size_t line_room;
} part;

/* Makes room for `needed` elements of `size` bytes. */
static tx_status grow(const part *p, void **memory, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return TX_OK;
    size_t more = *room + *room / 2;
    if (more < needed)
        more = needed < 1024 ? 1024 : needed;
    void *larger = more > SIZE_MAX / size ? NULL : realloc(*memory, more * size);
    if (!larger)
        return tx_fail(TX_MEMORY, "%s: no memory for its tokens; %zu so far", p->path, p->count);
    *memory = larger;
    *room = more;
    return TX_OK;
}

/* Appends the ids of one text. */
static tx_status append(part *p)
{
    size_t count = p->encoded.count;
    void *lengths = p->lengths;
    if (count > UINT32_MAX)
        return tx_fail(TX_UNSUPPORTED, "%s: a text of %zu tokens; split it into lines", p->path, count);
    tx_status status = grow(p, &p->ids, &p->room, p->count + count, (size_t)p->width);
    if (!status)
        status = grow(p, &lengths, &p->texts_room, p->texts + 1, sizeof *p->lengths);
    p->lengths = lengths;
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        if (p->width == 2)
            ((uint16_t *)p->ids)[p->count + i] = (uint16_t)p->encoded.id[i];
        else
            ((uint32_t *)p->ids)[p->count + i] = (uint32_t)p->encoded.id[i];
    p->count += count;
    p->lengths[p->texts++] = (uint32_t)count;
    return TX_OK;
}

static tx_status add_text(part *p, const char *text, size_t size)
{
    p->encoded.count = 0;
    tx_status status = tx_encoder_run(p->encoder, text, size, true, &p->encoded);
    return status ? tx_fail_in(status, "%s", p->path) : append(p);
}

/* ---- Lines of text --------------------------------------------------------------------------------- */

/* Adds the text up to `end`, where a line ends otherwise than by \n, with \n in its place. */
static tx_status add_line(part *p, const char *text, const char *end)
{
    size_t size = (size_t)(end - text);
    void *line = p->line;
    tx_status status = grow(p, &line, &p->line_room, size + 1, 1);
    p->line = line;
    if (status)
        return status;
    memcpy(p->line, text, size);
    p->line[size] = '\n';
    return add_text(p, p->line, size + 1);
}

/* \r\n and \r end lines as \n does, and become \n: what Python reads in text mode. */
static tx_status run_lines(part *p)
{
    tx_status status = TX_OK;
    const char *newline = p->begin; /* the first \n at or after `at`, or the end */
    for (const char *at = p->begin, *next; at < p->end && !status; at = next) {
        if (newline < at || at == p->begin) {
            newline = memchr(at, '\n', (size_t)(p->end - at));
            newline = newline ? newline : p->end;
        }
        const char *carriage = memchr(at, '\r', (size_t)(newline - at));
        if (carriage) {
            next = carriage + 1 == newline && newline < p->end ? newline + 1 : carriage + 1;
            status = add_line(p, at, carriage);
        } else {
            next = newline < p->end ? newline + 1 : p->end;
            status = add_text(p, at, (size_t)(next - at));
        }
    }
    return status;
}

/* ---- JSON Lines ------------------------------------------------------------------------------------ */

/* The text of a line: TX_MEMORY, or TX_FORMAT where the line is malformed. */
static tx_status parse_line(const char *line, size_t size, const char *where, tx_json **json, const char **text,
                            size_t *length)
{
    tx_json *object = NULL;
    tx_status status = tx_json_parse_line(line, size, where, &object);
    if (status)
        return status;
    if (tx_json_type_of(object) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "%s: expected an object {\"text\": ...}", where);
    else if (tx_json_get_text(object, "text", text, length))
        status = tx_fail_in(TX_FORMAT, "%s", where);
    if (status)
        tx_json_free(object);
    else
        *json = object;
    return status;
}

static int64_t line_number(const part *p, const char *line)
{
    int64_t number = 1;
    for (const char *at = p->file; (at = memchr(at, '\n', (size_t)(line - at))); at++)
        number++;
    return number;
}

/* Counts a malformed line; what is wrong with the first is kept. */
static tx_status note_bad(part *p, const char *line, size_t size)
{
    if (p->bad++ > 0)
        return TX_OK;
    tx_json *json;
    const char *text;
    size_t length;
    char where[32];
    p->first_bad = line_number(p, line);
    snprintf(where, sizeof where, "line %" PRId64, p->first_bad);
    tx_status status = parse_line(line, size, where, &json, &text, &length);
    if (status == TX_MEMORY)
        return tx_fail_in(status, "%s", p->path);
    if (!status)
        tx_json_free(json);
    snprintf(p->reason, sizeof p->reason, "%s", tx_error());
    return TX_OK;
}

static bool is_blank(const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static tx_status run_jsonl(part *p)
{
    tx_status status = TX_OK;
    for (const char *at = p->begin, *next; at < p->end && !status && p->bad <= p->options->skip_bad; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(p->end - at));
        size_t size = (size_t)((newline ? newline : p->end) - at), length;
        next = newline ? newline + 1 : p->end;
        if (is_blank(at, size))
            continue;
        tx_json *json;
        const char *text;
        status = parse_line(at, size, p->path, &json, &text, &length);
        if (status == TX_FORMAT) {
            status = note_bad(p, at, size);
        } else if (!status) {
            status = add_text(p, text, length);
            tx_json_free(json);
        }
    }
    return status;
}

/* ---- Threads ----------------------------------------------------------------------------------------- */

static void run_part(part *p)
{
    p->status = tx_encoder_create(p->options->tokenizer, &p->encoder);
    if (!p->status)
        p->status = p->form == TX_TEXT_LINES ? run_lines(p) : run_jsonl(p);
    if (p->status)
        snprintf(p->message, sizeof p->message, "%s", tx_error());
    tx_encoder_free(p->encoder);
    free(p->encoded.id);
    free(p->line);
}

static void *run_thread(void *argument)
{
    run_part(argument);
    return NULL;
}

/* Runs all parts, the first on this thread; so is every part whose thread the system refuses, which is told once. */
static void run_parts(part *parts, size_t count, const tx_reporter *report)
{
    int error = 0;
    for (size_t i = 1; i < count && !error; i++) {
        parts[i].started = tx_thread_start(&parts[i].thread, run_thread, &parts[i]);
        error = parts[i].started ? 0 : errno;
    }
    if (error) {
        char message[256];
        snprintf(message, sizeof message,
                 "%.100s: the system refuses some of the %zu threads that tokenise (%s): going on with fewer",
                 parts[0].path, count, strerror(error));
        tx_report(report, message);
    }
    for (size_t i = 0; i < count; i++)
        if (!parts[i].started)
            run_part(&parts[i]);
    for (size_t i = 0; i < count; i++)
        if (parts[i].started)
            pthread_join(parts[i].thread, NULL);
}

/* Cuts the file into ranges of about equal size that end with a line. */
static size_t cut_ranges(part *parts, size_t most, const tx_view *view, const part *common)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* a byte order mark at the beginning is left out */
    const char *at = view->data, *end = at + view->size;
    size_t count = 0;
    if (view->size >= 3 && memcmp(at, mark, 3) == 0)
        at += 3;
    for (size_t i = 0; i < most && (at < end || i == 0); i++) {
        const char *to = end;
        if (i + 1 < most) {
            to = at + (size_t)(end - at) / (most - i);
            to = to < end ? memchr(to, '\n', (size_t)(end - to)) : NULL;
            to = to ? to + 1 : end;
        }
        parts[count] = *common;
        parts[count].begin = at;
        parts[count++].end = to;
        at = to;
    }
    return count;
}

/* The failure of the first part that failed, or of more malformed lines than are allowed. */
static tx_status judge(const part *parts, size_t count, tx_tokens *made)
{
    int64_t allowed = parts[0].options->skip_bad;
    const char *reason = "";
    for (size_t i = 0; i < count; i++) {
        if (parts[i].status)
            return tx_fail(parts[i].status, "%s", parts[i].message);
        if (parts[i].bad && !made->bad) {
            made->first_bad = parts[i].first_bad;
            reason = parts[i].reason;
        }
        made->bad += parts[i].bad;
    }
    if (made->bad <= allowed)
        return TX_OK;
    if (allowed == 0)
        return tx_fail(TX_FORMAT, "%s: %s", parts[0].path, reason);
    return tx_fail(TX_FORMAT, "%s: more than %" PRId64 " malformed lines, the first: %s", parts[0].path, allowed,
                   reason);
}

/* Puts the parts' results end to end; the memory of each is free before the next is copied. */
static tx_status join(part *parts, size_t count, tx_tokens *made)
{
    size_t ids = 0, texts = 0;
    for (size_t i = 0; i < count; i++) {
        ids += parts[i].count;
        texts += parts[i].texts;
    }
    part *first = &parts[0];
    size_t width = (size_t)first->width;
    void *all = realloc(first->ids, ids ? ids * width : 1);
    if (all)
        first->ids = all;
    uint32_t *lengths = realloc(first->lengths, texts ? texts * sizeof *lengths : 1);
    if (lengths)
        first->lengths = lengths;
    if (!all || !lengths)
        return tx_fail(TX_MEMORY, "%s: no memory for its %zu tokens", first->path, ids);
    size_t id = first->count, text = first->texts;
    for (size_t i = 1; i < count; i++) {
        part *p = &parts[i];
        if (p->count)
            memcpy((char *)all + id * width, p->ids, p->count * width);
        if (p->texts)
            memcpy(lengths + text, p->lengths, p->texts * sizeof *lengths);
        id += p->count;
        text += p->texts;
        free(p->ids);
        free(p->lengths);
        p->ids = p->lengths = NULL;
    }
    first->ids = first->lengths = NULL;
    made->ids = made->own_ids = all;
    made->lengths = made->own_lengths = lengths;
    made->width = first->width;
    made->count = (int64_t)ids;
    made->texts = (int64_t)texts;
    return TX_OK;
}

tx_status tx_tokens_of_text(const char *path, const tx_view *view, tx_text_form form, const tx_dataset_options *options,
                            tx_tokens *tokens)
{
    size_t most = (size_t)options->threads, worth = view->size / LEAST_BYTES + 1;
    if (most > worth)
        most = worth;
    part *parts = calloc(most, sizeof *parts);
    if (!parts)
        return tx_fail(TX_MEMORY, "%s: no memory to tokenise it", path);
    part common = {
        .path = path,
        .file = view->data,
        .options = options,
        .form = form,
        .width = tx_tokenizer_size(options->tokenizer) <= UINT16_MAX + 1 ? 2 : 4,
    };
    tx_tokens made = {0};
    size_t count = cut_ranges(parts, most, view, &common);
    run_parts(parts, count, &options->report);
    tx_status status = judge(parts, count, &made);
    if (!status)
        status = join(parts, count, &made);
    for (size_t i = 0; i < count; i++) {
        free(parts[i].ids);
        free(parts[i].lengths);
    }
    free(parts);
    if (!status)
        *tokens = made;
    return status;
}
