/* SPDX-License-Identifier: Apache-2.0
 * Reads files of pairs and triplets of texts: columns, rows, tokens. */
#include "api/base/number.h"
#include "models/files/hub.h"
#include "models/names.h"
#include "models/task/embedding.h"
#include "models/task/reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The state of reading a file. */
typedef struct reading {
    tx_reader from;
    tx_embedding_data *data;
    int32_t text[TX_TEXTS_MOST], score; /* columns; `score` is -1 if there is none */
} reading;

/* ---- Columns ------------------------------------------------------------------------------------------- */

/* Finds the columns of the texts and of the score. */
static tx_status find_columns(reading *r)
{
    static const char *const scores[] = {"label", "labels", "score", "scores"};
    const tx_rows *t = r->from.rows;
    tx_embedding_data *d = r->data;
    const bool named = tx_rows_column(t, "anchor") >= 0 && tx_rows_column(t, "positive") >= 0;
    r->score = -1;
    if (named) {
        r->text[0] = tx_rows_column(t, "anchor");
        r->text[1] = tx_rows_column(t, "positive");
        d->texts.per_sample = 2;
    }
    const char *name;
    for (int32_t c = 0; (name = tx_rows_name(t, c)); c++) {
        bool is_score = false;
        for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++)
            is_score = is_score || strcmp(name, scores[i]) == 0;
        if (is_score)
            r->score = c;
        else if (named ? tx_begins_with(name, "negative") : d->texts.per_sample <= TX_TEXTS_MOST) {
            if (d->texts.per_sample == TX_TEXTS_MOST)
                return tx_fail(TX_UNSUPPORTED, "more than %d columns of texts", TX_TEXTS_MOST);
            r->text[d->texts.per_sample++] = c;
        }
    }
    return TX_OK;
}

/* Chooses the loss by the columns, or checks that they fit it. */
static tx_status choose_loss(const reading *r, tx_embedding_data *d)
{
    static const int64_t least
        [] = {[TX_EMBEDDING_LOSS_RANKING] = 2, [TX_EMBEDDING_LOSS_COSINE] = 2, [TX_EMBEDDING_LOSS_TRIPLET] = 3},
   most[] = {
       [TX_EMBEDDING_LOSS_RANKING] = TX_TEXTS_MOST, [TX_EMBEDDING_LOSS_COSINE] = 2, [TX_EMBEDDING_LOSS_TRIPLET] = 3};
    d->loss = r->from.options->set->embedding_loss;
    if (d->loss == TX_EMBEDDING_LOSS_AUTO)
        d->loss = r->score >= 0 && d->texts.per_sample == 2 ? TX_EMBEDDING_LOSS_COSINE : TX_EMBEDDING_LOSS_RANKING;
    if (d->texts.per_sample < least[d->loss] || d->texts.per_sample > most[d->loss])
        return tx_fail(TX_FORMAT,
                       "the file has %" PRId64 " columns of texts: two sentences and a score, or anchor, positive and "
                       "negative are expected; --embedding_loss names the loss",
                       d->texts.per_sample);
    if (d->loss == TX_EMBEDDING_LOSS_COSINE && r->score < 0)
        return tx_fail(TX_FORMAT, "there is no column score or label, which CosineSimilarityLoss needs");
    return TX_OK;
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

static tx_status read_score(const reading *r, float *score)
{
    size_t size;
    char *end;
    if (r->score < 0)
        return TX_OK;
    const char *text = tx_rows_text(r->from.rows, r->score, &size);
    *score = tx_number_read_single(text, &end);
    return end != text && !*end && isfinite(*score) ? TX_OK
                                                    : tx_fail(TX_FORMAT, "the score \"%.40s\" is not a number", text);
}

static tx_status add_row(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_embedding_data *d = r->data;
    tx_text_samples *s = &d->texts;
    size_t size;
    d->target[s->count] = 0.0f;
    TX_TRY(read_score(r, &d->target[s->count]));
    for (int64_t i = 0; i < s->per_sample; i++) {
        const char *text = tx_rows_text(from->rows, r->text[i], &size);
        TX_TRY(tx_text_samples_add(s, i, &from->joiner, text, size, NULL, 0, d->most));
    }
    return tx_text_samples_keep(s, from->options);
}

/* The pooling of the model's folder, changed by --pooling_mode. */
static tx_status find_pooling(const tx_data_options *o, tx_embedding_data *d)
{
    char *folder = NULL;
    if (o->set->model)
        TX_TRY(tx_hub_model(o->set->model, &folder));
    const tx_status status = tx_pooling_read(folder, &d->pooling);
    free(folder);
    TX_TRY(status);
    if (o->set->pooling_mode) {
        d->pooling.mode[0] = (tx_pool_mode)(o->set->pooling_mode - 1);
        d->pooling.modes = 1;
    }
    if (d->pooling.modes > 1 || d->pooling.mode[0] == TX_POOL_MAX)
        return tx_fail(TX_UNSUPPORTED, "the pooling of this model is not implemented in training; give another one by "
                                       "--pooling_mode");
    if (d->pooling.dense_count)
        return tx_fail(TX_UNSUPPORTED, "the module Dense of this model is not implemented in training");
    o->config->unit_embeddings = d->pooling.normalize;
    d->width = o->config->width;
    d->most = d->pooling.max_seq_length && d->pooling.max_seq_length < o->block ? d->pooling.max_seq_length : o->block;
    return TX_OK;
}

static tx_status read_all(tx_reader *from)
{
    reading *r = (reading *)from;
    tx_embedding_data *d = r->data;
    const size_t rows = (size_t)(from->end - from->begin);
    TX_TRY(find_pooling(from->options, d));
    TX_TRY(find_columns(r));
    TX_TRY(choose_loss(r, d));
    TX_TRY(tx_joiner_check(&from->joiner, false, d->most));
    tx_text_samples_begin(&d->texts, from->options);
    d->target = malloc(rows * sizeof *d->target);
    if (!d->target)
        return tx_fail(TX_MEMORY, "no memory for %zu rows", rows);
    TX_TRY(tx_reader_rows(from, add_row));
    if (!d->texts.count)
        return tx_fail(TX_FORMAT, "no row has texts");
    return tx_text_samples_digest(&d->texts, d->target, (size_t)d->texts.count * sizeof *d->target);
}

void tx_embedding_data_release(void *data)
{
    tx_embedding_data *d = data;
    tx_text_samples_free(&d->texts);
    free(d->target);
    tx_pooling_free(&d->pooling);
    free(d);
}

tx_status tx_embedding_data_read(const char *path, const tx_data_options *options, tx_embedding_data *data)
{
    reading r = {.from = {.path = path, .options = options}, .data = data};
    return tx_reader_run(&r.from, read_all);
}
