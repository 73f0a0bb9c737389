/* SPDX-License-Identifier: Apache-2.0
 * Makes a tokenizer.json from the tokens and the merges or scores of a GGUF file. */
#include "models/tokenizer/tokenizer_gguf.h"

#include "models/tokenizer/bpe.h"
#include "models/tokenizer/pieces.h"
#include "models/tokenizer/tokenizer_spm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer.json"
#define KEY(rest) "tokenizer.ggml." rest
/* Maximum bytes of a token. */
#define MAX_TOKEN TX_PIECE_MOST

typedef struct reading {
    const tx_gguf_file *file;
    const tx_gguf_split *split; /* NULL for SentencePiece */
    tx_gguf_array tokens, types, scores, merges;
    char **text;                /* of each token, with a NUL */
    tx_named *names;            /* tokens, sorted */
    bool prefix, words, scored; /* `words` for WordPiece, `scored` for Unigram */
} reading;

/* A tokenizer.json for SentencePiece, without its tokens and merges. */
static const char piece_frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [],"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
    "\"\xe2\x96\x81\"},"
    " {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}]},"
    " \"pre_tokenizer\": null, \"post_processor\": null,"
    " \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\":"
    " \"\xe2\x96\x81\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
    " {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null,"
    " \"end_of_word_suffix\": null, \"fuse_unk\": true, \"byte_fallback\": true, \"vocab\": {}, \"merges\": []}}";
#define SPACES METASPACE("always", "true")
static const char unigram_frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null,"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, " SPACES "]},"
    " \"post_processor\": null, \"decoder\": " SPACES ", \"model\": {\"type\": \"Unigram\", \"unk_id\": null,"
    " \"byte_fallback\": false, \"vocab\": []}}";
static const char no_prefix[] =
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}";
static const char no_strip[] =
    "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"\xe2\x96\x81\"},"
    " \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}";
static const char nfc[] = "{\"type\": \"NFC\"}";
static const char split_frame[] = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\"}, \"behavior\": \"Isolated\","
                                  " \"invert\": false}";

static tx_status set_parsed(tx_json *json, const char *key, const char *text, size_t size)
{
    tx_json *value;
    TX_TRY(tx_json_parse(text, size, key, &value));
    return tx_json_set(json, key, value);
}

/* ---- Tokens ------------------------------------------------------------------------------------------ */

static tx_status read_arrays(reading *r)
{
    TX_TRY(tx_gguf_get_array(r->file, KEY("tokens"), true, &r->tokens));
    TX_TRY(TX_GGUF_OPTIONAL(array, r->file, KEY("token_type"), false, &r->types));
    const tx_status status = r->words ? TX_OK
                                      : tx_gguf_get_array(r->file, r->split ? KEY("merges") : KEY("scores"),
                                                          r->split != NULL, r->split ? &r->merges : &r->scores);
    if (status)
        return status == TX_NOT_FOUND ? tx_fail(TX_FORMAT, "has neither merges nor scores") : status;
    const int64_t count = r->tokens.count;
    if (count < 1 || count > TX_VOCAB_LIMIT || (r->types.number && r->types.count != count) ||
        (r->scores.number && r->scores.count != count))
        return tx_fail(TX_FORMAT, "%" PRId64 " tokens, %" PRId64 " types and %" PRId64 " scores", count, r->types.count,
                       r->scores.count);
    return TX_OK;
}

/* Copies the tokens' texts with a NUL, and makes an index of them. */
static tx_status name_tokens(reading *r)
{
    r->text = calloc((size_t)r->tokens.count, sizeof(char *));
    r->names = calloc((size_t)r->tokens.count, sizeof *r->names);
    if (!r->text || !r->names)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", r->tokens.count);
    for (int64_t id = 0; id < r->tokens.count; id++) {
        const size_t size = r->tokens.size[id];
        if (size > MAX_TOKEN || memchr(r->tokens.text[id], '\0', size))
            return tx_fail(TX_FORMAT, "token %" PRId64 " is longer than %d bytes or contains NUL", id, MAX_TOKEN);
        r->text[id] = strndup(r->tokens.text[id], size);
        if (!r->text[id])
            return tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", r->tokens.count);
        r->names[id] = (tx_named){r->text[id], (int32_t)id};
    }
    const char *twice = tx_named_sort(r->names, (size_t)r->tokens.count);
    return twice ? tx_fail(TX_FORMAT, "the token %.64s occurs twice", twice) : TX_OK;
}

static int type_of(const reading *r, int64_t id)
{
    const double type = r->types.number ? r->types.number[id] : 0;
    return type > TX_GGUF_TOKEN_NORMAL && type <= TX_GGUF_TOKEN_BYTE ? (int)type : TX_GGUF_TOKEN_NORMAL;
}

static tx_status add_tokens(const reading *r, tx_json *json, tx_json *model)
{
    tx_json *vocab = tx_json_find(model, "vocab"), *added;
    tx_making list = {.vocab = vocab};
    int64_t count = r->tokens.count;
    while (r->scored && count > 0 && type_of(r, count - 1) == TX_GGUF_TOKEN_UNUSED) /* rows of the model's tables */
        count--;
    TX_TRY(tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &added));
    for (int64_t id = 0; id < count; id++) {
        const int type = type_of(r, id);
        TX_TRY(r->scored ? tx_spm_add_scored(&list, r->text[id], r->scores.number[id])
                         : tx_json_set_int(vocab, r->text[id], id));
        if (type == TX_GGUF_TOKEN_CONTROL || type == TX_GGUF_TOKEN_USER_DEFINED || type == TX_GGUF_TOKEN_UNKNOWN)
            TX_TRY(tx_added_write(&(tx_added){.id = (int32_t)id, .special = type != TX_GGUF_TOKEN_USER_DEFINED},
                                  r->text[id], added));
        if (type == TX_GGUF_TOKEN_UNKNOWN)
            TX_TRY(r->scored ? tx_json_set_int(model, "unk_id", id)
                             : tx_json_set_string(model, "unk_token", r->text[id]));
    }
    return TX_OK;
}

/* ---- Merges ------------------------------------------------------------------------------------------ */

/* Derives the merges from the scores. */
static tx_status add_scored(const reading *r, tx_json *merges)
{
    bool *normal = calloc((size_t)r->tokens.count, sizeof *normal);
    if (!normal)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", r->tokens.count);
    for (int64_t id = 0; id < r->tokens.count; id++)
        normal[id] = type_of(r, id) == TX_GGUF_TOKEN_NORMAL && r->scores.number[id] == r->scores.number[id];
    const tx_pieces pieces = {r->text, r->names, r->scores.number, normal, (size_t)r->tokens.count, false};
    const tx_status status = tx_pieces_add_merges(&pieces, merges);
    free(normal);
    return status;
}

/* Copies the merges that the file lists as "left right". */
static tx_status add_listed(const reading *r, tx_json *merges)
{
    for (int64_t i = 0; i < r->merges.count; i++) {
        const char *text = r->merges.text[i];
        const size_t size = r->merges.size[i];
        const char *blank = size ? memchr(text + 1, ' ', size - 1) : NULL;
        if (!blank || size > MAX_TOKEN || memchr(text, '\0', size))
            return tx_fail(TX_FORMAT, KEY("merges") ": number %" PRId64 " is not a pair", i);
        char right[MAX_TOKEN + 1];
        snprintf(right, sizeof right, "%.*s", (int)(size - (size_t)(blank + 1 - text)), blank + 1);
        TX_TRY(tx_pieces_add_merge(text, (size_t)(blank - text), right, merges));
    }
    return TX_OK;
}

/* ---- Unigram ----------------------------------------------------------------------------------------- */

/* Adds the map of characters. Spaces are treated as SentencePiece's models do by default. */
static tx_status add_charsmap(const reading *r, tx_json *json)
{
    bool merges = true;
    tx_gguf_array map = {0};
    tx_json *step = tx_json_object();
    char *text = NULL;
    TX_TRY(tx_json_set(json, "normalizer", step));
    TX_TRY(TX_GGUF_OPTIONAL(bool, r->file, TX_GGUF_MERGE_SPACES, &merges));
    if (!merges || !r->prefix)
        return tx_fail(TX_UNSUPPORTED, TX_GGUF_MERGE_SPACES " and " KEY("add_space_prefix") " must be true");
    if (!tx_gguf_has(r->file, TX_GGUF_CHARSMAP))
        return tx_json_set_null(json, "normalizer");
    TX_TRY(tx_json_set_string(step, "type", "Precompiled"));
    TX_TRY(tx_gguf_get_array(r->file, TX_GGUF_CHARSMAP, false, &map));
    char *bytes = malloc((size_t)map.count + 1);
    tx_status status = bytes ? TX_OK : tx_fail(TX_MEMORY, "no memory for a map of characters");
    for (int64_t i = 0; i < map.count && !status; i++) {
        if (map.number[i] >= INT8_MIN && map.number[i] <= UINT8_MAX)
            bytes[i] = (char)(int)map.number[i];
        else
            status = tx_fail(TX_FORMAT, TX_GGUF_CHARSMAP ": %g is not a byte", map.number[i]);
    }
    TX_THEN(status, tx_charsmap_text(bytes, (size_t)map.count, &text));
    TX_THEN(status, tx_json_set_string(step, "precompiled_charsmap", text));
    free(bytes);
    free(text);
    tx_gguf_array_free(&map);
    return status;
}

/* ---- tokenizer.json ----------------------------------------------------------------------------------- */

/* Adds the token that a key names. */
static tx_status add_template_token(const reading *r, const char *key, const char *list, tx_json *post)
{
    int64_t id;
    TX_TRY(tx_gguf_get_int(r->file, key, 0, r->tokens.count - 1, &id));
    return tx_template_add(post, list, r->text[id], id, 0);
}

/* Adds a TemplateProcessing if bos or eos tokens are added to texts. */
static tx_status add_post_processor(const reading *r, tx_json *json)
{
    static const char *const which[] = {"A", "B"}, *const lists[] = {"single", "pair"};
    bool bos = r->split == NULL && !r->scored, eos = r->scored; /* llama.cpp's defaults */
    const char *second = tx_gguf_has(r->file, TX_GGUF_SEPARATOR) ? TX_GGUF_SEPARATOR : KEY("bos_token_id");
    TX_TRY(TX_GGUF_OPTIONAL(bool, r->file, KEY("add_bos_token"), &bos));
    TX_TRY(TX_GGUF_OPTIONAL(bool, r->file, KEY("add_eos_token"), &eos));
    if (!bos && !eos)
        return TX_OK;
    tx_json *post;
    TX_TRY(tx_template_begin(json, &post));
    for (int texts = 1; texts <= 2; texts++)
        for (int i = 0; i < texts; i++) {
            const char *list = lists[texts - 1];
            if (bos)
                TX_TRY(add_template_token(r, i ? second : KEY("bos_token_id"), list, post));
            TX_TRY(tx_template_add(post, list, which[i], -1, 0));
            if (eos)
                TX_TRY(add_template_token(r, KEY("eos_token_id"), list, post));
        }
    return TX_OK;
}

/* Replaces ByteLevel by a Sequence of Splits and ByteLevel. */
static tx_status add_splits(const tx_gguf_split *split, tx_json *json)
{
    tx_json *bytes, *pre = tx_json_object(), *list, *step, *pattern;
    TX_TRY(tx_json_get(json, "pre_tokenizer", TX_JSON_OBJECT, &bytes));
    bytes = tx_json_copy(bytes);
    tx_status status = tx_json_set_bool(bytes, "use_regex", split->own);
    TX_TRY(
        tx_json_set(json, "pre_tokenizer", pre)); /* `json` owns it before it is filled, so a failure leaks nothing */
    TX_THEN(status, tx_json_set_string(pre, "type", "Sequence"));
    TX_THEN(status, tx_json_set(pre, "pretokenizers", list = tx_json_array()));
    for (int i = 0; i < TX_GGUF_REGEXES && split->regex[i] && !status; i++) {
        status = tx_json_parse(split_frame, sizeof split_frame - 1, "Split", &step);
        TX_THEN(status, tx_json_append(list, step));
        TX_THEN(status, tx_json_get(step, "pattern", TX_JSON_OBJECT, &pattern));
        TX_THEN(status, tx_json_set_string(pattern, "Regex", split->regex[i]));
    }
    if (!status)
        return tx_json_append(list, bytes);
    tx_json_free(bytes);
    return status;
}

static tx_status add_parts(const reading *r, tx_json *json, tx_json *model)
{
    if (r->scored)
        return add_charsmap(r, json);
    if (!r->split && !r->prefix) {
        TX_TRY(set_parsed(json, "normalizer", no_prefix, sizeof no_prefix - 1));
        return set_parsed(json, "decoder", no_strip, sizeof no_strip - 1);
    }
    if (!r->split)
        return TX_OK;
    if (r->split->nfc)
        TX_TRY(set_parsed(json, "normalizer", nfc, sizeof nfc - 1));
    TX_TRY(tx_json_set_bool(model, "ignore_merges", r->split->whole_words));
    if (r->split->steps)
        return set_parsed(json, "pre_tokenizer", r->split->steps, strlen(r->split->steps));
    return r->split->regex[0] ? add_splits(r->split, json) : TX_OK;
}

static tx_status fill(reading *r, tx_json *json)
{
    tx_json *model, *merges;
    TX_TRY(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    merges = tx_json_find(model, "merges");
    TX_TRY(tx_json_set_null(json, "post_processor"));
    TX_TRY(read_arrays(r));
    TX_TRY(name_tokens(r));
    TX_TRY(add_tokens(r, json, model));
    TX_TRY(r->split ? add_listed(r, merges) : r->scored ? TX_OK : add_scored(r, merges));
    TX_TRY(add_parts(r, json, model));
    return add_post_processor(r, json);
}

/* ---- WordPiece --------------------------------------------------------------------------------------- */

/* The text of a token without the mark of those that begin a word. */
static const char *unmarked(const reading *r, int64_t id)
{
    return r->text[id] + (tx_begins_with(r->text[id], MARK) ? strlen(MARK) : 0);
}

/* Appends a token as vocab.txt has it: those inside a word are marked, not those that begin one. */
static void add_line(const reading *r, int64_t id, tx_buffer *text)
{
    const char *token = unmarked(r, id);
    tx_buffer_add(text, "##", type_of(r, id) == TX_GGUF_TOKEN_NORMAL && token == r->text[id] ? 2 : 0);
    tx_buffer_add(text, token, strlen(token));
    tx_buffer_add(text, "\n", 1);
}

/* Sets what tokenizer_config.json of BERT's class has. Without a key its default holds. */
static tx_status set_config(const reading *r, tx_json *config)
{
    bool lower = true, strip = true;
    for (int i = 0; i < TX_GGUF_ROLES; i++) {
        int64_t id = -1;
        TX_TRY(TX_GGUF_OPTIONAL(int, r->file, tx_gguf_roles[i].key, 0, r->tokens.count - 1, &id));
        if (id >= 0)
            TX_TRY(tx_json_set_string(config, tx_gguf_roles[i].role, r->text[id]));
    }
    TX_TRY(TX_GGUF_OPTIONAL(bool, r->file, TX_GGUF_LOWERCASE, &lower));
    TX_TRY(TX_GGUF_OPTIONAL(bool, r->file, TX_GGUF_STRIP_ACCENTS, &strip));
    TX_TRY(tx_json_set_bool(config, "do_lower_case", lower));
    return strip == lower ? TX_OK : tx_json_set_bool(config, "strip_accents", strip);
}

static tx_status fill_words(reading *r, tx_making *m, tx_buffer *text)
{
    TX_TRY(read_arrays(r));
    TX_TRY(name_tokens(r));
    TX_TRY(set_config(r, m->config));
    for (int64_t id = 0; id < r->tokens.count; id++) {
        if (strchr(r->text[id], '\n'))
            return tx_fail(TX_UNSUPPORTED, "token %" PRId64 " contains the end of a line", id);
        add_line(r, id, text);
    }
    TX_TRY(text->status);
    TX_TRY(tx_make_of_vocab(text->data, text->size, m));
    for (int64_t id = 0; id < r->tokens.count; id++) {
        const int type = type_of(r, id);
        if (type != TX_GGUF_TOKEN_NORMAL && type != TX_GGUF_TOKEN_UNUSED)
            TX_TRY(tx_making_add(m, unmarked(r, id), id, type != TX_GGUF_TOKEN_USER_DEFINED));
    }
    return TX_OK;
}

static tx_status make_words(reading *r, tx_json **json)
{
    tx_making m = {.config = tx_json_object()};
    tx_buffer text = {0};
    const tx_status status = fill_words(r, &m, &text);
    free(text.data);
    tx_json_free(m.config);
    *json = m.json;
    return status;
}

/* Finds the kind of tokenizer. Old files do not name a pre-tokenizer. */
static tx_status find_kind(reading *r)
{
    char *model = NULL, *pre = NULL;
    TX_TRY(tx_gguf_get_string(r->file, KEY("model"), &model, NULL));
    tx_status status = TX_GGUF_OPTIONAL(string, r->file, KEY("pre"), &pre, NULL);
    const bool bytes = strcmp(model, "gpt2") == 0;
    r->prefix = true;
    if (bytes)
        r->split = tx_gguf_split_of(pre && strcmp(pre, "default") != 0 ? pre : "gpt-2");
    r->words = strcmp(model, "bert") == 0;
    r->scored = strcmp(model, "t5") == 0;
    if (!status && (bytes ? !r->split : strcmp(model, "llama") != 0 && !r->words && !r->scored))
        status = tx_fail(TX_UNSUPPORTED, "a tokenizer of model \"%.40s\" and splitter \"%.40s\" is not implemented",
                         model, pre ? pre : "");
    TX_THEN(status, TX_GGUF_OPTIONAL(bool, r->file, KEY("add_space_prefix"), &r->prefix));
    free(model);
    free(pre);
    return status;
}

tx_status tx_tokenizer_json_of_gguf(const tx_gguf_file *file, tx_json **json)
{
    reading r = {.file = file};
    TX_TRY(find_kind(&r));
    const char *frame = r.split ? tx_tokenizer_frame : r.scored ? unigram_frame : piece_frame;
    if (!r.words)
        TX_TRY(tx_json_parse(frame, strlen(frame), TOKENIZER, json));
    const tx_status status = r.words ? make_words(&r, json) : fill(&r, *json);
    for (int64_t id = 0; id < r.tokens.count && r.text; id++)
        free(r.text[id]);
    free(r.text);
    free(r.names);
    tx_gguf_array_free(&r.tokens);
    tx_gguf_array_free(&r.types);
    tx_gguf_array_free(&r.scores);
    tx_gguf_array_free(&r.merges);
    return status;
}
