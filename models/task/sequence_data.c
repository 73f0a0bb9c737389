/* SPDX-License-Identifier: Apache-2.0
 * Reads files of texts with labels: columns, rows, tokens. */
#include "models/task/sequence.h"

#include "models/arch/labels.h"
#include "models/files/digest.h"
#include "models/text/hash.h"
#include "models/text/joined.h"
#include "models/text/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of reading a file. */
typedef struct reading {
    const tx_sequence_task *task;
    const tx_data_options *options;
    tx_table table;
    int32_t first, second, label; /* columns; -1 if there is none */
    int64_t begin, end;           /* range of rows to use */
    int64_t count, *row;          /* rows in use */
    const char **label_text;      /* [count] */
    tx_label_lists lists;         /* instead of label_text, if rows have lists of labels */
    tx_label_index labels;
    tx_joiner joiner;
} reading;

/* ---- Columns ------------------------------------------------------------------------------------------- */

/* Refuses a file that lacks a column; the message lists the columns that it has. */
static tx_status fail_column(const reading *r, const char *name, const char *option)
{
    return tx_table_fail_column(&r->table, name, option);
}

static tx_status find_texts(reading *r)
{
    static const char *const usual[][2] = {{"sentence1", "sentence2"}, {"sentence", NULL}, {"text", NULL}};
    const char *wanted[4][2] = {{r->task->first, r->task->second}};
    memcpy(wanted + 1, usual, sizeof usual);
    for (int i = 0; i < 4; i++) {
        r->first = wanted[i][0] ? tx_table_column(&r->table, wanted[i][0]) : -1;
        r->second = wanted[i][1] ? tx_table_column(&r->table, wanted[i][1]) : -1;
        if (r->first >= 0 && (r->second >= 0 || i != 0 || !wanted[i][1]))
            return TX_OK;
    }
    return fail_column(r, r->task->first ? r->task->first : "sentence, or sentence1 and sentence2, or text",
                       "text_column_name");
}

static tx_status find_columns(reading *r)
{
    const tx_data_options *o = r->options;
    TX_TRY(find_texts(r));
    r->label = o->split == TX_DATA_TEST ? -1 : tx_table_column(&r->table, "label");
    if (r->label < 0 && o->split != TX_DATA_TEST)
        return fail_column(r, "label", "label_column_name");
    return tx_task_choose_range(o, r->table.rows, "rows", &r->begin, &r->end);
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* Whether labels are lists: as in the first row that has one if the run trains, else as in the model. */
static tx_status find_form(reading *r)
{
    const tx_data_options *o = r->options;
    if (r->label < 0 || r->task->labels)
        return TX_OK;
    const char *text = NULL;
    size_t size = 0;
    for (int64_t row = r->begin; row < r->end && !(text && *text); row++)
        text = tx_table_text(&r->table, row, r->label, &size);
    if (o->split == TX_DATA_TRAIN)
        return tx_labels_set_several(o->config, text && *text == '[');
    return TX_OK;
}

/* True for multi-label classification and regressions of several values. The tasks of GLUE have one label. */
static bool is_several(const reading *r)
{
    const tx_config *config = r->options->config;
    return (config->several_labels || config->several_numbers) && !r->task->labels;
}

/* Checks the label of a row, and keeps it. */
static tx_status take_label(reading *r, const char *text, size_t size)
{
    if (r->label < 0)
        return TX_OK;
    if (is_several(r))
        return tx_label_lists_add(&r->lists, text, size);
    r->label_text[r->count] = text;
    return tx_label_check(text, size);
}

/* Finds the valid rows and the texts of their labels. */
static tx_status choose_rows(reading *r)
{
    const size_t most = (size_t)(r->end - r->begin);
    r->row = malloc(most * sizeof *r->row);
    r->label_text = malloc(most * sizeof *r->label_text);
    if (!r->row || !r->label_text)
        return tx_fail(TX_MEMORY, "no memory for %zu rows", most);
    for (int64_t row = r->begin; row < r->end; row++) {
        size_t size = 0;
        const char *text = tx_table_text(&r->table, row, r->label < 0 ? r->first : r->label, &size);
        if (!text) /* the table skipped the row */
            continue;
        const tx_status status = take_label(r, text, size);
        if (status) {
            TX_TRY(tx_table_skip(&r->table, row, status));
            continue;
        }
        r->row[r->count++] = row;
    }
    return r->count ? TX_OK : tx_fail(TX_FORMAT, "no row has a label");
}

/* ---- Tokens ----------------------------------------------------------------------------------------------- */

/* Adds the texts of a row to the data, which have its label already. */
static tx_status add_sample(reading *r, int64_t row, tx_sequence_data *d)
{
    const tx_data_options *o = r->options;
    size_t size, second_size = 0;
    const char *first = tx_table_text(&r->table, row, r->first, &size);
    const char *second = r->second < 0 ? NULL : tx_table_text(&r->table, row, r->second, &second_size);
    TX_TRY(tx_joiner_add(&r->joiner, first, size, second, second_size, o->block, &d->ids, &d->types));
    d->end[d->count] = (int64_t)d->ids.count;
    const int64_t begin = tx_sample_begin(d->end, d->count);
    if (begin == d->end[d->count])
        return tx_fail(TX_FORMAT, "the text has no tokens");
    TX_TRY(tx_task_check_ids(o, d->ids.id + begin, d->ids.count - (size_t)begin));
    d->count++;
    return TX_OK;
}

static tx_status write_digest(const tx_sequence_data *d, const tx_config *config, char text[TX_DIGEST_TEXT])
{
    const size_t count = (size_t)d->count;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, d->ids.id, d->ids.count * sizeof *d->ids.id);
    tx_digest_add(digest, d->types.id, d->types.count * sizeof *d->types.id);
    tx_digest_add(digest, d->end, count * sizeof *d->end);
    tx_digest_add(digest, d->label, count * sizeof *d->label);
    tx_digest_add(digest, d->target, count * (size_t)d->values * sizeof *d->target);
    tx_digest_add(digest, d->several.id, d->several.count * sizeof *d->several.id);
    if (d->several_end)
        tx_digest_add(digest, d->several_end, count * sizeof *d->several_end);
    tx_digest_add(digest, &config->labels, sizeof config->labels);
    if (d->pad >= 0)
        tx_digest_add(digest, &d->pad, sizeof d->pad);
    return tx_digest_finish(digest, text);
}

/* Adds the numbers in the list of a row to the data of the next sample. */
static tx_status read_numbers(const reading *r, int64_t number, tx_sequence_data *d)
{
    const size_t begin = tx_label_lists_begin(&r->lists, number), count = r->lists.end[number] - begin;
    if ((int64_t)count != d->values)
        return tx_fail(TX_FORMAT, "the row has %zu numbers, not %" PRId64, count, d->values);
    for (size_t i = 0; i < count; i++)
        TX_TRY(tx_label_read(r->options->config, &r->labels, r->lists.label[begin + i], &d->label[d->count],
                             &d->target[d->count * d->values + (int64_t)i]));
    return TX_OK;
}

/* Adds the labels in the list of a row to the data of the next sample. */
static tx_status read_several(const reading *r, int64_t number, tx_sequence_data *d)
{
    const size_t before = d->several.count, begin = tx_label_lists_begin(&r->lists, number);
    const size_t count = r->lists.end[number] - begin;
    tx_status status = tx_ids_reserve(&d->several, count);
    for (size_t i = 0; i < count && !status; i++) {
        float target;
        status = tx_label_read(r->options->config, &r->labels, r->lists.label[begin + i],
                               d->several.id + d->several.count++, &target);
    }
    if (status)
        d->several.count = before;
    d->several_end[d->count] = (int64_t)d->several.count;
    return status;
}

static tx_status read_samples(reading *r, tx_sequence_data *d)
{
    const size_t rows = (size_t)r->count;
    if (is_several(r) && r->label >= 0)
        d->several_end = malloc(rows * sizeof *d->several_end);
    d->end = malloc(rows * sizeof *d->end);
    d->label = malloc(rows * sizeof *d->label);
    d->values = r->options->config->several_numbers ? r->options->config->labels : 1;
    d->target = calloc(rows * (size_t)d->values, sizeof *d->target);
    if (!d->end || !d->label || !d->target || (is_several(r) && r->label >= 0 && !d->several_end))
        return tx_fail(TX_MEMORY, "no memory for %zu samples", rows);
    TX_TRY(tx_joiner_check(&r->joiner, r->second >= 0, r->options->block));
    for (int64_t i = 0; i < r->count; i++) {
        int32_t *label = &d->label[d->count];
        float *target = &d->target[d->count * d->values];
        *label = TX_IGNORE_LABEL;
        const tx_status status = r->label < 0    ? TX_OK
                                 : d->values > 1 ? read_numbers(r, i, d)
                                 : is_several(r)
                                     ? read_several(r, i, d)
                                     : tx_label_read(r->options->config, &r->labels, r->label_text[i], label, target);
        TX_TRY(status ? tx_table_skip(&r->table, r->row[i], status)
                      : tx_fail_in(add_sample(r, r->row[i], d), "row %" PRId64, r->row[i] + 1));
    }
    return d->count ? write_digest(d, r->options->config, d->digest) : tx_fail(TX_FORMAT, "no row has a label");
}

static void report_bad(const reading *r, const char *path)
{
    const tx_table *t = &r->table;
    if (t->bad)
        tx_reporter_print(&r->options->report,
                          "%.800s: %" PRId64 " malformed or unlabelled %s skipped, the first is row %" PRId64, path,
                          t->bad, t->bad == 1 ? "row is" : "rows are", t->first_bad);
}

static tx_status read_all(reading *r, tx_sequence_data *d)
{
    TX_TRY(find_columns(r));
    TX_TRY(find_form(r));
    TX_TRY(choose_rows(r));
    if (r->label >= 0 && is_several(r))
        TX_TRY(tx_label_lists_index(&r->lists));
    const int64_t values = r->options->split == TX_DATA_TRAIN && is_several(r) ? tx_label_lists_numbers(&r->lists) : 0;
    if (values) {
        r->options->config->several_labels = false;
        TX_TRY(tx_labels_set(r->options->config, NULL, values));
    }
    if (r->label >= 0 && !r->options->config->several_numbers)
        TX_TRY(tx_labels_resolve(r->task, r->options, is_several(r) ? r->lists.label : r->label_text,
                                 is_several(r) ? (int64_t)r->lists.count : r->count, &r->labels));
    if (is_several(r) && r->options->config->labels < 2)
        return tx_fail(TX_INVALID, "lists of labels need a model with two labels or more");
    TX_TRY(tx_task_pad(r->options, &d->pad));
    TX_TRY(tx_joiner_open(r->options->tokenizer, &r->joiner));
    return read_samples(r, d);
}

static void free_data(tx_sequence_data *d)
{
    free(d->ids.id);
    free(d->types.id);
    free(d->end);
    free(d->label);
    free(d->target);
    free(d->several.id);
    free(d->several_end);
    free(d);
}

tx_status tx_sequence_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples)
{
    reading r = {.task = (const tx_sequence_task *)task, .options = options, .lists = {.numbers = true}};
    TX_TRY(tx_task_need_tokenizer(path, options));
    tx_sequence_data *d = calloc(1, sizeof *d);
    if (!d)
        return tx_fail(TX_MEMORY, "%s: out of memory", path);
    tx_status status = tx_table_open(path, options->set->skip_bad, &r.table);
    TX_THEN(status, tx_fail_in(read_all(&r, d), "%s", path));
    if (!status)
        report_bad(&r, path);
    tx_table_close(&r.table);
    tx_label_index_free(&r.labels);
    free(r.row);
    free(r.label_text);
    tx_label_lists_free(&r.lists);
    tx_joiner_close(&r.joiner);
    if (status) {
        free_data(d);
        return status;
    }
    const tx_sequence_task *any = options->config->labels == 1 ? &tx_sequence_regression : &tx_sequence_classification;
    if (d->values > 1)
        tx_several_numbers_task(d, d->values);
    else if (is_several(&r))
        tx_multi_label_task(d, &tx_sequence_classification.task, options->config->labels);
    *samples = (tx_samples){.task = r.task->labels   ? task
                                    : is_several(&r) ? &d->own.task
                                                     : &any->task,
                            .data = d,
                            .count = d->count,
                            .block = options->block,
                            .tokens = (int64_t)d->ids.count,
                            .digest = d->digest};
    return TX_OK;
}

void tx_sequence_close(const tx_samples *samples)
{
    free_data((void *)(uintptr_t)samples->data);
}
