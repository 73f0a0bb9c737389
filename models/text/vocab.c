/* SPDX-License-Identifier: Apache-2.0
 * Tokens by id, and the index of their bytes. */
#include "models/text/bpe.h"
#include "models/text/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tx_status grow(tx_vocab *vocab, int32_t count, size_t bytes)
{
    if (count > vocab->room) {
        int32_t room = vocab->room > count / 2 ? 2 * vocab->room : count;
        tx_token *token = realloc(vocab->token, (size_t)room * sizeof *token);
        if (!token)
            return tx_fail(TX_MEMORY, "no memory for a vocabulary of %" PRId32 " tokens", room);
        memset(token + vocab->room, 0, (size_t)(room - vocab->room) * sizeof *token);
        vocab->token = token;
        vocab->room = room;
    }
    if (bytes > vocab->bytes_room - vocab->used) {
        size_t room = 2 * vocab->bytes_room + bytes;
        char *larger = realloc(vocab->bytes, room);
        if (!larger)
            return tx_fail(TX_MEMORY, "no memory for a vocabulary of %zu bytes", room);
        vocab->bytes = larger;
        vocab->bytes_room = room;
    }
    return TX_OK;
}

static void insert(tx_vocab *vocab, int32_t id)
{
    const tx_token *token = &vocab->token[id];
    if (token->kind != TX_TOKEN_WORD)
        return;
    size_t place = (size_t)tx_hash_bytes(vocab->bytes + token->at, token->size) & vocab->mask;
    while (vocab->index[place] >= 0)
        place = (place + 1) & vocab->mask;
    vocab->index[place] = id;
}

tx_status tx_vocab_put(tx_vocab *vocab, int64_t id, tx_token_kind kind, const char *bytes, size_t size)
{
    if (id < 0 || id >= TX_VOCAB_LIMIT)
        return tx_fail(TX_FORMAT, "id %" PRId64 " is not one from 0 to %d", id, TX_VOCAB_LIMIT - 1);
    if (id < vocab->count && vocab->token[id].kind != TX_TOKEN_NONE)
        return tx_fail(TX_FORMAT, "two tokens have id %" PRId64, id);
    if (size >= UINT32_MAX)
        return tx_fail(TX_FORMAT, "a token of %zu bytes", size);
    tx_status status = grow(vocab, (int32_t)id + 1, size + 1);
    if (status)
        return status;
    vocab->token[id] = (tx_token){vocab->used, (uint32_t)size, (uint8_t)kind, false};
    memcpy(vocab->bytes + vocab->used, bytes, size);
    vocab->bytes[vocab->used + size] = '\0';
    vocab->used += size + 1;
    if (id >= vocab->count)
        vocab->count = (int32_t)id + 1;
    if (vocab->index)
        insert(vocab, (int32_t)id);
    return TX_OK;
}

tx_status tx_vocab_index(tx_vocab *vocab, int32_t room)
{
    size_t places = tx_hash_places((size_t)room);
    vocab->index = malloc(places * sizeof *vocab->index);
    if (!vocab->index)
        return tx_fail(TX_MEMORY, "no memory for the index of %" PRId32 " tokens", room);
    vocab->mask = places - 1;
    for (size_t i = 0; i < places; i++)
        vocab->index[i] = -1;
    for (int32_t id = 0; id < vocab->count; id++)
        insert(vocab, id);
    return TX_OK;
}

int32_t tx_vocab_find(const tx_vocab *vocab, const char *bytes, size_t size)
{
    for (size_t place = (size_t)tx_hash_bytes(bytes, size) & vocab->mask;; place = (place + 1) & vocab->mask) {
        int32_t id = vocab->index[place];
        if (id < 0)
            return -1;
        const tx_token *token = &vocab->token[id];
        if (token->size == size && memcmp(vocab->bytes + token->at, bytes, size) == 0)
            return id;
    }
}

void tx_vocab_free(tx_vocab *vocab)
{
    free(vocab->token);
    free(vocab->bytes);
    free(vocab->index);
}
