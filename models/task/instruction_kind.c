/* SPDX-License-Identifier: Apache-2.0
 * Decides whether a file holds instruction data. Only the keys of its first object are read, in pieces, so that the
 * file may be of any size. */
#include "models/task/instruction.h"

#include "models/files/data_file.h"
#include "models/names.h"

#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)1 << 16)
/* Maximum bytes of a key. Longer keys are unknown ones. */
#define KEY 64

typedef struct scan {
    tx_data_file file;
    int64_t at; /* of the next piece */
    char *piece;
    size_t held, next;
} scan;

/* The next byte, or -1 at the end or after a read error. */
static int next_byte(scan *s)
{
    if (s->next == s->held) {
        const int64_t left = s->file.size - s->at;
        s->held = left < (int64_t)PIECE ? (size_t)left : PIECE;
        s->next = 0;
        if (!s->held || tx_data_file_read(&s->file, s->at, s->piece, s->held))
            s->held = 0;
        s->at += (int64_t)s->held;
    }
    return s->next < s->held ? (unsigned char)s->piece[s->next++] : -1;
}

/* The first byte that is not in `skipped`. */
static int next_but(scan *s, const char *skipped)
{
    int c = next_byte(s);
    while (c > 0 && strchr(skipped, c))
        c = next_byte(s);
    return c;
}

/* Reads a string up to its closing quote. The text is "" if it is longer than a key. False at the end of the file. */
static bool read_string(scan *s, char text[KEY])
{
    size_t size = 0;
    for (int c = next_byte(s); c >= 0; c = next_byte(s)) {
        if (c == '"') {
            text[size < KEY ? size : 0] = '\0';
            return true;
        }
        if (c == '\\')
            c = next_byte(s);
        if (size < KEY)
            text[size] = (char)c;
        size += size < KEY;
    }
    return false;
}

/* Adds the keys of the first object, except keys with the value null, as members that are true. */
static tx_status read_keys(scan *s, tx_json *keys)
{
    static const char blanks[] = " \t\r\n";
    char text[KEY], key[KEY] = "";
    int64_t depth = next_but(s, "\xEF\xBB\xBF \t\r\n[") == '{';
    bool names = true; /* a string would be a key */
    for (int c = depth ? next_but(s, blanks) : -1; c >= 0 && depth > 0; c = next_but(s, blanks)) {
        if (c == '"' && !read_string(s, text))
            break;
        if (c == '"' && depth == 1 && names)
            memcpy(key, text, KEY);
        else if (c == ':' && depth == 1 && *key) {
            const int value = next_but(s, blanks);
            if (value != 'n' && value >= 0 && tx_json_set_bool(keys, key, true) == TX_MEMORY)
                return TX_MEMORY;  /* other errors: a key that is not UTF-8 is an unknown one */
            s->next -= value >= 0; /* put the byte back */
            *key = '\0';
            names = false;
        } else if (c == ',' && depth == 1)
            names = true;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
    }
    return TX_OK;
}

tx_status tx_instruction_find(const char *path, bool *is)
{
    scan s = {0};
    *is = false;
    if (!(tx_ends_with(path, ".jsonl") || tx_ends_with(path, ".json")) || tx_data_file_open(path, &s.file))
        return TX_OK;
    tx_json *keys = tx_json_object();
    s.piece = malloc(PIECE);
    tx_status status = keys && s.piece ? read_keys(&s, keys) : tx_fail(TX_MEMORY, "%s: no memory to read it", path);
    if (!status && tx_chat_form_of(keys) != TX_CHAT_FORMS)
        *is = true;
    else if (!status && !tx_json_has(keys, "text"))
        status = tx_fail_in(tx_chat_foreign(keys), "%s: the first sample", path);
    tx_json_free(keys);
    free(s.piece);
    tx_data_file_close(&s.file);
    return status;
}
