/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the tests of tokenizers as files: a folder with a small tokenizer, and changes to it. Include after
 * cmocka.h. */
#ifndef TX_TESTS_FOLDERS_H
#define TX_TESTS_FOLDERS_H

#include "tests/text/text.h"

#define LIMIT (1 << 24)

/* A pre-tokenizer that splits by a pattern, and hands on bytes. */
#define SPLIT(pattern, behavior)                                                                      \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
    "\"},\"behavior\":\"" behavior "\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}"

/* A folder with a small tokenizer: <|endoftext|> is 0, "!" is 1, "h" and "e" make "he", " " and "the" make " the". */
static inline char *small_folder(void)
{
    static const char text[] = "the hen then the other hen the then";
    char *folder = make_scratch();
    tx_tokenizer_trainer *trainer;
    tx_tokenizer *tokenizer;
    assert_ok(tx_tokenizer_trainer_create(&trainer));
    assert_ok(tx_tokenizer_trainer_add(trainer, text, sizeof text - 1));
    assert_ok(tx_tokenizer_trainer_finish(trainer, 263, 2, &tokenizer));
    assert_ok(tx_tokenizer_save(tokenizer, folder, 77));
    tx_tokenizer_free(tokenizer);
    tx_tokenizer_trainer_free(trainer);
    return folder;
}

static inline tx_json *read_in(const char *folder, const char *name)
{
    tx_json *json;
    assert_ok(tx_json_read(TX_PATH(folder, name), LIMIT, &json));
    return json;
}

static inline void write_in(const char *folder, const char *name, const char *text)
{
    assert_ok(tx_file_write(TX_PATH(folder, name), text, strlen(text)));
}

/* Replaces "model.vocab.a", or element 0 of "added_tokens.0.id", by a value in JSON. */
static inline void change(const char *folder, const char *place, const char *value)
{
    tx_json *json = read_in(folder, "tokenizer.json"), *at = json, *made;
    char *path = TX_PATH(folder, "tokenizer.json"), name[64];
    for (const char *dot; (dot = strchr(place, '.')); place = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - place), place);
        if (tx_json_type_of(at) == TX_JSON_ARRAY)
            at = tx_json_at(at, (size_t)atoi(name));
        else
            assert_ok(tx_json_get(at, name, strcmp(name, "added_tokens") ? TX_JSON_OBJECT : TX_JSON_ARRAY, &at));
    }
    assert_ok(tx_json_parse(value, strlen(value), "value", &made));
    if (tx_json_type_of(at) == TX_JSON_ARRAY)
        assert_ok(tx_json_append(at, made));
    else
        assert_ok(tx_json_set(at, place, made));
    assert_ok(tx_json_write(path, json, TX_JSON_LINE));
    tx_json_free(json);
}

#endif
