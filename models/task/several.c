/* SPDX-License-Identifier: Apache-2.0
 * Samples of several texts. */
#include "models/task/several.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tx_several_begin(tx_several *samples, const tx_data_options *options)
{
    samples->ids = samples->types = (tx_store){.folder = options->cache, .report = &options->report};
}

void tx_several_free(tx_several *samples)
{
    tx_store_free(&samples->ids);
    tx_store_free(&samples->types);
    free(samples->id.id);
    free(samples->type.id);
    free(samples->end);
}

tx_status tx_several_digest(tx_several *samples, const void *own, size_t size)
{
    tx_several *s = samples;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&s->ids, digest));
    tx_digest_add(digest, s->end, (size_t)(s->count * s->texts) * sizeof *s->end);
    tx_digest_add(digest, own, size);
    return tx_digest_finish(digest, s->digest);
}

void tx_several_clear(tx_several *samples)
{
    samples->id.count = samples->type.count = 0;
}

tx_status tx_several_add(tx_several *samples, int64_t text, tx_joiner *joiner, const char *first, size_t first_size,
                         const char *second, size_t second_size, int64_t most)
{
    tx_several *s = samples;
    if (text == 0)
        tx_several_clear(s);
    const size_t begin = s->id.count;
    TX_TRY(tx_joiner_add(joiner, first, first_size, second, second_size, most, &s->id, &s->type));
    s->at[text] = (int64_t)s->id.count;
    return s->id.count > begin ? TX_OK : tx_fail(TX_FORMAT, "%s text has no tokens", s->texts > 1 ? "a" : "the");
}

tx_status tx_several_keep(tx_several *samples, const tx_data_options *options)
{
    tx_several *s = samples;
    const int64_t ends = s->count * s->texts, before = s->ids.count;
    TX_TRY(tx_task_check_ids(options, s->id.id, s->id.count));
    TX_TRY(tx_array_reserve(&s->end, &s->room, (size_t)(ends + s->texts), sizeof *s->end, "samples"));
    TX_TRY(tx_store_add(&s->ids, s->id.id, s->id.count));
    TX_TRY(tx_store_add(&s->types, s->type.id, s->type.count));
    for (int64_t i = 0; i < s->texts; i++)
        s->end[ends + i] = before + s->at[i];
    s->count++;
    return TX_OK;
}

void tx_several_finish(const tx_several *several, tx_samples *samples)
{
    samples->count = several->count;
    samples->tokens = several->ids.count;
    samples->digest = several->digest;
}

void tx_several_task(const tx_several *several, tx_samples *samples, int32_t fields, tx_own_task *own)
{
    tx_own_task_make(samples->task, own);
    for (int32_t f = 0; f < fields; f++)
        own->field[f].sequences = (int32_t)several->texts;
    samples->task = &own->task;
}

int64_t tx_several_length(const tx_several *samples, int64_t number, int64_t text)
{
    const int64_t at = number * samples->texts + text;
    return samples->end[at] - tx_sample_begin(samples->end, at);
}

int64_t tx_several_longest(const tx_samples *samples, int64_t number)
{
    const tx_several *s = samples->data;
    int64_t longest = 0;
    for (int64_t i = 0; i < s->texts; i++) {
        const int64_t length = tx_several_length(s, number, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

tx_status tx_several_row(const tx_several *samples, int64_t number, int64_t block, const tx_batch *row)
{
    static const tx_field fields[] = {TX_SEVERAL_FIELDS};
    const tx_store *const from[] = {&samples->ids, &samples->types};
    for (int64_t i = 0; i < samples->texts; i++) {
        const int64_t length = tx_several_length(samples, number, i);
        const int64_t begin = samples->end[number * samples->texts + i] - length;
        for (int f = TX_SEVERAL_INPUT_IDS; f <= TX_SEVERAL_TOKEN_TYPE_IDS; f++) {
            int32_t *values = (int32_t *)row->field[f] + i * block;
            TX_TRY(tx_store_read(from[f], begin, length, values));
            tx_field_pad(&fields[f], values + length, block - length);
        }
        ((int32_t *)row->field[TX_SEVERAL_LENGTHS])[i] = (int32_t)length;
    }
    return TX_OK;
}
