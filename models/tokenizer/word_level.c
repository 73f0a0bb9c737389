/* SPDX-License-Identifier: Apache-2.0
 * The model WordLevel: each word is a token, or unknown. */
#include "models/tokenizer/bpe.h"

static tx_status read(tx_tokenizer *t, const tx_json *model, const tx_json *vocab)
{
    const char *unknown = "<unk>";
    TX_TRY(TX_JSON_OPTIONAL(string, model, "unk_token", &unknown));
    t->unk = tx_vocab_id(vocab, unknown);
    return TX_OK;
}

static tx_status encode(const tx_tokenizer *t, tx_buffer *scratch, const char *word, size_t size, tx_ids *ids)
{
    const int32_t found = tx_vocab_find(&t->vocab, TX_TOKEN_WORD, word, size), id = found < 0 ? t->unk : found;
    (void)scratch;
    if (id < 0)
        return tx_fail(TX_UNSUPPORTED, "\"%.*s\" is not in the vocabulary, and there is no unknown token",
                       size < 64 ? (int)size : 64, word);
    TX_TRY(tx_ids_reserve(ids, 1));
    ids->id[ids->count++] = id;
    return TX_OK;
}

const tx_model_kind tx_word_level = {"WordLevel", read, encode, false};
