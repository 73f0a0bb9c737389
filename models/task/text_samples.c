/* SPDX-License-Identifier: Apache-2.0
 * Samples of several texts. */
#include "models/task/text_samples.h"

#include <stdlib.h>

void tx_text_samples_begin(tx_text_samples *samples, const tx_data_options *options)
{
    samples->ids = samples->types = (tx_store){.folder = options->cache, .report = &options->report};
}

void tx_text_samples_free(tx_text_samples *samples)
{
    tx_store_free(&samples->ids);
    tx_store_free(&samples->types);
    free(samples->id.id);
    free(samples->type.id);
    free(samples->end);
}

tx_status tx_text_samples_digest(tx_text_samples *samples, const void *own, size_t size)
{
    tx_text_samples *s = samples;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&s->ids, digest));
    tx_digest_add(digest, s->end, (size_t)(s->count * s->per_sample) * sizeof *s->end);
    tx_digest_add(digest, own, size);
    return tx_digest_finish(digest, s->digest);
}

void tx_text_samples_clear(tx_text_samples *samples)
{
    samples->id.count = samples->type.count = 0;
}

tx_status tx_text_samples_add(tx_text_samples *samples, int64_t text, tx_joiner *joiner, const char *first,
                              size_t first_size, const char *second, size_t second_size, int64_t most)
{
    tx_text_samples *s = samples;
    if (text == 0)
        tx_text_samples_clear(s);
    const size_t begin = s->id.count;
    TX_TRY(tx_joiner_add(joiner, first, first_size, second, second_size, most, &s->id, &s->type));
    s->at[text] = (int64_t)s->id.count;
    return s->id.count > begin ? TX_OK : tx_fail(TX_FORMAT, "%s text has no tokens", s->per_sample > 1 ? "a" : "the");
}

tx_status tx_text_samples_keep(tx_text_samples *samples, const tx_data_options *options)
{
    tx_text_samples *s = samples;
    const int64_t ends = s->count * s->per_sample, before = s->ids.count;
    TX_TRY(tx_task_check_ids(options, s->id.id, s->id.count));
    TX_TRY(tx_array_reserve(&s->end, &s->room, (size_t)(ends + s->per_sample), sizeof *s->end, "samples"));
    TX_TRY(tx_store_add(&s->ids, s->id.id, s->id.count));
    TX_TRY(tx_store_add(&s->types, s->type.id, s->type.count));
    for (int64_t i = 0; i < s->per_sample; i++)
        s->end[ends + i] = before + s->at[i];
    s->count++;
    return TX_OK;
}

void tx_text_samples_finish(const tx_text_samples *texts, tx_samples *samples)
{
    samples->count = texts->count;
    samples->tokens = texts->ids.count;
    samples->digest = texts->digest;
}

void tx_text_samples_task(const tx_text_samples *texts, tx_samples *samples, int32_t fields, tx_own_task *own)
{
    tx_own_task_make(samples->task, own);
    for (int32_t f = 0; f < fields; f++)
        own->field[f].sequences = (int32_t)texts->per_sample;
    samples->task = &own->task;
}

int64_t tx_text_samples_length(const tx_text_samples *samples, int64_t number, int64_t text)
{
    const int64_t at = number * samples->per_sample + text;
    return samples->end[at] - tx_sample_begin(samples->end, at);
}

int64_t tx_text_samples_longest(const tx_samples *samples, int64_t number)
{
    const tx_text_samples *s = samples->data;
    int64_t longest = 0;
    for (int64_t i = 0; i < s->per_sample; i++) {
        const int64_t length = tx_text_samples_length(s, number, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

tx_status tx_text_samples_row(const tx_text_samples *samples, int64_t number, int64_t block, const tx_batch *row)
{
    static const tx_field fields[] = {TX_TEXTS_FIELDS};
    const tx_store *const from[] = {&samples->ids, &samples->types};
    for (int64_t i = 0; i < samples->per_sample; i++) {
        const int64_t length = tx_text_samples_length(samples, number, i);
        const int64_t begin = samples->end[number * samples->per_sample + i] - length;
        for (int f = TX_TEXTS_INPUT_IDS; f <= TX_TEXTS_TOKEN_TYPE_IDS; f++) {
            int32_t *values = (int32_t *)row->field[f] + i * block;
            TX_TRY(tx_store_read(from[f], begin, length, values));
            tx_field_pad(&fields[f], values + length, block - length);
        }
        ((int32_t *)row->field[TX_TEXTS_LENGTHS])[i] = (int32_t)length;
    }
    return TX_OK;
}
