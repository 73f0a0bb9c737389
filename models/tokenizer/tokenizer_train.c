/* SPDX-License-Identifier: Apache-2.0
 * Trains a tokenizer: counts words, and builds the tokenizer from the learned merges. */
#include "models/tokenizer/train.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counting ------------------------------------------------------------------------------------ */

typedef struct key {
    const char *word;
    size_t size;
} key;

static bool same_word(const void *counts, uint32_t number, const void *wanted)
{
    const tx_counts *c = counts;
    const key *k = wanted;
    const tx_counted *found = &c->word[number];
    return found->size == k->size && memcmp(c->bytes.data + found->at, k->word, k->size) == 0;
}

static tx_status add_word(tx_counts *counts, const char *word, size_t size)
{
    const uint64_t hash = tx_hash_bytes(word, size);
    const uint32_t number = tx_index_find(&counts->index, hash, same_word, counts, &(key){word, size});
    if (number != TX_INDEX_NONE) {
        counts->word[number].count++;
        return TX_OK;
    }
    const tx_counted result = {counts->bytes.size, size, 1};
    TX_TRY(tx_array_reserve(&counts->word, &counts->room, counts->count + 1, sizeof result, "words"));
    tx_buffer_add(&counts->bytes, word, size);
    TX_TRY(counts->bytes.status);
    TX_TRY(tx_index_add(&counts->index, hash, counts->count));
    counts->word[counts->count++] = result;
    return TX_OK;
}

static void free_counts(tx_counts *counts)
{
    free(counts->word);
    free(counts->bytes.data);
    free(counts->index.slot);
}

/* ---- The trainer --------------------------------------------------------------------------------- */

struct tx_tokenizer_trainer {
    tx_tokenizer_steps pre_tokenizer;
    tx_cutter *cutter;
    tx_counts counts;
};

static tx_status count_word(void *context, const char *word, size_t size)
{
    tx_tokenizer_trainer *trainer = context;
    return add_word(&trainer->counts, word, size);
}

tx_status tx_tokenizer_trainer_create(tx_tokenizer_trainer **trainer)
{
    TX_NEEDS(trainer, TX_INVALID);
    tx_tokenizer_trainer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for a trainer");
    tx_status status = tx_pre_tokenizer_gpt2(&created->pre_tokenizer, false);
    TX_THEN(status, tx_cutter_create(&created->pre_tokenizer, count_word, created, &created->cutter));
    return TX_RETURN(status, created, trainer, tx_tokenizer_trainer_free);
}

void tx_tokenizer_trainer_free(tx_tokenizer_trainer *trainer)
{
    if (!trainer)
        return;
    tx_cutter_free(trainer->cutter);
    tx_tokenizer_steps_free(&trainer->pre_tokenizer);
    free_counts(&trainer->counts);
    free(trainer);
}

tx_status tx_tokenizer_trainer_add(tx_tokenizer_trainer *trainer, const char *text, size_t size)
{
    TX_NEEDS(trainer && (text || !size), TX_INVALID);
    tx_matcher_begin(tx_cutter_matcher(trainer->cutter), size);
    return tx_cutter_run(trainer->cutter, text, size, true);
}

/* Adds <|endoftext|>, then the bytes in the order of their letters, as BpeTrainer does. */
static tx_status put_bytes(tx_tokenizer *t)
{
    tx_letters letters;
    tx_letters_make(&letters);
    TX_TRY(tx_tokenizer_add_special(t, TX_END_OF_TEXT, 0));
    for (int code = 0; code < TX_LETTER_CODES; code++)
        if (letters.byte[code] >= 0) {
            int32_t id = t->vocab.count;
            t->vocab.byte_ids[letters.byte[code]] = id;
            TX_TRY(tx_vocab_put(&t->vocab, id, TX_TOKEN_WORD, &(char){(char)letters.byte[code]}, 1));
        }
    return TX_OK;
}

tx_status tx_tokenizer_trainer_finish(tx_tokenizer_trainer *trainer, int64_t vocab, int64_t least,
                                      tx_tokenizer **tokenizer)
{
    TX_NEEDS(trainer && tokenizer, TX_INVALID);
    if (vocab < TX_BYTES_VOCAB || vocab > TX_VOCAB_LIMIT)
        return tx_fail(TX_INVALID,
                       "a vocabulary of %" PRId64 " ids: it must have %d (" TX_END_OF_TEXT " and the bytes) to %d",
                       vocab, TX_BYTES_VOCAB, TX_VOCAB_LIMIT);
    tx_tokenizer *created = NULL;
    TX_TRY(tx_tokenizer_new(&created));
    created->bytes = true;
    tx_status status = put_bytes(created);
    TX_THEN(status, tx_learn_merges(&trainer->counts, vocab, least, &created->vocab, &created->merges));
    TX_THEN(status, tx_pre_tokenizer_gpt2(&created->pre_tokenizer, false));
    TX_THEN(status, tx_tokenizer_seal(created));
    if (status) {
        tx_tokenizer_free(created);
        return status;
    }
    created->end = 0;
    *tokenizer = created;
    return TX_OK;
}
