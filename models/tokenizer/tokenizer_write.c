/* SPDX-License-Identifier: Apache-2.0
 * Saves a tokenizer in the form that transformers' PreTrainedTokenizerFast loads. */
#include "models/tokenizer/bpe.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"

#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer.json"
#define TOKENIZER_CONFIG "tokenizer_config.json"

const char tx_tokenizer_frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null,"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    " \"use_regex\": true},"
    " \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false,"
    " \"use_regex\": true},"
    " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\","
    " \"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {}, \"merges\": []}}";

tx_status tx_tokenizer_spell(const tx_tokenizer *t, const tx_letters *letters, int32_t id, tx_buffer *text)
{
    const tx_token *token = &t->vocab.token[id];
    const char *bytes = t->vocab.bytes.data + token->at;
    TX_TRY(tx_buffer_reserve(text, 2 * (size_t)token->size + 1));
    char *at = text->data + text->size;
    if (!t->bytes || token->kind == TX_TOKEN_FOREIGN)
        memcpy(at, bytes, (size_t)token->size + 1);
    else
        tx_letters_write(letters, bytes, token->size, at);
    text->size += strlen(at);
    return TX_OK;
}

static tx_status write_vocab(const tx_tokenizer *t, const tx_letters *letters, tx_json *model, tx_buffer *text)
{
    tx_json *vocab;
    TX_TRY(tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab));
    for (int32_t id = 0; id < t->vocab.count; id++) {
        tx_buffer_clear(text);
        TX_TRY(tx_tokenizer_spell(t, letters, id, text));
        TX_TRY(tx_json_set_int(vocab, text->data, id));
    }
    return TX_OK;
}

static tx_status write_merges(const tx_tokenizer *t, const tx_letters *letters, tx_json *model, tx_buffer *text)
{
    tx_json *merges;
    TX_TRY(tx_json_get(model, "merges", TX_JSON_ARRAY, &merges));
    for (size_t i = 0; i < t->merges.count; i++) {
        tx_buffer_clear(text);
        TX_TRY(tx_tokenizer_spell(t, letters, t->merges.at[i].left, text));
        tx_buffer_add(text, " ", 1);
        TX_TRY(tx_tokenizer_spell(t, letters, t->merges.at[i].right, text));
        TX_TRY(tx_json_append_string(merges, text->data));
    }
    return TX_OK;
}

tx_status tx_added_write(const tx_added *added, const char *text, tx_json *list)
{
    tx_json *token = tx_json_object(); /* `list` owns it before it is filled, so a failure leaks nothing */
    TX_TRY(tx_json_append(list, token));
    TX_TRY(tx_json_set_int(token, "id", added->id));
    TX_TRY(tx_json_set_string(token, "content", text));
#define X(flag) TX_TRY(tx_json_set_bool(token, #flag, added->flag));
    TX_ADDED_FLAGS(X)
#undef X
    return TX_OK;
}

static tx_status write_added(const tx_tokenizer *t, tx_json *json)
{
    tx_json *list;
    TX_TRY(tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &list));
    for (int32_t i = 0; i < t->additions.count; i++)
        TX_TRY(tx_added_write(&t->additions.at[i], t->additions.at[i].text, list));
    return TX_OK;
}

static tx_status write_in(const char *folder, const char *name, const tx_json *json)
{
    return tx_json_write(TX_PATH(folder, name), json, TX_JSON_PRETTY);
}

static tx_status save_tokenizer(const tx_tokenizer *t, const char *folder)
{
    tx_json *json, *model;
    tx_buffer text = {0};
    tx_letters letters;
    tx_letters_make(&letters);
    TX_TRY(tx_json_parse(tx_tokenizer_frame, strlen(tx_tokenizer_frame), TOKENIZER, &json));
    tx_status status = write_added(t, json);
    TX_THEN(status, tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    TX_THEN(status, write_vocab(t, &letters, model, &text));
    TX_THEN(status, write_merges(t, &letters, model, &text));
    TX_THEN(status, write_in(folder, TOKENIZER, json));
    free(text.data);
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
    TX_THEN(status, tx_json_set_int(json, "model_max_length", model_max_length));
    /* Without this, decoding would drop spaces before punctuation. */
    TX_THEN(status, tx_json_set_bool(json, "clean_up_tokenization_spaces", false));
    TX_THEN(status, write_in(folder, TOKENIZER_CONFIG, json));
    tx_json_free(json);
    return status;
}

static tx_status save_copies(const tx_tokenizer *t, const char *folder)
{
    for (int i = 0; i < TX_SOURCES; i++) {
        const tx_source *source = &t->source[i];
        if (source->data)
            TX_TRY(tx_file_write(TX_PATH(folder, source->name), source->data, source->size));
    }
    return TX_OK;
}

/* Sets eos_token in a source file, which is created if it is missing. */
static tx_status set_end_in(tx_source *source, const char *text)
{
    tx_json *json = NULL;
    if (source->data)
        TX_TRY(tx_json_parse(source->data, source->size, source->name, &json));
    else
        json = tx_json_object();
    const tx_status status = tx_json_set_string(json, "eos_token", text);
    char *result = status ? NULL : tx_json_text(json, TX_JSON_PRETTY);
    tx_json_free(json);
    if (!result)
        return status ? status : TX_MEMORY;
    free(source->data);
    source->data = result;
    source->size = strlen(result);
    return TX_OK;
}

tx_status tx_tokenizer_set_end(tx_tokenizer *tokenizer, int32_t id)
{
    const char *text = tokenizer->vocab.bytes.data + tokenizer->vocab.token[id].at;
    tokenizer->end = id;
    if (!tokenizer->source[TX_TOKENIZER_JSON].name) /* made here: it has no source files */
        return TX_OK;
    TX_TRY(set_end_in(&tokenizer->source[TX_TOKENIZER_CONFIG], text));
    return tokenizer->source[TX_TOKENIZER_SPECIAL].data ? set_end_in(&tokenizer->source[TX_TOKENIZER_SPECIAL], text)
                                                        : TX_OK;
}

tx_status tx_tokenizer_save(const tx_tokenizer *tokenizer, const char *folder, int64_t model_max_length)
{
    TX_NEEDS(tokenizer && folder, TX_INVALID);
    TX_TRY(tx_folder_create(folder));
    if (tokenizer->source[0].name)
        return save_copies(tokenizer, folder);
    TX_TRY(save_tokenizer(tokenizer, folder));
    return save_config(folder, model_max_length);
}
