/* SPDX-License-Identifier: Apache-2.0
 * Writing a tokenizer as transformers' PreTrainedTokenizerFast loads it. */
#include "models/text/bpe.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"

#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer.json"
#define TOKENIZER_CONFIG "tokenizer_config.json"

/* What is the same in every file that is made here. */
static const char frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null,"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    " \"use_regex\": true},"
    " \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false,"
    " \"use_regex\": true},"
    " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\","
    " \"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {}, \"merges\": []}}";

/* A token as files spell it; the caller frees. NULL when out of memory. */
static char *spell(const tx_tokenizer *t, const tx_letters *letters, int32_t id)
{
    const tx_token *token = &t->vocab.token[id];
    const char *bytes = t->vocab.bytes.data + token->at;
    if (token->kind == TX_TOKEN_FOREIGN)
        return strdup(bytes);
    char *text = malloc(2 * (size_t)token->size + 1);
    if (text)
        tx_letters_write(letters, bytes, token->size, text);
    return text;
}

static tx_status write_vocab(const tx_tokenizer *t, const tx_letters *letters, tx_json *model)
{
    tx_json *vocab;
    tx_status status = tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab);
    for (int32_t id = 0; id < t->vocab.count && !status; id++) {
        char *text = spell(t, letters, id);
        status = text ? tx_json_set_int(vocab, text, id) : tx_fail(TX_MEMORY, "no memory for a token");
        free(text);
    }
    return status;
}

static tx_status write_merges(const tx_tokenizer *t, const tx_letters *letters, tx_json *model)
{
    tx_json *merges;
    tx_status status = tx_json_get(model, "merges", TX_JSON_ARRAY, &merges);
    for (size_t i = 0; i < t->merges.count && !status; i++) {
        char *left = spell(t, letters, t->merges.at[i].left), *right = spell(t, letters, t->merges.at[i].right);
        size_t left_size = left ? strlen(left) : 0, right_size = right ? strlen(right) : 0;
        char *text = left && right ? malloc(left_size + right_size + 2) : NULL;
        if (text) {
            memcpy(text, left, left_size);
            text[left_size] = ' ';
            memcpy(text + left_size + 1, right, right_size + 1);
            status = tx_json_append_string(merges, text);
        } else {
            status = tx_fail(TX_MEMORY, "no memory for a merge");
        }
        free(left);
        free(right);
        free(text);
    }
    return status;
}

static tx_status write_added(const tx_tokenizer *t, tx_json *json)
{
    tx_json *list;
    tx_status status = tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &list);
    for (int32_t i = 0; i < t->additions.count && !status; i++) {
        const tx_added *added = &t->additions.at[i];
        tx_json *token = tx_json_object();
        status = tx_json_set_int(token, "id", added->id);
        if (!status)
            status = tx_json_set_string(token, "content", added->text);
#define X(flag)  \
    if (!status) \
        status = tx_json_set_bool(token, #flag, added->flag);
        TX_ADDED_FLAGS(X)
#undef X
        if (status)
            tx_json_free(token);
        else
            status = tx_json_append(list, token);
    }
    return status;
}

static tx_status write_in(const char *folder, const char *name, const tx_json *json)
{
    char path[TX_PATH_ROOM];
    return tx_json_write(tx_path_in(path, folder, name), json, TX_JSON_PRETTY);
}

static tx_status save_tokenizer(const tx_tokenizer *t, const char *folder)
{
    tx_json *json, *model;
    tx_letters letters;
    tx_letters_make(&letters);
    tx_status status = tx_json_parse(frame, sizeof frame - 1, TOKENIZER, &json);
    if (status)
        return status;
    status = write_added(t, json);
    if (!status)
        status = tx_json_get(json, "model", TX_JSON_OBJECT, &model);
    if (!status)
        status = write_vocab(t, &letters, model);
    if (!status)
        status = write_merges(t, &letters, model);
    if (!status)
        status = write_in(folder, TOKENIZER, json);
    tx_json_free(json);
    return status;
}

static tx_status save_config(const char *folder, int64_t model_max_length)
{
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token"};
    tx_json *json = tx_json_object();
    tx_status status = tx_json_set_string(json, "tokenizer_class", "PreTrainedTokenizerFast");
    for (size_t i = 0; i < sizeof roles / sizeof roles[0] && !status; i++)
        status = tx_json_set_string(json, roles[i], TX_END_OF_TEXT);
    if (!status)
        status = tx_json_set_int(json, "model_max_length", model_max_length);
    /* Else decoding would drop spaces before punctuation. */
    if (!status)
        status = tx_json_set_bool(json, "clean_up_tokenization_spaces", false);
    if (!status)
        status = write_in(folder, TOKENIZER_CONFIG, json);
    tx_json_free(json);
    return status;
}

static tx_status save_copies(const tx_tokenizer *t, const char *folder)
{
    tx_status status = TX_OK;
    for (int i = 0; i < TX_SOURCES && !status; i++) {
        const tx_source *source = &t->source[i];
        if (!source->data)
            continue;
        char path[TX_PATH_ROOM];
        status = tx_file_write(tx_path_in(path, folder, source->name), source->data, source->size);
    }
    return status;
}

tx_status tx_tokenizer_save(const tx_tokenizer *tokenizer, const char *folder, int64_t model_max_length)
{
    TX_NEEDS(tokenizer && folder, TX_INVALID);
    tx_status status = tx_folder_create(folder);
    if (status)
        return status;
    if (tokenizer->source[0].name)
        return save_copies(tokenizer, folder);
    status = save_tokenizer(tokenizer, folder);
    return status ? status : save_config(folder, model_max_length);
}
