/* SPDX-License-Identifier: Apache-2.0
 * Splitters, and tokenizer.json's pre_tokenizer, which names them. */
#include "models/text/bpe.h"

#include <stdlib.h>
#include <string.h>

const char tx_split_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

tx_status tx_splitters_add(tx_splitters *splitters, const char *pattern, tx_split_mode mode, bool invert)
{
    if (splitters->count == TX_SPLITTERS_MAX)
        return tx_fail(TX_UNSUPPORTED, "more than %d splitters", TX_SPLITTERS_MAX);
    tx_splitter *splitter = &splitters->at[splitters->count];
    *splitter = (tx_splitter){.mode = mode, .invert = invert};
    tx_status status = tx_regex_open(pattern, &splitter->regex);
    splitters->count += !status;
    return status;
}

void tx_splitters_free(tx_splitters *splitters)
{
    for (int32_t i = 0; i < splitters->count; i++)
        tx_regex_close(&splitters->at[i].regex);
}

/* ---- tokenizer.json -------------------------------------------------------------------------------- */

/* A text as a regular expression that matches it alone. */
static tx_status quote(const char *text, char **made)
{
    char *pattern = malloc(2 * strlen(text) + 1), *at = pattern;
    if (!pattern)
        return tx_fail(TX_MEMORY, "no memory for a pattern");
    for (; *text; text++) {
        if (strchr("\\^$.[]|()?*+{}-", *text))
            *at++ = '\\';
        *at++ = *text;
    }
    *at = '\0';
    *made = pattern;
    return TX_OK;
}

static tx_status read_mode(const tx_json *json, tx_split_mode *mode)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name;
    tx_status status = tx_json_get_string(json, "behavior", &name);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !status; i++)
        if (strcmp(name, names[i]) == 0) {
            *mode = (tx_split_mode)i;
            return TX_OK;
        }
    return status ? status : tx_fail(TX_UNSUPPORTED, "behavior %.40s", name);
}

static tx_status read_split(tx_splitters *splitters, const tx_json *json)
{
    tx_json *pattern;
    tx_split_mode mode = TX_SPLIT_ISOLATED;
    bool invert = false;
    const char *text;
    char *quoted = NULL;
    tx_status status = tx_json_get(json, "pattern", TX_JSON_OBJECT, &pattern);
    if (!status)
        status = read_mode(json, &mode);
    if (!status)
        status = tx_json_get_bool(json, "invert", &invert);
    if (status)
        return status;
    if (tx_json_has(pattern, "String")) {
        status = tx_json_get_string(pattern, "String", &text);
        if (!status)
            status = quote(text, &quoted);
    } else {
        status = tx_json_get_string(pattern, "Regex", &text);
    }
    if (!status)
        status = tx_splitters_add(splitters, quoted ? quoted : text, mode, invert);
    free(quoted);
    return status;
}

static tx_status read_digits(tx_splitters *splitters, const tx_json *json)
{
    bool individual = false;
    tx_status status = tx_json_get_bool(json, "individual_digits", &individual);
    if (status)
        return status;
    return tx_splitters_add(splitters, "\\p{N}", individual ? TX_SPLIT_ISOLATED : TX_SPLIT_CONTIGUOUS, false);
}

static tx_status read_byte_level(tx_splitters *splitters, const tx_json *json)
{
    bool prefix, regex = true; /* files older than use_regex mean that */
    tx_status status = tx_json_get_bool(json, "add_prefix_space", &prefix);
    if (status)
        return status;
    status = tx_json_get_bool(json, "use_regex", &regex);
    if (status && status != TX_NOT_FOUND)
        return status;
    splitters->prefix = prefix ? splitters->count : -1;
    return regex ? tx_splitters_add(splitters, tx_split_gpt2, TX_SPLIT_ISOLATED, false) : TX_OK;
}

static tx_status read_one(tx_splitters *splitters, const tx_json *json, bool last)
{
    const char *type;
    tx_status status = tx_json_get_string(json, "type", &type);
    if (status)
        return status;
    bool byte_level = strcmp(type, "ByteLevel") == 0;
    if (byte_level != last)
        return tx_fail(TX_UNSUPPORTED, "%.40s %s: ByteLevel must come last, and nowhere else", type,
                       last ? "at the end" : "before the end");
    if (byte_level)
        return read_byte_level(splitters, json);
    if (strcmp(type, "Split") == 0)
        return read_split(splitters, json);
    if (strcmp(type, "Digits") == 0)
        return read_digits(splitters, json);
    return tx_fail(TX_UNSUPPORTED, "%.40s is not supported", type);
}

tx_status tx_splitters_read(tx_splitters *splitters, const tx_json *pre_tokenizer)
{
    const char *type;
    tx_json *list;
    tx_status status = tx_json_get_string(pre_tokenizer, "type", &type);
    if (status || strcmp(type, "Sequence") != 0)
        return status ? status : read_one(splitters, pre_tokenizer, true);
    status = tx_json_get(pre_tokenizer, "pretokenizers", TX_JSON_ARRAY, &list);
    if (!status && tx_json_size(list) == 0)
        status = tx_fail(TX_UNSUPPORTED, "an empty Sequence, expected ByteLevel");
    for (size_t i = 0; !status && i < tx_json_size(list); i++) {
        tx_json *one = tx_json_at(list, i);
        status = tx_json_type_of(one) == TX_JSON_OBJECT ? read_one(splitters, one, i + 1 == tx_json_size(list))
                                                        : tx_fail(TX_FORMAT, "not an object");
        if (status)
            status = tx_fail_in(status, "pretokenizers[%zu]", i);
    }
    return status;
}
