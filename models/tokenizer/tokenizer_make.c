/* SPDX-License-Identifier: Apache-2.0
 * Parts of a tokenizer.json that is made from older files, and the one of vocab.txt. */
#include "models/tokenizer/tokenizer_make.h"

#include "models/names.h"
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <stdio.h>
#include <stdlib.h>

/* Classes of model types, as transformers 5 registers them. "" overrides a class of the configuration. */
static const char *const registered[][2] = {
    {"albert", "AlbertTokenizer"},
    {"deberta-v2", "DebertaV2Tokenizer"},
    {"gemma", "GemmaTokenizer"},
    {"gemma2", "GemmaTokenizer"},
    {"gemma3", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"},
    {"mistral", ""},
    {"mixtral", ""},
    {"mpnet", "MPNetTokenizer"},
    {"mt5", "T5Tokenizer"},
    {"phi3", ""},
    {"stablelm", ""},
    {"switch_transformers", "T5Tokenizer"},
    {"t5", "T5Tokenizer"},
    {"umt5", ""},
    {"xlm-roberta", "XLMRobertaTokenizer"},
};

tx_status tx_making_class(tx_making *m, char name[64])
{
    const char *given = "", *type = "", *known = NULL;
    TX_TRY(TX_JSON_OPTIONAL(string, m->config, "tokenizer_class", &given));
    if (m->model_config) {
        if (!*given)
            TX_TRY(tx_fail_in(TX_JSON_OPTIONAL(string, m->model_config, "tokenizer_class", &given), "config.json"));
        TX_TRY(tx_fail_in(TX_JSON_OPTIONAL(string, m->model_config, "model_type", &type), "config.json"));
    }
    for (size_t i = 0; i < sizeof registered / sizeof registered[0]; i++)
        known = strcmp(registered[i][0], type) == 0 ? registered[i][1] : known;
    if (known && (!*given || !*known))
        given = known;
    const size_t size = strlen(given);
    snprintf(name, 64, "%.*s", (int)(size < 63 ? size : 63) - (tx_ends_with(given, "Fast") ? 4 : 0), given);
    return *name ? tx_making_default(m, "tokenizer_class", name) : TX_OK;
}

tx_status tx_making_set(tx_json *object, const char *key, const char *text)
{
    tx_json *value;
    TX_TRY(tx_json_parse(text, strlen(text), key, &value));
    return tx_json_set(object, key, value);
}

tx_status tx_making_append(tx_json *list, const char *text)
{
    tx_json *value;
    TX_TRY(tx_json_parse(text, strlen(text), "a part", &value));
    return tx_json_append(list, value);
}

tx_status tx_making_begin(tx_making *m, const char *text)
{
    TX_TRY(tx_json_parse(text, strlen(text), "tokenizer.json", &m->json));
    TX_TRY(tx_json_get(m->json, "model", TX_JSON_OBJECT, &m->model));
    m->vocab = tx_json_find(m->model, "vocab");
    return TX_OK;
}

tx_status tx_making_add(tx_making *m, const char *text, int64_t id, bool special)
{
    tx_json *list;
    TX_TRY(tx_json_get(m->json, "added_tokens", TX_JSON_ARRAY, &list));
    return tx_added_write(&(tx_added){.id = (int32_t)id, .special = special}, text, list);
}

tx_status tx_making_default(tx_making *m, const char *key, const char *text)
{
    return tx_json_find(m->config, key) || !text ? TX_OK : tx_json_set_string(m->config, key, text);
}

tx_status tx_making_roles(tx_making *m, const tx_roles *roles)
{
#define X(role) TX_TRY(tx_making_default(m, #role "_token", roles->role));
    TX_ROLES_MAP(X)
#undef X
    return TX_OK;
}

/* ---- The post-processor ---------------------------------------------------------------------------- */

/* The id of a token of the vocabulary, which is an object or a list of tokens with scores. */
static tx_status find_id(const tx_making *m, const char *text, int64_t *id)
{
    const char *token = NULL;
    if (tx_json_type_of(m->vocab) == TX_JSON_OBJECT && tx_json_has(m->vocab, text))
        return tx_json_get_int(m->vocab, text, 0, TX_VOCAB_LIMIT, id);
    for (size_t i = 0; tx_json_type_of(m->vocab) == TX_JSON_ARRAY && i < tx_json_size(m->vocab); i++) {
        TX_TRY(tx_json_as_string(tx_json_at(tx_json_at(m->vocab, i), 0), "a token", &token));
        *id = (int64_t)i;
        if (strcmp(token, text) == 0)
            return TX_OK;
    }
    return tx_fail(TX_FORMAT, "%.64s is not in the vocabulary", text);
}

tx_status tx_template_add(tx_json *post, const char *list, const char *text, int64_t id, int type)
{
    tx_json *specials = tx_json_find(post, "special_tokens");
    TX_TRY(tx_json_append(tx_json_find(post, list), tx_json_pack("{s:{s:s, s:i}}", id < 0 ? "Sequence" : "SpecialToken",
                                                                 "id", text, "type_id", type)));
    if (id < 0 || tx_json_find(specials, text))
        return TX_OK;
    return tx_json_set(specials, text, tx_json_pack("{s:s, s:[I], s:[s]}", "id", text, "ids", id, "tokens", text));
}

tx_status tx_template_begin(tx_json *json, tx_json **post)
{
    *post = tx_json_pack("{s:s, s:{}, s:[], s:[]}", "type", "TemplateProcessing", "special_tokens", "single", "pair");
    return tx_json_set(json, "post_processor", *post);
}

/* Adds the items of a list, which NULL ends. */
static tx_status add_items(tx_making *m, tx_json *post, const char *list, const char *const *items, const char *types)
{
    for (size_t i = 0; items[i]; i++) {
        const char *text = items[i] + 1;
        int64_t id = -1;
        if (*items[i] != '$') {
            TX_TRY(tx_tokenizer_role(m->config, items[i], &text));
            TX_TRY(text ? tx_fail_in(find_id(m, text, &id), "%s", items[i])
                        : tx_fail(TX_FORMAT, "%s is missing", items[i]));
        }
        TX_TRY(tx_template_add(post, list, text, id, types[i] - '0'));
    }
    return TX_OK;
}

tx_status tx_making_template(tx_making *m, const char *const *single, const char *single_types, const char *const *pair,
                             const char *pair_types)
{
    tx_json *post;
    TX_TRY(tx_template_begin(m->json, &post));
    TX_TRY(add_items(m, post, "single", single, single_types));
    return add_items(m, post, "pair", pair, pair_types);
}

tx_status tx_making_ends(tx_making *m)
{
    const char *single[4], *pair[8];
    bool bos = false, eos = false;
    size_t n = 0, k = 0;
    TX_TRY(TX_JSON_OPTIONAL(bool, m->config, "add_bos_token", &bos));
    TX_TRY(TX_JSON_OPTIONAL(bool, m->config, "add_eos_token", &eos));
    if (!bos && !eos)
        return TX_OK;
    for (int i = 0; i < 2; i++) {
        if (bos)
            pair[k++] = "bos_token";
        pair[k++] = i ? "$B" : "$A";
        if (eos)
            pair[k++] = "eos_token";
        if (i == 0)
            for (; n < k; n++)
                single[n] = pair[n];
    }
    single[n] = pair[k] = NULL;
    return tx_making_template(m, single, "000", pair, n == 2 ? "0011" : "000111");
}

/* ---- vocab.txt ------------------------------------------------------------------------------------- */

static const char bert_frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [],"
    " \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true,"
    " \"strip_accents\": null, \"lowercase\": true}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},"
    " \"post_processor\": null, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true},"
    " \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\","
    " \"max_input_chars_per_word\": 100, \"vocab\": {}}}";

/* Classes that transformers 5 treats as BertTokenizer. */
static const char *const berts[] = {"",
                                    "BertTokenizer",
                                    "DistilBertTokenizer",
                                    "ElectraTokenizer",
                                    "ConvBertTokenizer",
                                    "MobileBertTokenizer",
                                    "SqueezeBertTokenizer",
                                    "LayoutLMTokenizer",
                                    "LxmertTokenizer"};

/* Adds the tokens, one a line, without the spaces at its end. */
static tx_status add_lines(const char *data, size_t size, tx_json *vocab)
{
    for (int64_t id = 0; size; id++) {
        const char *newline = memchr(data, '\n', size);
        const size_t line = newline ? (size_t)(newline - data) : size;
        size_t length = line, last;
        uint32_t code;
        while ((last = tx_utf8_read_last(data, length, &code)) && tx_unicode_is_space(code))
            length -= last;
        if (memchr(data, '\0', length))
            return tx_fail(TX_FORMAT, "line %" PRId64 ": contains NUL", id + 1);
        char *token = strndup(data, length);
        if (!token)
            return tx_fail(TX_MEMORY, "no memory for a token");
        tx_status status = tx_json_find(vocab, token) ? tx_fail(TX_UNSUPPORTED, "\"%.64s\" occurs twice", token)
                                                      : tx_json_set_int(vocab, token, id);
        free(token);
        TX_TRY(tx_fail_in(status, "line %" PRId64, id + 1));
        data += line + (newline != NULL);
        size -= line + (newline != NULL);
    }
    return TX_OK;
}

/* Sets the options of the normalizer to those of the configuration. */
static tx_status set_normalizer(tx_making *m)
{
    static const char *const options[][2] = {{"do_lower_case", "lowercase"},
                                             {"tokenize_chinese_chars", "handle_chinese_chars"},
                                             {"strip_accents", "strip_accents"}};
    tx_json *normalizer;
    TX_TRY(tx_json_get(m->json, "normalizer", TX_JSON_OBJECT, &normalizer));
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        bool value;
        if (!tx_json_has(m->config, options[i][0]))
            continue;
        TX_TRY(tx_json_get_bool(m->config, options[i][0], &value));
        TX_TRY(tx_json_set_bool(normalizer, options[i][1], value));
    }
    return TX_OK;
}

/* MPNet's class makes its special tokens of texts without the flag special, so they are searched in normalized text. */
static tx_status set_objects(tx_making *m)
{
    static const char *const keys[] = {
#define X(role) #role "_token",
        TX_ROLES_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        tx_json *token = tx_json_object();
        const char *text = NULL;
        tx_status status = TX_OK;
        if (tx_json_type_of(tx_json_find(m->config, keys[i])) == TX_JSON_STRING)
            status = tx_tokenizer_role(m->config, keys[i], &text);
        TX_THEN(status, text ? tx_json_set_string(token, "content", text) : TX_OK);
        TX_THEN(status, tx_json_set_bool(token, "lstrip", strcmp(keys[i], "mask_token") == 0));
        TX_THEN(status, tx_json_set_bool(token, "normalized", true));
        if (!status && text) {
            TX_TRY(tx_json_set(m->config, keys[i], token));
            continue;
        }
        tx_json_free(token);
        TX_TRY(status);
    }
    return TX_OK;
}

tx_status tx_make_of_vocab(const char *data, size_t size, tx_making *m)
{
    static const char *const single[] = {"cls_token", "$A", "sep_token", NULL};
    static const char *const pair[] = {"cls_token", "$A", "sep_token", "$B", "sep_token", NULL};
    static const char *const mpnet[] = {"cls_token", "$A", "sep_token", "sep_token", "$B", "sep_token", NULL};
    static const tx_roles bert = {.unk = "[UNK]", .sep = "[SEP]", .pad = "[PAD]", .cls = "[CLS]", .mask = "[MASK]"};
    static const tx_roles other = {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"};
    char name[64];
    const char *unknown;
    TX_TRY(tx_making_class(m, name));
    const bool is_mpnet = strcmp(name, "MPNetTokenizer") == 0;
    bool known = is_mpnet;
    for (size_t i = 0; i < sizeof berts / sizeof berts[0]; i++)
        known = known || strcmp(name, berts[i]) == 0;
    if (!known)
        return tx_fail(TX_UNSUPPORTED, "tokenizer_class %s: save the tokenizer as tokenizer.json", name);
    TX_TRY(tx_making_begin(m, bert_frame));
    TX_TRY(add_lines(data, size, m->vocab));
    TX_TRY(tx_making_default(m, "tokenizer_class", "BertTokenizer"));
    TX_TRY(tx_making_roles(m, is_mpnet ? &other : &bert));
    TX_TRY(is_mpnet ? set_objects(m) : TX_OK);
    TX_TRY(tx_tokenizer_role(m->config, "unk_token", &unknown));
    TX_TRY(tx_json_set_string(m->model, "unk_token", unknown ? unknown : ""));
    TX_TRY(set_normalizer(m));
    return is_mpnet ? tx_making_template(m, single, "000", mpnet, "000000")
                    : tx_making_template(m, single, "000", pair, "00011");
}
