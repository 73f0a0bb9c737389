/* SPDX-License-Identifier: Apache-2.0
 * Files of texts with labels: columns, labels, tokens. */
#include "models/task/sequence.h"

#include "models/arch/labels.h"
#include "models/files/digest.h"
#include "models/text/hash.h"
#include "models/text/table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a file is read with. */
typedef struct reading {
    const tx_sequence_task *task;
    const tx_data_options *options;
    tx_table table;
    int32_t first, second, label; /* columns; -1: none */
    int64_t begin, end;           /* rows that are used */
    tx_encoder *encoder;
    tx_ids texts[2]; /* of one sample */
} reading;

/* ---- Columns ------------------------------------------------------------------------------------------- */

static tx_status find_texts(reading *r)
{
    static const char *const usual[][2] = {{"sentence1", "sentence2"}, {"sentence", NULL}};
    const char *wanted[3][2] = {{r->task->first, r->task->second}};
    memcpy(wanted + 1, usual, sizeof usual);
    for (int i = 0; i < 3; i++) {
        r->first = wanted[i][0] ? tx_table_column(&r->table, wanted[i][0]) : -1;
        r->second = wanted[i][1] ? tx_table_column(&r->table, wanted[i][1]) : -1;
        if (r->first >= 0 && (r->second >= 0 || i != 0 || !wanted[i][1]))
            return TX_OK;
    }
    return tx_fail(TX_FORMAT, "the first row names no column %s, or sentence1 and sentence2, or sentence",
                   r->task->first ? r->task->first : "sentence");
}

static tx_status find_columns(reading *r)
{
    const tx_data_options *o = r->options;
    TX_TRY(find_texts(r));
    r->label = o->split == TX_DATA_TEST ? -1 : tx_table_column(&r->table, "label");
    if (r->label < 0 && o->split != TX_DATA_TEST)
        return tx_fail(TX_FORMAT, "there is no column label");
    r->begin = (int64_t)rint((double)r->table.rows * o->from / 100.0);
    r->end = (int64_t)rint((double)r->table.rows * o->to / 100.0);
    if (o->most && r->end - r->begin > o->most)
        r->end = r->begin + o->most;
    return r->begin < r->end ? TX_OK : tx_fail(TX_INVALID, "the part that is asked for has no rows");
}

/* ---- Labels --------------------------------------------------------------------------------------------- */

static bool read_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

static bool read_whole(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0' && !errno;
}

/* Whole numbers by their value, before all others by their bytes. */
static int by_label(const void *left, const void *right)
{
    const char *a = *(const char *const *)left, *b = *(const char *const *)right;
    int64_t x, y;
    const bool whole_a = read_whole(a, &x), whole_b = read_whole(b, &y);
    if (whole_a && whole_b && x != y)
        return x < y ? -1 : 1;
    return whole_a != whole_b ? whole_b - whole_a : strcmp(a, b);
}

static const char *label_at(const reading *r, int64_t row)
{
    size_t size;
    return tx_table_text(&r->table, row, r->label, &size);
}

/* Whether all labels are numbers, and some have a fraction or an exponent. */
static bool are_numbers(const reading *r)
{
    bool broken = false;
    for (int64_t i = r->begin; i < r->end; i++) {
        double number;
        int64_t whole;
        if (!read_number(label_at(r, i), &number))
            return false;
        broken = broken || !read_whole(label_at(r, i), &whole);
    }
    return broken;
}

static bool has_labels(const tx_config *config, const char *const *names, int64_t count)
{
    bool same = config->labels == count;
    for (int64_t i = 0; i < count && same; i++) {
        const char *name = tx_label_name(config, i);
        same = name && strcmp(name, names[i]) == 0;
    }
    return same;
}

/* The place of a label among the model's: by its name, else by its number; -1: it is none. */
static int64_t find_label(const tx_config *config, const char *text)
{
    int64_t number;
    for (int64_t i = 0; i < config->labels; i++) {
        const char *name = tx_label_name(config, i);
        if (name && strcmp(name, text) == 0)
            return i;
    }
    return read_whole(text, &number) && number >= 0 && number < config->labels ? number : -1;
}

/* Whether the model has names of its own for all labels of the data. */
static bool knows_labels(const reading *r)
{
    const tx_config *config = r->options->config;
    bool knows = !config->new_head && tx_label_name(config, 0);
    for (int64_t i = r->begin; i < r->end && knows; i++)
        knows = find_label(config, label_at(r, i)) >= 0;
    return knows;
}

/* The distinct labels of the data in their order become the model's. */
static tx_status take_labels(const reading *r)
{
    const size_t rows = (size_t)(r->end - r->begin);
    const char **names = malloc(rows * sizeof *names);
    int64_t count = 0;
    if (!names)
        return tx_fail(TX_MEMORY, "no memory for %zu labels", rows);
    for (size_t i = 0; i < rows; i++)
        names[i] = label_at(r, r->begin + (int64_t)i);
    qsort(names, rows, sizeof *names, by_label);
    for (size_t i = 0; i < rows; i++)
        if (count == 0 || strcmp(names[i], names[count - 1]) != 0)
            names[count++] = names[i];
    tx_status status = count < 2 || count > TX_LABELS_MOST
                           ? tx_fail(TX_FORMAT, "%" PRId64 " different labels are not 2 to %d", count, TX_LABELS_MOST)
                       : has_labels(r->options->config, names, count) ? TX_OK
                                                                      : tx_labels_set(r->options->config, names, count);
    free(names);
    return status;
}

/* The labels of the model: those of the task, else, where it is trained, those of the data. */
static tx_status settle_labels(const reading *r)
{
    tx_config *config = r->options->config;
    const tx_sequence_task *t = r->task;
    const bool trains = r->options->split == TX_DATA_TRAIN;
    const bool numbers = t->labels ? !t->labels[0] : trains && are_numbers(r);
    if (t->labels && !trains && config->labels != t->label_count)
        return tx_fail(TX_INVALID, "%s has %" PRId64 " labels, the model %" PRId64, t->task.name, t->label_count,
                       config->labels);
    if (numbers)
        return config->labels == 1 ? TX_OK : tx_labels_set(config, NULL, 1);
    if (t->labels)
        return has_labels(config, t->labels, t->label_count) ? TX_OK : tx_labels_set(config, t->labels, t->label_count);
    return !trains || knows_labels(r) ? TX_OK : take_labels(r);
}

/* The label of a row, and its number. */
static tx_status read_label(const reading *r, int64_t row, int32_t *label, float *target)
{
    const tx_config *config = r->options->config;
    const char *text = r->label < 0 ? NULL : label_at(r, row);
    double number = 0.0;
    *label = TX_IGNORE_LABEL;
    *target = 0.0f;
    if (!text)
        return TX_OK;
    if (config->labels == 1 && !read_number(text, &number))
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is no number", text);
    *label = config->labels == 1 ? 0 : (int32_t)find_label(config, text);
    *target = (float)number;
    return *label >= 0 ? TX_OK
                       : tx_fail(TX_FORMAT, "label: \"%.40s\" is none of the model's %" PRId64, text, config->labels);
}

/* ---- Tokens ----------------------------------------------------------------------------------------------- */

/* Cuts texts so that no more than `most` tokens are left: from the longer one until both are as long, then from both
 * (transformers' longest_first). */
static void cut(tx_ids *first, tx_ids *second, size_t most)
{
    tx_ids *less = first->count <= second->count ? first : second, *more = less == first ? second : first;
    if (less->count + more->count <= most)
        return;
    const size_t half = most / 2, rest = less->count < most ? most - less->count : 0;
    if (less->count > half) {
        less->count = half;
        more->count = half + most % 2;
    } else {
        more->count = rest;
    }
}

static tx_status encode(reading *r, int64_t row, int32_t column, tx_ids *ids)
{
    size_t size;
    const char *text = tx_table_text(&r->table, row, column, &size);
    ids->count = 0;
    return tx_encoder_run(r->encoder, text, size, true, ids);
}

/* Adds a sample of the row to the data. `special`: tokens that the tokenizer adds. */
static tx_status add_sample(reading *r, int64_t row, size_t special, tx_sequence_data *d)
{
    const tx_data_options *o = r->options;
    TX_TRY(encode(r, row, r->first, &r->texts[0]));
    r->texts[1].count = 0;
    if (r->second >= 0)
        TX_TRY(encode(r, row, r->second, &r->texts[1]));
    cut(&r->texts[0], &r->texts[1], (size_t)o->block - special);
    TX_TRY(tx_tokenizer_join(o->tokenizer, &r->texts[0], r->second < 0 ? NULL : &r->texts[1], &d->ids, &d->types));
    d->end[d->count] = (int64_t)d->ids.count;
    const int64_t begin = d->count ? d->end[d->count - 1] : 0;
    if (begin == d->end[d->count])
        return tx_fail(TX_FORMAT, "a text without tokens");
    for (int64_t i = begin; i < d->end[d->count]; i++)
        if (d->ids.id[i] >= o->config->vocab_size)
            return tx_fail(TX_INVALID, "the tokenizer's id %" PRId32 " is not in the model's vocabulary of %" PRId64,
                           d->ids.id[i], o->config->vocab_size);
    TX_TRY(read_label(r, row, &d->label[d->count], &d->target[d->count]));
    d->count++;
    return TX_OK;
}

/* Tokens that the tokenizer puts around one text, or two. */
static tx_status count_special(const reading *r, size_t *special)
{
    const tx_ids none = {0};
    tx_ids ids = {0}, types = {0};
    tx_status status = tx_tokenizer_join(r->options->tokenizer, &none, r->second < 0 ? NULL : &none, &ids, &types);
    *special = ids.count;
    free(ids.id);
    free(types.id);
    if (!status && *special >= (size_t)r->options->block)
        status = tx_fail(TX_INVALID, "max_seq_length %" PRId64 " leaves no room beside %zu special tokens",
                         r->options->block, *special);
    return status;
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
    tx_digest_add(digest, d->target, count * sizeof *d->target);
    tx_digest_add(digest, &config->labels, sizeof config->labels);
    return tx_digest_finish(digest, text);
}

static tx_status read_samples(reading *r, tx_sequence_data *d)
{
    const size_t rows = (size_t)(r->end - r->begin);
    size_t special = 0;
    d->end = malloc(rows * sizeof *d->end);
    d->label = malloc(rows * sizeof *d->label);
    d->target = malloc(rows * sizeof *d->target);
    if (!d->end || !d->label || !d->target)
        return tx_fail(TX_MEMORY, "no memory for %zu samples", rows);
    TX_TRY(count_special(r, &special));
    for (int64_t row = r->begin; row < r->end; row++)
        TX_TRY(tx_fail_in(add_sample(r, row, special, d), "row %" PRId64, row + 1));
    return write_digest(d, r->options->config, d->digest);
}

static tx_status read_all(reading *r, tx_sequence_data *d)
{
    TX_TRY(find_columns(r));
    TX_TRY(settle_labels(r));
    TX_TRY(tx_encoder_create(r->options->tokenizer, &r->encoder));
    return read_samples(r, d);
}

static void free_data(tx_sequence_data *d)
{
    free(d->ids.id);
    free(d->types.id);
    free(d->end);
    free(d->label);
    free(d->target);
    free(d);
}

tx_status tx_sequence_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples)
{
    reading r = {.task = (const tx_sequence_task *)task, .options = options};
    tx_sequence_data *d = calloc(1, sizeof *d);
    if (!options->tokenizer || !d) {
        free(d);
        return options->tokenizer ? tx_fail(TX_MEMORY, "%s: out of memory", path)
                                  : tx_fail(TX_NOT_FOUND, "%s: which tokenizer? Give --tokenizer_name", path);
    }
    tx_status status = tx_table_open(path, &r.table);
    if (!status)
        status = tx_fail_in(read_all(&r, d), "%s", path);
    tx_table_close(&r.table);
    tx_encoder_free(r.encoder);
    free(r.texts[0].id);
    free(r.texts[1].id);
    if (status) {
        free_data(d);
        return status;
    }
    const tx_sequence_task *any = options->config->labels == 1 ? &tx_sequence_regression : &tx_sequence_classification;
    *samples = (tx_samples){.task = r.task->labels ? task : &any->task,
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
