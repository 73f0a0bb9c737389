/* SPDX-License-Identifier: Apache-2.0
 * Reads files of words with labels: columns, rows, tokens. */
#include "models/task/reader.h"
#include "models/task/sequence.h"
#include "models/task/tokens.h"

#include <inttypes.h>
#include <stdlib.h>

/* The state of reading a file. */
typedef struct reading {
    tx_reader from;
    tx_token_data *data;
    int32_t words, labels; /* columns; `labels` is -1 if there is none */
    tx_label_list list;    /* labels of the current row */
    tx_label_set set;      /* labels of all rows */
    tx_label_index index;
    tx_ids word, label, first; /* of the ids of the current row, see tx_joined_words and tx_token_data */
    bool found, labelled;      /* a row with words; a word of the current row has a label */
} reading;

/* --text_column_name and --label_column_name rename the columns to text and label. */
static const char *const word_columns[] = {"text", "tokens", "words", NULL};

static tx_status find_columns(reading *r)
{
    static const char *const labels[] = {"label", "ner_tags", "tags", "labels", NULL};
    TX_TRY(tx_reader_find(&r->from, word_columns, "tokens or words", "text_column_name", &r->words));
    return tx_reader_find_label(&r->from, labels, "ner_tags or tags", &r->labels);
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* The words of the current row, a list. */
static tx_status read_words(const reading *r, const tx_json **words)
{
    size_t size;
    *words = tx_rows_value(r->from.rows, r->words, TX_JSON_ARRAY);
    return *words ? TX_OK
                  : tx_fail(TX_FORMAT, "%s: \"%.40s\" is not a list of texts", tx_rows_name(r->from.rows, r->words),
                            tx_rows_text(r->from.rows, r->words, &size));
}

static tx_status read_labels(reading *r)
{
    size_t size;
    const char *text = tx_rows_text(r->from.rows, r->labels, &size);
    return tx_label_list_read(&r->list, tx_rows_value(r->from.rows, r->labels, TX_JSON_ARRAY), text);
}

/* Checks a row, and collects its labels. */
static tx_status check_row(tx_reader *from)
{
    reading *r = (reading *)from;
    const tx_json *list;
    TX_TRY(read_words(r, &list));
    const size_t words = tx_json_size(list);
    if (words == 0)
        return tx_fail(TX_FORMAT, "the row has no words");
    if (r->labels >= 0)
        TX_TRY(read_labels(r));
    if (r->labels >= 0 && r->list.count != words)
        return tx_fail(TX_FORMAT, "the row has %zu words and %zu labels", words, r->list.count);
    r->found = true;
    return r->labels < 0 ? TX_OK : tx_label_set_add(&r->set, &r->list);
}

/* ---- Tokens -------------------------------------------------------------------------------------------- */

/* Encodes the words of a row. */
static tx_status join_words(reading *r, const tx_json *words)
{
    const int64_t most = r->from.options->block;
    tx_joiner *joiner = &r->from.joiner;
    tx_text_samples *s = &r->data->texts;
    bool used = true;
    tx_joiner_begin(joiner);
    for (size_t w = 0; w < tx_json_size(words); w++) {
        const char *word;
        size_t size;
        TX_TRY(tx_json_as_text(tx_json_at(words, w), "word", &word, &size));
        TX_TRY(tx_joiner_word(joiner, word, size, most, &used));
    }
    tx_text_samples_clear(s);
    r->word.count = 0;
    TX_TRY(tx_joiner_end(joiner, most, &(tx_joined_words){&s->id, &s->type, &r->word}));
    s->at[0] = (int64_t)s->id.count;
    return TX_OK;
}

/* Finds the labels of the ids of a row. */
static tx_status find_labels(reading *r)
{
    const size_t count = r->word.count;
    r->first.count = r->label.count = 0;
    r->labelled = r->labels < 0;
    TX_TRY(tx_ids_reserve(&r->first, count));
    TX_TRY(tx_ids_reserve(&r->label, count));
    if (r->labels >= 0)
        TX_TRY(read_labels(r));
    for (size_t i = 0; i < count; i++) {
        const int32_t word = r->word.id[i];
        const bool first = word >= 0 && (i == 0 || r->word.id[i - 1] != word);
        int32_t label = TX_IGNORE_LABEL;
        float target;
        if (first && r->labels >= 0)
            TX_TRY(tx_label_read(&r->index, r->list.label[word], &label, &target));
        r->labelled = r->labelled || label != TX_IGNORE_LABEL;
        r->first.id[r->first.count++] = first;
        r->label.id[r->label.count++] = label;
    }
    return TX_OK;
}

static tx_status add_row(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_token_data *d = r->data;
    const tx_json *words;
    TX_TRY(read_words(r, &words));
    tx_status status = join_words(r, words);
    TX_THEN(status, find_labels(r));
    if (!status && !r->labelled) {
        from->unlabelled++;
        return TX_OK;
    }
    TX_THEN(status, tx_text_samples_keep(&d->texts, from->options));
    TX_THEN(status, tx_store_add(&d->label, r->label.id, r->label.count));
    TX_THEN(status, tx_store_add(&d->first, r->first.id, r->first.count));
    return status;
}

static tx_status write_digest(tx_token_data *d, const tx_config *config)
{
    tx_text_samples *s = &d->texts;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&s->ids, digest));
    tx_digest_fail(digest, tx_store_digest(&s->types, digest));
    tx_digest_fail(digest, tx_store_digest(&d->label, digest));
    tx_digest_add(digest, s->end, (size_t)s->count * sizeof *s->end);
    tx_digest_add(digest, &config->labels, sizeof config->labels);
    return tx_digest_finish(digest, s->digest);
}

static tx_status read_all(tx_reader *from)
{
    static const tx_sequence_task any = {.task = {.name = "token classification"}};
    reading *r = (reading *)from;
    tx_token_data *d = r->data;
    tx_config *config = from->options->config;
    tx_joiner_follow(&from->joiner, config->architecture->type);
    TX_TRY(find_columns(r));
    TX_TRY(tx_reader_rows(from, check_row));
    if (!r->found)
        return tx_fail(TX_FORMAT, "no row has words");
    config->problem = TX_PROBLEM_CLASSES; /* problem_type does not concern words */
    if (r->labels >= 0)
        TX_TRY(tx_labels_resolve(&any, from->options, &r->set, &r->index));
    if (config->labels < 2)
        return tx_fail(TX_INVALID, "token classification needs two labels or more, not %" PRId64, config->labels);
    d->labels = config->labels;
    TX_TRY(tx_joiner_check(&from->joiner, false, from->options->block));
    d->texts.per_sample = 1;
    tx_text_samples_begin(&d->texts, from->options);
    d->label = d->first = d->texts.ids;
    TX_TRY(tx_reader_rows(from, add_row));
    return d->texts.count ? write_digest(d, config) : tx_fail(TX_FORMAT, "no row has words");
}

bool tx_tokens_find(const char *path)
{
    bool found = false;
    tx_json *row;
    if (tx_rows_first(path, &row))
        return false; /* the reader of the file reports the fault */
    for (const char *const *name = word_columns; *name; name++)
        found = found || tx_json_type_of(tx_json_find(row, *name)) == TX_JSON_ARRAY;
    tx_json_free(row);
    return found;
}

/* ---- Opening ------------------------------------------------------------------------------------------- */

void tx_token_data_release(void *data)
{
    tx_token_data *d = data;
    tx_text_samples_free(&d->texts);
    tx_store_free(&d->label);
    tx_store_free(&d->first);
    free(d->tag);
    free(d);
}

tx_status tx_token_data_read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    reading r = {.from = {.path = path, .options = options}, .data = samples->own};
    const tx_status status = tx_reader_run(&r.from, read_all);
    tx_label_index_free(&r.index);
    tx_label_list_free(&r.list);
    tx_label_set_free(&r.set);
    free(r.word.id);
    free(r.label.id);
    free(r.first.id);
    tx_text_samples_finish(&r.data->texts, samples);
    return status;
}
