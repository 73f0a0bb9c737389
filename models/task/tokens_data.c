/* SPDX-License-Identifier: Apache-2.0
 * Reads files of words with labels: columns, rows, tokens. */
#include "models/arch/labels.h"
#include "models/data/rows.h"
#include "models/files/digest.h"
#include "models/task/sequence.h"
#include "models/task/tokens.h"
#include "models/text/joined.h"
#include "models/text/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of reading a file. */
typedef struct reading {
    const tx_data_options *options;
    tx_table table;
    int32_t words, labels; /* columns; `labels` is -1 if there is none */
    int64_t begin, end;    /* range of rows to use */
    int64_t count, *row;   /* rows in use */
    tx_label_lists lists;  /* labels of these rows */
    tx_label_index index;
    tx_joiner joiner;
    tx_ids word; /* of one sample, see tx_joined_words */
} reading;

/* ---- Columns ------------------------------------------------------------------------------------------- */

static int32_t find_one(const tx_table *table, const char *const *names)
{
    int32_t column = -1;
    for (; *names && column < 0; names++)
        column = tx_table_column(table, *names);
    return column;
}

/* --text_column_name and --label_column_name rename the columns to text and label. */
static const char *const word_columns[] = {"text", "tokens", "words", NULL};

static tx_status find_columns(reading *r)
{
    static const char *const labels[] = {"label", "ner_tags", "tags", "labels", NULL};
    r->words = find_one(&r->table, word_columns);
    r->labels = r->options->split == TX_DATA_TEST ? -1 : find_one(&r->table, labels);
    if (r->words < 0)
        return tx_table_fail_column(&r->table, "tokens or words", "text_column_name");
    if (r->labels < 0 && r->options->split != TX_DATA_TEST)
        return tx_table_fail_column(&r->table, "ner_tags or tags", "label_column_name");
    return tx_task_choose_range(r->options, r->table.rows, "rows", &r->begin, &r->end);
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* Reads a cell that is a list. The caller frees it. */
static tx_status read_list(const reading *r, int64_t row, int32_t column, tx_json **list)
{
    size_t size, name_size;
    const char *text = tx_table_text(&r->table, row, column, &size);
    const char *name = tx_table_text(&r->table, -1, column, &name_size);
    tx_json *made = NULL;
    if (*text != '[' || tx_json_parse(text, size, name, &made) || tx_json_type_of(made) != TX_JSON_ARRAY) {
        tx_json_free(made);
        return tx_fail(TX_FORMAT, "%s: \"%.40s\" is not a list of texts", name, text);
    }
    *list = made;
    return TX_OK;
}

/* Checks a row, and keeps its labels. */
static tx_status check_row(reading *r, int64_t row)
{
    tx_json *list = NULL;
    size_t size;
    TX_TRY(read_list(r, row, r->words, &list));
    const size_t words = tx_json_size(list);
    tx_json_free(list);
    if (words == 0)
        return tx_fail(TX_FORMAT, "the row has no words");
    if (r->labels < 0)
        return TX_OK;
    const char *text = tx_table_text(&r->table, row, r->labels, &size);
    TX_TRY(tx_label_lists_add(&r->lists, text, size));
    const size_t labels = r->lists.count - tx_label_lists_begin(&r->lists, r->count);
    if (labels == words)
        return TX_OK;
    tx_label_lists_drop(&r->lists);
    return tx_fail(TX_FORMAT, "the row has %zu words and %zu labels", words, labels);
}

/* Finds the valid rows and their labels. */
static tx_status choose_rows(reading *r)
{
    size_t size;
    r->row = malloc((size_t)(r->end - r->begin) * sizeof *r->row);
    if (!r->row)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " rows", r->end - r->begin);
    for (int64_t row = r->begin; row < r->end; row++) {
        if (!tx_table_text(&r->table, row, r->words, &size)) /* the table skipped the row */
            continue;
        const tx_status status = check_row(r, row);
        TX_TRY(status ? tx_table_skip(&r->table, row, status) : TX_OK);
        if (!status)
            r->row[r->count++] = row;
    }
    return r->count ? tx_label_lists_index(&r->lists) : tx_fail(TX_FORMAT, "no row has words");
}

/* ---- Tokens -------------------------------------------------------------------------------------------- */

/* Encodes the words of a row. */
static tx_status join_words(reading *r, const tx_json *words, tx_token_data *d)
{
    const int64_t most = r->options->block;
    bool used = true;
    tx_joiner_begin(&r->joiner);
    for (size_t w = 0; w < tx_json_size(words); w++) {
        const char *word;
        size_t size;
        TX_TRY(tx_json_as_text(tx_json_at(words, w), "word", &word, &size));
        TX_TRY(tx_joiner_word(&r->joiner, word, size, most, &used));
    }
    r->word.count = 0;
    return tx_joiner_end(&r->joiner, most, &(tx_joined_words){&d->ids, &d->types, &r->word});
}

/* Adds the labels of a row, whose words are `r->word`. */
static tx_status add_labels(const reading *r, const char *const *labels, tx_token_data *d)
{
    TX_TRY(tx_ids_reserve(&d->first, r->word.count));
    TX_TRY(tx_ids_reserve(&d->label, r->word.count));
    for (size_t i = 0; i < r->word.count; i++) {
        const int32_t word = r->word.id[i];
        const bool first = word >= 0 && (i == 0 || r->word.id[i - 1] != word);
        int32_t label = TX_IGNORE_LABEL;
        float target;
        if (first && labels)
            TX_TRY(tx_label_read(r->options->config, &r->index, labels[word], &label, &target));
        d->first.id[d->first.count++] = first;
        d->label.id[d->label.count++] = label;
    }
    return TX_OK;
}

static tx_status add_sample(reading *r, int64_t number, tx_token_data *d)
{
    const size_t begin = d->ids.count;
    tx_json *words = NULL;
    TX_TRY(read_list(r, r->row[number], r->words, &words));
    tx_status status = join_words(r, words, d);
    tx_json_free(words);
    TX_THEN(status, tx_task_check_ids(r->options, d->ids.id + begin, d->ids.count - begin));
    TX_THEN(status, add_labels(r, r->labels < 0 ? NULL : r->lists.label + tx_label_lists_begin(&r->lists, number), d));
    if (status) {
        d->ids.count = d->types.count = d->first.count = d->label.count = begin;
        return status;
    }
    d->end[d->count++] = (int64_t)d->ids.count;
    return TX_OK;
}

static tx_status write_digest(const tx_token_data *d, const tx_config *config, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, d->ids.id, d->ids.count * sizeof *d->ids.id);
    tx_digest_add(digest, d->types.id, d->types.count * sizeof *d->types.id);
    tx_digest_add(digest, d->label.id, d->label.count * sizeof *d->label.id);
    tx_digest_add(digest, d->end, (size_t)d->count * sizeof *d->end);
    tx_digest_add(digest, &config->labels, sizeof config->labels);
    return tx_digest_finish(digest, text);
}

static tx_status read_samples(reading *r, tx_token_data *d)
{
    d->end = malloc((size_t)r->count * sizeof *d->end);
    if (!d->end)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " samples", r->count);
    TX_TRY(tx_joiner_check(&r->joiner, false, r->options->block));
    for (int64_t i = 0; i < r->count; i++) {
        const tx_status status = add_sample(r, i, d);
        TX_TRY(status ? tx_table_skip(&r->table, r->row[i], status) : TX_OK);
    }
    return d->count ? write_digest(d, r->options->config, d->digest) : tx_fail(TX_FORMAT, "no row has words");
}

static tx_status read_all(reading *r, tx_token_data *d)
{
    static const tx_sequence_task any = {.task = {.name = "token classification"}};
    tx_config *config = r->options->config;
    TX_TRY(find_columns(r));
    TX_TRY(choose_rows(r));
    if (r->labels >= 0)
        TX_TRY(tx_labels_resolve(&any, r->options, r->lists.label, (int64_t)r->lists.count, &r->index));
    if (config->labels < 2)
        return tx_fail(TX_INVALID, "token classification needs two labels or more, not %" PRId64, config->labels);
    d->labels = config->labels;
    TX_TRY(tx_tags_of(config, &d->tag));
    TX_TRY(tx_joiner_open(r->options->tokenizer, &r->joiner));
    return read_samples(r, d);
}

bool tx_tokens_find(const char *path)
{
    bool found = false;
    tx_rows *rows = NULL;
    tx_json *json = NULL;
    const char *row = NULL;
    size_t size = 0;
    if (!(tx_ends_with(path, ".jsonl") || tx_ends_with(path, ".json")) || tx_rows_open(path, &rows))
        return false; /* the reader of the file reports the fault */
    if (!tx_rows_next(rows, &row, &size) && size && !tx_json_parse_line(row, size, "row", &json))
        for (const char *const *name = word_columns; *name; name++)
            found = found || tx_json_type_of(tx_json_find(json, *name)) == TX_JSON_ARRAY;
    tx_json_free(json);
    tx_rows_close(rows);
    return found;
}

/* ---- Opening ------------------------------------------------------------------------------------------- */

static void free_data(tx_token_data *d)
{
    free(d->ids.id);
    free(d->types.id);
    free(d->label.id);
    free(d->first.id);
    free(d->end);
    free(d->tag);
    free(d);
}

static void free_reading(reading *r)
{
    tx_table_close(&r->table);
    tx_label_index_free(&r->index);
    tx_joiner_close(&r->joiner);
    free(r->row);
    tx_label_lists_free(&r->lists);
    free(r->word.id);
}

tx_status tx_tokens_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples)
{
    reading r = {.options = options};
    TX_TRY(tx_task_need_tokenizer(path, options));
    tx_token_data *d = calloc(1, sizeof *d);
    if (!d)
        return tx_fail(TX_MEMORY, "%s: out of memory", path);
    tx_status status = tx_table_open(path, options->set->skip_bad, &r.table);
    TX_THEN(status, tx_fail_in(read_all(&r, d), "%s", path));
    if (!status)
        tx_table_report(&r.table, path, &options->report);
    free_reading(&r);
    if (status) {
        free_data(d);
        return status;
    }
    *samples = (tx_samples){.task = task,
                            .data = d,
                            .count = d->count,
                            .block = options->block,
                            .tokens = (int64_t)d->ids.count,
                            .digest = d->digest};
    return TX_OK;
}

void tx_tokens_close(const tx_samples *samples)
{
    free_data((void *)(uintptr_t)samples->data);
}
