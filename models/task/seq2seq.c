/* SPDX-License-Identifier: Apache-2.0
 * The task of text that is written for another text: reading, rows, and the measures of written texts. */
#include "models/task/seq2seq.h"

#include "models/arch/t5.h"
#include "models/data/rows.h"
#include "models/task/causal_lm.h"
#include "models/task/text_samples.h"
#include "models/task/text_scores.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE, TARGET, TEXTS };

typedef struct pairs {
    tx_text_samples texts; /* source and target of each sample */
    int32_t begin;         /* the decoder's first token */
    const tx_tokenizer *tokenizer;
} pairs;

/* ---- Reading ------------------------------------------------------------------------------------------- */

typedef struct reading {
    const tx_data_options *options;
    tx_rows *rows;
    tx_joiner joiner;
    tx_buffer text;      /* of the prefix and a source */
    int64_t most[TEXTS]; /* tokens */
    int64_t cut;         /* number of truncated texts */
    int64_t begin, end;
} reading;

/* The value with this name; without a name that of member `number`, counted from 0. */
static tx_status text_of(const tx_json *object, const char *name, int number, const char **text)
{
    void *at = name ? NULL : tx_json_first(object);
    for (int i = 0; at && i < number; i++)
        at = tx_json_next(object, at);
    if (at)
        return tx_json_as_string(tx_json_value(at), tx_json_key(at), text);
    return name ? tx_json_get_string(object, name, text)
                : tx_fail(TX_FORMAT,
                          "holds no two texts: name their columns by --text_column_name and --summary_column");
}

static tx_status find_texts(const reading *r, const tx_json *object, const char *text[TEXTS])
{
    const tx_job_settings *set = r->options->set;
    tx_json *languages;
    if (!tx_json_find(object, "translation")) {
        TX_TRY(text_of(object, set->text_column, SOURCE, &text[SOURCE]));
        return text_of(object, set->summary_column, TARGET, &text[TARGET]);
    }
    if (!set->source_lang || !set->target_lang)
        return tx_fail(TX_INVALID, "has a column translation: give --source_lang and --target_lang");
    TX_TRY(tx_json_get(object, "translation", TX_JSON_OBJECT, &languages));
    TX_TRY(text_of(languages, set->source_lang, SOURCE, &text[SOURCE]));
    return text_of(languages, set->target_lang, TARGET, &text[TARGET]);
}

static tx_status add_pair(reading *r, const tx_json *object, pairs *d)
{
    tx_text_samples *s = &d->texts;
    const char *text[TEXTS], *prefix = r->options->set->source_prefix;
    TX_TRY(find_texts(r, object, text));
    tx_buffer_clear(&r->text);
    tx_buffer_add(&r->text, prefix ? prefix : "", prefix ? strlen(prefix) : 0);
    tx_buffer_add(&r->text, text[SOURCE], strlen(text[SOURCE]) + 1);
    TX_TRY(r->text.status);
    text[SOURCE] = r->text.data;
    for (int i = 0; i < TEXTS; i++) {
        TX_TRY(tx_text_samples_add(s, i, &r->joiner, text[i], strlen(text[i]), NULL, 0, r->most[i]));
        r->cut += r->joiner.truncated;
    }
    return tx_text_samples_keep(s, r->options);
}

static tx_status read_one(reading *r, int64_t number, pairs *d)
{
    const tx_json *object;
    tx_status status = tx_rows_read(r->rows, number, &object);
    TX_THEN(status, add_pair(r, object, d));
    return tx_rows_skip(r->rows, number, r->options->set->skip_bad, status);
}

static tx_status read_all(reading *r, const char *path, pairs *d)
{
    const tx_reporter *report = &r->options->report;
    TX_TRY(tx_rows_open(path, &r->rows));
    TX_TRY(tx_rows_index(r->rows));
    TX_TRY(tx_task_choose_range(r->options, tx_rows_count(r->rows), "samples", &r->begin, &r->end));
    TX_TRY(tx_joiner_open(r->options->tokenizer, &r->joiner));
    for (int i = 0; i < TEXTS; i++)
        TX_TRY(tx_joiner_check(&r->joiner, false, r->most[i]));
    d->texts.per_sample = TEXTS;
    tx_text_samples_begin(&d->texts, r->options);
    for (int64_t i = r->begin; i < r->end; i++)
        TX_TRY(read_one(r, i, d));
    tx_rows_report(r->rows, report);
    if (r->cut)
        tx_reporter_print(report,
                          "%.800s: %" PRId64 " sources and targets are longer than max_source_length %" PRId64
                          " or max_target_length %" PRId64 " and are truncated",
                          path, r->cut, r->most[SOURCE], r->most[TARGET]);
    if (!d->texts.count)
        return tx_fail(TX_FORMAT, "no sample has two texts");
    return tx_text_samples_digest(&d->texts, &d->begin, sizeof d->begin);
}

static void release(void *data)
{
    pairs *d = data;
    tx_text_samples_free(&d->texts);
    free(d);
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    pairs *d = samples->own;
    reading r = {.options = options,
                 .most = {options->block, tx_field_values(&samples->task->fields[TX_SEQ2SEQ_LABELS], options->block)}};
    d->begin = (int32_t)tx_t5_begin(options->config);
    d->tokenizer = options->tokenizer;
    const tx_status status = tx_fail_in(read_all(&r, path, d), "%s", path);
    tx_rows_close(r.rows);
    tx_joiner_close(&r.joiner);
    free(r.text.data);
    tx_text_samples_finish(&d->texts, samples);
    return status;
}

/* ---- Written texts ------------------------------------------------------------------------------------- */

static int64_t length_of(const float *written)
{
    int64_t length = 0;
    while (written[length] >= 0.0f)
        length++;
    return length;
}

/* Decodes written ids or, if there are none, the target of the sample. A model may write ids that its tokenizer does
 * not have; they have no text. The caller frees `*text`. */
static tx_status decode(const tx_samples *samples, int64_t number, const float *written, char **text)
{
    const pairs *d = samples->data;
    const tx_text_samples *s = &d->texts;
    const int64_t length = written ? length_of(written) : tx_text_samples_length(s, number, TARGET);
    const char *bytes;
    size_t size, count = 0;
    tx_status status = TX_OK;
    int32_t *ids = malloc((size_t)(length + 1) * sizeof *ids);
    if (!ids)
        return tx_fail(TX_MEMORY, "no memory for a text of %" PRId64 " tokens", length);
    if (!written)
        status = tx_store_read(&s->ids, tx_sample_begin(s->end, TEXTS * number + TARGET), length, ids);
    for (int64_t i = 0; i < length && !status; i++) {
        ids[count] = written ? (int32_t)written[i] : ids[i];
        count += tx_tokenizer_piece(d->tokenizer, ids[count], true, &bytes, &size) == TX_OK;
    }
    TX_THEN(status, tx_tokenizer_decode(d->tokenizer, ids, count, true, text, &size));
    free(ids);
    return status;
}

/* Indices of the task's own values after those of ROUGE. */
enum { BLEU = TX_ROUGES, LENGTH };

static tx_status measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    const double count = (double)samples->count;
    double *own = sums + TX_SUM_OWN;
    tx_text_scores scores = {.words = 0.0};
    for (int64_t i = 0; i < samples->count; i++) {
        char *text = NULL, *target = NULL;
        tx_status status = decode(samples, i, outputs + i * columns, &text);
        TX_THEN(status, decode(samples, i, NULL, &target));
        TX_THEN(status, tx_text_scores_add(&scores, text, target));
        free(text);
        free(target);
        TX_TRY(status);
        own[LENGTH] += (double)length_of(outputs + i * columns);
    }
    own[LENGTH] /= count;
    for (int i = 0; i < TX_ROUGES; i++)
        own[i] = 100.0 * scores.rouge[i] / count;
    own[BLEU] = tx_text_scores_bleu(&scores);
    return TX_OK;
}

/* Writes the text on one line. */
static tx_status predict(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                         tx_file *file)
{
    char *text;
    (void)config;
    TX_TRY(decode(samples, number, output, &text));
    for (char *at = text; *at; at++)
        *at = strchr("\n\r\t", *at) ? ' ' : *at;
    const tx_status status = tx_file_append(file, text, strlen(text));
    free(text);
    return status;
}

/* Names are those of run_summarization.py and run_translation.py. */
static const tx_metric metrics[] = {TX_METRIC_LOSS,
                                    {"perplexity", .value = tx_causal_lm_perplexity},
                                    TX_METRIC_GREATER("eval_rouge1", TX_ROUGE_1),
                                    TX_METRIC_GREATER("eval_rouge2", TX_ROUGE_2),
                                    TX_METRIC_GREATER("eval_rougeL", TX_ROUGE_L),
                                    TX_METRIC_GREATER("eval_rougeLsum", TX_ROUGE_LSUM),
                                    TX_METRIC_GREATER("eval_bleu", BLEU),
                                    TX_METRIC_LESS("eval_gen_len", LENGTH),
                                    {.name = NULL}};

/* ---- The task ------------------------------------------------------------------------------------------ */

static const tx_field fields[] = {
    [TX_SEQ2SEQ_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN},
    [TX_SEQ2SEQ_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1},
    [TX_SEQ2SEQ_DECODER] = {"decoder_input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN},
    [TX_SEQ2SEQ_LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

static int64_t row_length(const tx_samples *samples, int64_t number)
{
    return tx_text_samples_length(&((const pairs *)samples->data)->texts, number, SOURCE);
}

/* Writes a text of a sample to a field, and padding after it. */
static tx_status put(const tx_samples *samples, int64_t number, int64_t text, int32_t field, const tx_batch *to)
{
    const tx_field *f = &samples->task->fields[field];
    const tx_text_samples *s = &((const pairs *)samples->data)->texts;
    const int64_t length = tx_text_samples_length(s, number, text);
    int32_t *values = to->field[field];
    tx_field_pad(f, values + length, tx_field_values(f, samples->block) - length);
    return tx_store_read(&s->ids, tx_sample_begin(s->end, TEXTS * number + text), length, values);
}

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const pairs *d = samples->data;
    const size_t target = (size_t)tx_text_samples_length(&d->texts, number, TARGET);
    int32_t *before = to->field[TX_SEQ2SEQ_DECODER];
    TX_TRY(put(samples, number, SOURCE, TX_SEQ2SEQ_INPUT_IDS, to));
    TX_TRY(put(samples, number, TARGET, TX_SEQ2SEQ_LABELS, to));
    TX_TRY(put(samples, number, TARGET, TX_SEQ2SEQ_DECODER, to));
    memmove(before + 1, before, (target - 1) * sizeof *before);
    before[0] = d->begin;
    *(int32_t *)to->field[TX_SEQ2SEQ_LENGTHS] = (int32_t)row_length(samples, number);
    return TX_OK;
}

const tx_task tx_seq2seq = {
    .name = "text for a text",
    .head = TX_HEAD_SEQ2SEQ,
    .of_texts = true,
    .data_size = sizeof(pairs),
    .read = read,
    .release = release,
    .fields = fields,
    .row = row,
    .length = row_length,
    .loss = tx_task_label_loss,
    .distills = true,
    .metrics = tx_causal_lm_metrics,
};

void tx_seq2seq_sized(tx_own_task *own, int64_t target, bool writes)
{
    tx_own_task_make(&tx_seq2seq, own);
    own->task.measure = writes ? measure : NULL;
    own->task.predict = writes ? predict : NULL;
    own->task.metrics = writes ? metrics : tx_causal_lm_metrics;
    for (int32_t f = TX_SEQ2SEQ_DECODER; f <= TX_SEQ2SEQ_LABELS; f++) {
        own->field[f].width = target;
        own->field[f].target = true;
    }
}
