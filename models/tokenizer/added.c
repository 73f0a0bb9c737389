/* SPDX-License-Identifier: Apache-2.0
 * Finds added tokens in a text, as Hugging Face's tokenizers do. */
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The search text of an added token. */
typedef struct sought {
    const char *text;
    size_t size;
    int32_t added;
    int32_t prefix; /* index of the longest other search text that this one begins with, or -1 */
} sought;

/* Search texts, sorted. */
struct tx_finder {
    bool first[256]; /* first bytes of the search texts */
    int32_t count;
    sought at[];
};

/* ---- The list -------------------------------------------------------------------------------------- */

tx_status tx_tokenizer_add(tx_tokenizer *tokenizer, const tx_added *added, const char *text)
{
    tx_additions *additions = &tokenizer->additions;
    if (!*text)
        return tx_fail(TX_FORMAT, "its text is empty");
    TX_TRY(tx_array_reserve(&additions->at, &additions->room, (size_t)additions->count + 1, sizeof *additions->at,
                            "added tokens"));
    tx_added *result = &additions->at[additions->count];
    *result = *added;
    result->size = strlen(text);
    result->text = strdup(text);
    if (!result->text)
        return tx_fail(TX_MEMORY, "no memory for an added token");
    additions->count++;
    if (added->id >= additions->next)
        additions->next = added->id + 1;
    tokenizer->vocab.token[added->id].added = true;
    tokenizer->vocab.token[added->id].special = added->special;
    return TX_OK;
}

/* ---- Search texts ---------------------------------------------------------------------------------- */

static int in_order(const void *a, const void *b)
{
    const sought *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order ? order : (x->added > y->added) - (x->added < y->added);
}

static tx_status build(const tx_additions *additions, bool normalized, tx_finder **created)
{
    tx_finder *finder = calloc(1, sizeof *finder + (size_t)additions->count * sizeof *finder->at);
    if (!finder)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " added tokens", additions->count);
    int32_t count = 0;
    for (int32_t i = 0; i < additions->count; i++)
        if (additions->at[i].normalized == normalized && additions->at[i].sought[0])
            finder->at[count++] = (sought){additions->at[i].sought, strlen(additions->at[i].sought), i, -1};
    if (count > 1)
        qsort(finder->at, (size_t)count, sizeof *finder->at, in_order);
    for (int32_t i = 0; i < count; i++) {
        sought *here = &finder->at[finder->count], next = finder->at[i];
        int32_t before = finder->count - 1;
        if (before >= 0 && strcmp(here[-1].text, next.text) == 0)
            continue; /* equal after normalization: the first one counts */
        while (before >= 0 && strncmp(next.text, finder->at[before].text, finder->at[before].size) != 0)
            before = finder->at[before].prefix;
        next.prefix = before;
        *here = next;
        finder->first[(unsigned char)next.text[0]] = true;
        finder->count++;
    }
    if (count == 0)
        free(finder);
    *created = count ? finder : NULL;
    return TX_OK;
}

/* Sets the search text of a token. */
static tx_status set_search_text(tx_added *added, const tx_tokenizer_steps *normalizer, tx_matcher *matcher)
{
    const char *text = added->text;
    size_t size = added->size;
    tx_buffer scratch[2] = {{0}};
    tx_status status = added->normalized ? tx_normalizer_run(normalizer, matcher, scratch, &text, &size, NULL) : TX_OK;
    if (!status) {
        added->sought = size ? strndup(text, size) : strdup("");
        status = added->sought ? TX_OK : tx_fail(TX_MEMORY, "no memory for an added token");
    }
    free(scratch[0].data);
    free(scratch[1].data);
    return status;
}

tx_status tx_additions_seal(tx_additions *additions, const tx_tokenizer_steps *normalizer)
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
        status = set_search_text(&additions->at[i], normalizer, matcher);
    }
    tx_matcher_free(matcher);
    if (status)
        return status;
    if (single_word)
        status = tx_regex_compile("[" TX_REGEX_WORD "]", &additions->word_character);
    for (int i = 0; i < 2 && !status; i++)
        status = build(additions, i == 1, &additions->finder[i]);
    return status;
}

void tx_additions_free(tx_additions *additions)
{
    for (int32_t i = 0; i < additions->count; i++) {
        free(additions->at[i].text);
        free(additions->at[i].sought);
    }
    free(additions->at);
    free(additions->finder[0]);
    free(additions->finder[1]);
    tx_regex_close(&additions->word_character);
}

/* ---- Searching ------------------------------------------------------------------------------------- */

/* The longest token that the text begins with, or -1. The last search text that does not sort after the text has all
 * others among its prefixes. */
static int32_t longest(const tx_finder *finder, const char *text, size_t size)
{
    int32_t low = 0, high = finder->count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const sought *s = &finder->at[middle];
        const int order = memcmp(s->text, text, s->size < size ? s->size : size);
        if (order < 0 || (order == 0 && s->size <= size))
            low = middle + 1;
        else
            high = middle;
    }
    int32_t found = low - 1;
    size_t common = 0; /* length of the common prefix with the text */
    while (found >= 0 && common < size && finder->at[found].text[common] == text[common] && text[common])
        common++;
    while (found >= 0 && finder->at[found].size > common)
        found = finder->at[found].prefix;
    return found < 0 ? -1 : finder->at[found].added;
}

/* Returns true if the character is part of a word. With 0 as `size` there is no character. */
static bool in_word(const tx_additions *additions, const char *character, size_t size, pcre2_match_data *match)
{
    return size && pcre2_match(additions->word_character.code, (PCRE2_SPTR)character, size, 0, PCRE2_NO_UTF_CHECK,
                               match, NULL) >= 0;
}

static bool is_single_word(const tx_additions *additions, const char *text, size_t size, const tx_found *found,
                           pcre2_match_data *match)
{
    size_t before = tx_utf8_read_last(text, found->begin, NULL);
    size_t after = tx_utf8_read(text + found->end, size - found->end, NULL);
    return !in_word(additions, text + found->begin - before, before, match) &&
           !in_word(additions, text + found->end, after, match);
}

/* Extends a token by the spaces around it. Spaces before it are limited by `floor`, the end of the last token, which
 * may already include all of a token that consists of spaces. */
static void add_spaces(const char *text, size_t size, size_t floor, tx_found *found)
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

/* Returns true if the marks allow the token at bytes begin..begin+size-1. If a normalizer changed the text, positions
 * are unknown and protected tokens are not allowed. */
static bool is_allowed(const tx_marks *marks, const tx_added *added, const char *begin, size_t size)
{
    const size_t all = marks->parts ? marks->part[marks->parts - 1].end : 0,
                 at = (uintptr_t)begin - (uintptr_t)marks->text;
    bool kept = added->special;
    for (size_t i = 0; i < marks->kept_count; i++)
        kept = kept || marks->kept[i] == added->id;
    if (!kept || at >= all)
        return !kept;
    size_t part = 0, high = marks->parts - 1; /* finds the first part that ends after `at` */
    while (part < high) {
        const size_t middle = part + (high - part) / 2;
        if (marks->part[middle].end <= at)
            part = middle + 1;
        else
            high = middle;
    }
    while (marks->part[part].frame && marks->part[part].end < at + size)
        part++;
    return marks->part[part].frame;
}

void tx_additions_find(const tx_additions *additions, int finder, const char *text, size_t size, bool special,
                       const tx_marks *marks, pcre2_match_data *match, tx_found *found)
{
    const tx_finder *f = additions->finder[finder];
    for (size_t at = found->resume; f && at < size; at++) {
        int32_t number = f->first[(unsigned char)text[at]] ? longest(f, text + at, size - at) : -1;
        if (number < 0)
            continue;
        const tx_added *added = &additions->at[number];
        const size_t end = at + strlen(added->sought);
        tx_found here = {added, at, end, end};
        at = here.end - 1; /* a rejected token still hides tokens that begin inside it */
        if ((added->special && !special) ||
            (marks && !is_allowed(marks, added, text + here.begin, here.end - here.begin)) ||
            (added->single_word && !is_single_word(additions, text, size, &here, match)))
            continue;
        add_spaces(text, size, found->end, &here);
        if (here.begin >= here.end)
            continue;
        *found = here;
        return;
    }
    *found = (tx_found){NULL, size, size, size};
}
