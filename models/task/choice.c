/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple choice, as run_swag.py of transformers trains it: a sample is a context with several endings, of which one
 * is right. A row has a sequence for each ending; labels [rows] are the numbers of the right endings.
 *
 * Columns are sent1, sent2 and ending0, ending1, ..; and label, 0 for ending0. The first text of a pair is sent1, the
 * second is sent2 and an ending. Opened data have a task of their own, with as many sequences as there are endings. */
#include "models/task/reader.h"
#include "models/task/sequence.h"
#include "models/task/tasks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LABELS = TX_TEXTS_OWN };

typedef struct choices {
    tx_text_samples texts;
    int32_t *label; /* [count]; TX_IGNORE_LABEL in test data */
    tx_own_task own;
} choices;

/* ---- Reading ------------------------------------------------------------------------------------------- */

typedef struct reading {
    tx_reader from;
    choices *data;
    int32_t first, second, choice[TX_TEXTS_MOST], label; /* columns; the last is -1 in test data */
    tx_buffer text;                                      /* of sent2 and an ending */
} reading;

static tx_status find_columns(reading *r)
{
    static const char *const labels[] = {"label", NULL};
    const tx_rows *t = r->from.rows;
    tx_text_samples *s = &r->data->texts;
    char name[32] = "ending0";
    r->first = tx_rows_column(t, "sent1");
    r->second = tx_rows_column(t, "sent2");
    while (s->per_sample < TX_TEXTS_MOST && (r->choice[s->per_sample] = tx_rows_column(t, name)) >= 0)
        snprintf(name, sizeof name, "ending%" PRId64, ++s->per_sample);
    if (r->first < 0 || s->per_sample < 2)
        return tx_rows_fail_column(t, r->first < 0 ? "sent1" : s->per_sample ? "ending1" : "ending0", NULL);
    return tx_reader_find_label(&r->from, labels, "label", &r->label);
}

/* Without a label it is TX_IGNORE_LABEL. */
static tx_status read_label(const reading *r, int64_t endings, int32_t *label)
{
    size_t size;
    int64_t value = -1;
    *label = TX_IGNORE_LABEL;
    if (r->label < 0)
        return TX_OK;
    const char *text = tx_rows_text(r->from.rows, r->label, &size);
    if (tx_label_is_none(text))
        return TX_OK;
    if (!tx_label_whole(text, &value) || value < 0 || value >= endings)
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is not from 0 to %" PRId64, text, endings - 1);
    *label = (int32_t)value;
    return TX_OK;
}

static tx_status add_row(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_text_samples *s = &r->data->texts;
    size_t first_size, second_size = 0, size;
    const char *first = tx_rows_text(from->rows, r->first, &first_size);
    const char *second = r->second < 0 ? "" : tx_rows_text(from->rows, r->second, &second_size);
    TX_TRY(read_label(r, s->per_sample, &r->data->label[s->count]));
    if (r->label >= 0 && r->data->label[s->count] == TX_IGNORE_LABEL) {
        from->unlabelled++;
        return TX_OK;
    }
    for (int64_t i = 0; i < s->per_sample; i++) {
        const char *choice = tx_rows_text(from->rows, r->choice[i], &size);
        tx_buffer_clear(&r->text);
        tx_buffer_add(&r->text, second, second_size);
        tx_buffer_add(&r->text, " ", r->second >= 0);
        tx_buffer_add(&r->text, choice, size);
        TX_TRY(r->text.status);
        TX_TRY(tx_text_samples_add(s, i, &from->joiner, first, first_size, r->text.data ? r->text.data : "",
                                   r->text.size, from->options->block));
    }
    return tx_text_samples_keep(s, from->options);
}

static tx_status read_all(tx_reader *from)
{
    reading *r = (reading *)from;
    choices *d = r->data;
    const int64_t rows = from->end - from->begin;
    TX_TRY(find_columns(r));
    tx_text_samples_begin(&d->texts, from->options);
    d->label = malloc((size_t)rows * sizeof *d->label);
    if (!d->label)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " rows", rows);
    TX_TRY(tx_reader_rows(from, add_row));
    if (!d->texts.count)
        return tx_fail(TX_FORMAT, "no row has endings");
    return tx_text_samples_digest(&d->texts, d->label, (size_t)d->texts.count * sizeof *d->label);
}

static void release(void *data)
{
    choices *d = data;
    tx_text_samples_free(&d->texts);
    free(d->label);
    free(d);
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    choices *d = samples->own;
    reading r = {.from = {.path = path, .options = options}, .data = d};
    const tx_status status = tx_reader_run(&r.from, read_all);
    free(r.text.data);
    tx_text_samples_finish(&d->texts, samples);
    tx_text_samples_task(&d->texts, samples, TX_TEXTS_OWN, &d->own);
    return status;
}

/* ---- The task ------------------------------------------------------------------------------------------ */

static const tx_field fields[] = {
    TX_TEXTS_FIELDS,
    [LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const choices *d = samples->data;
    TX_TRY(tx_text_samples_row(&d->texts, number, samples->block, to));
    *(int32_t *)to->field[LABELS] = d->label[number];
    return TX_OK;
}

/* The cross-entropy of the endings' numbers. */
static tx_tensor *loss(const tx_loss_operands *of, tx_tensor **rows)
{
    tx_tensor *labels = tx_find_input(of->graph, "labels");
    if (!of->output)
        return NULL;
    const int64_t count = tx_tensor_shape(labels)->dim[0];
    const int64_t endings = tx_shape_count(tx_tensor_shape(of->output)) / count;
    *rows = tx_reshape(of->output, TX_SHAPE(count, endings));
    return tx_mean_loss(tx_cross_entropy_smoothed(*rows, labels, endings, (float)of->set->smoothing));
}

static tx_status measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    const choices *d = samples->data;
    int64_t right = 0;
    for (int64_t r = 0; r < samples->count; r++)
        right += tx_task_best(outputs + r * columns, columns) == d->label[r];
    sums[TX_SUM_OWN + TX_ACCURACY] = (double)right / (double)samples->count;
    return TX_OK;
}

static tx_status predict(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                         tx_file *file)
{
    const choices *d = samples->data;
    char text[TX_PREDICTION];
    (void)number;
    (void)config;
    return tx_file_append(file, text,
                          (size_t)snprintf(text, sizeof text, "%" PRId64, tx_task_best(output, d->texts.per_sample)));
}

const tx_task tx_multiple_choice = {
    .name = "multiple choice",
    .head = TX_HEAD_MULTIPLE_CHOICE,
    .of_texts = true,
    .data_size = sizeof(choices),
    .read = read,
    .release = release,
    .fields = fields,
    .row = row,
    .length = tx_text_samples_longest,
    .loss = loss,
    .measure = measure,
    .predict = predict,
    .metrics = tx_metrics_ACCURACY,
};
