/* SPDX-License-Identifier: Apache-2.0
 * Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json: the roles of tokens, and added tokens, in
 * transformers' order and with its ids. */
#include "models/tokenizer/bpe.h"

#include "api/base/needs.h"
#include "models/names.h"

#include <stdlib.h>
#include <string.h>

#define DECODER "added_tokens_decoder"
#define EXTRA "extra_special_tokens"
#define ADDITIONAL "additional_special_tokens" /* the key before transformers 5 */

static const char *const roles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
#define ROLES (sizeof roles / sizeof roles[0])

/* ---- The configuration ------------------------------------------------------------------------------- */

static tx_status parse(const tx_tokenizer *t, tx_tokenizer_file file, tx_json **json)
{
    const tx_source *source = &t->source[file];
    *json = NULL;
    if (!source->data)
        return TX_OK;
    TX_TRY(tx_json_parse(source->data, source->size, source->name, json));
    if (tx_json_type_of(*json) == TX_JSON_OBJECT)
        return TX_OK;
    tx_json_free(*json);
    *json = NULL;
    return tx_fail(TX_FORMAT, "%s: expected an object", source->name);
}

/* Copies a value of special_tokens_map.json. A token that is an object becomes special. */
static tx_status copy_value(const tx_json *value, bool is_token, tx_json **copy)
{
    *copy = tx_json_copy(value);
    if (!*copy)
        return tx_fail(TX_MEMORY, "no memory for a token");
    return is_token && tx_json_type_of(value) == TX_JSON_OBJECT ? tx_json_set_bool(*copy, "special", true) : TX_OK;
}

/* Appends the tokens of a list to those of the configuration. */
static tx_status merge_list(const tx_json *tokens, const char *key, tx_json *config)
{
    tx_json *list = tx_json_find(config, key), *copy;
    if (!list || tx_json_type_of(list) != TX_JSON_ARRAY) {
        list = tx_json_array(); /* `config` owns it before it is filled, so a failure leaks nothing */
        TX_TRY(tx_json_set(config, key, list));
    }
    for (size_t i = 0; i < tx_json_size(tokens); i++) {
        const tx_status status = copy_value(tx_json_at(tokens, i), true, &copy);
        TX_TRY(tx_json_append(list, copy));
        TX_TRY(status);
    }
    return TX_OK;
}

/* Moves the list of additional tokens to its name in transformers 5, extra tokens. */
static tx_status rename_list(tx_json *config)
{
    const tx_json *extra = tx_json_find(config, EXTRA), *old = tx_json_find(config, ADDITIONAL);
    if (!old || (extra && tx_json_size(extra)))
        return TX_OK;
    tx_json *copy = tx_json_copy(old);
    TX_TRY(tx_json_set(config, EXTRA, copy));
    return tx_json_set_null(config, ADDITIONAL);
}

/* Merges special_tokens_map.json into the configuration as transformers does: its values override those of
 * tokenizer_config.json, and its list of extra tokens is appended. The caller calls it only if tokenizer_config.json
 * has no added_tokens_decoder. */
static tx_status merge(const tx_json *map, tx_json *config)
{
    for (void *i = tx_json_first(map); i; i = tx_json_next(map, i)) {
        const char *key = tx_json_key(i);
        const tx_json *value = tx_json_value(i);
        tx_json *copy;
        if (tx_json_type_of(value) == TX_JSON_ARRAY) {
            TX_TRY(merge_list(value, key, config));
            continue;
        }
        const tx_status status = copy_value(value, strcmp(key, EXTRA) != 0, &copy);
        TX_TRY(tx_json_set(config, key, copy));
        TX_TRY(status);
    }
    return TX_OK;
}

tx_status tx_tokenizer_config(const tx_tokenizer *t, tx_json **config)
{
    tx_json *created = NULL, *map = NULL;
    tx_status status = parse(t, TX_TOKENIZER_CONFIG, &created);
    if (!status && created)
        status = rename_list(created);
    if (!status && !(created && tx_json_has(created, DECODER)))
        status = parse(t, TX_TOKENIZER_SPECIAL, &map);
    if (map) {
        created = created ? created : tx_json_object();
        status = tx_fail_in(merge(map, created), "%s", t->source[TX_TOKENIZER_SPECIAL].name);
    }
    tx_json_free(map);
    return TX_RETURN(status, created, config, tx_json_free);
}

int64_t tx_tokenizer_limit(const tx_tokenizer *tokenizer)
{
    TX_NEEDS(tokenizer, 0);
    tx_json *config = NULL;
    double limit = 0.0;
    /* transformers writes 1e30 if there is no limit. */
    if (!tx_tokenizer_config(tokenizer, &config) && config && tx_json_has(config, "model_max_length") &&
        tx_json_get_number(config, "model_max_length", 1, INT32_MAX, &limit))
        limit = 0.0;
    tx_json_free(config);
    return (int64_t)limit;
}

tx_status tx_tokenizer_role(const tx_json *config, const char *role, const char **text)
{
    tx_json *object;
    *text = NULL;
    if (!config || !tx_json_has(config, role))
        return TX_OK;
    if (!tx_json_get(config, role, TX_JSON_OBJECT, &object))
        TX_TRY(tx_json_get_string(object, "content", text));
    else
        TX_TRY(tx_json_get_string(config, role, text));
    if (!**text)
        *text = NULL;
    return TX_OK;
}

tx_status tx_tokenizer_find_ends(tx_tokenizer *t, const tx_json *config)
{
    const char *text;
    TX_TRY(tx_tokenizer_role(config, "bos_token", &text));
    t->begin = text ? tx_tokenizer_find(t, text) : -1;
    TX_TRY(tx_tokenizer_role(config, "pad_token", &text));
    t->pad = text ? tx_tokenizer_find(t, text) : -1;
    TX_TRY(tx_tokenizer_role(config, "eos_token", &text));
    t->end = tx_tokenizer_find(t, text ? text : TX_END_OF_TEXT);
    if (text && t->end < 0)
        return tx_fail(TX_FORMAT, "eos_token %.40s is not in the vocabulary", text);
    return TX_OK;
}

/* ---- Tokens -------------------------------------------------------------------------------------------- */

/* The state of adding tokens. */
typedef struct adding {
    tx_tokenizer *tokenizer;
    const tx_json *vocab, *config;
    int32_t numbered; /* number of added tokens of tokenizer.json and of numbered ones, which a role does not change */
} adding;

/* Reads a token: a text, or an object whose flags have the defaults of Hugging Face's AddedToken. */
static tx_status read_token(const tx_json *json, tx_added *added, const char **text)
{
    const bool is_object = tx_json_type_of(json) == TX_JSON_OBJECT;
    *added = (tx_added){.special = !is_object};
    if (!is_object)
        return tx_json_as_string(json, "a token", text);
    if (!tx_json_has(json, "content"))
        return tx_fail(TX_FORMAT, "content is missing");
    TX_TRY(tx_json_get_string(json, "content", text));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "special", &added->special));
    added->normalized = !added->special;
#define X(flag) TX_TRY(TX_JSON_OPTIONAL(bool, json, #flag, &added->flag));
    TX_ADDED_FLAGS(X)
#undef X
    return TX_OK;
}

/* Returns true if a key names a role: one of `roles`, or a model's own ("image_token"). */
static bool is_role(const char *key, const tx_json *value)
{
    const tx_json_type type = tx_json_type_of(value);
    return tx_ends_with(key, "_token") && (type == TX_JSON_STRING || type == TX_JSON_OBJECT);
}

/* Returns true if a token has this text. With `plain`, an AddedToken of tokenizer_config.json does not count. */
static bool has_text(const tx_json *token, const char *text, bool plain)
{
    tx_added added;
    const char *other;
    const bool is_object = tx_json_type_of(token) == TX_JSON_OBJECT;
    return !(plain && is_object && tx_json_has(token, "__type")) && !read_token(token, &added, &other) &&
           strcmp(other, text) == 0;
}

/* Returns true if a role of the configuration has a token with this text. */
static bool is_named(const tx_json *config, const char *text)
{
    const tx_json *extra = config ? tx_json_find(config, EXTRA) : NULL;
    for (void *i = config ? tx_json_first(config) : NULL; i; i = tx_json_next(config, i))
        if (is_role(tx_json_key(i), tx_json_value(i)) && has_text(tx_json_value(i), text, false))
            return true;
    if (extra && tx_json_type_of(extra) == TX_JSON_OBJECT)
        for (void *i = tx_json_first(extra); i; i = tx_json_next(extra, i))
            if (has_text(tx_json_value(i), text, false))
                return true;
    return false;
}

/* Returns true if transformers treats a token of added_tokens.json as special: one of `roles` or the list of extra
 * tokens has its text. */
static bool is_special(const tx_json *config, const char *text)
{
    const tx_json *extra = config ? tx_json_find(config, EXTRA) : NULL;
    for (size_t i = 0; config && i < ROLES; i++)
        if (tx_json_has(config, roles[i]) && has_text(tx_json_find(config, roles[i]), text, true))
            return true;
    if (extra && tx_json_type_of(extra) == TX_JSON_ARRAY)
        for (size_t i = 0; i < tx_json_size(extra); i++)
            if (has_text(tx_json_at(extra, i), text, true))
                return true;
    return false;
}

/* The added token with this text, or NULL. */
static tx_added *find_added(tx_tokenizer *t, const char *text)
{
    const int32_t id = tx_tokenizer_find(t, text);
    for (int32_t i = 0; id >= 0 && t->vocab.token[id].added && i < t->additions.count; i++)
        if (t->additions.at[i].id == id && strcmp(t->additions.at[i].text, text) == 0)
            return &t->additions.at[i];
    return NULL;
}

/* Adds a token, or sets the flags of an existing one; a special token stays special. transformers ignores empty texts.
 */
static tx_status add_token(const adding *a, const char *text, const tx_added *added)
{
    tx_tokenizer *t = a->tokenizer;
    tx_added *known = find_added(t, text);
    if (!*text)
        return TX_OK;
    if (!known) {
        t->amended = true;
        return tx_fail_in(tx_bpe_add(t, a->vocab, text, added, -1), "%.64s", text);
    }
    const bool special = known->special || added->special;
#define X(flag) t->amended = t->amended || known->flag != added->flag;
    TX_ADDED_FLAGS(X)
#undef X
#define X(flag) known->flag = added->flag;
    TX_ADDED_FLAGS(X)
#undef X
    t->vocab.token[known->id].special = known->special = special;
    return TX_OK;
}

/* Adds a token with a role or from a list. If two have the same text, the later one's flags count. */
static tx_status add_named(const adding *a, const tx_json *json, bool role)
{
    tx_added added;
    const char *text;
    TX_TRY(read_token(json, &added, &text));
    added.special = added.special || role;
    const tx_added *known = find_added(a->tokenizer, text);
    return known && known < a->tokenizer->additions.at + a->numbered ? TX_OK : add_token(a, text, &added);
}

static bool is_usual(const char *role)
{
    for (size_t i = 0; i < ROLES; i++)
        if (strcmp(roles[i], role) == 0)
            return true;
    return false;
}

/* Adds a model's own roles. As in transformers, objects come first. */
static tx_status add_own_roles(const adding *a, tx_json_type type)
{
    for (void *i = tx_json_first(a->config); i; i = tx_json_next(a->config, i)) {
        const tx_json *value = tx_json_value(i);
        if (is_role(tx_json_key(i), value) && !is_usual(tx_json_key(i)) && tx_json_type_of(value) == type)
            TX_TRY(tx_fail_in(add_named(a, value, true), "%s", tx_json_key(i)));
    }
    return TX_OK;
}

static tx_status add_roles(const adding *a)
{
    for (size_t i = 0; i < ROLES; i++)
        if (tx_json_has(a->config, roles[i]))
            TX_TRY(tx_fail_in(add_named(a, tx_json_find(a->config, roles[i]), true), "%s", roles[i]));
    TX_TRY(add_own_roles(a, TX_JSON_OBJECT));
    return add_own_roles(a, TX_JSON_STRING);
}

/* Adds the tokens of a list, which have no role, or of an object with a model's own roles. */
static tx_status add_list(const adding *a, const char *key)
{
    const tx_json *tokens = tx_json_find(a->config, key);
    if (!tx_json_has(a->config, key))
        return TX_OK;
    if (tx_json_type_of(tokens) == TX_JSON_OBJECT) {
        for (void *i = tx_json_first(tokens); i; i = tx_json_next(tokens, i))
            TX_TRY(tx_fail_in(add_named(a, tx_json_value(i), true), "%s: %.64s", key, tx_json_key(i)));
        return TX_OK;
    }
    if (tx_json_type_of(tokens) != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "%s: expected a list", key);
    for (size_t i = 0; i < tx_json_size(tokens); i++)
        TX_TRY(tx_fail_in(add_named(a, tx_json_at(tokens, i), false), "%s[%zu]", key, i));
    return TX_OK;
}

/* A list of additional tokens is now only left if it came from special_tokens_map.json. It counts if there is no list
 * of extra tokens. */
static tx_status add_extra(const adding *a)
{
    const tx_json *extra = tx_json_find(a->config, EXTRA);
    TX_TRY(add_list(a, EXTRA));
    return extra && tx_json_type_of(extra) != TX_JSON_OBJECT ? TX_OK : add_list(a, ADDITIONAL);
}

/* ---- Tokens with numbers ----------------------------------------------------------------------------- */

/* A token of added_tokens_decoder, or of added_tokens.json (`json` is NULL). Tokens are added by ascending number. */
typedef struct numbered {
    int64_t number;
    const tx_json *json;
    const char *text;
} numbered;

static int compare(const void *x, const void *y)
{
    const int64_t a = ((const numbered *)x)->number, b = ((const numbered *)y)->number;
    return a < b ? -1 : a > b;
}

static tx_status number_of(const char *key, int64_t *number)
{
    char *rest;
    const long long id = strtoll(key, &rest, 10);
    if (!*key || *rest || id < 0)
        return tx_fail(TX_FORMAT, DECODER ": %.40s is not an id", key);
    *number = id;
    return TX_OK;
}

/* Reads the members of the object. Keys are numbers, or with `by_number` false tokens, and values the other way round.
 */
static tx_status read_numbered(const tx_json *object, bool by_number, numbered *all)
{
    size_t count = 0;
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i), count++) {
        all[count] = (numbered){.json = by_number ? tx_json_value(i) : NULL, .text = tx_json_key(i)};
        TX_TRY(by_number ? number_of(tx_json_key(i), &all[count].number)
                         : tx_json_as_int(tx_json_value(i), tx_json_key(i), 0, INT64_MAX, &all[count].number));
    }
    if (count)
        qsort(all, count, sizeof *all, compare);
    return TX_OK;
}

static tx_status add_numbered(const adding *a, const numbered *one)
{
    const bool special = !one->json && is_special(a->config, one->text);
    tx_added added = {.special = special, .normalized = !special};
    const char *text = one->text;
    if (one->json)
        TX_TRY(tx_fail_in(read_token(one->json, &added, &text), DECODER ": %.40s", one->text));
    added.special = added.special || is_named(a->config, text);
    return add_token(a, text, &added);
}

/* Returns true if tokenizer.json has an added token of this id, which overrides that of added_tokens.json. */
static bool is_listed(const tx_tokenizer *t, int32_t listed, int64_t id)
{
    for (int32_t i = 0; i < listed; i++)
        if (t->additions.at[i].id == id)
            return true;
    return false;
}

static tx_status add_all_numbered(const adding *a, const tx_json *object, bool by_number)
{
    const size_t count = tx_json_size(object);
    const int32_t listed = by_number ? 0 : a->tokenizer->additions.count;
    numbered *all = calloc(count ? count : 1, sizeof *all);
    tx_status status = all ? read_numbered(object, by_number, all) : tx_fail(TX_MEMORY, "no memory for tokens");
    for (size_t i = 0; i < count && !status; i++)
        if (!is_listed(a->tokenizer, listed, all[i].number))
            status = add_numbered(a, &all[i]);
    free(all);
    return status;
}

tx_status tx_tokenizer_add_config(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *config)
{
    adding a = {tokenizer, vocab, config, 0};
    tx_json *decoder = NULL, *added = NULL;
    bool split = false;
    tx_status status = TX_OK;
    if (config)
        TX_TRY(TX_JSON_OPTIONAL(bool, config, "split_special_tokens", &split));
    if (split)
        return tx_fail(TX_UNSUPPORTED, "split_special_tokens: true is not implemented: special tokens in a text are "
                                       "always one token");
    if (config && tx_json_has(config, DECODER)) {
        TX_TRY(tx_json_get(config, DECODER, TX_JSON_OBJECT, &decoder));
        status = add_all_numbered(&a, decoder, true);
    } else {
        status = parse(tokenizer, TX_TOKENIZER_ADDED, &added);
        if (!status && added)
            status = tx_fail_in(add_all_numbered(&a, added, false), "%s", tokenizer->source[TX_TOKENIZER_ADDED].name);
        tx_json_free(added);
    }
    if (!config)
        return status;
    a.numbered = tokenizer->additions.count;
    TX_THEN(status, add_roles(&a));
    TX_THEN(status, add_extra(&a));
    return status;
}
