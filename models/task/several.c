/* SPDX-License-Identifier: Apache-2.0
 * Samples of several texts. */
#include "models/task/several.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_several_reserve(tx_several *samples, int64_t rows)
{
    samples->end = malloc((size_t)(rows * samples->texts) * sizeof *samples->end);
    return samples->end ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " samples", rows);
}

void tx_several_free(tx_several *samples)
{
    free(samples->ids.id);
    free(samples->types.id);
    free(samples->end);
}

tx_status tx_several_digest(const tx_several *samples, const void *own, size_t size, char text[TX_DIGEST_TEXT])
{
    const tx_several *s = samples;
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, s->ids.id, s->ids.count * sizeof *s->ids.id);
    tx_digest_add(digest, s->end, (size_t)(s->count * s->texts) * sizeof *s->end);
    tx_digest_add(digest, own, size);
    return tx_digest_finish(digest, text);
}

tx_status tx_several_add(tx_several *samples, int64_t text, tx_joiner *joiner, const char *first, size_t first_size,
                         const char *second, size_t second_size, int64_t most)
{
    tx_several *s = samples;
    const size_t begin = s->ids.count;
    TX_TRY(tx_joiner_add(joiner, first, first_size, second, second_size, most, &s->ids, &s->types));
    s->end[s->count * s->texts + text] = (int64_t)s->ids.count;
    return s->ids.count > begin ? TX_OK : tx_fail(TX_FORMAT, "a text has no tokens");
}

void tx_several_drop(tx_several *samples)
{
    samples->ids.count = samples->types.count = (size_t)tx_sample_begin(samples->end, samples->count * samples->texts);
}

int64_t tx_several_length(const tx_several *samples, int64_t number, int64_t text)
{
    const int64_t at = number * samples->texts + text;
    return samples->end[at] - tx_sample_begin(samples->end, at);
}

int64_t tx_several_longest(const tx_several *samples, int64_t number)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < samples->texts; i++) {
        const int64_t length = tx_several_length(samples, number, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

void tx_several_row(const tx_several *samples, int64_t number, int64_t block, const tx_batch *row)
{
    static const tx_field fields[] = {TX_SEVERAL_FIELDS};
    const tx_ids *const from[] = {&samples->ids, &samples->types};
    for (int64_t i = 0; i < samples->texts; i++) {
        const int64_t length = tx_several_length(samples, number, i);
        const int64_t begin = samples->end[number * samples->texts + i] - length;
        for (int f = TX_SEVERAL_INPUT_IDS; f <= TX_SEVERAL_TOKEN_TYPE_IDS; f++) {
            int32_t *values = (int32_t *)row->field[f] + i * block;
            memcpy(values, from[f]->id + begin, (size_t)length * sizeof *values);
            tx_field_pad(&fields[f], values + length, block - length);
        }
        ((int32_t *)row->field[TX_SEVERAL_LENGTHS])[i] = (int32_t)length;
    }
}
