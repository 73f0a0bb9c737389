/* SPDX-License-Identifier: Apache-2.0
 * Writes random texts that follow grammars, for follow.py:
 *
 *     follow TOKENIZER [mutate] < LINES
 *
 * A line has the members of a part ("kind", "text", "json"), or "parts" with several, and "seed" and "limit", of
 * tokens. The answer is a line: "text" and "finish", or "error". The last line has the microseconds of a token. With
 * `mutate` the fifth token of each text is any. */
#include "models/grammar/constraint.h"
#include "models/tokenizer/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARTS = 16 };

typedef struct program {
    const tx_tokenizer *tokenizer;
    tx_vocabulary *vocabulary;
    int32_t *closing; /* tokens that may end strings, arrays and objects */
    int64_t closings, tokens;
    double seconds, slowest;
    bool mutate;
} program;

/* Other programs do not count. */
static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static uint64_t draw(uint64_t *seed)
{
    return *seed = tx_hash_draw(*seed);
}

static bool is_allowed(const tx_allowed *a, int32_t id)
{
    return id < a->count && (a->bits[id / 32] >> id % 32 & 1);
}

/* A random allowed token; often one that closes, the more so the longer the text is. -1 if there is none. */
static int32_t choose(const program *p, const tx_allowed *a, int64_t length, uint64_t *seed)
{
    if (draw(seed) % 100 < (uint64_t)(10 + length)) {
        const int64_t first = (int64_t)(draw(seed) >> 33) % p->closings;
        for (int64_t i = 0; i < p->closings; i++)
            if (is_allowed(a, p->closing[(first + i) % p->closings]))
                return p->closing[(first + i) % p->closings];
    }
    const int64_t first = (int64_t)(draw(seed) >> 33) % a->count;
    for (int64_t i = 0; i < a->count; i++)
        if (is_allowed(a, (int32_t)((first + i) % a->count)))
            return (int32_t)((first + i) % a->count);
    return -1;
}

/* Writes a text of at most `limit` tokens to `ids`. */
static tx_status write_text(program *p, tx_constraint *c, uint64_t seed, int64_t limit, tx_ids *ids, bool *done)
{
    *done = false;
    while ((int64_t)ids->count < limit) {
        tx_allowed allowed;
        const double begun = cpu_seconds();
        TX_TRY(tx_constraint_allowed(c, &allowed));
        const double seconds = cpu_seconds() - begun;
        p->seconds += seconds;
        p->slowest = seconds > p->slowest ? seconds : p->slowest;
        p->tokens++;
        int32_t id = choose(p, &allowed, (int64_t)ids->count, &seed);
        *done = allowed.ends && (id < 0 || draw(&seed) % 4 == 0);
        if (*done)
            return TX_OK;
        if (id < 0)
            return tx_fail(TX_INVALID, "no token is allowed");
        TX_TRY(tx_ids_reserve(ids, 1));
        if (p->mutate && ids->count == 4) { /* the constraint follows the right token */
            TX_TRY(tx_constraint_add(c, id, done));
            id = (int32_t)(draw(&seed) % 256);
        } else {
            TX_TRY(tx_constraint_add(c, id, done));
        }
        ids->id[ids->count++] = id;
        if (*done)
            return TX_OK;
    }
    return TX_OK;
}

static tx_status read_part(const tx_json *from, tx_grammar_part *part)
{
    static const char *const kinds[] = {"text", "regex", "gbnf", "choice", "schema", "or"};
    const char *kind = "";
    TX_TRY(tx_json_get_string(from, "kind", &kind));
    for (int k = 0; k < 6; k++)
        if (strcmp(kind, kinds[k]) == 0)
            part->kind = (tx_grammar_kind)k;
    part->json = tx_json_has(from, "json") ? tx_json_find(from, "json") : NULL;
    return TX_JSON_OPTIONAL(string, from, "text", &part->text);
}

static tx_status answer(program *p, const tx_json *line, tx_grammar **grammar, tx_constraint **constraint, tx_ids *ids)
{
    tx_grammar_part part[PARTS] = {{.kind = TX_GRAMMAR_TEXT}};
    tx_json *parts = NULL;
    int64_t seed = 0, limit = 200;
    char *text = NULL;
    size_t size = 0, count = 1;
    bool done = false;
    TX_TRY(TX_JSON_OPTIONAL(int, line, "seed", 0, INT64_MAX, &seed));
    TX_TRY(TX_JSON_OPTIONAL(int, line, "limit", 1, INT64_MAX, &limit));
    if (tx_json_has(line, "parts"))
        TX_TRY(tx_json_get(line, "parts", TX_JSON_ARRAY, &parts));
    count = parts ? tx_json_size(parts) : 1;
    for (size_t i = 0; i < count && i < PARTS; i++)
        TX_TRY(read_part(parts ? tx_json_at(parts, i) : line, &part[i]));
    TX_TRY(tx_grammar_create(part, count, p->vocabulary, grammar));
    TX_TRY(tx_constraint_create(*grammar, constraint));
    TX_TRY(write_text(p, *constraint, (uint64_t)seed, limit, ids, &done));
    TX_TRY(tx_tokenizer_decode(p->tokenizer, ids->id, ids->count, true, &text, &size));
    tx_json *result = tx_json_pack("{s:s%, s:s}", "text", text, size, "finish", done ? "stop" : "length");
    free(text);
    if (!result) /* half a character at the limit */
        result = tx_json_pack("{s:s}", "finish", "length");
    char *json = tx_json_text(result, TX_JSON_LINE);
    tx_json_free(result);
    printf("%s\n", json ? json : "{}");
    free(json);
    return TX_OK;
}

static void run_line(program *p, const char *line)
{
    tx_json *json = NULL;
    tx_grammar *grammar = NULL;
    tx_constraint *constraint = NULL;
    tx_ids ids = {0};
    const double begun = cpu_seconds();
    tx_status status = tx_json_parse(line, strlen(line), "line", &json);
    TX_THEN(status, answer(p, json, &grammar, &constraint, &ids));
    if (status) {
        tx_json *error = tx_json_pack("{s:s, s:f}", "error", tx_error(), "seconds", cpu_seconds() - begun);
        char *text = tx_json_text(error, TX_JSON_LINE);
        printf("%s\n", text);
        free(text);
        tx_json_free(error);
    }
    tx_constraint_free(constraint);
    tx_grammar_free(grammar);
    free(ids.id);
    tx_json_free(json);
}

static tx_status open_program(program *p, const char *path, tx_tokenizer **tokenizer)
{
    TX_TRY(tx_tokenizer_open(path, tokenizer));
    p->tokenizer = *tokenizer;
    const double begun = cpu_seconds();
    TX_TRY(tx_vocabulary_create(*tokenizer, &p->vocabulary));
    fprintf(stderr, "%d tokens, trie in %.0f ms\n", (int)tx_tokenizer_size(*tokenizer), (cpu_seconds() - begun) * 1e3);
    p->closing = malloc((size_t)tx_tokenizer_size(*tokenizer) * sizeof *p->closing);
    for (int32_t id = 0; id < tx_tokenizer_size(*tokenizer); id++) {
        const char *bytes;
        size_t size;
        if (!tx_tokenizer_piece(*tokenizer, id, true, &bytes, &size) && size > 0 && strchr("\"]}", bytes[0]))
            p->closing[p->closings++] = id;
    }
    return TX_OK;
}

int main(int argc, char **argv)
{
    static char line[1 << 21];
    tx_tokenizer *tokenizer = NULL;
    program p = {.mutate = argc > 2};
    if (argc < 2 || open_program(&p, argv[1], &tokenizer)) {
        fprintf(stderr, "%s\n", tx_error());
        return 1;
    }
    while (fgets(line, sizeof line, stdin))
        run_line(&p, line);
    printf("{\"microseconds\": %.1f, \"slowest\": %.1f, \"tokens\": %d}\n",
           p.seconds * 1e6 / (double)(p.tokens + !p.tokens), p.slowest * 1e6, (int)p.tokens);
    free(p.closing);
    tx_vocabulary_free(p.vocabulary);
    tx_tokenizer_free(tokenizer);
    return 0;
}
