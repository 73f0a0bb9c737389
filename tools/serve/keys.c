/* SPDX-License-Identifier: Apache-2.0
 * API keys and their limits: requests at once, and tokens in a minute. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WINDOW 60 /* seconds of the limit of tokens */
#define BLANKS " \t\r"

/* A ring of the last seconds: the number of a second, and the tokens in it. */
typedef struct window {
    int64_t second[WINDOW], tokens[WINDOW];
} window;

struct serve_key {
    char *text;
    int64_t parallel, per_minute; /* limits; 0 for none */
    int64_t running;              /* requests that have no answer yet */
    window *used;                 /* NULL without a limit of tokens */
};

/* ---- The file ------------------------------------------------------------------------------------------- */

/* The last word of a line if it is NAME=VALUE and not the first word; else NULL. */
static char *last_limit(char *line)
{
    size_t size = strlen(line);
    while (size && !strchr(BLANKS, line[size - 1]))
        size--;
    const size_t name = strspn(line + size, "abcdefghijklmnopqrstuvwxyz_");
    return size && name && line[size + name] == '=' ? line + size : NULL;
}

static void cut_blanks(char *line)
{
    size_t size = strlen(line);
    while (size && strchr(BLANKS, line[size - 1]))
        line[--size] = 0;
}

static tx_status read_limit(serve_key *key, const char *word)
{
    const size_t size = strcspn(word, "=");
    char *end = NULL;
    const long long value = strtoll(word + size + 1, &end, 10);
    int64_t *to = size == 21 && strncmp(word, "max_parallel_requests", size) == 0 ? &key->parallel
                  : size == 9 && strncmp(word, "tpm_limit", size) == 0            ? &key->per_minute
                                                                                  : NULL;
    if (!to)
        return tx_fail(TX_INVALID, "%.40s: unknown limit: use max_parallel_requests=N or tpm_limit=N", word);
    if (value < 1 || value > INT32_MAX || *end || *to)
        return tx_fail(TX_INVALID, "%.60s: give the limit once, as a number from 1 to %d", word, INT32_MAX);
    *to = value;
    return TX_OK;
}

/* Reads "KEY [LIMIT=N]...". A key may have blanks. */
static tx_status read_key(serve_key *key, char *line)
{
    *key = (serve_key){.text = line + strspn(line, BLANKS)};
    cut_blanks(key->text);
    for (char *word; (word = last_limit(key->text)) != NULL; cut_blanks(key->text)) {
        TX_TRY(read_limit(key, word));
        *word = 0;
    }
    key->used = key->per_minute ? calloc(1, sizeof *key->used) : NULL;
    return key->used || !key->per_minute ? TX_OK : tx_fail(TX_MEMORY, "no memory for API keys");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const serve_key *)a)->text, ((const serve_key *)b)->text);
}

tx_status serve_read_keys(serve_server *s, const char *path)
{
    size_t room = 0;
    int64_t number = 0;
    TX_TRY(tx_file_read_text(path, 1 << 20, &s->key_text, &room));
    room = 0;
    for (char *line = s->key_text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        number++;
        if (!line[strspn(line, BLANKS)])
            continue;
        TX_TRY(tx_array_reserve(&s->keys, &room, (size_t)s->key_count + 1, sizeof *s->keys, "API keys"));
        TX_TRY(tx_fail_in(read_key(&s->keys[s->key_count++], line), "%s: line %" PRId64, path, number));
    }
    if (!s->key_count)
        return tx_fail(TX_INVALID, "%s: the file has no API key", path);
    qsort(s->keys, (size_t)s->key_count, sizeof *s->keys, by_text);
    for (int64_t i = 1; i < s->key_count; i++)
        if (by_text(&s->keys[i - 1], &s->keys[i]) == 0)
            return tx_fail(TX_INVALID, "%s: a key is in the file twice: remove one of them", path);
    return TX_OK;
}

void serve_free_keys(serve_server *s)
{
    for (int64_t i = 0; i < s->key_count; i++)
        free(s->keys[i].used);
    free(s->keys);
    free(s->key_text);
}

/* ---- Senders -------------------------------------------------------------------------------------------- */

/* Compares in a time that depends only on the length of the header. */
static bool equal(const char *key, const char *given)
{
    const size_t count = strlen(given), size = strlen(key);
    unsigned char differ = size != count;
    for (size_t i = 0; i < count; i++)
        differ |= (unsigned char)(given[i] ^ key[size ? i % size : 0]);
    return !differ;
}

bool serve_find_key(const serve_server *s, const serve_sender *sender, serve_key **key)
{
    const char *given = sender->authorization;
    *key = NULL;
    if (!s->key_count || !given || strncasecmp(given, "Bearer ", 7) != 0)
        return !s->key_count;
    for (int64_t i = 0; i < s->key_count; i++)
        *key = equal(s->keys[i].text, given + 7) ? &s->keys[i] : *key;
    return *key != NULL;
}

/* ---- Limits --------------------------------------------------------------------------------------------- */

bool serve_enter(serve_key *key)
{
    if (!key)
        return true;
    if (key->parallel && key->running >= key->parallel) {
        tx_fail(TX_INVALID, "the API key has %" PRId64 " request%s at once: wait for an answer", key->parallel,
                tx_s(key->parallel));
        return false;
    }
    key->running++;
    return true;
}

void serve_leave(serve_key *key)
{
    if (key)
        key->running--;
}

void serve_count_tokens(serve_key *key, int64_t tokens)
{
    window *w = key ? key->used : NULL;
    if (!w)
        return;
    const int64_t now = (int64_t)tx_now(), at = now % WINDOW;
    w->tokens[at] = (w->second[at] == now ? w->tokens[at] : 0) + tokens;
    w->second[at] = now;
}

int64_t serve_seconds_until(const serve_key *key, int64_t tokens)
{
    const window *w = key ? key->used : NULL;
    const int64_t now = (int64_t)tx_now();
    for (int64_t after = 0; w && after < WINDOW; after++) {
        int64_t used = 0;
        for (int64_t i = 0; i < WINDOW; i++)
            used += w->second[i] > now - WINDOW + after ? w->tokens[i] : 0;
        if (!used || used + tokens <= key->per_minute)
            return after;
    }
    return w ? WINDOW : 0;
}
