/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling (Devlin et al., BERT, 2019), as in run_mlm. In each row a share of the tokens is selected
 * for prediction. 80 % of these are replaced by the mask token, 10 % by a random token of the tokenizer, and 10 % do
 * not change. The fields are input_ids [rows, block], attention_lengths [rows] and labels [rows, block], in this order.
 * The metrics are loss and perplexity over the selected tokens.
 *
 * Rows are blocks of the concatenated texts. With line_by_line each text is a row, truncated to a block including its
 * special tokens. The selection depends only on (seed, epoch, sample, position). Special tokens are never selected. In
 * a row without selected tokens one is selected, so that every step has labels. */
#include "models/task/tasks.h"

#include "api/base/number.h"
#include "models/files/digest.h"
#include "models/task/causal_lm.h"
#include "models/tokenizer/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_IDS, LENGTHS, LABELS };

static const tx_field fields[] = {
    [INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0},
    [LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1},
    [LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

typedef struct masked_data {
    tx_dataset *dataset;
    int64_t block;
    bool by_line;
    double share; /* of the tokens that are selected */
    uint64_t seed;
    int32_t mask, words; /* the mask token, and the number of tokens for random replacement */
    tx_ids around;       /* special tokens that the tokenizer adds to a text */
    int64_t before;      /* number of them before the text */
    char digest[TX_DIGEST_TEXT];
} masked_data;

/* ---- Masking ------------------------------------------------------------------------------------------- */

/* A uniform random number in [0, 1) with 53 bits. */
static double draw(uint64_t key)
{
    return (double)(tx_hash_draw(key) >> 11) * 0x1p-53;
}

static bool is_around(const masked_data *d, int32_t id)
{
    for (size_t i = 0; i < d->around.count; i++)
        if (d->around.id[i] == id)
            return true;
    return false;
}

/* Selects a token for prediction. */
static void mask_one(const masked_data *d, uint64_t key, int32_t *id, int32_t *label)
{
    const double how = draw(key + 1);
    *label = *id;
    if (how < 0.8)
        *id = d->mask;
    else if (how < 0.9)
        *id = (int32_t)(draw(key + 2) * (double)d->words);
}

/* Selects tokens among `length` ids of a sample. `row` is the random key of the sample. */
static void mask_some(const masked_data *d, uint64_t row, int64_t length, int32_t *ids, int32_t *labels)
{
    int64_t masked = 0, candidates = 0, at = 0;
    for (int64_t t = 0; t < length; t++) {
        const uint64_t key = tx_hash_draw(row ^ (uint64_t)t);
        labels[t] = TX_IGNORE_LABEL;
        if (is_around(d, ids[t]))
            continue;
        candidates++;
        if (draw(key) < d->share) {
            mask_one(d, key, &ids[t], &labels[t]);
            masked++;
        }
    }
    if (masked || !candidates)
        return;
    for (candidates = (int64_t)(draw(row) * (double)candidates); candidates > 0 || is_around(d, ids[at]); at++)
        candidates -= !is_around(d, ids[at]);
    mask_one(d, tx_hash_draw(row ^ (uint64_t)at), &ids[at], &labels[at]);
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const masked_data *d = samples->data;
    const int64_t whole = tx_dataset_length(d->dataset, number), length = whole < d->block ? whole : d->block;
    const int64_t after = (int64_t)d->around.count - d->before;
    int32_t *ids = to->field[INPUT_IDS], *labels = to->field[LABELS];
    if (whole < 0)
        return TX_IO;
    TX_TRY(tx_dataset_read(d->dataset, number, ids));
    if (length < whole) /* only the text is truncated, not the special tokens after it */
        memcpy(ids + length - after, d->around.id + d->before, (size_t)after * sizeof *ids);
    tx_field_pad(&fields[INPUT_IDS], ids + length, d->block - length);
    tx_field_pad(&fields[LABELS], labels + length, d->block - length);
    *(int32_t *)to->field[LENGTHS] = (int32_t)length;
    mask_some(d, tx_hash_draw(tx_hash_draw(tx_hash_draw(d->seed) ^ to->epoch) ^ (uint64_t)number), length, ids, labels);
    return TX_OK;
}

static int64_t row_length(const tx_samples *samples, int64_t number)
{
    const masked_data *d = samples->data;
    const int64_t whole = tx_dataset_length(d->dataset, number);
    return whole < d->block ? whole : d->block;
}

/* ---- Data ------------------------------------------------------------------------------------------------ */

static tx_status find_mask(const tx_tokenizer *tokenizer, int32_t *mask)
{
    static const char *const names[] = {"[MASK]", "<mask>"};
    *mask = -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && *mask < 0; i++)
        *mask = tx_tokenizer_find(tokenizer, names[i]);
    return *mask >= 0 ? TX_OK : tx_fail(TX_INVALID, "the tokenizer has no mask token ([MASK] or <mask>)");
}

/* Finds the special tokens that the tokenizer adds to a text, using a text of one invalid token. */
static tx_status find_around(const tx_tokenizer *tokenizer, masked_data *d)
{
    int32_t none = -1;
    const tx_ids text = {.id = &none, .count = 1};
    tx_ids types = {0};
    tx_status status = tx_tokenizer_join(tokenizer, &text, NULL, &d->around, &types);
    free(types.id);
    if (status)
        return status;
    while (d->around.id[d->before] != none)
        d->before++;
    d->around.count--;
    memmove(d->around.id + d->before, d->around.id + d->before + 1,
            (d->around.count - (size_t)d->before) * sizeof *d->around.id);
    return TX_OK;
}

static tx_status write_digest(masked_data *d)
{
    char text[256];
    tx_digest *digest;
    const int length =
        tx_format(text, sizeof text, "%s masked %.17g seed %" PRIu64 " mask %" PRId32 " of %" PRId32 " around %" PRId64,
                  tx_dataset_digest(d->dataset), d->share, d->seed, d->mask, d->words, d->before);
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, text, (size_t)length);
    tx_digest_add(digest, d->around.id, d->around.count * sizeof *d->around.id);
    return tx_digest_finish(digest, d->digest);
}

static tx_status read_file(const char *path, const tx_data_options *o, masked_data *d)
{
    TX_TRY(find_mask(o->tokenizer, &d->mask));
    TX_TRY(find_around(o->tokenizer, d));
    const int64_t around = (int64_t)d->around.count;
    if (o->set->line_by_line && around >= o->block)
        return tx_fail(TX_INVALID, "max_seq_length %" PRId64 " is too small for a text with %" PRId64 " special tokens",
                       o->block, around);
    tx_dataset_options options = tx_causal_lm_reading(o);
    options.bare_lines = true;
    options.by_text = o->set->line_by_line ? around + 1 : 0;
    TX_TRY(tx_dataset_open(path, &options, &d->dataset));
    return write_digest(d);
}

static void release(void *data)
{
    masked_data *d = data;
    tx_dataset_free(d->dataset);
    free(d->around.id);
    free(d);
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *o)
{
    masked_data *d = samples->own;
    *d = (masked_data){
        .block = o->block, .by_line = o->set->line_by_line, .share = o->set->mlm_probability, .seed = o->seed};
    d->words = (int32_t)tx_tokenizer_size(o->tokenizer);
    TX_TRY(read_file(path, o, d));
    samples->count = tx_dataset_blocks(d->dataset);
    samples->tokens = tx_dataset_tokens(d->dataset);
    samples->digest = d->digest;
    return TX_OK;
}

/* Data with labels are for a classifier. */
tx_status tx_masked_detect(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    *is = signs->head == task->head && !signs->labelled;
    return TX_OK;
}

const tx_task tx_masked_lm = {
    .name = "masked language modelling",
    .head = TX_HEAD_MASKED_LM,
    .of_texts = true,
    .data_size = sizeof(masked_data),
    .read = read,
    .release = release,
    .fields = fields,
    .row = row,
    .length = row_length,
    .loss = tx_task_label_loss,
    .distills = true,
    .metrics = tx_causal_lm_metrics,
};
