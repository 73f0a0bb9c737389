/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary: tokens by id and by their bytes; and letters, the printable forms of bytes. */
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The key of a search. */
typedef struct key {
    const char *bytes;
    size_t size;
    tx_token_kind kind;
} key;

static bool same_token(const void *vocab, uint32_t id, const void *wanted)
{
    const tx_vocab *v = vocab;
    const tx_token *token = &v->token[id];
    const key *k = wanted;
    return token->kind == k->kind && token->size == k->size &&
           memcmp(v->bytes.data + token->at, k->bytes, k->size) == 0;
}

tx_status tx_vocab_put(tx_vocab *vocab, int64_t id, tx_token_kind kind, const char *bytes, size_t size)
{
    if (id < 0 || id >= TX_VOCAB_LIMIT)
        return tx_fail(TX_FORMAT, "id %" PRId64 " is not from 0 to %d", id, TX_VOCAB_LIMIT - 1);
    if (id < vocab->count && vocab->token[id].kind != TX_TOKEN_NONE)
        return tx_fail(TX_FORMAT, "two tokens have id %" PRId64, id);
    if (size >= UINT32_MAX)
        return tx_fail(TX_FORMAT, "a token of %zu bytes is too long", size);
    const size_t at = vocab->bytes.size;
    TX_TRY(tx_array_reserve(&vocab->token, &vocab->room, (size_t)id + 1, sizeof *vocab->token, "tokens"));
    tx_buffer_add(&vocab->bytes, bytes, size);
    tx_buffer_add(&vocab->bytes, "", 1);
    TX_TRY(vocab->bytes.status);
    TX_TRY(tx_index_add(&vocab->index, tx_hash_bytes(bytes, size), (size_t)id));
    for (; vocab->count <= id; vocab->count++)
        vocab->token[vocab->count] = (tx_token){0};
    vocab->token[id] = (tx_token){.at = at, .size = (uint32_t)size, .kind = (uint8_t)kind};
    return TX_OK;
}

int32_t tx_vocab_find(const tx_vocab *vocab, tx_token_kind kind, const char *bytes, size_t size)
{
    const uint32_t id =
        tx_index_find(&vocab->index, tx_hash_bytes(bytes, size), same_token, vocab, &(key){bytes, size, kind});
    return id == TX_INDEX_NONE ? -1 : (int32_t)id;
}

void tx_vocab_free(tx_vocab *vocab)
{
    free(vocab->token);
    free(vocab->bytes.data);
    free(vocab->index.slot);
}

/* ---- Letters --------------------------------------------------------------------------------------------- */

void tx_letters_make(tx_letters *letters)
{
    int16_t code = 256;
    for (int i = 0; i < TX_LETTER_CODES; i++)
        letters->byte[i] = -1;
    for (int16_t byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        int16_t letter = printable ? byte : code++;
        letters->code[byte] = (uint16_t)letter;
        letters->byte[letter] = byte;
    }
}

bool tx_letters_read(const tx_letters *letters, const char *text, size_t size, char *bytes, size_t *count)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t length = tx_utf8_read(text + at, size - at, &code);
        if (!length || code >= TX_LETTER_CODES || letters->byte[code] < 0)
            return false;
        bytes[used++] = (char)letters->byte[code];
        at += length;
    }
    *count = used;
    return true;
}

void tx_letters_write(const tx_letters *letters, const char *bytes, size_t size, char *text)
{
    for (size_t i = 0; i < size; i++)
        text += tx_utf8_write(letters->code[(unsigned char)bytes[i]], text);
    *text = '\0';
}
