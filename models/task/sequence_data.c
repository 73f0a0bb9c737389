/* SPDX-License-Identifier: Apache-2.0
 * Reads files of texts with labels: columns, rows, tokens. */
#include "models/task/sequence.h"

#include "models/task/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The state of reading a file. */
typedef struct reading {
    tx_reader from;
    const tx_sequence_task *task;
    tx_sequence_data *data;
    int32_t first, second, label; /* columns; -1 if there is none */
    bool lists, unlabelled;       /* labels are lists; the current row has none */
    tx_label_list list;           /* labels of the current row */
    tx_label_set set;             /* labels of all rows */
    tx_label_index index;
} reading;

/* ---- Columns ------------------------------------------------------------------------------------------- */

static tx_status find_texts(reading *r)
{
    static const char *const usual[][2] = {{"sentence1", "sentence2"}, {"sentence", NULL}, {"text", NULL}};
    const tx_rows *t = r->from.rows;
    const char *wanted[4][2] = {{r->task->first, r->task->second}};
    memcpy(wanted + 1, usual, sizeof usual);
    for (int i = 0; i < 4; i++) {
        r->first = wanted[i][0] ? tx_rows_column(t, wanted[i][0]) : -1;
        r->second = wanted[i][1] ? tx_rows_column(t, wanted[i][1]) : -1;
        if (r->first >= 0 && (r->second >= 0 || i != 0 || !wanted[i][1]))
            return TX_OK;
    }
    return tx_rows_fail_column(t, r->task->first ? r->task->first : "sentence, or sentence1 and sentence2, or text",
                               "text_column_name");
}

static tx_status find_columns(reading *r)
{
    static const char *const labels[] = {"label", NULL};
    TX_TRY(find_texts(r));
    return tx_reader_find_label(&r->from, labels, "label", &r->label);
}

/* ---- Labels ---------------------------------------------------------------------------------------------- */

/* Whether labels are lists, as in the first row that has one. */
static tx_status find_form(tx_reader *from)
{
    reading *r = (reading *)from;
    size_t size;
    const char *text = tx_rows_text(from->rows, r->label, &size);
    from->enough = *text && !tx_label_is_none(text);
    r->lists = r->set.lists = *text == '[';
    return TX_OK;
}

/* Reads the labels of the current row into `list`. */
static tx_status read_labels(reading *r)
{
    size_t size;
    const char *text = tx_rows_text(r->from.rows, r->label, &size);
    r->unlabelled = r->lists && tx_label_is_none(text);
    if (r->unlabelled)
        return TX_OK;
    return r->lists ? tx_label_list_read(&r->list, tx_rows_value(r->from.rows, r->label, TX_JSON_ARRAY), text)
                    : tx_label_list_of(&r->list, text, size);
}

static tx_status collect_labels(tx_reader *from)
{
    reading *r = (reading *)from;
    TX_TRY(read_labels(r));
    return r->unlabelled ? TX_OK : tx_label_set_add(&r->set, &r->list);
}

/* Sets the model's labels if the run trains, else checks them. */
static tx_status resolve_labels(reading *r)
{
    if (r->label < 0)
        return TX_OK;
    TX_TRY(tx_reader_rows(&r->from, collect_labels));
    if (!r->set.rows)
        return tx_fail(TX_FORMAT, "no row has a label");
    return tx_labels_resolve(r->task, r->from.options, &r->set, &r->index);
}

/* ---- Samples ---------------------------------------------------------------------------------------------- */

static tx_status write_digest(tx_sequence_data *d, const tx_config *config)
{
    tx_text_samples *s = &d->texts;
    const size_t count = (size_t)s->count;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&s->ids, digest));
    tx_digest_fail(digest, tx_store_digest(&s->types, digest));
    tx_digest_add(digest, s->end, count * sizeof *s->end);
    tx_digest_add(digest, d->label, count * sizeof *d->label);
    tx_digest_add(digest, d->target, count * (size_t)d->values * sizeof *d->target);
    tx_digest_add(digest, d->labels.id, d->labels.count * sizeof *d->labels.id);
    if (d->labels_end)
        tx_digest_add(digest, d->labels_end, count * sizeof *d->labels_end);
    tx_digest_add(digest, &config->labels, sizeof config->labels);
    if (d->pad >= 0)
        tx_digest_add(digest, &d->pad, sizeof d->pad);
    return tx_digest_finish(digest, s->digest);
}

/* Adds the numbers of a row to the data of the next sample. */
static tx_status add_numbers(const reading *r, tx_sequence_data *d)
{
    const int64_t number = d->texts.count, count = (int64_t)r->list.count;
    if (count != d->values)
        return tx_fail(TX_FORMAT, "label: the row has %" PRId64 " numbers, not %" PRId64, count, d->values);
    for (int64_t i = 0; i < count; i++)
        TX_TRY(tx_label_read(&r->index, r->list.label[i], &d->label[number], &d->target[number * d->values + i]));
    return TX_OK;
}

/* Reads item `i` of a vector of 0 and 1, whose label is `i`, or none if it is 0. */
static tx_status read_place(const reading *r, size_t i, int32_t *label)
{
    const int64_t labels = r->from.options->config->labels;
    int64_t value = -1;
    if ((int64_t)r->list.count != labels || !tx_label_whole(r->list.label[i], &value) || value < 0 || value > 1)
        return tx_fail(TX_FORMAT, "label: expected a vector of %" PRId64 " values of 0 or 1, one for each label",
                       labels);
    *label = value ? (int32_t)i : TX_IGNORE_LABEL;
    return TX_OK;
}

/* Adds the labels in the list of a row to the data of the next sample. */
static tx_status add_labels_of_list(const reading *r, tx_sequence_data *d)
{
    const int64_t number = d->texts.count;
    const bool vector = r->from.options->config->label_form == TX_LABELS_VECTORS;
    tx_ids *labels = &d->labels;
    labels->count = (size_t)tx_sample_begin(d->labels_end, number); /* without those of a row that was skipped */
    TX_TRY(tx_ids_reserve(labels, r->list.count));
    for (size_t i = 0; i < r->list.count; i++) {
        float target;
        int32_t label;
        TX_TRY(vector ? read_place(r, i, &label) : tx_label_read(&r->index, r->list.label[i], &label, &target));
        for (size_t k = (size_t)tx_sample_begin(d->labels_end, number); k < labels->count && !vector; k++)
            if (labels->id[k] == label)
                return tx_fail(TX_FORMAT, "label: the list has \"%.40s\" twice", r->list.label[i]);
        if (label != TX_IGNORE_LABEL)
            labels->id[labels->count++] = label;
    }
    d->labels_end[number] = (int64_t)labels->count;
    return TX_OK;
}

static tx_status add_labels(reading *r, tx_sequence_data *d)
{
    const int64_t number = d->texts.count;
    d->label[number] = TX_IGNORE_LABEL;
    if (r->label < 0)
        return TX_OK;
    TX_TRY(read_labels(r));
    if (r->unlabelled)
        return TX_OK;
    if (r->from.options->config->problem == TX_PROBLEM_NUMBERS)
        return add_numbers(r, d);
    if (d->labels_end)
        return add_labels_of_list(r, d);
    TX_TRY(tx_label_read(&r->index, r->list.label[0], &d->label[number], &d->target[number]));
    r->unlabelled = d->label[number] == TX_IGNORE_LABEL;
    return TX_OK;
}

static tx_status add_row(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_sequence_data *d = r->data;
    size_t size, second_size = 0;
    const char *first = tx_rows_text(from->rows, r->first, &size);
    const char *second = r->second < 0 ? NULL : tx_rows_text(from->rows, r->second, &second_size);
    TX_TRY(add_labels(r, d));
    if (r->unlabelled) {
        from->unlabelled++;
        return TX_OK;
    }
    TX_TRY(tx_text_samples_add(&d->texts, 0, &from->joiner, first, size, second, second_size, from->options->block));
    return tx_text_samples_keep(&d->texts, from->options);
}

/* The tasks of GLUE have one label. */
static bool is_multi_label(const reading *r)
{
    return r->from.options->config->problem == TX_PROBLEM_MULTI_LABEL && !r->task->labels;
}

static tx_status read_all(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_sequence_data *d = r->data;
    const tx_config *config = from->options->config;
    const size_t rows = (size_t)(from->end - from->begin);
    TX_TRY(find_columns(r));
    if (r->label >= 0 && !r->task->labels) /* the tasks of GLUE have one label */
        TX_TRY(tx_reader_rows(from, find_form));
    TX_TRY(resolve_labels(r));
    TX_TRY(tx_task_pad(from->options, &d->pad));
    TX_TRY(tx_joiner_check(&from->joiner, r->second >= 0, from->options->block));
    const bool lists = is_multi_label(r) && r->label >= 0;
    d->texts.per_sample = 1;
    tx_text_samples_begin(&d->texts, from->options);
    d->values = config->problem == TX_PROBLEM_NUMBERS ? config->labels : 1;
    d->label = malloc(rows * sizeof *d->label);
    d->target = calloc(rows * (size_t)d->values, sizeof *d->target);
    d->labels_end = lists ? malloc(rows * sizeof *d->labels_end) : NULL;
    if (!d->label || !d->target || (lists && !d->labels_end))
        return tx_fail(TX_MEMORY, "no memory for %zu samples", rows);
    TX_TRY(tx_reader_rows(from, add_row));
    return d->texts.count ? write_digest(d, config) : tx_fail(TX_FORMAT, "no row has a label");
}

void tx_sequence_data_release(void *data)
{
    tx_sequence_data *d = data;
    tx_text_samples_free(&d->texts);
    free(d->label);
    free(d->target);
    free(d->labels.id);
    free(d->labels_end);
    free(d);
}

tx_status tx_sequence_data_read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    tx_sequence_data *d = samples->own;
    const tx_sequence_task *task = (const tx_sequence_task *)samples->task;
    reading r = {.from = {.path = path, .options = options}, .task = task, .data = d, .list = {.numbers = true}};
    const tx_status status = tx_reader_run(&r.from, read_all);
    tx_label_index_free(&r.index);
    tx_label_list_free(&r.list);
    tx_label_set_free(&r.set);
    tx_text_samples_finish(&d->texts, samples);
    return status;
}
