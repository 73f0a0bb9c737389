/* SPDX-License-Identifier: Apache-2.0
 * Builds the trie of a tokenizer's tokens. */
#include "models/grammar/vocabulary.h"

#include "api/base/needs.h"

#include <stdlib.h>
#include <string.h>

typedef struct token {
    const char *bytes;
    size_t size;
    int32_t id;
} token;

static int by_bytes(const void *a, const void *b)
{
    const token *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
    return order                ? order
           : x->size != y->size ? (x->size > y->size) - (x->size < y->size)
                                : (x->id > y->id) - (x->id < y->id);
}

/* Lists the tokens that add bytes to a text, sorted. Special tokens add none. */
static tx_status list(const tx_tokenizer *tokenizer, int64_t size, token *to, size_t *count, size_t *bytes)
{
    *count = *bytes = 0;
    for (int32_t id = 0; id < size; id++) {
        token *t = &to[*count];
        if (tx_tokenizer_piece(tokenizer, id, true, &t->bytes, &t->size)) /* an id without a token */
            continue;
        t->id = id;
        *count += t->size > 0 && t->size <= TX_TOKEN_BYTES;
        *bytes += t->size > 0 && t->size <= TX_TOKEN_BYTES ? t->size : 0;
    }
    qsort(to, *count, sizeof *to, by_bytes);
    return *bytes < UINT32_MAX ? TX_OK : tx_fail(TX_UNSUPPORTED, "the tokenizer is too large");
}

/* Adds the nodes of sorted tokens; `open` are the nodes of the last token's bytes. */
static void build(tx_vocabulary *v, const token *tokens, size_t count)
{
    uint32_t open[TX_TOKEN_BYTES];
    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        const token *t = &tokens[i];
        size_t same = 0;
        while (i > 0 && same < depth && same < t->size && tokens[i - 1].bytes[same] == t->bytes[same])
            same++;
        for (; depth > same; depth--)
            v->node[open[depth - 1]].skip = v->nodes;
        for (; depth < t->size; depth++) {
            open[depth] = v->nodes;
            v->node[v->nodes++] = (tx_vocabulary_node){.byte = (uint8_t)t->bytes[depth], .depth = (uint8_t)depth};
        }
        tx_vocabulary_node *node = &v->node[open[depth - 1]];
        node->first = node->count ? node->first : (uint32_t)i;
        node->count = (uint16_t)(node->count + (node->count < UINT16_MAX));
        v->ids[i] = t->id;
    }
    for (; depth > 0; depth--)
        v->node[open[depth - 1]].skip = v->nodes;
}

tx_status tx_vocabulary_create(const tx_tokenizer *tokenizer, tx_vocabulary **vocabulary)
{
    TX_NEEDS(tokenizer && vocabulary, TX_INVALID);
    const int64_t size = tx_tokenizer_size(tokenizer);
    tx_vocabulary *v = calloc(1, sizeof *v);
    token *tokens = malloc(((size_t)size + 1) * sizeof *tokens);
    size_t count = 0, bytes = 0;
    tx_status status = v && tokens ? list(tokenizer, size, tokens, &count, &bytes) : TX_MEMORY;
    if (!status) {
        v->tokenizer = tokenizer;
        v->size = size;
        v->node = malloc((bytes + 1) * sizeof *v->node);
        v->ids = malloc((count + 1) * sizeof *v->ids);
        status = v->node && v->ids ? TX_OK : TX_MEMORY;
    }
    if (!status) {
        build(v, tokens, count);
        tx_vocabulary_node *fit = realloc(v->node, (v->nodes + 1) * sizeof *fit);
        v->node = fit ? fit : v->node;
    }
    free(tokens);
    if (status == TX_MEMORY)
        tx_fail(status, "no memory for the tokens' bytes");
    return TX_RETURN(status, v, vocabulary, tx_vocabulary_free);
}

void tx_vocabulary_free(tx_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    free(vocabulary->node);
    free(vocabulary->ids);
    free(vocabulary);
}
