/* SPDX-License-Identifier: Apache-2.0
 * Opens a folder's tokenizer. Its files are kept in memory, so that they can be saved even if the folder changes. */
#include "models/tokenizer/bpe.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"
#include "models/names.h"
#include "models/tokenizer/tokenizer_gguf.h"
#include "models/tokenizer/tokenizer_make.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((int64_t)256 << 20)

static const char *const names[TX_SOURCES] = {
    [TX_TOKENIZER_JSON] = "tokenizer.json",
    [TX_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [TX_TOKENIZER_VOCAB] = "vocab.json",
    [TX_TOKENIZER_MERGES] = "merges.txt",
    [TX_TOKENIZER_ADDED] = "added_tokens.json",
    [TX_TOKENIZER_SPECIAL] = "special_tokens_map.json",
    [TX_TOKENIZER_TEMPLATE] = "chat_template.jinja",
};

/* Other files from which a tokenizer.json is made: models of SentencePiece, under the names of transformers' classes,
 * vocab.txt of BERT, and files with ranks of tokens. */
static const struct {
    const char *name;
    tx_status (*make)(const char *data, size_t size, tx_making *m);
} older[] = {{"tokenizer.model", tx_make_of_spm},
             {"spiece.model", tx_make_of_spm},
             {"sentencepiece.bpe.model", tx_make_of_spm},
             {"spm.model", tx_make_of_spm},
             {"vocab.txt", tx_make_of_vocab},
             {"tekken.json", tx_make_of_tekken},
             {"tiktoken.model", tx_make_of_tiktoken}};
#define OLDER (sizeof older / sizeof older[0])

const char *tx_tokenizer_file_name(size_t index)
{
    return index < TX_SOURCES ? names[index] : index < TX_SOURCES + OLDER ? older[index - TX_SOURCES].name : NULL;
}

/* The row of a file's name, or of tokenizer.model. */
static size_t find_older(const char *name)
{
    size_t i = OLDER;
    while (--i > 0 && strcmp(older[i].name, name) != 0)
        ;
    return i;
}

/* Reads a file if it exists. */
static tx_status read_source(tx_source *s, const char *path)
{
    return tx_file_exists(path) ? tx_file_read_text(path, FILE_LIMIT, &s->data, &s->size) : TX_OK;
}

static tx_status read_older(tx_tokenizer *t, const char *name, const char *path)
{
    t->older.name = name;
    return tx_file_exists(path) ? tx_file_read(path, FILE_LIMIT, &t->older.data, &t->older.size) : TX_OK;
}

/* Older models of images have the template in an object of its own file. */
static tx_status read_template(tx_source *s, const char *path)
{
    tx_json *json;
    const char *text;
    size_t size;
    if (s->data || !tx_file_exists(path))
        return TX_OK;
    TX_TRY(tx_json_read(path, FILE_LIMIT, &json));
    tx_status status = tx_json_get_text(json, "chat_template", &text, &size);
    if (!status && !(s->data = strndup(text, size)))
        status = tx_fail(TX_MEMORY, "no memory for a chat template");
    s->size = s->data ? size : 0;
    tx_json_free(json);
    return tx_fail_in(status, "%s", path);
}

/* Reads the files of a folder from `first` on. */
static tx_status read_folder(tx_tokenizer *t, const char *folder, int first)
{
    for (int i = first; i < TX_SOURCES; i++)
        TX_TRY(read_source(&t->source[i], TX_PATH(folder, names[i])));
    TX_TRY(read_template(&t->source[TX_TOKENIZER_TEMPLATE], TX_PATH(folder, "chat_template.json")));
    TX_TRY(read_source(&t->tools, TX_PATH(folder, "additional_chat_templates/tool_use.jinja")));
    tx_source *model = &t->model_config;
    if (!t->older.data && (t->source[TX_TOKENIZER_JSON].data ||
                           (t->source[TX_TOKENIZER_VOCAB].data && t->source[TX_TOKENIZER_MERGES].data)))
        return TX_OK;
    for (size_t i = 0; i < OLDER && !t->older.data; i++)
        TX_TRY(read_older(t, older[i].name, TX_PATH(folder, older[i].name)));
    if (!t->older.data)
        return tx_fail(
            TX_NOT_FOUND,
            "%s: no tokenizer: neither tokenizer.json nor vocab.json with merges.txt, tokenizer.model, vocab.txt, "
            "tekken.json or tiktoken.model",
            folder);
    const char *path = TX_PATH(folder, "config.json");
    return tx_file_exists(path) ? tx_file_read_text(path, FILE_LIMIT, &model->data, &model->size) : TX_OK;
}

/* A file means its folder, with these exceptions. vocab.json and merges.txt mean these two files even if there is a
 * tokenizer.json. So do the other files of `older`. A tokenizer.json under another name means only itself.
 */
static tx_status read_sources(tx_tokenizer *t, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISDIR(info.st_mode))
        return read_folder(t, path, TX_TOKENIZER_JSON);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool pair = strcmp(name, names[TX_TOKENIZER_VOCAB]) == 0 || strcmp(name, names[TX_TOKENIZER_MERGES]) == 0;
    const bool is_older = find_older(name) > 0 || tx_ends_with(name, ".model");
    if (is_older)
        TX_TRY(read_older(t, older[find_older(name)].name, path));
    if (!pair && !is_older && strcmp(name, names[TX_TOKENIZER_JSON]) != 0)
        return read_source(&t->source[TX_TOKENIZER_JSON], path);
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!folder)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    tx_status status = read_folder(t, folder, pair || is_older ? TX_TOKENIZER_CONFIG : TX_TOKENIZER_JSON);
    free(folder);
    return status;
}

/* ---- The chat template ------------------------------------------------------------------------------- */

/* Reads a template: the text itself, or the one with a name in a list of {"name", "template"}. */
static tx_status read_chat(const tx_json *config, bool tools, char **text, size_t *size)
{
    tx_json *list = tx_json_find(config, "chat_template");
    const tx_json *object = tools ? NULL : config;
    const char *key = "chat_template", *found = NULL;
    if (tx_json_type_of(list) == TX_JSON_ARRAY) {
        for (size_t i = 0; i < tx_json_size(list); i++) {
            TX_TRY(tx_json_get_string(tx_json_at(list, i), "name", &found));
            object = strcmp(found, tools ? "tool_use" : "default") == 0 ? tx_json_at(list, i) : object;
        }
        key = "template";
    }
    if (!object)
        return TX_OK;
    TX_TRY(tx_json_get_text(object, key, &found, size));
    *text = strndup(found, *size);
    return *text ? TX_OK : tx_fail(TX_MEMORY, "no memory for a chat template");
}

tx_status tx_tokenizer_chat(const tx_tokenizer *t, bool tools, char **text, size_t *size)
{
    const tx_source *file = &t->source[TX_TOKENIZER_TEMPLATE], *source = &t->source[TX_TOKENIZER_CONFIG];
    tx_json *config = NULL;
    *text = NULL;
    *size = file->size;
    if (file->data && tools)
        return TX_OK;
    if (file->data) {
        *text = strndup(file->data, file->size);
        return *text ? TX_OK : tx_fail(TX_MEMORY, "no memory for a chat template");
    }
    if (!source->data)
        return TX_OK;
    TX_TRY(tx_json_parse(source->data, source->size, names[TX_TOKENIZER_CONFIG], &config));
    tx_status status = TX_OK;
    if (tx_json_has(config, "chat_template"))
        status = tx_fail_in(read_chat(config, tools, text, size), "%s: chat_template", names[TX_TOKENIZER_CONFIG]);
    tx_json_free(config);
    return status;
}

/* ---- vocab.json and merges.txt --------------------------------------------------------------------- */

static size_t line_length(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline ? (size_t)(newline - at) : (size_t)(end - at);
}

/* Reads one merge a line. Lines that begin with #version are ignored. */
static tx_status read_merges(tx_tokenizer *t, const tx_json *vocab)
{
    const char *at = t->source[TX_TOKENIZER_MERGES].data, *end = at + t->source[TX_TOKENIZER_MERGES].size;
    for (int64_t line = 1; at < end; line++) {
        size_t whole = line_length(at, end), length = whole;
        if (length && at[length - 1] == '\r')
            length--;
        if (length < 8 || memcmp(at, "#version", 8) != 0) {
            const char *blank = memchr(at, ' ', length);
            size_t left = blank ? (size_t)(blank - at) : 0, right = blank ? length - left - 1 : 0;
            if (memchr(at, '\0', length) || (blank && memchr(blank + 1, ' ', right)))
                left = 0; /* not two words */
            TX_TRY(tx_fail_in(tx_bpe_read_merge(t, vocab, at, left, at + left + 1, right), "merges.txt: line %" PRId64,
                              line));
        }
        at += whole + (at + whole < end);
    }
    return TX_OK;
}

/* If the vocabulary is RoBERTa's, whose first ids are those of fairseq's dictionaries, adds its special tokens and its
 * post-processor, which neither file has. */
static tx_status read_roberta(tx_tokenizer *t)
{
    static const char *const tokens[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
    enum { BEGIN, PAD, END, UNKNOWN, MASK, TOKENS };
    int32_t id[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        id[i] = tx_tokenizer_find(t, tokens[i]);
        if (id[i] < 0 || (i < MASK && id[i] != i))
            return TX_OK;
    }
    for (int i = 0; i < TOKENS; i++)
        if (!t->vocab.token[id[i]].added)
            TX_TRY(tx_tokenizer_add_special(t, tokens[i], id[i]));
    return tx_post_processor_roberta(&t->post_processor, id[BEGIN], id[END]);
}

/* Sets the default roles of GPT-2's class. Refuses flags that require another post-processor. */
static tx_status read_class(tx_json *config)
{
    static const char *const defaults[] = {"bos_token", "eos_token", "unk_token"};
    static const char *const refused[] = {"add_bos_token", "add_eos_token"};
    const char *name = "";
    bool flag = false;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        TX_TRY(TX_JSON_OPTIONAL(bool, config, refused[i], &flag));
        if (flag)
            return tx_fail(TX_UNSUPPORTED, "%s with vocab.json: save the tokenizer as tokenizer.json", refused[i]);
    }
    TX_TRY(TX_JSON_OPTIONAL(string, config, "tokenizer_class", &name));
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0] && strncmp(name, "GPT2Tokenizer", 13) == 0; i++)
        if (!tx_json_find(config, defaults[i]))
            TX_TRY(tx_json_set_string(config, defaults[i], TX_END_OF_TEXT));
    return TX_OK;
}

/* The two files do not say that words end with </w>, as those of CLIP and GPT-1 do. */
static tx_status check_words(const tx_json *vocab)
{
    for (void *i = tx_json_first(vocab); i; i = tx_json_next(vocab, i))
        if (tx_ends_with(tx_json_key(i), "</w>") && strlen(tx_json_key(i)) > 4)
            return tx_fail(TX_UNSUPPORTED,
                           "vocab.json: %.60s: words that end with </w> need a tokenizer.json: load the "
                           "tokenizer by transformers' AutoTokenizer and save it",
                           tx_json_key(i));
    return TX_OK;
}

static tx_status read_pair(tx_tokenizer *t, tx_json *config)
{
    tx_json *vocab;
    bool prefix = false;
    t->bytes = true;
    if (config)
        TX_TRY(tx_fail_in(read_class(config), "%s", names[TX_TOKENIZER_CONFIG]));
    TX_TRY(tx_json_parse(t->source[TX_TOKENIZER_VOCAB].data, t->source[TX_TOKENIZER_VOCAB].size,
                         names[TX_TOKENIZER_VOCAB], &vocab));
    tx_status status = TX_OK;
    if (tx_json_type_of(vocab) != TX_JSON_OBJECT)
        status = tx_fail(TX_FORMAT, "vocab.json: expected an object");
    TX_THEN(status, check_words(vocab));
    TX_THEN(status, tx_bpe_read_vocab(t, vocab));
    TX_THEN(status, read_merges(t, vocab));
    if (!status && config)
        status = TX_JSON_OPTIONAL(bool, config, "add_prefix_space", &prefix);
    TX_THEN(status, tx_pre_tokenizer_gpt2(&t->pre_tokenizer, prefix));
    TX_THEN(status, tx_tokenizer_add_config(t, vocab, config));
    TX_THEN(status, read_roberta(t));
    int32_t end = status ? -1 : tx_tokenizer_find(t, TX_END_OF_TEXT);
    if (end >= 0 && !t->vocab.token[end].added)
        status = tx_tokenizer_add_special(t, TX_END_OF_TEXT, end);
    tx_json_free(vocab);
    return status;
}

/* ---- Opening ----------------------------------------------------------------------------------------- */

/* Applies options for which transformers' classes prefer tokenizer_config.json to tokenizer.json. */
static tx_status apply_class(tx_tokenizer *t, const tx_json *config)
{
    const char *name = "";
    TX_TRY(TX_JSON_OPTIONAL(string, config, "tokenizer_class", &name));
    if (strncmp(name, "BertTokenizer", 13) == 0 || (!*name && tx_json_has(config, "do_lower_case")))
        TX_TRY(tx_normalizer_follow_bert(&t->normalizer, config));
    t->generic = strncmp(name, "PreTrainedTokenizer", 19) == 0 || strcmp(name, "TokenizersBackend") == 0;
    const bool spaced = strncmp(name, "GPT2Tokenizer", 13) == 0 || strncmp(name, "RobertaTokenizer", 16) == 0;
    tx_tokenizer_step *last = t->pre_tokenizer.count ? &t->pre_tokenizer.at[t->pre_tokenizer.count - 1] : NULL;
    return spaced && last && tx_tokenizer_step_is(last, "ByteLevel")
               ? TX_JSON_OPTIONAL(bool, config, "add_prefix_space", &last->mark)
               : TX_OK;
}

/* Reads tokenizer.json and the tokens that the configuration adds. */
static tx_status read_tokenizer(tx_tokenizer *t, const tx_json *config)
{
    const tx_source *source = &t->source[TX_TOKENIZER_JSON];
    tx_json *json, *vocab;
    TX_TRY(tx_json_parse(source->data, source->size, source->name, &json));
    tx_status status = tx_fail_in(tx_tokenizer_read(t, json, &vocab), "%s", source->name);
    if (!status && config)
        status = tx_fail_in(apply_class(t, config), "%s", names[TX_TOKENIZER_CONFIG]);
    TX_THEN(status, tx_fail_in(tx_tokenizer_add_config(t, vocab, config), "%s", names[TX_TOKENIZER_CONFIG]));
    tx_json_free(json);
    return status;
}

static tx_status read_all(tx_tokenizer *t)
{
    tx_json *config = NULL;
    TX_TRY(tx_tokenizer_config(t, &config));
    tx_status status = t->source[TX_TOKENIZER_JSON].data ? read_tokenizer(t, config) : read_pair(t, config);
    TX_THEN(status, tx_tokenizer_seal(t));
    TX_THEN(status, tx_fail_in(tx_tokenizer_find_ends(t, config), "%s", names[TX_TOKENIZER_CONFIG]));
    tx_json_free(config);
    return status;
}

/* Makes the sources from the values of a GGUF file, and reads them. */
static tx_status read_gguf(tx_tokenizer *t, const tx_gguf_file *file)
{
    tx_source *tokens = &t->source[TX_TOKENIZER_JSON], *config = &t->source[TX_TOKENIZER_CONFIG];
    tx_json *json = NULL;
    TX_TRY(tx_gguf_tokenizer_text(file, &tokens->data, &tokens->size));
    TX_TRY(read_tokenizer(t, NULL));
    TX_TRY(tx_tokenizer_seal(t));
    TX_TRY(tx_gguf_tokenizer_config(file, t, &config->data, &config->size));
    TX_TRY(tx_json_parse(config->data, config->size, names[TX_TOKENIZER_CONFIG], &json));
    const tx_status status = tx_fail_in(tx_tokenizer_find_ends(t, json), "%s", names[TX_TOKENIZER_CONFIG]);
    tx_json_free(json);
    return status;
}

static tx_status open_gguf(tx_tokenizer *t, const char *path)
{
    tx_gguf_file *file = NULL;
    TX_TRY(tx_gguf_open(path, &file));
    const tx_status status = tx_fail_in(read_gguf(t, file), "%s", path);
    tx_gguf_close(file);
    return status;
}

/* Replaces a source by the text of a JSON. */
static tx_status set_source(tx_source *source, const tx_json *json)
{
    char *text = tx_json_text(json, TX_JSON_PRETTY);
    if (!text)
        return TX_MEMORY;
    free(source->data);
    source->data = text;
    source->size = strlen(text);
    return TX_OK;
}

static void drop(tx_source *source)
{
    free(source->data);
    source->data = NULL;
}

/* Makes tokenizer.json from an older file, and completes tokenizer_config.json, which then includes
 * special_tokens_map.json. */
static tx_status make_sources(tx_tokenizer *t)
{
    tx_making m = {0};
    tx_json *model = NULL;
    tx_source *map = &t->source[TX_TOKENIZER_SPECIAL];
    if (t->model_config.data)
        TX_TRY(tx_json_parse_file(t->model_config.data, t->model_config.size, "config.json", &model));
    m.model_config = model;
    tx_status status = tx_tokenizer_config(t, &m.config);
    m.config = m.config ? m.config : tx_json_object();
    TX_THEN(status, older[find_older(t->older.name)].make(t->older.data, t->older.size, &m));
    status = tx_fail_in(status, "%s", t->older.name);
    TX_THEN(status, set_source(&t->source[TX_TOKENIZER_JSON], m.json));
    TX_THEN(status, set_source(&t->source[TX_TOKENIZER_CONFIG], m.config));
    tx_json_free(m.json);
    tx_json_free(m.config);
    tx_json_free(model);
    drop(map);
    drop(&t->older);
    drop(&t->model_config);
    return status;
}

/* Moves the chat template and tool_use into a list in tokenizer_config.json, because checkpoints have no folders. */
static tx_status list_templates(tx_tokenizer *t)
{
    tx_json *config = NULL;
    char *text = NULL;
    size_t size;
    tx_status status = tx_tokenizer_chat(t, false, &text, &size);
    if (!status && t->source[TX_TOKENIZER_CONFIG].data)
        status = tx_json_parse(t->source[TX_TOKENIZER_CONFIG].data, t->source[TX_TOKENIZER_CONFIG].size,
                               names[TX_TOKENIZER_CONFIG], &config);
    config = config ? config : tx_json_object();
    if (!status && text)
        status = tx_json_set(config, "chat_template",
                             tx_json_pack("[{s:s, s:s}, {s:s, s:s%}]", "name", "default", "template", text, "name",
                                          "tool_use", "template", t->tools.data, t->tools.size));
    TX_THEN(status, set_source(&t->source[TX_TOKENIZER_CONFIG], config));
    tx_json_free(config);
    free(text);
    drop(&t->source[TX_TOKENIZER_TEMPLATE]);
    drop(&t->tools);
    return status;
}

static tx_status open_files(tx_tokenizer *t, const char *path)
{
    TX_TRY(read_sources(t, path));
    if (t->older.data)
        TX_TRY(tx_fail_in(make_sources(t), "%s", path));
    if (t->tools.data)
        TX_TRY(list_templates(t));
    return tx_fail_in(read_all(t), "%s", path);
}

tx_status tx_tokenizer_open(const char *path, tx_tokenizer **tokenizer)
{
    TX_NEEDS(path && tokenizer, TX_INVALID);
    tx_tokenizer *created = NULL;
    TX_TRY(tx_tokenizer_new(&created));
    for (int i = 0; i < TX_SOURCES; i++)
        created->source[i].name = names[i];
    const tx_status status = tx_gguf_is_name(path) ? open_gguf(created, path) : open_files(created, path);
    return TX_RETURN(status, created, tokenizer, tx_tokenizer_free);
}

/* ---- More tokens ------------------------------------------------------------------------------------- */

/* Appends those of the tokens that `t` lacks to "added_tokens", with the next ids. */
static tx_status append_tokens(const tx_tokenizer *t, const char *tokens, tx_json *json)
{
    tx_json *list;
    tx_added added = {.id = (int32_t)tx_tokenizer_size(t), .special = true};
    TX_TRY(tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &list));
    for (size_t length; *tokens; tokens += length + (tokens[length] == ',')) {
        char text[256];
        length = strcspn(tokens, ",");
        if (length == 0 || length >= sizeof text)
            return tx_fail(TX_INVALID, "\"%.40s\": a token has 1 to %zu bytes", tokens, sizeof text - 1);
        memcpy(text, tokens, length);
        text[length] = '\0';
        if (tx_tokenizer_find(t, text) >= 0)
            continue;
        TX_TRY(tx_added_write(&added, text, list));
        added.id++;
    }
    return TX_OK;
}

tx_status tx_tokenizer_extend(tx_tokenizer **tokenizer, const char *tokens)
{
    TX_NEEDS(tokenizer && *tokenizer && tokens, TX_INVALID);
    tx_tokenizer *had = *tokenizer, *created = NULL;
    tx_json *json = NULL;
    if (!had->source[TX_TOKENIZER_JSON].data)
        return tx_fail(TX_UNSUPPORTED, "tokens can be added only to a tokenizer that has a tokenizer.json");
    tx_source *source = &had->source[TX_TOKENIZER_JSON];
    TX_TRY(tx_json_parse(source->data, source->size, source->name, &json));
    tx_status status = append_tokens(had, tokens, json);
    TX_THEN(status, set_source(source, json));
    tx_json_free(json);
    TX_THEN(status, tx_tokenizer_new(&created));
    TX_TRY(status);
    memcpy(created->source, had->source, sizeof created->source); /* `created` owns the texts from here on */
    memset(had->source, 0, sizeof had->source);
    tx_tokenizer_free(had);
    *tokenizer = NULL;
    return TX_RETURN(read_all(created), created, tokenizer, tx_tokenizer_free);
}
