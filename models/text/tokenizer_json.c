/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.json, read strictly: what would change the ids and is not known is refused by its name. Its post-processor
 * adds special tokens around a text and its truncation and padding cut or fill it: that is left to who makes texts into
 * batches, as with encode(add_special_tokens=False) in Hugging Face's tokenizers. */
#include "models/text/bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Vocabulary ---------------------------------------------------------------------------------- */

tx_status tx_bpe_read_vocab(tx_tokenizer *tokenizer, const tx_json *vocab)
{
    tx_letters letters;
    tx_letters_make(&letters);
    tx_status status = TX_OK;
    const int64_t words = (int64_t)tx_json_size(vocab);
    for (void *i = tx_json_first(vocab); i && !status; i = tx_json_next(vocab, i)) {
        const char *key = tx_json_key(i);
        size_t size = strlen(key), count;
        int64_t id;
        char *bytes = malloc(size + 1);
        if (!bytes)
            return tx_fail(TX_MEMORY, "no memory for a token of %zu bytes", size);
        status = tx_json_as_int(tx_json_value(i), key, 0, TX_VOCAB_LIMIT - 1, &id);
        if (!status && id >= words) /* with as many ids below it, and none of them twice, there are no holes */
            status = tx_fail(TX_FORMAT, "%.64s: id %" PRId64 " among %" PRId64 " words: some id below it has no word",
                             key, id, words);
        else if (!status && tx_letters_read(&letters, key, size, bytes, &count))
            status = tx_vocab_put(&tokenizer->vocab, id, TX_TOKEN_WORD, bytes, count);
        else if (!status)
            status = tx_vocab_put(&tokenizer->vocab, id, TX_TOKEN_FOREIGN, key, size);
        free(bytes);
    }
    return status ? tx_fail_in(status, "vocab") : TX_OK;
}

/* Id of a word of a merge, or -1. `text` is a NUL-terminated copy of it. */
static int32_t id_of(const tx_json *vocab, const char *text)
{
    int64_t id = -1;
    return tx_json_get_int(vocab, text, 0, TX_VOCAB_LIMIT - 1, &id) ? -1 : (int32_t)id;
}

/* Of a word that a message quotes: enough to know it. */
static int shown(size_t size)
{
    return size < 64 ? (int)size : 64;
}

tx_status tx_bpe_read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const char *left, size_t left_size,
                            const char *right, size_t right_size)
{
    if (left_size == 0 || right_size == 0)
        return tx_fail(TX_FORMAT, "expected two words with a blank between them");
    char *text = malloc(left_size + right_size + 1);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory for a merge");
    tx_merge merge;
    memcpy(text, right, right_size);
    text[right_size] = '\0';
    merge.right = id_of(vocab, text);
    memcpy(text, left, left_size);
    text[left_size] = '\0';
    merge.left = id_of(vocab, text);
    memcpy(text + left_size, right, right_size);
    text[left_size + right_size] = '\0';
    merge.id = id_of(vocab, text);
    free(text);
    if (merge.left < 0)
        return tx_fail(TX_FORMAT, "%.*s is not in the vocabulary", shown(left_size), left);
    if (merge.right < 0)
        return tx_fail(TX_FORMAT, "%.*s is not in the vocabulary", shown(right_size), right);
    if (merge.id < 0)
        return tx_fail(TX_FORMAT, "%.*s and %.*s together are not in the vocabulary", shown(left_size), left,
                       shown(right_size), right);
    return tx_merges_add(&tokenizer->merges, merge);
}

/* "a b" or ["a", "b"]. */
static tx_status read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *json)
{
    const char *left, *right;
    if (tx_json_type_of(json) != TX_JSON_ARRAY) {
        tx_status status = tx_json_as_string(json, "a merge", &left);
        const char *blank = status ? NULL : strchr(left, ' ');
        if (status || !blank || strchr(blank + 1, ' '))
            return status ? status : tx_fail(TX_FORMAT, "expected two words with a blank between them");
        return tx_bpe_read_merge(tokenizer, vocab, left, (size_t)(blank - left), blank + 1, strlen(blank + 1));
    }
    if (tx_json_size(json) != 2)
        return tx_fail(TX_FORMAT, "expected two words, found %zu", tx_json_size(json));
    tx_status status = tx_json_as_string(tx_json_at(json, 0), "its first word", &left);
    if (!status)
        status = tx_json_as_string(tx_json_at(json, 1), "its second word", &right);
    return status ? status : tx_bpe_read_merge(tokenizer, vocab, left, strlen(left), right, strlen(right));
}

static tx_status read_merges(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *model)
{
    tx_json *merges;
    tx_status status = tx_json_get(model, "merges", TX_JSON_ARRAY, &merges);
    size_t count = status ? 0 : tx_json_size(merges);
    if (!status)
        status = tx_merges_reserve(&tokenizer->merges, count);
    for (size_t i = 0; i < count && !status; i++) {
        status = read_merge(tokenizer, vocab, tx_json_at(merges, i));
        if (status)
            status = tx_fail_in(status, "merges[%zu]", i);
    }
    return status;
}

/* ---- The model --------------------------------------------------------------------------------------- */

/* An option that must be absent, null, or "". */
static tx_status expect_empty(const tx_json *model, const char *key)
{
    const char *text;
    if (!tx_json_has(model, key))
        return TX_OK;
    tx_status status = tx_json_get_string(model, key, &text);
    return status || !*text ? status : tx_fail(TX_UNSUPPORTED, "%s \"%.40s\" is not supported", key, text);
}

/* What changes the ids of texts whose bytes all have a token; unk_token, fuse_unk and byte_fallback do not. */
static tx_status read_options(tx_tokenizer *tokenizer, const tx_json *model)
{
    double dropout = 0;
    const char *type = "BPE"; /* old files leave it out */
    tx_status status = tx_json_get_string(model, "type", &type);
    if (status && status != TX_NOT_FOUND)
        return status;
    if (strcmp(type, "BPE") != 0)
        return tx_fail(TX_UNSUPPORTED, "type %.40s is not supported, BPE is", type);
    if (tx_json_has(model, "dropout"))
        status = tx_json_get_number(model, "dropout", 0, 1, &dropout);
    else
        status = TX_OK;
    if (!status && dropout > 0)
        status = tx_fail(TX_UNSUPPORTED, "dropout %g is not supported", dropout);
    if (!status)
        status = expect_empty(model, "continuing_subword_prefix");
    if (!status)
        status = expect_empty(model, "end_of_word_suffix");
    if (!status && tx_json_has(model, "ignore_merges"))
        status = tx_json_get_bool(model, "ignore_merges", &tokenizer->ignore_merges);
    return status;
}

static tx_status read_model(tx_tokenizer *tokenizer, const tx_json *model, tx_json **vocab)
{
    tx_status status = read_options(tokenizer, model);
    if (!status)
        status = tx_json_get(model, "vocab", TX_JSON_OBJECT, vocab);
    if (!status)
        status = tx_bpe_read_vocab(tokenizer, *vocab);
    return status ? status : read_merges(tokenizer, *vocab, model);
}

/* ---- Added tokens -------------------------------------------------------------------------------------- */

/* The id that Hugging Face's tokenizers give to a token that is added next. */
static int32_t next_added(const tx_tokenizer *tokenizer, const tx_json *vocab)
{
    int32_t next = (int32_t)tx_json_size(vocab);
    return next > tokenizer->additions.next ? next : tokenizer->additions.next;
}

static tx_status place_added(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_added *added)
{
    tx_vocab *words = &tokenizer->vocab;
    int32_t id = id_of(vocab, added->text);
    if (tx_additions_get(&tokenizer->additions, added->text))
        return tx_fail(TX_FORMAT, "it is added twice");
    if (id < 0) {
        if (added->id != next_added(tokenizer, vocab))
            return tx_fail(TX_UNSUPPORTED, "id %" PRId32 ", where tokenizers would give it %" PRId32, added->id,
                           next_added(tokenizer, vocab));
        tx_status status = tx_vocab_put(words, added->id, TX_TOKEN_FOREIGN, added->text, added->size);
        if (status)
            return status;
    } else if (id != added->id) {
        return tx_fail(TX_FORMAT, "id %" PRId32 ", in the vocabulary %" PRId32, added->id, id);
    }
    tx_token *token = &words->token[added->id];
    token->special = added->special;
    if (token->size == added->size && memcmp(words->bytes + token->at, added->text, added->size) == 0)
        return TX_OK;
    token->kind = TX_TOKEN_NONE; /* spelled in letters it would be another text */
    tx_status status = tx_vocab_put(words, added->id, TX_TOKEN_FOREIGN, added->text, added->size);
    if (!status)
        words->token[added->id].special = added->special;
    return status;
}

tx_status tx_bpe_read_added(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *token, int64_t id)
{
    const char *text;
    tx_added added = {.id = (int32_t)id};
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{"special", &added.special},
                 {"single_word", &added.single_word},
                 {"lstrip", &added.lstrip},
                 {"rstrip", &added.rstrip},
                 {"normalized", &added.normalized}};
    tx_status status = tx_json_get_string(token, "content", &text);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && !status; i++)
        status = tx_json_get_bool(token, flags[i].key, flags[i].value);
    added.size = strlen(text);
    added.text = strdup(text);
    if (!status && !added.text)
        status = tx_fail(TX_MEMORY, "no memory for a token");
    if (!status)
        status = place_added(tokenizer, vocab, &added);
    if (!status)
        status = tx_additions_put(&tokenizer->additions, &added);
    free(added.text);
    return status ? tx_fail_in(status, "%.64s", text) : TX_OK;
}

static tx_status read_all_added(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *json)
{
    tx_json *list;
    tx_status status = tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &list);
    if (status == TX_NOT_FOUND)
        return TX_OK;
    for (size_t i = 0; !status && i < tx_json_size(list); i++) {
        int64_t id;
        status = tx_json_get_int(tx_json_at(list, i), "id", 0, TX_VOCAB_LIMIT - 1, &id);
        if (!status)
            status = tx_bpe_read_added(tokenizer, vocab, tx_json_at(list, i), id);
        if (status)
            status = tx_fail_in(status, "added_tokens[%zu]", i);
    }
    return status;
}

/* ---- The other parts ----------------------------------------------------------------------------------- */

/* A part must be of one of the types, which are separated by |; null is written so. `lists` names the member that holds
 * the parts of a Sequence (NULL: a Sequence is not allowed). */
static tx_status expect_part(const tx_json *part, const char *types, const char *list_key)
{
    const char *type = "null";
    tx_json *list;
    tx_status status = TX_OK;
    if (part && tx_json_type_of(part) != TX_JSON_NULL)
        status = tx_json_get_string(part, "type", &type);
    if (status)
        return status;
    if (list_key && strcmp(type, "Sequence") == 0) {
        status = tx_json_get(part, list_key, TX_JSON_ARRAY, &list);
        for (size_t i = 0; !status && i < tx_json_size(list); i++)
            status = expect_part(tx_json_at(list, i), types, NULL);
        return status;
    }
    for (const char *at = types; *at;) {
        size_t length = strcspn(at, "|");
        if (strlen(type) == length && memcmp(at, type, length) == 0)
            return TX_OK;
        at += length + (at[length] == '|');
    }
    return tx_fail(TX_UNSUPPORTED, "%.40s is not supported, only %s", type, types);
}

/* `key`'s part; NULL where there is none. */
static tx_status check_part(const tx_json *json, const char *key, const char *types, const char *list_key)
{
    tx_json *part = NULL;
    tx_status status = TX_OK;
    if (tx_json_has(json, key))
        status = tx_json_get(json, key, TX_JSON_OBJECT, &part);
    if (status)
        return status;
    status = expect_part(part, types, list_key);
    return status ? tx_fail_in(status, "%s", key) : TX_OK;
}

tx_status tx_bpe_read(tx_tokenizer *tokenizer, const tx_json *json)
{
    tx_json *model, *vocab = NULL, *splitter;
    tx_status status = tx_json_get(json, "model", TX_JSON_OBJECT, &model);
    if (status)
        return status;
    status = read_options(tokenizer, model); /* first: another type explains the rest */
    if (status)
        return tx_fail_in(status, "model");
    status = check_part(json, "normalizer", "null", NULL);
    if (!status)
        status = check_part(json, "pre_tokenizer", "ByteLevel|Sequence", NULL);
    if (!status)
        status = check_part(json, "post_processor",
                            "null|ByteLevel|TemplateProcessing|RobertaProcessing|BertProcessing", "processors");
    if (!status)
        status = check_part(json, "decoder", "ByteLevel", "decoders");
    if (status)
        return status;
    status = tx_json_get(json, "pre_tokenizer", TX_JSON_OBJECT, &splitter);
    if (!status)
        status = tx_splitters_read(&tokenizer->splitters, splitter);
    if (status)
        return tx_fail_in(status, "pre_tokenizer");
    status = read_model(tokenizer, model, &vocab);
    if (status)
        return tx_fail_in(status, "model");
    return read_all_added(tokenizer, vocab, json);
}
