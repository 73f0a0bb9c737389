/* SPDX-License-Identifier: Apache-2.0
 * Replaces numbers in JSON that jansson refuses. */
#include "api/base/json_mark.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || (c && strchr("+-.eE", c));
}

/* Whether a text is only an integer beyond int64. */
static bool is_beyond(const char *text)
{
    char *end;
    errno = 0;
    strtoll(text, &end, 10);
    return errno == ERANGE && !*end;
}

/* The length of a word for a number at the start of the text, or 0. */
static size_t word_at(const char *text, size_t left)
{
    static const char *const words[] = {"Infinity", "-Infinity", "NaN"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (left >= strlen(words[i]) && memcmp(text, words[i], strlen(words[i])) == 0)
            return strlen(words[i]);
    return 0;
}

char *tx_json_mark(const char *text, bool words, size_t *size)
{
    const size_t end = *size, room = (words ? 8 * end : end + end / 8) + 1; /* the object for NaN has 20 bytes */
    char *copy = malloc(room);
    size_t used = 0;
    bool quoted = false;
    for (size_t i = 0, length; copy && i < end; i += length) {
        if (words && !quoted && (length = word_at(text + i, end - i)) > 0) {
            used += (size_t)snprintf(copy + used, room - used, "{\"__float__\": \"%.*s\"}", (int)length, text + i);
            continue;
        }
        length = 1;
        if (quoted && text[i] == '\\' && i + 1 < end)
            length = 2;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && in_number(text[i]))
            while (i + length < end && in_number(text[i + length]))
                length++;
        memcpy(copy + used, text + i, length);
        copy[used + length] = '\0';
        const bool beyond = !quoted && is_beyond(copy + used);
        used += length;
        if (beyond) {
            memcpy(copy + used, "e0", 2);
            used += 2;
        }
    }
    *size = used;
    return copy;
}
