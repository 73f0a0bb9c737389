/* SPDX-License-Identifier: Apache-2.0
 * Reads files of words with labels: columns, rows, tokens. */
#include "models/arch/labels.h"
#include "models/data/rows.h"
#include "models/files/digest.h"
#include "models/task/sequence.h"
#include "models/task/tokens.h"
#include "models/text/bpe.h"
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
    tx_encoder *encoder;
    tx_ids around;           /* special tokens that the tokenizer adds to a text */
    size_t before;           /* number of them before the text */
    tx_ids ids, first, tags; /* of one sample */
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

/* Finds the special tokens around a text, by a text of one invalid token. */
static tx_status find_around(reading *r)
{
    int32_t none = -1;
    const tx_ids text = {.id = &none, .count = 1};
    tx_ids types = {0};
    const tx_status status = tx_tokenizer_join(r->options->tokenizer, &text, NULL, &r->around, &types);
    free(types.id);
    TX_TRY(status);
    while (r->around.id[r->before] != none)
        r->before++;
    if (r->around.count > (size_t)r->options->block)
        return tx_fail(TX_INVALID, "max_seq_length %" PRId64 " is too small for a text with %zu special tokens",
                       r->options->block, r->around.count - 1);
    return TX_OK;
}

static tx_status push(tx_ids *ids, int32_t id, size_t count)
{
    TX_TRY(tx_ids_reserve(ids, count));
    for (size_t i = 0; i < count; i++)
        ids->id[ids->count++] = id;
    return TX_OK;
}

/* Encodes a word as a text of its own. Tokenizers of bytes see a space before each word, as add_prefix_space has it. */
static tx_status encode_word(reading *r, const char *word, size_t size)
{
    const bool space = r->options->tokenizer->bytes && size && *word != ' ';
    if (!space)
        return tx_encoder_run(r->encoder, word, size, true, &r->ids);
    tx_buffer text = {0};
    tx_buffer_add(&text, " ", 1);
    tx_buffer_add(&text, word, size);
    tx_status status = text.status;
    TX_THEN(status, tx_encoder_run(r->encoder, text.data, text.size, true, &r->ids));
    free(text.data);
    return status;
}

/* Encodes the words of a row until `most` tokens are used. */
static tx_status encode_words(reading *r, const tx_json *words, const char *const *labels, size_t most)
{
    r->ids.count = r->first.count = r->tags.count = 0;
    for (size_t w = 0; w < tx_json_size(words) && r->ids.count < most; w++) {
        const char *word;
        size_t size;
        int32_t label = TX_IGNORE_LABEL;
        float target;
        const size_t before = r->ids.count;
        if (labels)
            TX_TRY(tx_label_read(r->options->config, &r->index, labels[w], &label, &target));
        TX_TRY(tx_json_as_text(tx_json_at(words, w), "word", &word, &size));
        TX_TRY(encode_word(r, word, size));
        const size_t more = r->ids.count - before;
        if (more) {
            TX_TRY(push(&r->first, 1, 1));
            TX_TRY(push(&r->first, 0, more - 1));
            TX_TRY(push(&r->tags, label, 1));
            TX_TRY(push(&r->tags, TX_IGNORE_LABEL, more - 1));
        }
    }
    r->ids.count = r->ids.count < most ? r->ids.count : most;
    return r->ids.count ? TX_OK : tx_fail(TX_FORMAT, "the words have no tokens");
}

static tx_status append(tx_ids *to, const tx_ids *from, size_t count)
{
    TX_TRY(tx_ids_reserve(to, count));
    memcpy(to->id + to->count, from->id, count * sizeof *to->id);
    to->count += count;
    return TX_OK;
}

static tx_status add_sample(reading *r, int64_t number, tx_token_data *d)
{
    const tx_data_options *o = r->options;
    const size_t special = r->around.count - 1, begin = d->ids.count, after = special - r->before;
    tx_json *words = NULL;
    TX_TRY(read_list(r, r->row[number], r->words, &words));
    const char *const *labels = r->labels < 0 ? NULL : r->lists.label + tx_label_lists_begin(&r->lists, number);
    tx_status status = encode_words(r, words, labels, (size_t)o->block - special);
    tx_json_free(words);
    TX_TRY(status);
    TX_TRY(tx_task_check_ids(o, r->ids.id, r->ids.count));
    TX_TRY(tx_tokenizer_join(o->tokenizer, &r->ids, NULL, &d->ids, &d->types));
    TX_TRY(push(&d->first, 0, r->before));
    TX_TRY(push(&d->label, TX_IGNORE_LABEL, r->before));
    TX_TRY(append(&d->first, &r->first, r->ids.count));
    TX_TRY(append(&d->label, &r->tags, r->ids.count));
    TX_TRY(push(&d->first, 0, after));
    TX_TRY(push(&d->label, TX_IGNORE_LABEL, after));
    d->end[d->count++] = (int64_t)d->ids.count;
    return d->ids.count - begin == r->ids.count + special ? TX_OK
                                                          : tx_fail(TX_INTERNAL, "special tokens differ between texts");
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
    TX_TRY(find_around(r));
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
    TX_TRY(tx_encoder_create(r->options->tokenizer, &r->encoder));
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
    tx_encoder_free(r->encoder);
    free(r->row);
    tx_label_lists_free(&r->lists);
    free(r->around.id);
    free(r->ids.id);
    free(r->first.id);
    free(r->tags.id);
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
    const int64_t bad = r.table.bad;
    if (!status && bad)
        tx_reporter_print(&options->report, "%.800s: %" PRId64 " malformed row%s skipped", path, bad,
                          bad == 1 ? " is" : "s are");
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
