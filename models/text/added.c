/* SPDX-License-Identifier: Apache-2.0
 * Added tokens: a trie of their texts, and how Hugging Face's tokenizers cut them out of a text. */
#include "models/array.h"
#include "models/text/bpe.h"
#include "models/text/unicode.h"
#include "models/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A node's children are a list; the root's, which every byte of a text is held against, an array. */
typedef struct node {
    int32_t child, sibling; /* 0: none (the root is nobody's child) */
    int32_t added;          /* that ends here, or -1 */
    unsigned char byte;
} node;

struct tx_trie {
    node *node;
    int32_t count;
    int32_t first[256];
};

/* ---- The list -------------------------------------------------------------------------------------- */

tx_status tx_tokenizer_add(tx_tokenizer *tokenizer, const tx_added *added, const char *text)
{
    tx_additions *additions = &tokenizer->additions;
    if (!*text)
        return tx_fail(TX_FORMAT, "its text is empty");
    tx_status status = tx_array_reserve(&additions->at, &additions->room, (size_t)additions->count + 1,
                                        sizeof *additions->at, "added tokens");
    if (status)
        return status;
    tx_added *made = &additions->at[additions->count];
    *made = *added;
    made->size = strlen(text);
    made->text = strdup(text);
    if (!made->text)
        return tx_fail(TX_MEMORY, "no memory for an added token");
    additions->count++;
    if (added->id >= additions->next)
        additions->next = added->id + 1;
    tokenizer->vocab.token[added->id].added = true;
    tokenizer->vocab.token[added->id].special = added->special;
    return TX_OK;
}

/* ---- The trie -------------------------------------------------------------------------------------- */

static int32_t child_of(const tx_trie *trie, int32_t parent, unsigned char byte)
{
    if (parent == 0)
        return trie->first[byte];
    int32_t at = trie->node[parent].child;
    while (at && trie->node[at].byte != byte)
        at = trie->node[at].sibling;
    return at;
}

/* `trie` has room for a node for each byte. */
static void insert(tx_trie *trie, const tx_added *added, int32_t number)
{
    int32_t at = 0;
    for (size_t i = 0; added->sought[i]; i++) {
        unsigned char byte = (unsigned char)added->sought[i];
        int32_t child = child_of(trie, at, byte);
        if (!child) {
            child = trie->count++;
            trie->node[child] = (node){0, at ? trie->node[at].child : 0, -1, byte};
            if (at)
                trie->node[at].child = child;
            else
                trie->first[byte] = child;
        }
        at = child;
    }
    if (at && trie->node[at].added < 0) /* of those that are the same once normalized, the first */
        trie->node[at].added = number;
}

static tx_status build(const tx_additions *additions, bool normalized, tx_trie **made)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < additions->count; i++)
        bytes += additions->at[i].normalized == normalized ? strlen(additions->at[i].sought) : 0;
    *made = NULL;
    if (bytes == 0)
        return TX_OK;
    tx_trie *trie = bytes < INT32_MAX ? calloc(1, sizeof *trie) : NULL;
    if (trie)
        trie->node = malloc((bytes + 1) * sizeof *trie->node);
    if (!trie || !trie->node) {
        free(trie);
        return tx_fail(TX_MEMORY, "no memory for added tokens of %zu bytes", bytes);
    }
    trie->count = 1;
    for (int32_t i = 0; i < additions->count; i++)
        if (additions->at[i].normalized == normalized)
            insert(trie, &additions->at[i], i);
    *made = trie;
    return TX_OK;
}

/* What a token is found by. */
static tx_status seek(tx_added *added, const tx_steps *normalizer, tx_matcher *matcher)
{
    const char *text = added->text;
    size_t size = added->size;
    tx_buffer scratch[2] = {{0}};
    tx_status status = added->normalized ? tx_normalizer_run(normalizer, matcher, scratch, &text, &size) : TX_OK;
    if (!status) {
        added->sought = size ? strndup(text, size) : strdup("");
        status = added->sought ? TX_OK : tx_fail(TX_MEMORY, "no memory for an added token");
    }
    free(scratch[0].data);
    free(scratch[1].data);
    return status;
}

tx_status tx_additions_seal(tx_additions *additions, const tx_steps *normalizer)
{
    bool single_word = false;
    tx_matcher *matcher = NULL;
    size_t size = 0;
    for (int32_t i = 0; i < additions->count; i++)
        size += additions->at[i].size;
    tx_status status = tx_matcher_create(&matcher);
    if (!status)
        tx_matcher_begin(matcher, size);
    for (int32_t i = 0; i < additions->count && !status; i++) {
        single_word |= additions->at[i].single_word;
        status = seek(&additions->at[i], normalizer, matcher);
    }
    tx_matcher_free(matcher);
    if (status)
        return status;
    if (single_word)
        status = tx_regex_compile("[" TX_REGEX_WORD "]", &additions->word_character);
    for (int i = 0; i < 2 && !status; i++)
        status = build(additions, i == 1, &additions->trie[i]);
    return status;
}

void tx_additions_free(tx_additions *additions)
{
    for (int32_t i = 0; i < additions->count; i++) {
        free(additions->at[i].text);
        free(additions->at[i].sought);
    }
    free(additions->at);
    for (int i = 0; i < 2; i++) {
        if (additions->trie[i])
            free(additions->trie[i]->node);
        free(additions->trie[i]);
    }
    tx_regex_close(&additions->word_character);
}

/* ---- Finding --------------------------------------------------------------------------------------- */

/* The longest token that the text begins with, or -1. */
static int32_t longest(const tx_trie *trie, const char *text, size_t size)
{
    int32_t found = -1, at = 0;
    for (size_t i = 0; i < size; i++) {
        at = child_of(trie, at, (unsigned char)text[i]);
        if (!at)
            break;
        if (trie->node[at].added >= 0)
            found = trie->node[at].added;
    }
    return found;
}

/* Whether the `size` bytes at `character` (0: there is no character) are one of a word. */
static bool in_word(const tx_additions *additions, const char *character, size_t size, pcre2_match_data *match)
{
    return size && pcre2_match(additions->word_character.code, (PCRE2_SPTR)character, size, 0, PCRE2_NO_UTF_CHECK,
                               match, NULL) >= 0;
}

static bool stands_alone(const tx_additions *additions, const char *text, size_t size, const tx_found *found,
                         pcre2_match_data *match)
{
    size_t before = tx_utf8_read_last(text, found->begin, NULL);
    size_t after = tx_utf8_read(text + found->end, size - found->end, NULL);
    return !in_word(additions, text + found->begin - before, before, match) &&
           !in_word(additions, text + found->end, after, match);
}

/* Lets a token take the spaces around it, those before down to `floor`, where the last token ended. A token of spaces
 * that the last one has taken may be left with nothing. */
static void widen(const char *text, size_t size, size_t floor, tx_found *found)
{
    uint32_t code;
    size_t length;
    if (found->added->lstrip && found->begin < floor)
        found->begin = floor;
    while (found->added->lstrip && found->begin > floor &&
           (length = tx_utf8_read_last(text + floor, found->begin - floor, &code)) && tx_unicode_is_space(code))
        found->begin -= length;
    while (found->added->rstrip && (length = tx_utf8_read(text + found->end, size - found->end, &code)) &&
           tx_unicode_is_space(code))
        found->end += length;
}

void tx_additions_find(const tx_additions *additions, int trie, const char *text, size_t size, bool special,
                       pcre2_match_data *match, tx_found *found)
{
    const tx_trie *t = additions->trie[trie];
    for (size_t at = found->resume; t && at < size; at++) {
        int32_t number = t->first[(unsigned char)text[at]] ? longest(t, text + at, size - at) : -1;
        if (number < 0)
            continue;
        const tx_added *added = &additions->at[number];
        const size_t end = at + strlen(added->sought);
        tx_found here = {added, at, end, end};
        at = here.end - 1; /* one that does not count hides what begins inside it all the same */
        if ((added->special && !special) || (added->single_word && !stands_alone(additions, text, size, &here, match)))
            continue;
        widen(text, size, found->end, &here);
        if (here.begin >= here.end)
            continue;
        *found = here;
        return;
    }
    *found = (tx_found){NULL, size, size, size};
}
