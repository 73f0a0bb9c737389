/* SPDX-License-Identifier: Apache-2.0
 * Makes a tokenizer.json of byte-level BPE from files that rank tokens instead of merges: tekken.json of Mistral and
 * tiktoken.model. Two adjacent tokens merge if their bytes are a token, the lowest rank first, so that every way to
 * divide a token is a merge with its rank. */
#include "models/tokenizer/tokenizer_make.h"

#include "models/tokenizer/charsmap.h"
#include "models/tokenizer/pieces.h"
#include "models/tokenizer/tokenizer_gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens in the order of their ranks. The token of rank r has the id first + r. */
typedef struct ranks {
    char **text; /* in letters (tx_letters) */
    int64_t count, room, first;
} ranks;

static void free_ranks(ranks *r)
{
    for (int64_t i = 0; i < r->count; i++)
        free(r->text[i]);
    free(r->text);
}

/* Adds the token of the next rank from base64. */
static tx_status add_token(ranks *r, const tx_letters *letters, const char *base64, size_t size)
{
    char bytes[TX_PIECE_MOST / 2];
    size_t count = 0;
    if (r->count >= r->room || size == 0 || size / 4 * 3 > sizeof bytes)
        return tx_fail(TX_FORMAT, "the token of rank %" PRId64 " is empty, too long, or one too many", r->count);
    TX_TRY(tx_fail_in(tx_base64_read(base64, size, bytes, &count), "the token of rank %" PRId64, r->count));
    r->text[r->count] = malloc(2 * count + 1);
    if (!r->text[r->count])
        return tx_fail(TX_MEMORY, "no memory for the tokens");
    tx_letters_write(letters, bytes, count, r->text[r->count++]);
    return TX_OK;
}

static tx_status add_merges(const ranks *r, tx_json *model)
{
    tx_json *merges = tx_json_array();
    TX_TRY(tx_json_set(model, "merges", merges));
    tx_named *names = calloc((size_t)r->count + 1, sizeof *names);
    double *score = calloc((size_t)r->count + 1, sizeof *score);
    bool *normal = calloc((size_t)r->count + 1, sizeof *normal);
    tx_status status =
        names && score && normal ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", r->count);
    for (int64_t i = 0; i < r->count && !status; i++) {
        names[i] = (tx_named){r->text[i], (int32_t)i};
        score[i] = -(double)i;
        normal[i] = true;
    }
    const char *twice = status ? NULL : tx_named_sort(names, (size_t)r->count);
    if (twice)
        status = tx_fail(TX_FORMAT, "the token %.64s occurs twice", twice);
    TX_THEN(status, tx_pieces_add_merges(&(tx_pieces){r->text, names, score, normal, (size_t)r->count, true}, merges));
    free(names);
    free(score);
    free(normal);
    return status;
}

/* Fills in the model, and splits words by a regular expression. */
static tx_status make_json(const ranks *r, const char *pattern, tx_making *m)
{
    tx_json *pattern_json, *step = NULL;
    TX_TRY(tx_making_begin(m, tx_tokenizer_frame));
    TX_TRY(tx_json_set_bool(m->model, "ignore_merges", true));
    for (int64_t i = 0; i < r->count; i++)
        TX_TRY(tx_json_set_int(m->vocab, r->text[i], r->first + i));
    TX_TRY(add_merges(r, m->model));
    TX_TRY(tx_making_set(m->json, "pre_tokenizer",
                         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
                         "\"\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
                         "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]}"));
    step = tx_json_at(tx_json_find(tx_json_find(m->json, "pre_tokenizer"), "pretokenizers"), 0);
    TX_TRY(tx_json_get(step, "pattern", TX_JSON_OBJECT, &pattern_json));
    return tx_json_set_string(pattern_json, "Regex", pattern);
}

/* ---- tekken.json ------------------------------------------------------------------------------------------------- */

/* Special tokens of files that do not list them. The others are <SPECIAL_20> and so on. */
static const char *const unlisted[] = {"<unk>",
                                       "<s>",
                                       "</s>",
                                       "[INST]",
                                       "[/INST]",
                                       "[AVAILABLE_TOOLS]",
                                       "[/AVAILABLE_TOOLS]",
                                       "[TOOL_RESULTS]",
                                       "[/TOOL_RESULTS]",
                                       "[TOOL_CALLS]",
                                       "[IMG]",
                                       "<pad>",
                                       "[IMG_BREAK]",
                                       "[IMG_END]",
                                       "[PREFIX]",
                                       "[MIDDLE]",
                                       "[SUFFIX]",
                                       "[SYSTEM_PROMPT]",
                                       "[/SYSTEM_PROMPT]",
                                       "[TOOL_CONTENT]"};
#define UNLISTED ((int64_t)(sizeof unlisted / sizeof unlisted[0]))

/* Finds the text of special token `id`. */
static tx_status special_of(const tx_json *list, int64_t id, char filler[32], const char **text)
{
    int64_t rank;
    snprintf(filler, 32, "<SPECIAL_%" PRId64 ">", id);
    *text = !list && id < UNLISTED ? unlisted[id] : filler;
    for (size_t i = 0; list && i < tx_json_size(list); i++) {
        TX_TRY(tx_json_get_int(tx_json_at(list, i), "rank", 0, TX_VOCAB_LIMIT, &rank));
        if (rank == id)
            return tx_json_get_string(tx_json_at(list, i), "token_str", text);
    }
    return TX_OK;
}

static tx_status add_specials(const tx_json *list, int64_t count, tx_making *m)
{
    char filler[32];
    const char *text;
    for (int64_t id = 0; id < count; id++) {
        TX_TRY(special_of(list, id, filler, &text));
        TX_TRY(tx_json_set_int(m->vocab, text, id));
        TX_TRY(tx_making_add(m, text, id, true));
    }
    return TX_OK;
}

static tx_status read_tekken(const tx_json *json, const tx_letters *letters, ranks *r, tx_making *m)
{
    const char *pattern, *base64;
    tx_json *settings, *vocab, *list = tx_json_find(json, "special_tokens");
    int64_t all, rank;
    list = list && tx_json_type_of(list) == TX_JSON_ARRAY ? list : NULL;
    TX_TRY(tx_json_get(json, "config", TX_JSON_OBJECT, &settings));
    TX_TRY(tx_json_get(json, "vocab", TX_JSON_ARRAY, &vocab));
    TX_TRY(tx_json_get_string(settings, "pattern", &pattern));
    TX_TRY(tx_json_get_int(settings, "default_num_special_tokens", 3, 1 << 16, &r->first));
    TX_TRY(tx_json_get_int(settings, "default_vocab_size", r->first + 256, TX_VOCAB_LIMIT, &all));
    r->room = all - r->first;
    if ((int64_t)tx_json_size(vocab) < r->room)
        return tx_fail(TX_FORMAT, "vocab: %zu tokens, not %" PRId64, tx_json_size(vocab), r->room);
    r->text = calloc((size_t)r->room, sizeof(char *));
    if (!r->text)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", r->room);
    for (int64_t i = 0; i < r->room; i++) {
        const tx_json *token = tx_json_at(vocab, (size_t)i);
        TX_TRY(tx_json_get_int(token, "rank", 0, TX_VOCAB_LIMIT, &rank));
        TX_TRY(tx_json_get_string(token, "token_bytes", &base64));
        if (rank != i)
            return tx_fail(TX_FORMAT, "vocab: rank %" PRId64 " instead of %" PRId64, rank, i);
        TX_TRY(add_token(r, letters, base64, strlen(base64)));
    }
    TX_TRY(make_json(r, pattern, m));
    TX_TRY(add_specials(list, r->first, m));
    TX_TRY(tx_making_roles(m, &(tx_roles){.bos = "<s>", .eos = "</s>", .unk = "<unk>"}));
    if (!tx_json_has(m->config, "add_bos_token"))
        TX_TRY(tx_json_set_bool(m->config, "add_bos_token", true));
    return tx_making_ends(m);
}

tx_status tx_make_of_tekken(const char *data, size_t size, tx_making *m)
{
    tx_letters letters;
    tx_json *json;
    ranks r = {0};
    tx_letters_make(&letters);
    TX_TRY(tx_json_parse(data, size, "tekken.json", &json));
    const tx_status status = read_tekken(json, &letters, &r, m);
    free_ranks(&r);
    tx_json_free(json);
    return status;
}

/* ---- tiktoken.model ---------------------------------------------------------------------------------------------- */

/* Lines of "base64 rank". */
static tx_status read_lines(const char *data, size_t size, const tx_letters *letters, ranks *r)
{
    const char *end = data + size;
    for (const char *at = data; at < end; at++)
        r->room += *at == '\n';
    r->text = calloc((size_t)++r->room, sizeof(char *));
    if (!r->text || r->room > TX_VOCAB_LIMIT)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", r->room);
    for (const char *at = data, *line; at < end; at = line + 1) {
        line = memchr(at, '\n', (size_t)(end - at));
        line = line ? line : end;
        const char *blank = memchr(at, ' ', (size_t)(line - at));
        char rank[24];
        snprintf(rank, sizeof rank, "%" PRId64, r->count);
        if (line == at)
            continue;
        if (!blank || (size_t)(line - blank) != strlen(rank) + 1 || memcmp(blank + 1, rank, strlen(rank)) != 0)
            return tx_fail(TX_FORMAT, "line %" PRId64 ": expected base64 and the rank %s", r->count + 1, rank);
        TX_TRY(add_token(r, letters, at, (size_t)(blank - at)));
    }
    return TX_OK;
}

/* The regular expression is only in the Python code of a class. */
static tx_status find_pattern(const tx_making *m, const char **pattern)
{
    static const char *const kimi[] = {"kimi_k2", "kimi_k25", "kimi_linear", "kimi_vl"};
    const char *name = "", *type = "";
    TX_TRY(TX_JSON_OPTIONAL(string, m->config, "tokenizer_class", &name));
    if (m->model_config)
        TX_TRY(TX_JSON_OPTIONAL(string, m->model_config, "model_type", &type));
    bool known = strcmp(name, "TikTokenTokenizer") == 0;
    for (size_t i = 0; i < sizeof kimi / sizeof kimi[0]; i++)
        known = known || strcmp(type, kimi[i]) == 0;
    *pattern = tx_gguf_split_of("kimi-k2")->regex[0];
    return known ? TX_OK
                 : tx_fail(TX_UNSUPPORTED,
                           "the regular expression of a %.40s is only in Python code: load the tokenizer "
                           "by transformers' AutoTokenizer and save it as tokenizer.json",
                           *name ? name : "tokenizer without a class");
}

tx_status tx_make_of_tiktoken(const char *data, size_t size, tx_making *m)
{
    const char *pattern;
    tx_letters letters;
    ranks r = {0};
    tx_letters_make(&letters);
    TX_TRY(find_pattern(m, &pattern));
    tx_status status = read_lines(data, size, &letters, &r);
    TX_THEN(status, make_json(&r, pattern, m));
    free_ranks(&r);
    return status;
}
