/* SPDX-License-Identifier: Apache-2.0
 * The model WordPiece (Schuster and Nakajima, 2012; Devlin et al., 2018). A word is split greedily: the longest token
 * that it begins with, then the same for the rest. Tokens inside a word have a prefix. A word with a part that has no
 * token is unknown. */
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/utf8.h"

#include <string.h>

static tx_status read(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab)
{
    const char *prefix = "##";
    tokenizer->longest = 100;
    TX_TRY(tx_model_read_unk(tokenizer, model, vocab));
    TX_TRY(TX_JSON_OPTIONAL(string, model, "continuing_subword_prefix", &prefix));
    TX_TRY(TX_JSON_OPTIONAL(int, model, "max_input_chars_per_word", 0, INT16_MAX, &tokenizer->longest));
    tokenizer->prefix = strdup(prefix);
    return tokenizer->prefix ? TX_OK : tx_fail(TX_MEMORY, "no memory for a prefix");
}

static int64_t count_characters(const char *text, size_t size)
{
    int64_t count = 0;
    for (size_t at = 0; at < size; at += tx_utf8_read(text + at, size - at, NULL))
        count++;
    return count;
}

/* Appends the ids of the word's tokens; false if a part has no token. `word` needs room for the prefix before it, and
 * is overwritten up to the current position. */
static bool add_parts(const tx_tokenizer *t, char *word, size_t size, tx_ids *ids)
{
    const size_t prefix = strlen(t->prefix);
    for (size_t at = 0; at < size;) {
        const size_t before = at ? prefix : 0;
        char *part = word + at - before;
        memcpy(part, t->prefix, before);
        size_t end = size;
        int32_t id = -1;
        while (end > at && (id = tx_vocab_find(&t->vocab, TX_TOKEN_WORD, part, end - at + before)) < 0)
            end -= tx_utf8_read_last(word + at, end - at, NULL);
        if (id < 0)
            return false;
        ids->id[ids->count++] = id;
        at = end;
    }
    return true;
}

static tx_status encode(const tx_tokenizer *t, tx_buffer *scratch, const char *word, size_t size, tx_ids *ids)
{
    const size_t prefix = strlen(t->prefix);
    TX_TRY(tx_ids_reserve(ids, size));
    tx_buffer_clear(scratch);
    TX_TRY(tx_buffer_reserve(scratch, prefix + size));
    const size_t before = ids->count;
    memcpy(scratch->data + prefix, word, size);
    if (count_characters(word, size) <= t->longest && add_parts(t, scratch->data + prefix, size, ids))
        return TX_OK;
    ids->count = before;
    ids->id[ids->count++] = t->unk;
    return TX_OK;
}

const tx_model_kind tx_word_piece = {"WordPiece", read, encode, false};
