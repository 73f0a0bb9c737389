/* SPDX-License-Identifier: Apache-2.0
 * Encodes texts, pairs and lists of words as model input. */
#include "models/tokenizer/joined.h"

#include "models/tokenizer/bpe.h"
#include "models/tokenizer/buffer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Counts the special tokens around texts, by texts of one invalid token. */
static tx_status count_special(tx_joiner *j, bool pair)
{
    int32_t none = -1;
    const tx_ids text = {.id = &none, .count = 1};
    tx_ids ids = {0}, types = {0};
    const tx_status status = tx_tokenizer_join(j->tokenizer, &text, pair ? &text : NULL, &ids, &types);
    if (!status)
        j->special[pair] = ids.count - (pair ? 2 : 1);
    for (j->before = 0; !status && ids.id[j->before] != none;)
        j->before++;
    free(ids.id);
    free(types.id);
    return status;
}

tx_status tx_joiner_open(const tx_tokenizer *tokenizer, tx_joiner *joiner)
{
    *joiner = (tx_joiner){.tokenizer = tokenizer};
    TX_TRY(tx_encoder_create(tokenizer, &joiner->encoder));
    TX_TRY(count_special(joiner, true));
    return count_special(joiner, false);
}

void tx_joiner_close(tx_joiner *joiner)
{
    tx_encoder_free(joiner->encoder);
    free(joiner->part[0].id);
    free(joiner->part[1].id);
    free(joiner->word.id);
    *joiner = (tx_joiner){0};
}

tx_status tx_joiner_check(const tx_joiner *joiner, bool pair, int64_t most)
{
    if (most > 0 && joiner->special[pair] < (size_t)most)
        return TX_OK;
    return tx_fail(TX_INVALID, "max_seq_length %" PRId64 " is too small for a text with %zu special tokens", most,
                   joiner->special[pair]);
}

static void truncate_pair(tx_ids *first, tx_ids *second, size_t most)
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

tx_status tx_joiner_add(tx_joiner *joiner, const char *first, size_t first_size, const char *second, size_t second_size,
                        int64_t most, tx_ids *ids, tx_ids *types)
{
    tx_joiner *j = joiner;
    j->part[0].count = j->part[1].count = 0;
    TX_TRY(tx_joiner_check(j, second != NULL, most));
    TX_TRY(tx_encoder_run(j->encoder, first, first_size, true, &j->part[0]));
    if (second)
        TX_TRY(tx_encoder_run(j->encoder, second, second_size, true, &j->part[1]));
    const size_t room = (size_t)most - j->special[second != NULL];
    j->truncated = j->part[0].count + j->part[1].count > room;
    truncate_pair(&j->part[0], &j->part[1], room);
    return tx_tokenizer_join(j->tokenizer, &j->part[0], second ? &j->part[1] : NULL, ids, types);
}

/* ---- Words --------------------------------------------------------------------------------------------- */

static tx_status push(tx_ids *ids, int32_t id, size_t count)
{
    TX_TRY(tx_ids_reserve(ids, count));
    for (size_t i = 0; i < count; i++)
        ids->id[ids->count++] = id;
    return TX_OK;
}

void tx_joiner_follow(tx_joiner *joiner, const char *model_type)
{
    static const char *const spaced[] = {"bloom", "gpt2", "roberta", "deberta"};
    joiner->spaces = false;
    for (size_t i = 0; i < sizeof spaced / sizeof spaced[0]; i++)
        joiner->spaces = joiner->spaces || strcmp(spaced[i], model_type) == 0;
    joiner->spaces = joiner->spaces && joiner->tokenizer->bytes && !joiner->tokenizer->generic;
}

void tx_joiner_begin(tx_joiner *joiner)
{
    joiner->part[0].count = joiner->word.count = 0;
    joiner->words = 0;
}

static tx_status encode_word(tx_joiner *j, const char *text, size_t size)
{
    if (!j->spaces || !size || *text == ' ')
        return tx_encoder_run(j->encoder, text, size, true, &j->part[0]);
    tx_buffer spaced = {0};
    tx_buffer_add(&spaced, " ", 1);
    tx_buffer_add(&spaced, text, size);
    tx_status status = spaced.status;
    TX_THEN(status, tx_encoder_run(j->encoder, spaced.data, spaced.size, true, &j->part[0]));
    free(spaced.data);
    return status;
}

tx_status tx_joiner_word(tx_joiner *joiner, const char *text, size_t size, int64_t most, bool *used)
{
    tx_joiner *j = joiner;
    const size_t before = j->part[0].count, number = j->words++;
    *used = false;
    if (before >= (size_t)most - j->special[0])
        return TX_OK;
    TX_TRY(encode_word(j, text, size));
    *used = j->part[0].count > before;
    return push(&j->word, (int32_t)number, j->part[0].count - before);
}

tx_status tx_joiner_end(tx_joiner *joiner, int64_t most, const tx_joined_words *to)
{
    tx_joiner *j = joiner;
    const size_t room = (size_t)most - j->special[0], before = to->ids->count;
    j->part[0].count = j->part[0].count < room ? j->part[0].count : room;
    if (!j->part[0].count)
        return tx_fail(TX_FORMAT, "the words have no tokens");
    TX_TRY(tx_tokenizer_join(j->tokenizer, &j->part[0], NULL, to->ids, to->types));
    TX_TRY(push(to->word, -1, j->before));
    for (size_t i = 0; i < j->part[0].count; i++)
        TX_TRY(push(to->word, j->word.id[i], 1));
    return push(to->word, -1, to->ids->count - before - j->before - j->part[0].count);
}
