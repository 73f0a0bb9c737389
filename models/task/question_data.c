/* SPDX-License-Identifier: Apache-2.0
 * Reads files of questions with contexts and answers, and divides contexts into windows. */
#include "models/task/question.h"

#include "models/names.h"
#include "models/task/reader.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The state of reading a file. */
typedef struct reading {
    tx_reader from;
    tx_question_data *data;
    int32_t question, context, answers; /* columns; the last is -1 in test data */
    tx_aligner *aligner;
    tx_ids ask, text; /* of the current row */
    tx_offset *offset;
    size_t offset_room, question_room;
    tx_offset answer; /* the bytes of the first answer; both 0 if there is none */
} reading;

static tx_status find_columns(reading *r)
{
    static const char *const names[][2] = {{"question"}, {"context"}, {"answers"}};
    int32_t *const columns[] = {&r->question, &r->context, &r->answers};
    const int count = r->from.options->split == TX_DATA_TEST ? 2 : 3;
    r->answers = -1;
    for (int i = 0; i < count; i++)
        TX_TRY(tx_reader_find(&r->from, names[i], names[i][0], NULL, columns[i]));
    return TX_OK;
}

/* ---- Answers ------------------------------------------------------------------------------------------- */

/* The bytes before character `count` of a text. */
static size_t bytes_before(const char *text, size_t size, int64_t count)
{
    size_t at = 0;
    uint32_t code;
    for (; count > 0 && at < size; count--) {
        const size_t length = tx_utf8_read(text + at, size - at, &code);
        at += length ? length : 1;
    }
    return at;
}

/* Reads {"text": [..], "answer_start": [..]}. Starts count characters. */
static tx_status read_answers(reading *r, const tx_json *json, size_t size, tx_question *q)
{
    tx_json *texts, *starts;
    int64_t start = 0;
    TX_TRY(tx_json_get(json, "text", TX_JSON_ARRAY, &texts));
    TX_TRY(tx_json_get(json, "answer_start", TX_JSON_ARRAY, &starts));
    const size_t count = tx_json_size(texts);
    if (tx_json_size(starts) != count)
        return tx_fail(TX_FORMAT, "answers: %zu texts and %zu starts", count, tx_json_size(starts));
    q->answer = calloc(count + 1, sizeof *q->answer);
    if (!q->answer)
        return tx_fail(TX_MEMORY, "no memory for %zu answers", count);
    for (; q->answers < count; q->answers++) {
        const char *text;
        TX_TRY(tx_json_as_string(tx_json_at(texts, q->answers), "text", &text));
        TX_TRY(tx_copy_text(text, &q->answer[q->answers]));
    }
    if (!count)
        return TX_OK;
    TX_TRY(tx_json_as_int(tx_json_at(starts, 0), "answer_start", 0, INT64_MAX, &start));
    const size_t begin = bytes_before(q->context, size, start), length = strlen(q->answer[0]);
    if (begin + length > size || length == 0)
        return tx_fail(TX_FORMAT, "answers: answer_start %" PRId64 " is not in the context", start);
    r->answer = (tx_offset){begin, begin + length};
    return TX_OK;
}

static tx_status read_question(reading *r, tx_question *q, size_t *size)
{
    r->answer = (tx_offset){0, 0};
    TX_TRY(tx_copy_text(tx_rows_text(r->from.rows, r->context, size), &q->context));
    if (r->answers < 0)
        return TX_OK;
    const tx_json *answers = tx_rows_value(r->from.rows, r->answers, TX_JSON_OBJECT);
    const tx_status status = answers ? read_answers(r, answers, *size, q)
                                     : tx_fail(TX_FORMAT, "answers: expected an object with text and answer_start");
    return status == TX_INVALID || status == TX_NOT_FOUND ? TX_FORMAT : status;
}

/* ---- Features ------------------------------------------------------------------------------------------ */

/* The positions of the answer in a window: the last token that begins at or before it, and the first that ends at or
 * after it. Both are 0 if the window, tokens begin .. end - 1 of the context, lacks the answer. `first` is the position
 * of its first token. */
static void find_answer(const reading *r, size_t begin, size_t end, size_t first, int32_t label[2])
{
    const tx_offset *o = r->offset, a = r->answer;
    label[0] = label[1] = 0;
    if (a.end == 0 || o[begin].begin > a.begin || o[end - 1].end < a.end)
        return;
    size_t from = begin, to = end;
    while (from < end && o[from].begin <= a.begin)
        from++;
    while (to > begin && o[to - 1].end >= a.end)
        to--;
    label[0] = (int32_t)(first + from - 1 - begin);
    label[1] = (int32_t)(first + to - begin);
}

/* Adds the window of tokens begin .. end - 1 of the context. */
static tx_status add_feature(reading *r, size_t begin, size_t end)
{
    static const tx_offset none = {1, 0};
    tx_question_data *d = r->data;
    tx_text_samples *s = &d->texts;
    const tx_ids window = {.id = r->text.id + begin, .count = end - begin};
    const size_t before = (size_t)s->ids.count, number = (size_t)s->count;
    tx_text_samples_clear(s);
    TX_TRY(tx_tokenizer_join(r->from.options->tokenizer, &r->ask, &window, &s->id, &s->type));
    TX_TRY(tx_array_reserve(&d->label, &d->label_room, 2 * (number + 1), sizeof *d->label, "features"));
    TX_TRY(tx_array_reserve(&d->offset, &d->offset_room, before + s->id.count, sizeof *d->offset, "offsets"));
    /* The window is before the special tokens at the end: find it by its ids from the back. */
    size_t at = s->id.count - window.count;
    while (at > 0 && memcmp(s->id.id + at, window.id, window.count * sizeof *window.id) != 0)
        at--;
    for (size_t i = 0; i < s->id.count; i++)
        d->offset[before + i] = i >= at && i < at + window.count ? r->offset[begin + i - at] : none;
    find_answer(r, begin, end, at, d->label + 2 * number);
    s->at[0] = (int64_t)s->id.count;
    return tx_text_samples_keep(s, r->from.options);
}

static tx_status add_windows(reading *r, tx_question *q)
{
    const tx_data_options *o = r->from.options;
    const size_t special = r->from.joiner.special[1], block = (size_t)o->block, stride = (size_t)o->set->doc_stride;
    if (block < special + r->ask.count + stride + 1)
        return tx_fail(TX_FORMAT,
                       "the question has %zu tokens: with --doc_stride %zu it leaves no room for the context: raise "
                       "--max_seq_length (%zu) or lower --doc_stride",
                       r->ask.count, stride, block);
    const size_t room = block - special - r->ask.count;
    q->first = r->data->texts.count;
    for (size_t begin = 0, end = 0; end < r->text.count; begin += room - stride) {
        end = begin + room < r->text.count ? begin + room : r->text.count;
        TX_TRY(add_feature(r, begin, end));
        q->features++;
    }
    return TX_OK;
}

static void free_question(tx_question *q)
{
    for (size_t i = 0; i < q->answers; i++)
        free(q->answer[i]);
    free(q->answer);
    free(q->context);
    *q = (tx_question){0};
}

static tx_status read_row(reading *r, tx_question *q)
{
    size_t size, length;
    TX_TRY(read_question(r, q, &size));
    const char *ask = tx_rows_text(r->from.rows, r->question, &length);
    const size_t spaces = strspn(ask, " \t\r\n"); /* as run_qa.py */
    tx_encoder *encoder = r->from.joiner.encoder;
    r->ask.count = r->text.count = 0;
    TX_TRY(tx_encoder_run(encoder, ask + spaces, length - spaces, true, &r->ask));
    TX_TRY(tx_encoder_run(encoder, q->context, size, true, &r->text));
    if (!r->text.count)
        return tx_fail(TX_FORMAT, "the context has no tokens");
    TX_TRY(tx_array_reserve(&r->offset, &r->offset_room, r->text.count, sizeof *r->offset, "offsets"));
    TX_TRY(tx_aligner_run(r->aligner, q->context, size, r->text.id, r->text.count, r->offset));
    return add_windows(r, q);
}

static tx_status add_row(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_question_data *d = r->data;
    TX_TRY(
        tx_array_reserve(&d->question, &r->question_room, (size_t)d->questions + 1, sizeof *d->question, "questions"));
    tx_question *q = &d->question[d->questions];
    *q = (tx_question){0};
    const tx_status status = read_row(r, q);
    if (status) {
        free_question(q);
        return status;
    }
    d->unanswered = d->unanswered || !q->answers;
    d->questions++;
    return TX_OK;
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

static tx_status read_all(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_question_data *d = r->data;
    d->texts.per_sample = 1;
    d->longest_answer = from->options->set->max_answer_length;
    tx_text_samples_begin(&d->texts, from->options);
    TX_TRY(find_columns(r));
    TX_TRY(tx_aligner_create(from->options->tokenizer, &r->aligner));
    TX_TRY(tx_reader_rows(from, add_row));
    if (!d->texts.count)
        return tx_fail(TX_FORMAT, "no row has a question");
    return tx_text_samples_digest(&d->texts, d->label, 2 * (size_t)d->texts.count * sizeof *d->label);
}

void tx_question_data_release(void *data)
{
    tx_question_data *d = data;
    for (int64_t i = 0; i < d->questions; i++)
        free_question(&d->question[i]);
    tx_text_samples_free(&d->texts);
    free(d->question);
    free(d->offset);
    free(d->label);
    free(d);
}

tx_status tx_question_data_read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    reading r = {.from = {.path = path, .options = options}, .data = samples->own};
    const tx_status status = tx_reader_run(&r.from, read_all);
    tx_aligner_free(r.aligner);
    free(r.ask.id);
    free(r.text.id);
    free(r.offset);
    tx_text_samples_finish(&r.data->texts, samples);
    return status;
}
