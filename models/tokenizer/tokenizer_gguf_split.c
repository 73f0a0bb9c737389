/* SPDX-License-Identifier: Apache-2.0
 * Pre-tokenizers of byte-level BPE, under llama.cpp's names. */
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/tokenizer_gguf.h"

#include <string.h>

/* Regular expressions of tokenizer.json in the models that have these names. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LINES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* Words that end where lower case does; letters match `letter` as well. */
#define CASES_OF(letter, after)                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" letter(UPPER) "*" letter(LOWER) "+" after "|[^\\r\\n\\p{L}\\p{N}]?" letter( \
        UPPER) "+" letter(LOWER) "*" after "|"
#define ANY(letters) letters
#define NOT_HAN(letters) "(?:(?!\\p{Han})" letters ")"
#define CASES(after) CASES_OF(ANY, after)
#define REST_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES
#define LLAMA3 CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" REST
#define QWEN2 CONTRACTIONS "|" LETTERS "|\\p{N}|" REST
#define HAN "[一-龥ࠀ-一가-\xed\x9f\xbf]+"

/* Words of Falcon have no digits, and parts of a number have three. */
static const char falcon[] =
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"},"
    " {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true},"
    " {\"type\": \"Digits\", \"individual_digits\": false},"
    " {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[0-9][0-9][0-9]\"}, \"behavior\": \"Isolated\","
    " \"invert\": false}]}";

static const tx_gguf_split splits[] = {
    {.name = "gpt-2", .own = true},
    {.name = "smollm", .regex = {"\\p{N}"}, .own = true},
    {.name = "bloom", .regex = {" ?[^(\\s|[.,!?…。，、।۔،])]+"}},
    {.name = "falcon", .steps = falcon},
    {.name = "llama-bpe", .regex = {LLAMA3}, .whole_words = true},
    {.name = "dbrx", .regex = {LLAMA3}},
    {.name = "qwen2", .regex = {QWEN2}, .nfc = true},
    {.name = "qwen35",
     .regex = {CONTRACTIONS
               "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES},
     .nfc = true},
    {.name = "tekken", .regex = {CASES("") "\\p{N}|" REST_SLASH}, .whole_words = true},
    {.name = "gpt-4o", .regex = {CASES(CONTRACTIONS "?") "\\p{N}{1,3}|" REST_SLASH}},
    {.name = "deepseek-coder", .regex = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN, "\\p{N}"}},
    {.name = "deepseek-v3",
     .regex = {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
               "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
               " ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES}},
    {.name = "modern-bert", .own = true, .nfc = true},
    {.name = "seed-coder", .regex = {CONTRACTIONS "|" LETTERS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES}},
    {.name = "bailingmoe",
     .regex =
         {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
          "\\s+(?!\\S)|\\s+"}},
    {.name = "exaone-moe",
     .regex = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
                            " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.name = "tiny_aya",
     .regex = {"\\d{1,3}(?=(?:\\d{3})*(?![\\p{L}\\p{M}\\p{Nd}\\p{Pc}]))",
               CASES(CONTRACTIONS "?") "\\p{N}{1,3}|" REST_SLASH}},
    {.name = "minicpm5", .regex = {"\\p{N}{1,3}", CONTRACTIONS "|" LETTERS "|\\p{N}+|" REST}, .whole_words = true},
    {.name = "kimi-k2", .regex = {"\\p{Han}+|" CASES_OF(NOT_HAN, CONTRACTIONS "?") "\\p{N}{1,3}|" REST}},
};
#define SPLITS (sizeof splits / sizeof splits[0])

/* Other names in files. */
static const char *const aliases[][2] = {
    {"olmo", "gpt-2"},
    {"mpt", "gpt-2"},
    {"exaone4", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"gigachat", "gpt-2"},
    {"a.x-4.0", "gpt-2"},
    {"mellum", "gpt-2"},
    {"jais", "gpt-2"},
    {"trillion", "gpt-2"},
    {"granite-docling", "gpt-2"},
    {"starcoder", "smollm"},
    {"refact", "smollm"},
    {"command-r", "smollm"},
    {"codeshell", "smollm"},
    {"exaone", "smollm"},
    {"minerva-7b", "smollm"},
    {"mellum2", "smollm"},
    {"poro-chat", "bloom"},
    {"gpt3-finnish", "bloom"},
    {"chatglm-bpe", "dbrx"},
    {"smaug-bpe", "dbrx"},
    {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"falcon-h1", "llama-bpe"},
    {"pixtral", "llama-bpe"},
    {"lfm2", "llama-bpe"},
    {"midm-2.0", "llama-bpe"},
    {"glm4", "llama-bpe"},
    {"glm5", "llama-bpe"},
    {"hunyuan-dense", "deepseek-v3"},
    {"joyai-llm", "deepseek-v3"},
    {"stablelm2", "qwen2"},
    {"deepseek-r1-qwen", "qwen2"},
    {"hunyuan", "qwen2"},
    {"megrez", "qwen2"},
    {"solar-open", "qwen2"},
    {"grok-2", "qwen2"},
    {"kormo", "qwen2"},
    {"f2llmv2", "qwen2"},
    {"llama4", "gpt-4o"},
    {"kanana2", "gpt-4o"},
    {"minimax-m2", "gpt-4o"},
    {"cohere2moe", "tiny_aya"},
    {"bailingmoe2", "bailingmoe"},
    {"llada-moe", "bailingmoe"},
};

const tx_gguf_split *tx_gguf_split_of(const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i][0], name) == 0)
            name = aliases[i][1];
    for (size_t i = 0; i < SPLITS; i++)
        if (strcmp(splits[i].name, name) == 0)
            return &splits[i];
    return NULL;
}

/* Compares a regular expression of a file with the table's. Files may write line ends literally or escaped. */
static bool is_same(const char *known, const char *pattern)
{
    for (; *known && *pattern; known++, pattern++) {
        const bool end = known[0] == '\\' && (known[1] == 'r' || known[1] == 'n');
        if (end && *pattern == (known[1] == 'r' ? '\r' : '\n'))
            known++;
        else if (*known != *pattern)
            return false;
    }
    return !*known && !*pattern;
}

/* Returns true if a step splits by the table's regular expression and each match is a word. */
static bool splits_by(const tx_tokenizer_step *step, const char *known)
{
    return known && step->regex.code && !step->invert && !step->mark && step->mode == TX_SPLIT_ISOLATED &&
           is_same(known, step->regex.pattern);
}

static bool same_regex(const tx_regex *one, const tx_regex *other)
{
    return !one->code == !other->code && (!one->code || strcmp(one->pattern, other->pattern) == 0);
}

static bool same_steps(const tx_tokenizer_steps *pre, const tx_tokenizer_steps *known)
{
    bool same = pre->count == known->count;
    for (int32_t i = 0; i < pre->count && same; i++) {
        const tx_tokenizer_step *one = &pre->at[i], *other = &known->at[i];
        same = one->kind == other->kind && one->mode == other->mode && one->invert == other->invert &&
               one->mark == other->mark && same_regex(&one->regex, &other->regex);
    }
    return same;
}

/* Returns true if the steps are those of a pre_tokenizer in JSON. */
static bool are_steps(const tx_tokenizer_steps *pre, const char *text)
{
    tx_json *json = NULL;
    tx_tokenizer_steps known = {0};
    bool bytes = false;
    tx_status status = tx_json_parse(text, strlen(text), "pre_tokenizer", &json);
    TX_THEN(status, tx_pre_tokenizer_read(&known, json, &bytes));
    const bool same = !status && same_steps(pre, &known);
    tx_tokenizer_steps_free(&known);
    tx_json_free(json);
    return same;
}

static bool is_split(const tx_tokenizer_steps *pre, const tx_gguf_split *split)
{
    if (split->steps)
        return are_steps(pre, split->steps);
    const int32_t last = pre->count - 1;
    bool same = split->own == (pre->at[last].regex.code != NULL) && last <= TX_GGUF_REGEXES;
    for (int32_t i = 0; i < last && same; i++)
        same = splits_by(&pre->at[i], split->regex[i]);
    return same && (last == TX_GGUF_REGEXES || !split->regex[last]);
}

/* llama.cpp has no normalizers. NFC, which Qwen2's tokenizer uses, does not change text that is already composed, and
 * the convert script accepts it. If llama.cpp has several names, the architecture's own is written, as by the convert
 * script, else the one that treats words that are tokens as the tokenizer does. */
tx_status tx_gguf_find_split(const tx_tokenizer *t, const char *architecture, const char **name)
{
    const tx_gguf_split *own = tx_gguf_split_of(architecture), *found = NULL;
    const tx_tokenizer_steps *pre = &t->pre_tokenizer, *normalizer = &t->normalizer;
    char steps[512] = "", names[256] = "";
    if (normalizer->count > 1 || (normalizer->count == 1 && !tx_tokenizer_step_is(&normalizer->at[0], "NFC")) ||
        pre->at[pre->count - 1].mark)
        return tx_fail(TX_UNSUPPORTED,
                       "tokenizer: llama.cpp supports neither its normalizer nor a space before the text");
    for (size_t i = 0; i < SPLITS; i++) {
        const bool merges_alike = splits[i].whole_words == t->ignore_merges;
        if (is_split(pre, &splits[i]) && (!found || (merges_alike && found->whole_words != t->ignore_merges)))
            found = &splits[i];
        tx_list_add(names, sizeof names, ", ", "%s", splits[i].name);
    }
    if (found) {
        const bool same =
            own && is_split(pre, own) && own->whole_words == t->ignore_merges && own->nfc == (normalizer->count > 0);
        *name = same ? architecture : found->name;
        return TX_OK;
    }
    for (int32_t i = 0; i < pre->count; i++) {
        const bool shown = tx_tokenizer_step_is(&pre->at[i], "Split");
        tx_list_add(steps, sizeof steps, ", ", "%s%s%.60s", pre->at[i].kind->name, shown ? " " : "",
                    shown ? pre->at[i].regex.pattern : "");
    }
    return tx_fail(TX_UNSUPPORTED,
                   "tokenizer: its pre_tokenizer (%s) is not one that TX can name for llama.cpp (%s): convert "
                   "the folder with llama.cpp's convert_hf_to_gguf.py",
                   steps, names);
}
