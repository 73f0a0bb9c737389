/* SPDX-License-Identifier: Apache-2.0
 * The kinds of pre-tokenizers. */
#include "models/tokenizer/pre_tokenizer.h"
#include "models/tokenizer/utf8.h"

#include <stdio.h>

/* GPT-2's expression, which ByteLevel uses with use_regex. */
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Punctuation, for use inside [...] of a PCRE2 expression. */
#define PUNCTUATION "!-/:-@\\[-`{-~\\p{P}"
#define SPACE "\\p{White_Space}"

static tx_status read_behavior(tx_tokenizer_step *step, const tx_json *json)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    size_t mode = 0;
    TX_TRY(tx_component_choice(json, "behavior", names, sizeof names / sizeof names[0], &mode));
    step->mode = (tx_split_mode)mode;
    return TX_OK;
}

static tx_status read_split(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(read_behavior(step, json));
    TX_TRY(tx_json_get_bool(json, "invert", &step->invert));
    return tx_tokenizer_step_pattern(step, json);
}

static tx_status read_digits(tx_tokenizer_step *step, const tx_json *json)
{
    bool individual = false;
    TX_TRY(tx_json_get_bool(json, "individual_digits", &individual));
    step->mode = individual ? TX_SPLIT_ISOLATED : TX_SPLIT_CONTIGUOUS;
    return tx_regex_compile("\\p{N}", &step->regex);
}

static tx_status read_punctuation(tx_tokenizer_step *step, const tx_json *json)
{
    if (tx_json_has(json, "behavior"))
        TX_TRY(read_behavior(step, json));
    return tx_regex_compile("[" PUNCTUATION "]", &step->regex);
}

static tx_status read_metaspace(tx_tokenizer_step *step, const tx_json *json)
{
    bool split = true;
    char pattern[TX_UTF8_MAX + sizeof "\\Q\\E"];
    TX_TRY(tx_tokenizer_step_metaspace(step, json));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "split", &split));
    if (!split)
        return TX_OK;
    step->mode = TX_SPLIT_MERGED_WITH_NEXT;
    snprintf(pattern, sizeof pattern, "\\Q%.4s\\E", step->text);
    return tx_regex_compile(pattern, &step->regex);
}

/* Splits at each occurrence of a character, and removes it. */
static tx_status read_delimiter(tx_tokenizer_step *step, const tx_json *json)
{
    char pattern[TX_UTF8_MAX + sizeof "\\Q\\E"];
    TX_TRY(tx_tokenizer_step_text(step, json, "delimiter"));
    if (!*step->text || tx_utf8_read(step->text, strlen(step->text), NULL) != strlen(step->text))
        return tx_fail(TX_FORMAT, "delimiter %.40s: expected one character", step->text);
    step->mode = TX_SPLIT_REMOVED;
    snprintf(pattern, sizeof pattern, "\\Q%.4s\\E", step->text);
    return tx_regex_compile(pattern, &step->regex);
}

static tx_status read_length(tx_tokenizer_step *step, const tx_json *json)
{
    int64_t length = 5;
    char pattern[64];
    TX_TRY(TX_JSON_OPTIONAL(int, json, "length", 1, UINT16_MAX, &length));
    snprintf(pattern, sizeof pattern, "(?s).{1,%d}", (int)length);
    return tx_regex_compile(pattern, &step->regex);
}

static tx_status read_scripts(tx_tokenizer_step *step, const tx_json *json)
{
    (void)json;
    step->mode = TX_SPLIT_REMOVED;
    step->invert = true;
    return tx_regex_scripts(&step->regex);
}

static tx_status set_gpt2(tx_tokenizer_step *step, bool prefix, bool regex)
{
    step->mark = prefix;
    step->prepend = TX_PREPEND_ALWAYS;
    step->text = strdup(" ");
    if (!step->text)
        return tx_fail(TX_MEMORY, "no memory for a text");
    return regex ? tx_regex_open(gpt2, &step->regex) : TX_OK;
}

static tx_status read_byte_level(tx_tokenizer_step *step, const tx_json *json)
{
    bool prefix = false, regex = true; /* the default in files older than use_regex */
    TX_TRY(tx_json_get_bool(json, "add_prefix_space", &prefix));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "use_regex", &regex));
    return set_gpt2(step, prefix, regex);
}

static const tx_tokenizer_step_kind kinds[] = {
    {"ByteLevel", .read = read_byte_level},
    {"Split", .read = read_split},
    {"Digits", .read = read_digits},
    {"Punctuation", .read = read_punctuation},
    {"Metaspace", .read = read_metaspace},
    {"CharDelimiterSplit", .read = read_delimiter},
    {"FixedLength", .read = read_length},
    {"UnicodeScripts", .read = read_scripts},
    {"Whitespace", .words = "[" TX_REGEX_WORD "]+|[^" TX_REGEX_WORD SPACE "]+"},
    {"WhitespaceSplit", .words = "[^" SPACE "]+"},
    {"BertPreTokenizer", .words = "[^" SPACE PUNCTUATION "]+|[" PUNCTUATION "]"},
};

static tx_status add_byte_level(tx_tokenizer_steps *steps, bool prefix, bool regex)
{
    tx_tokenizer_step *step = &steps->at[steps->count++];
    *step = (tx_tokenizer_step){.kind = &kinds[0]};
    return set_gpt2(step, prefix, regex);
}

tx_status tx_pre_tokenizer_read(tx_tokenizer_steps *steps, const tx_json *json, bool *bytes)
{
    if (*bytes)
        TX_TRY(add_byte_level(steps, false, false));
    TX_TRY(tx_tokenizer_steps_read(steps, json, "pretokenizers", kinds, sizeof kinds / sizeof kinds[0]));
    *bytes = false;
    for (int32_t i = 0; i < steps->count; i++) {
        tx_tokenizer_step *step = &steps->at[i];
        if (*bytes && (step->mark || step->kind == &kinds[0]))
            return tx_fail(TX_UNSUPPORTED, "%s after ByteLevel adds spaces: only steps that split may follow",
                           step->kind->name);
        if (*bytes && !steps->letters)
            steps->letters = i;
        *bytes = *bytes || step->kind == &kinds[0];
        if (!step->kind->words)
            continue;
        step->mode = TX_SPLIT_REMOVED;
        step->invert = true;
        TX_TRY(tx_regex_compile(step->kind->words, &step->regex));
    }
    return TX_OK;
}

tx_status tx_pre_tokenizer_gpt2(tx_tokenizer_steps *steps, bool prefix)
{
    return add_byte_level(steps, prefix, true);
}
