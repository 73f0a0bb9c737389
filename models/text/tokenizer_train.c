/* SPDX-License-Identifier: Apache-2.0
 * Training a tokenizer: counting words, and the tokenizer made of what was learned from them. */
#include "models/text/train.h"

#include "models/text/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counting ------------------------------------------------------------------------------------ */

static size_t place_of(const tx_counts *counts, const char *word, size_t size)
{
    size_t place = (size_t)tx_hash_bytes(word, size) & counts->mask;
    for (; counts->index[place]; place = (place + 1) & counts->mask) {
        const tx_counted *there = &counts->word[counts->index[place] - 1];
        if (there->size == size && memcmp(counts->bytes + there->at, word, size) == 0)
            break;
    }
    return place;
}

/* Makes room for one more word of `size` bytes. */
static tx_status grow(tx_counts *counts, size_t size)
{
    if (counts->count == counts->room) {
        size_t room = 2 * counts->room + 4096, places = tx_hash_places(room);
        tx_counted *word = realloc(counts->word, room * sizeof *word);
        if (!word)
            return tx_fail(TX_MEMORY, "no memory for %zu words", room);
        counts->word = word;
        size_t *index = calloc(places, sizeof *index);
        if (!index)
            return tx_fail(TX_MEMORY, "no memory for %zu words", room);
        free(counts->index);
        counts->index = index;
        counts->mask = places - 1;
        counts->room = room;
        for (size_t i = 0; i < counts->count; i++)
            index[place_of(counts, counts->bytes + word[i].at, word[i].size)] = i + 1;
    }
    if (size > counts->bytes_room - counts->used) {
        size_t room = 2 * counts->bytes_room + size;
        char *bytes = realloc(counts->bytes, room);
        if (!bytes)
            return tx_fail(TX_MEMORY, "no memory for words of %zu bytes", room);
        counts->bytes = bytes;
        counts->bytes_room = room;
    }
    return TX_OK;
}

tx_status tx_counts_add(tx_counts *counts, const char *word, size_t size)
{
    size_t place = counts->count ? place_of(counts, word, size) : 0;
    if (counts->count && counts->index[place]) {
        counts->word[counts->index[place] - 1].count++;
        return TX_OK;
    }
    tx_status status = grow(counts, size);
    if (status)
        return status;
    place = place_of(counts, word, size);
    memcpy(counts->bytes + counts->used, word, size);
    counts->word[counts->count] = (tx_counted){counts->used, size, 1};
    counts->used += size;
    counts->index[place] = ++counts->count;
    return TX_OK;
}

void tx_counts_free(tx_counts *counts)
{
    free(counts->word);
    free(counts->bytes);
    free(counts->index);
}

/* ---- The trainer --------------------------------------------------------------------------------- */

struct tx_tokenizer_trainer {
    tx_steps pre_tokenizer;
    tx_cutter *cutter;
    tx_counts counts;
};

static tx_status count_word(void *context, const char *word, size_t size)
{
    tx_tokenizer_trainer *trainer = context;
    return tx_counts_add(&trainer->counts, word, size);
}

tx_status tx_tokenizer_trainer_create(tx_tokenizer_trainer **trainer)
{
    tx_tokenizer_trainer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a trainer");
    tx_status status = tx_pre_tokenizer_gpt2(&made->pre_tokenizer, false);
    if (!status)
        status = tx_cutter_create(&made->pre_tokenizer, count_word, made, &made->cutter);
    if (status) {
        tx_tokenizer_trainer_free(made);
        return status;
    }
    *trainer = made;
    return TX_OK;
}

void tx_tokenizer_trainer_free(tx_tokenizer_trainer *trainer)
{
    if (!trainer)
        return;
    tx_cutter_free(trainer->cutter);
    tx_steps_free(&trainer->pre_tokenizer);
    tx_counts_free(&trainer->counts);
    free(trainer);
}

tx_status tx_tokenizer_trainer_add(tx_tokenizer_trainer *trainer, const char *text, size_t size)
{
    tx_matcher_begin(tx_cutter_matcher(trainer->cutter), size);
    return tx_cutter_run(trainer->cutter, text, size, true);
}

/* <|endoftext|>, then the bytes in the order of their letters, as BpeTrainer has them. */
static tx_status put_bytes(tx_tokenizer *t)
{
    tx_letters letters;
    tx_letters_make(&letters);
    tx_status status = tx_tokenizer_add_special(t, TX_END_OF_TEXT, 0);
    for (int code = 0; code < TX_LETTER_CODES && !status; code++)
        if (letters.byte[code] >= 0) {
            int32_t id = t->vocab.count;
            t->vocab.byte_ids[letters.byte[code]] = id;
            status = tx_vocab_put(&t->vocab, id, TX_TOKEN_WORD, &(char){(char)letters.byte[code]}, 1);
        }
    return status;
}

tx_status tx_tokenizer_trainer_finish(tx_tokenizer_trainer *trainer, int64_t vocab, int64_t least,
                                      tx_tokenizer **tokenizer)
{
    if (vocab < TX_BYTES_VOCAB || vocab > TX_VOCAB_LIMIT)
        return tx_fail(TX_INVALID,
                       "a vocabulary of %" PRId64 " ids: it must have %d (" TX_END_OF_TEXT " and the bytes) to %d",
                       vocab, TX_BYTES_VOCAB, TX_VOCAB_LIMIT);
    tx_tokenizer *made = NULL;
    tx_status status = tx_tokenizer_new(&made);
    if (status)
        return status;
    made->bytes = true;
    status = tx_vocab_index(&made->vocab, (int32_t)vocab);
    if (!status)
        status = put_bytes(made);
    if (!status)
        status = tx_learn_merges(&trainer->counts, vocab, least, &made->vocab, &made->merges);
    if (!status)
        status = tx_pre_tokenizer_gpt2(&made->pre_tokenizer, false);
    if (!status)
        status = tx_tokenizer_seal(made);
    if (status) {
        tx_tokenizer_free(made);
        return status;
    }
    made->end = 0;
    *tokenizer = made;
    return TX_OK;
}
