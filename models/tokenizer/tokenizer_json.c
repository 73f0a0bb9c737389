/* SPDX-License-Identifier: Apache-2.0
 * Reads tokenizer.json strictly: an unknown setting that would change the ids is refused with its name. Truncation and
 * padding are ignored; the code that makes batches of texts does them. */
#include "models/tokenizer/bpe.h"

#include <inttypes.h>
#include <string.h>

/* ---- The model ----------------------------------------------------------------------------------- */

static const tx_model_kind *const models[] = {&tx_bpe, &tx_word_piece, &tx_word_level, &tx_unigram};

static tx_status find_model(tx_tokenizer *tokenizer, const tx_json *model)
{
    const char *type = "BPE"; /* the default in old files */
    TX_TRY(TX_JSON_OPTIONAL(string, model, "type", &type));
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(type, models[i]->name) == 0) {
            tokenizer->model = models[i];
            return TX_OK;
        }
    return tx_fail(TX_UNSUPPORTED, "type %.40s is not supported, only BPE, WordPiece, WordLevel and Unigram", type);
}

static tx_status read_model(tx_tokenizer *tokenizer, const tx_json *model, tx_json **vocab)
{
    *vocab = NULL;
    if (!tokenizer->model->scored) {
        TX_TRY(tx_json_get(model, "vocab", TX_JSON_OBJECT, vocab));
        TX_TRY(tx_bpe_read_vocab(tokenizer, *vocab));
    }
    return tokenizer->model->read(tokenizer, model, *vocab);
}

/* ---- Added tokens -------------------------------------------------------------------------------------- */

/* The id that Hugging Face's tokenizers assign to the next added token. */
static int32_t next_added(const tx_tokenizer *tokenizer)
{
    return tokenizer->words > tokenizer->additions.next ? tokenizer->words : tokenizer->additions.next;
}

/* Id of a word in the model's vocabulary, or -1. `vocab` is NULL if it is a list of tokens with scores. */
static int32_t word_id(const tx_tokenizer *t, const tx_json *vocab, const char *text)
{
    if (vocab)
        return tx_vocab_id(vocab, text);
    const int32_t id = tx_vocab_find(&t->vocab, TX_TOKEN_WORD, text, strlen(text));
    return id < t->words ? id : -1;
}

/* Makes sure that the vocabulary has the token under its id, with its literal text. */
static tx_status place_added(tx_tokenizer *tokenizer, const tx_json *vocab, const char *text, int32_t id)
{
    tx_vocab *words = &tokenizer->vocab;
    const int32_t known = tx_tokenizer_find(tokenizer, text), word = word_id(tokenizer, vocab, text);
    if (known >= 0 && words->token[known].added)
        return tx_fail(TX_FORMAT, "it is added twice");
    if (word < 0 && id != next_added(tokenizer))
        return tx_fail(TX_UNSUPPORTED, "id %" PRId32 ", but tokenizers would assign %" PRId32, id,
                       next_added(tokenizer));
    if (word >= 0 && id != word)
        return tx_fail(TX_FORMAT, "id %" PRId32 ", but its id in the vocabulary is %" PRId32, id, word);
    if (word >= 0 && known == id)
        return TX_OK;
    if (word >= 0)
        words->token[id].kind = TX_TOKEN_NONE; /* read as letters it has another text */
    return tx_vocab_put(words, id, TX_TOKEN_FOREIGN, text, strlen(text));
}

tx_status tx_bpe_add(tx_tokenizer *tokenizer, const tx_json *vocab, const char *text, const tx_added *flags, int64_t id)
{
    tx_added added = *flags;
    const int32_t word = word_id(tokenizer, vocab, text);
    added.id = id >= 0 ? (int32_t)id : word >= 0 ? word : next_added(tokenizer);
    TX_TRY(place_added(tokenizer, vocab, text, added.id));
    return tx_tokenizer_add(tokenizer, &added, text);
}

/* Reads an object with a token's text and flags. */
static tx_status read_added(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *token)
{
    const char *text;
    int64_t id;
    tx_added added = {0};
    TX_TRY(tx_json_get_int(token, "id", 0, TX_VOCAB_LIMIT - 1, &id));
    TX_TRY(tx_json_get_string(token, "content", &text));
    tx_status status = TX_OK;
#define X(flag) TX_THEN(status, tx_json_get_bool(token, #flag, &added.flag));
    TX_ADDED_FLAGS(X)
#undef X
    TX_THEN(status, tx_bpe_add(tokenizer, vocab, text, &added, id));
    return tx_fail_in(status, "%.64s", text);
}

static tx_status read_all_added(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *json)
{
    tx_json *list;
    tx_status status = tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &list);
    if (status == TX_NOT_FOUND)
        return TX_OK;
    for (size_t i = 0; !status && i < tx_json_size(list); i++)
        status = tx_fail_in(read_added(tokenizer, vocab, tx_json_at(list, i)), "added_tokens[%zu]", i);
    return status;
}

/* ---- The whole file ------------------------------------------------------------------------------------ */

/* Gets the object under `key`, or NULL. */
static tx_status get_part(const tx_json *json, const char *key, tx_json **part)
{
    *part = NULL;
    return tx_json_has(json, key) ? tx_json_get(json, key, TX_JSON_OBJECT, part) : TX_OK;
}

static tx_status read_pre_tokenizer(tx_tokenizer *t, const tx_json *json)
{
    TX_TRY(tx_pre_tokenizer_read(&t->pre_tokenizer, json, &t->bytes));
    if (t->bytes && t->model != &tx_bpe)
        return tx_fail(TX_UNSUPPORTED, "ByteLevel with a model of type %s is not supported", t->model->name);
    return TX_OK;
}

/* Tokens are bytes or texts, and the decoder must be of the same kind. */
static tx_status read_decoder(tx_tokenizer *t, const tx_json *json)
{
    bool bytes;
    TX_TRY(tx_decoder_read(&t->decoder, json, &bytes));
    if (t->bytes && (!bytes || t->decoder.count != 1))
        return tx_fail(TX_UNSUPPORTED, "after pre_tokenizer ByteLevel only ByteLevel is supported");
    if (bytes && !t->bytes)
        return tx_fail(TX_UNSUPPORTED, "ByteLevel is supported only after pre_tokenizer ByteLevel");
    return TX_OK;
}

tx_status tx_tokenizer_read(tx_tokenizer *tokenizer, const tx_json *json, tx_json **vocab)
{
    tx_json *model, *part;
    TX_TRY(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    /* The model comes first: an unsupported type explains faults in the rest. */
    TX_TRY(tx_fail_in(find_model(tokenizer, model), "model"));
    TX_TRY(get_part(json, "normalizer", &part));
    TX_TRY(tx_fail_in(tx_normalizer_read(&tokenizer->normalizer, part, &tokenizer->bytes), "normalizer"));
    TX_TRY(get_part(json, "pre_tokenizer", &part));
    TX_TRY(tx_fail_in(read_pre_tokenizer(tokenizer, part), "pre_tokenizer"));
    TX_TRY(get_part(json, "post_processor", &part));
    TX_TRY(tx_fail_in(tx_post_processor_read(&tokenizer->post_processor, part), "post_processor"));
    TX_TRY(get_part(json, "decoder", &part));
    TX_TRY(tx_fail_in(read_decoder(tokenizer, part), "decoder"));
    TX_TRY(tx_fail_in(read_model(tokenizer, model, vocab), "model"));
    return read_all_added(tokenizer, *vocab, json);
}
