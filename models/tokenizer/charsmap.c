/* SPDX-License-Identifier: Apache-2.0
 * SentencePiece's map of characters. Its format: the trie's bytes, a double array of 32-bit units (Yata, Tamura, 2007),
 * and the replacements, each with a NUL. As in Hugging Face's tokenizers, a grapheme cluster of less than 6 bytes gets
 * the replacement of the shortest key that it begins with. Other clusters are replaced character by character. */
#include "models/tokenizer/charsmap.h"
#include "models/tokenizer/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

#define CLUSTER_MOST 5
#define HEAD sizeof(uint32_t)

/* ---- Base64 -------------------------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c)
{
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

tx_status tx_base64_read(const char *text, size_t size, char *bytes, size_t *result)
{
    size_t used = 0, end = size;
    uint32_t bits = 0;
    while (end > 0 && size - end < 2 && text[end - 1] == '=')
        end--;
    for (size_t i = 0; i < end; i++) {
        const int value = value_of(text[i]);
        if (value < 0 || size % 4)
            return tx_fail(TX_FORMAT, "not base64 at character %zu of %zu", i + 1, size);
        bits = bits << 6 | (uint32_t)value;
        if (i % 4)
            bytes[used++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    *result = used;
    return TX_OK;
}

tx_status tx_charsmap_text(const char *data, size_t size, char **text)
{
    char *created = malloc(size / 3 * 4 + 5), *at = created;
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for a map of characters");
    for (size_t i = 0; i < size; i += 3) {
        uint32_t bits = 0;
        for (size_t k = i; k < i + 3; k++)
            bits = bits << 8 | (k < size ? (unsigned char)data[k] : 0);
        for (size_t k = 0; k < 4; k++)
            *at++ = (char)(i + k > size ? '=' : digits[bits >> (18 - 6 * k) & 63]);
    }
    *at = '\0';
    *text = created;
    return TX_OK;
}

static uint32_t number_at(const char *data)
{
    const unsigned char *at = (const unsigned char *)data;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* ---- Searching ----------------------------------------------------------------------------------- */

/* A unit's number, or one that has no label if the trie is damaged. */
static uint32_t unit_at(const tx_charsmap *map, uint32_t at)
{
    return at < map->units ? number_at(map->data + HEAD + sizeof(uint32_t) * at) : UINT32_MAX;
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* The replacement of the shortest key that a text begins with, or NULL. */
static const char *find(const tx_charsmap *map, const char *key, size_t size, tx_status *status)
{
    uint32_t at = offset_of(unit_at(map, 0));
    for (size_t i = 0; i < size && key[i]; i++) {
        const uint32_t label = (unsigned char)key[i];
        at ^= label;
        const uint32_t unit = unit_at(map, at);
        if ((unit & (1u << 31 | 0xFF)) != label)
            return NULL;
        at ^= offset_of(unit);
        if (unit >> 8 & 1) {
            const char *texts = map->data + HEAD + sizeof(uint32_t) * map->units, *end = map->data + map->size;
            const uint32_t value = unit_at(map, at) & (UINT32_MAX >> 1);
            if (value <= (size_t)(end - texts) && ((unsigned char)texts[value] & 0xC0) != 0x80)
                return texts + value;
            *status = tx_fail(TX_UNSUPPORTED, "precompiled_charsmap: the map of characters is damaged");
            return NULL;
        }
    }
    return NULL;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

static tx_status check(tx_charsmap *map)
{
    tx_status status = TX_OK;
    const uint32_t trie = map->size < HEAD ? 0 : number_at(map->data);
    if (trie < sizeof(uint32_t) || trie % sizeof(uint32_t) || trie > map->size - HEAD)
        return tx_fail(TX_FORMAT, "precompiled_charsmap: %zu bytes are not a map of characters", map->size);
    const size_t left = map->size - HEAD - trie;
    if (tx_utf8_prefix(map->data + HEAD + trie, left) != left)
        return tx_fail(TX_FORMAT, "precompiled_charsmap: its replacements are not UTF-8");
    map->units = trie / (uint32_t)sizeof(uint32_t);
    for (int c = 0; c < 128; c++)
        map->changed[c] = find(map, (const char[]){(char)c}, 1, &status) != NULL;
    return status;
}

tx_status tx_charsmap_read(const char *text, size_t size, tx_charsmap **map)
{
    tx_charsmap *created = calloc(1, sizeof *created);
    if (created)
        created->data = malloc(size + 1);
    tx_status status = created && created->data ? TX_OK : tx_fail(TX_MEMORY, "no memory for a map of characters");
    TX_THEN(status, tx_fail_in(tx_base64_read(text, size, created->data, &created->size), "precompiled_charsmap"));
    if (!status) {
        created->data[created->size] = '\0'; /* ends the last replacement */
        status = check(created);
    }
    return TX_RETURN(status, created, map, tx_charsmap_free);
}

void tx_charsmap_free(tx_charsmap *map)
{
    if (!map)
        return;
    free(map->data);
    free(map);
}

/* ---- Replacing ----------------------------------------------------------------------------------- */

/* Length of the grapheme cluster at the beginning of a text. */
static size_t cluster(const char *text, size_t size)
{
    utf8proc_int32_t state = 0;
    uint32_t before, code;
    size_t end = tx_utf8_read(text, size, &before);
    while (end < size) {
        const size_t length = tx_utf8_read(text + end, size - end, &code);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)code, &state))
            break;
        end += length;
        before = code;
    }
    return end;
}

/* Returns true if a character is ASCII, is a cluster, and has no replacement. */
static bool is_plain(const tx_charsmap *map, const char *text, size_t size)
{
    const unsigned char c = (unsigned char)*text;
    return c < 0x80 && !map->changed[c] && (size == 1 || ((unsigned char)text[1] < 0x80 && c != '\r'));
}

void tx_charsmap_run(const tx_charsmap *map, const char *text, size_t size, tx_buffer *out)
{
    const char *created;
    for (size_t at = 0, end; at < size && !out->status; at = end) {
        end = at;
        while (end < size && is_plain(map, text + end, size - end))
            end++;
        tx_buffer_add(out, text + at, end - at);
        if (end > at)
            continue;
        end += cluster(text + at, size - at);
        created = end - at <= CLUSTER_MOST ? find(map, text + at, end - at, &out->status) : NULL;
        if (created) {
            tx_buffer_add(out, created, strlen(created));
            continue;
        }
        for (size_t length; at < end; at += length) {
            length = tx_utf8_read(text + at, end - at, NULL);
            created = find(map, text + at, length, &out->status);
            tx_buffer_add(out, created ? created : text + at, created ? strlen(created) : length);
        }
    }
}
