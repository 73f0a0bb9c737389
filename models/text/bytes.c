/* SPDX-License-Identifier: Apache-2.0
 * The byte vocabulary, and its form as a Hugging Face tokenizer. */
#include "models/text/bytes.h"

#include "api/file.h"
#include "api/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer.json"
#define TOKENIZER_CONFIG "tokenizer_config.json"
#define TOKENIZER_LIMIT ((int64_t)256 << 20)

size_t tx_bytes_encode(const char *text, size_t size, bool special, int32_t *ids)
{
    const size_t length = strlen(TX_BYTES_END_TEXT);
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        if (special && size - i >= length && memcmp(text + i, TX_BYTES_END_TEXT, length) == 0) {
            ids[count++] = TX_BYTES_END;
            i += length - 1;
        } else {
            ids[count++] = (unsigned char)text[i];
        }
    }
    return count;
}

tx_status tx_bytes_decode(const int32_t *ids, size_t count, bool skip_special, char **text, size_t *size)
{
    const size_t length = strlen(TX_BYTES_END_TEXT);
    size_t room = 1;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= TX_BYTES_VOCAB)
            return tx_fail(TX_INVALID, "id %d at %zu is not in the byte vocabulary (0 to %d)", ids[i], i,
                           TX_BYTES_VOCAB - 1);
        room += ids[i] == TX_BYTES_END ? length : 1;
    }
    char *made = malloc(room);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a text of %zu bytes", room);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] != TX_BYTES_END) {
            made[used++] = (char)ids[i];
        } else if (!skip_special) {
            memcpy(made + used, TX_BYTES_END_TEXT, length);
            used += length;
        }
    }
    made[used] = '\0';
    *text = made;
    *size = used;
    return TX_OK;
}

/* ---- The tokenizer's files ----------------------------------------------------------------------- */

/* Byte-level BPE writes each byte as a printable character: printable Latin-1 stands for itself, the others, in
 * order, are U+0100 and up (Radford et al., 2019). Writes its UTF-8 to `text`. */
static void letter_of(int byte, char text[3])
{
    int code = 256;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && printable)
            code = b;
        else if (b < byte && !printable)
            code++;
    }
    if (code < 0x80) {
        text[0] = (char)code;
        text[1] = '\0';
    } else {
        text[0] = (char)(0xC0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3F));
        text[2] = '\0';
    }
}

/* What is the same in every such file. */
static const char frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,"
    " \"added_tokens\": [{\"id\": 256, \"content\": \"" TX_BYTES_END_TEXT "\", \"single_word\": false,"
    " \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}],"
    " \"normalizer\": null,"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    " \"use_regex\": true},"
    " \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false,"
    " \"use_regex\": true},"
    " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\","
    " \"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {}, \"merges\": []}}";

static tx_status write_in(const char *folder, const char *name, const tx_json *json)
{
    char *path = tx_path_join(folder, name);
    tx_status status = path ? tx_json_write(path, json, TX_JSON_PRETTY) : TX_MEMORY;
    free(path);
    return status;
}

static tx_status save_tokenizer(const char *folder)
{
    tx_json *json, *model, *vocab;
    tx_status status = tx_json_parse(frame, sizeof frame - 1, TOKENIZER, &json);
    if (status)
        return status;
    status = tx_json_get(json, "model", TX_JSON_OBJECT, &model);
    if (!status)
        status = tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab);
    for (int byte = 0; byte < 256 && !status; byte++) {
        char letter[3];
        letter_of(byte, letter);
        status = tx_json_set_int(vocab, letter, byte);
    }
    if (!status)
        status = tx_json_set_int(vocab, TX_BYTES_END_TEXT, TX_BYTES_END);
    if (!status)
        status = write_in(folder, TOKENIZER, json);
    tx_json_free(json);
    return status;
}

static tx_status save_tokenizer_config(const char *folder, int64_t model_max_length)
{
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token"};
    tx_json *json = tx_json_object();
    tx_status status = tx_json_set_string(json, "tokenizer_class", "PreTrainedTokenizerFast");
    for (size_t i = 0; i < sizeof roles / sizeof roles[0] && !status; i++)
        status = tx_json_set_string(json, roles[i], TX_BYTES_END_TEXT);
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

tx_status tx_bytes_save(const char *folder, int64_t model_max_length)
{
    tx_status status = tx_folder_create(folder);
    if (!status)
        status = save_tokenizer(folder);
    return status ? status : save_tokenizer_config(folder, model_max_length);
}

/* ---- Recognition ----------------------------------------------------------------------------------- */

/* `object`'s part `key` must be null, or (with a type) an object of that type. */
static tx_status check_part(const tx_json *object, const char *key, const char *type, bool optional)
{
    tx_json *part;
    const char *found = "null";
    if (!tx_json_has(object, key)) {
        if (!type || optional)
            return TX_OK;
    } else if (tx_json_get(object, key, TX_JSON_OBJECT, &part) || tx_json_get_string(part, "type", &found)) {
        return tx_fail_in(TX_FORMAT, "%s", key);
    }
    if (!type || strcmp(found, type) != 0)
        return tx_fail(TX_UNSUPPORTED, "%s is %.40s, expected %s", key, found, type ? type : "null");
    return TX_OK;
}

static tx_status check_vocab(const tx_json *model)
{
    tx_json *vocab, *merges;
    tx_status status = tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab);
    if (!status)
        status = tx_json_get(model, "merges", TX_JSON_ARRAY, &merges);
    if (status)
        return status;
    if (tx_json_size(merges) > 0)
        return tx_fail(TX_UNSUPPORTED, "%zu merges, the byte vocabulary has none", tx_json_size(merges));
    size_t letters = tx_json_size(vocab) - (tx_json_has(vocab, TX_BYTES_END_TEXT) ? 1 : 0);
    if (letters != 256)
        return tx_fail(TX_UNSUPPORTED, "%zu tokens that are not special, the byte vocabulary has 256", letters);
    for (int byte = 0; byte < 256 && !status; byte++) {
        char letter[3];
        int64_t id;
        letter_of(byte, letter);
        status = tx_json_get_int(vocab, letter, byte, byte, &id);
    }
    if (!status && letters < tx_json_size(vocab)) {
        int64_t id;
        status = tx_json_get_int(vocab, TX_BYTES_END_TEXT, TX_BYTES_END, TX_BYTES_END, &id);
    }
    return status;
}

static tx_status check_added(const tx_json *json)
{
    tx_json *added;
    const char *content = "";
    int64_t id;
    tx_status status = tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &added);
    if (!status && tx_json_size(added) != 1)
        status = tx_fail(TX_UNSUPPORTED, "%zu added tokens, expected " TX_BYTES_END_TEXT " alone", tx_json_size(added));
    if (!status)
        status = tx_json_get_string(tx_json_at(added, 0), "content", &content);
    if (!status && strcmp(content, TX_BYTES_END_TEXT) != 0)
        status = tx_fail(TX_UNSUPPORTED, "added token %.40s, expected " TX_BYTES_END_TEXT, content);
    return status ? status : tx_json_get_int(tx_json_at(added, 0), "id", TX_BYTES_END, TX_BYTES_END, &id);
}

static tx_status check_tokenizer(const tx_json *json)
{
    tx_json *model, *splitter;
    bool prefix = false;
    tx_status status = check_part(json, "normalizer", NULL, false);
    if (!status)
        status = check_part(json, "pre_tokenizer", "ByteLevel", false);
    if (!status)
        status = check_part(json, "post_processor", "ByteLevel", true);
    if (!status)
        status = check_part(json, "decoder", "ByteLevel", false);
    if (!status)
        status = check_part(json, "model", "BPE", false);
    if (!status)
        status = tx_json_get(json, "pre_tokenizer", TX_JSON_OBJECT, &splitter);
    if (!status)
        status = tx_json_get_bool(splitter, "add_prefix_space", &prefix);
    if (!status && prefix)
        status = tx_fail(TX_UNSUPPORTED, "pre_tokenizer.add_prefix_space is true, expected false");
    if (!status)
        status = tx_json_get(json, "model", TX_JSON_OBJECT, &model);
    if (!status)
        status = check_vocab(model);
    return status ? status : check_added(json);
}

tx_status tx_bytes_check(const char *folder)
{
    char *path = tx_path_join(folder, TOKENIZER);
    tx_json *json;
    if (!path)
        return TX_MEMORY;
    tx_status status = tx_json_read(path, TOKENIZER_LIMIT, &json);
    if (!status) {
        status = check_tokenizer(json);
        if (status) /* a missing key, too, makes it another tokenizer */
            status = tx_fail_in(TX_UNSUPPORTED, "%s: not the byte vocabulary, the only one supported", path);
        tx_json_free(json);
    }
    free(path);
    return status;
}
