/* SPDX-License-Identifier: Apache-2.0
 * Writes a tokenizer as values of a GGUF file. */
#include "models/tokenizer/tokenizer_gguf.h"

#include "models/names.h"
#include "models/tokenizer/bpe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOWER_BAR "\xe2\x96\x81"
#define INNER "##" /* the prefix of tokens inside a word */

/* ---- SentencePiece ----------------------------------------------------------------------------------- */

/* Finds out whether a SentencePiece tokenizer adds a space before a text. */
static tx_status find_prefix(const tx_tokenizer *t, bool *prefix)
{
    bool known = t->byte_fallback && t->pre_tokenizer.count <= 1;
    *prefix = false;
    for (int32_t i = 0; i < t->normalizer.count; i++) {
        const tx_tokenizer_step *step = &t->normalizer.at[i];
        known = known && (tx_tokenizer_step_is(step, "Prepend") || tx_tokenizer_step_is(step, "Replace")) &&
                strcmp(step->text, LOWER_BAR) == 0;
        *prefix = *prefix || tx_tokenizer_step_is(step, "Prepend");
    }
    for (int32_t i = 0; i < t->pre_tokenizer.count; i++) {
        known = known && tx_tokenizer_step_is(&t->pre_tokenizer.at[i], "Metaspace");
        *prefix = *prefix || t->pre_tokenizer.at[i].prepend != TX_PREPEND_NEVER;
    }
    return known ? TX_OK
                 : tx_fail(TX_UNSUPPORTED, "tokenizer: neither byte-level BPE nor SentencePiece with byte_fallback");
}

/* ---- Unigram ----------------------------------------------------------------------------------------- */

/* Writes the map of characters. llama.cpp supports the parts that SentencePiece's models have by default. */
static tx_status put_charsmap(const tx_tokenizer *t, tx_gguf_writer *w)
{
    const tx_tokenizer_steps *normalizer = &t->normalizer, *pre = &t->pre_tokenizer;
    const tx_charsmap *map = normalizer->count ? normalizer->at[0].map : NULL;
    if (normalizer->count != (map != NULL) || pre->count != 2 ||
        !tx_tokenizer_step_is(&pre->at[0], "WhitespaceSplit") || !tx_tokenizer_step_is(&pre->at[1], "Metaspace") ||
        pre->at[1].prepend == TX_PREPEND_NEVER || t->byte_fallback)
        return tx_fail(TX_UNSUPPORTED,
                       "tokenizer: llama.cpp supports Unigram only with the normalizer Precompiled, the "
                       "pre_tokenizers WhitespaceSplit and Metaspace, and without byte_fallback");
    tx_gguf_put_bool(w, TX_GGUF_MERGE_SPACES, true);
    if (map) {
        tx_gguf_put_array(w, TX_GGUF_CHARSMAP, TX_GGUF_VALUE_U8, (int64_t)map->size);
        tx_gguf_add_bytes(w, map->data, map->size);
    }
    return TX_OK;
}

/* ---- WordPiece --------------------------------------------------------------------------------------- */

/* The options of BertNormalizer, in the order of its reader. */
enum { CLEAN, CHINESE, ACCENTS, LOWER };

/* Writes how a text is changed before it is split. llama.cpp's defaults are those of uncased models. */
static tx_status put_normalizer(const tx_tokenizer *t, tx_gguf_writer *w)
{
    const tx_tokenizer_step *step = &t->normalizer.at[0];
    if (t->normalizer.count != 1 || !tx_tokenizer_step_is(step, "BertNormalizer") || !step->flag[CLEAN] ||
        !step->flag[CHINESE] || t->pre_tokenizer.count != 1 ||
        !tx_tokenizer_step_is(&t->pre_tokenizer.at[0], "BertPreTokenizer") || strcmp(t->prefix, INNER) != 0)
        return tx_fail(TX_UNSUPPORTED, "tokenizer: llama.cpp supports WordPiece only with BertNormalizer, clean_text, "
                                       "handle_chinese_chars, BertPreTokenizer and the prefix " INNER);
    if (!step->flag[LOWER])
        tx_gguf_put_bool(w, TX_GGUF_LOWERCASE, false);
    if (!step->flag[ACCENTS])
        tx_gguf_put_bool(w, TX_GGUF_STRIP_ACCENTS, false);
    return TX_OK;
}

/* ---- Tokens ------------------------------------------------------------------------------------------ */

static bool has_token(const tx_tokenizer *t, int64_t id)
{
    return id < t->vocab.count && t->vocab.token[id].kind != TX_TOKEN_NONE;
}

/* Appends a token of WordPiece. GGUF files mark those that begin a word, tokenizer.json the others. */
static void add_piece(const tx_tokenizer *t, const tx_letters *letters, int32_t id, tx_buffer *text)
{
    const tx_token *token = &t->vocab.token[id];
    if (token->size > strlen(INNER) && tx_begins_with(t->vocab.bytes.data + token->at, INNER)) {
        tx_buffer_add(text, t->vocab.bytes.data + token->at + strlen(INNER), token->size - strlen(INNER));
        return;
    }
    tx_buffer_add(text, LOWER_BAR, strlen(LOWER_BAR));
    tx_tokenizer_spell(t, letters, id, text);
}

static tx_status put_tokens(const tx_tokenizer *t, const tx_letters *letters, int64_t vocab, tx_gguf_writer *w)
{
    tx_buffer text = {0};
    tx_gguf_put_array(w, "tokenizer.ggml.tokens", TX_GGUF_VALUE_STRING, vocab);
    for (int64_t id = 0; id < vocab && !text.status; id++) {
        char unused[32];
        tx_buffer_clear(&text);
        snprintf(unused, sizeof unused, "[PAD%" PRId64 "]", id);
        if (t->model == &tx_word_piece && has_token(t, id) && !t->vocab.token[id].added)
            add_piece(t, letters, (int32_t)id, &text);
        else if (has_token(t, id))
            tx_tokenizer_spell(t, letters, (int32_t)id, &text);
        else
            tx_buffer_add(&text, unused, strlen(unused));
        tx_gguf_add_string(w, text.data, text.size);
    }
    free(text.data);
    return text.status;
}

static tx_gguf_token type_of(const tx_tokenizer *t, int64_t id)
{
    const tx_token *token = &t->vocab.token[id];
    if (!has_token(t, id))
        return TX_GGUF_TOKEN_UNUSED;
    if (id == t->unk)
        return TX_GGUF_TOKEN_UNKNOWN;
    if (token->added)
        return token->special ? TX_GGUF_TOKEN_CONTROL : TX_GGUF_TOKEN_USER_DEFINED;
    for (int b = 0; b < 256 && t->byte_fallback; b++)
        if (t->vocab.byte_ids[b] == id)
            return TX_GGUF_TOKEN_BYTE;
    return TX_GGUF_TOKEN_NORMAL;
}

/* Unused ids get the lowest score of a token. */
static tx_status put_unigram(const tx_tokenizer *t, int64_t vocab, tx_gguf_writer *w)
{
    double least = 0;
    for (int64_t id = 0; id < t->words; id++)
        least = t->score[id] < least ? t->score[id] : least;
    tx_gguf_put_array(w, "tokenizer.ggml.scores", TX_GGUF_VALUE_F32, vocab);
    for (int64_t id = 0; id < vocab; id++)
        tx_gguf_add_f32(w, (float)(id < t->words ? t->score[id] : least));
    return TX_OK;
}

/* SentencePiece makes the merge whose token has the highest score. Scores decrease by 1 from merge to merge, as in its
 * files. Tokens that no merge produces come last. */
static tx_status put_scores(const tx_tokenizer *t, int64_t vocab, tx_gguf_writer *w)
{
    float *score = calloc((size_t)vocab, sizeof *score), next = -1;
    if (!score)
        return tx_fail(TX_MEMORY, "no memory for the tokens' scores");
    for (size_t i = 0; i < t->merges.count; i++)
        if (score[t->merges.at[i].id] == 0.0f)
            score[t->merges.at[i].id] = next--;
    tx_gguf_put_array(w, "tokenizer.ggml.scores", TX_GGUF_VALUE_F32, vocab);
    for (int64_t id = 0; id < vocab; id++) {
        if (type_of(t, id) == TX_GGUF_TOKEN_NORMAL && score[id] == 0.0f)
            score[id] = next--;
        tx_gguf_add_f32(w, score[id]);
    }
    free(score);
    return TX_OK;
}

static tx_status put_merges(const tx_tokenizer *t, const tx_letters *letters, tx_gguf_writer *w)
{
    tx_buffer text = {0};
    tx_gguf_put_array(w, "tokenizer.ggml.merges", TX_GGUF_VALUE_STRING, (int64_t)t->merges.count);
    for (size_t i = 0; i < t->merges.count && !text.status; i++) {
        tx_buffer_clear(&text);
        tx_tokenizer_spell(t, letters, t->merges.at[i].left, &text);
        tx_buffer_add(&text, " ", 1);
        tx_tokenizer_spell(t, letters, t->merges.at[i].right, &text);
        tx_gguf_add_string(w, text.data, text.size);
    }
    free(text.data);
    return text.status;
}

/* ---- Special tokens ---------------------------------------------------------------------------------- */

static void put_id(tx_gguf_writer *w, const char *key, int64_t id)
{
    if (id >= 0)
        tx_gguf_put_int(w, key, id);
}

/* Finds the token of a role, or of `other` (may be NULL) if there is none. */
static tx_status find_role(const tx_tokenizer *t, const tx_json *config, const char *role, const char *other,
                           int64_t *id)
{
    const char *text;
    TX_TRY(tx_tokenizer_role(config, role, &text));
    if (!text && other && *id < 0)
        TX_TRY(tx_tokenizer_role(config, other, &text));
    if (text && tx_tokenizer_find(t, text) >= 0)
        *id = tx_tokenizer_find(t, text);
    return TX_OK;
}

static tx_status put_special(const tx_tokenizer *t, const tx_json *config, const tx_gguf_ids *ids, tx_gguf_writer *w)
{
    int64_t bos = ids->bos, eos = ids->eos, pad = -1, unk = t->unk, sep = -1, mask = -1;
    const tx_template *single = &t->post_processor.of[0];
    const int32_t first = single->count ? single->item[0].id : -1,
                  last = single->count ? single->item[single->count - 1].id : -1;
    TX_TRY(find_role(t, config, "bos_token", "cls_token", &bos));
    TX_TRY(find_role(t, config, "eos_token", "sep_token", &eos));
    TX_TRY(find_role(t, config, "unk_token", NULL, &unk));
    TX_TRY(find_role(t, config, "pad_token", NULL, &pad));
    TX_TRY(find_role(t, config, "sep_token", NULL, &sep));
    TX_TRY(find_role(t, config, "mask_token", NULL, &mask));
    if ((first >= 0 && first != bos) || (last >= 0 && last != eos) || single->count > 3)
        return tx_fail(TX_UNSUPPORTED,
                       "tokenizer: its post_processor adds more tokens to a text than bos_token and eos_token");
    put_id(w, "tokenizer.ggml.bos_token_id", bos);
    put_id(w, "tokenizer.ggml.eos_token_id", eos);
    put_id(w, "tokenizer.ggml.unknown_token_id", unk);
    put_id(w, "tokenizer.ggml.padding_token_id", pad);
    put_id(w, TX_GGUF_SEPARATOR, sep);
    put_id(w, TX_GGUF_MASK, mask);
    tx_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", first >= 0);
    tx_gguf_put_bool(w, "tokenizer.ggml.add_eos_token", last >= 0);
    if (sep >= 0 && t->bytes) /* between two texts */
        tx_gguf_put_bool(w, "tokenizer.ggml.add_sep_token", last >= 0);
    return TX_OK;
}

static tx_status put_files(const tx_tokenizer *t, tx_gguf_writer *w)
{
    static const char *const keys[] = {"tokenizer.chat_template", "tokenizer.chat_template.tool_use"};
    const tx_source *json = &t->source[TX_TOKENIZER_JSON];
    /* An amended tokenizer differs from the file; the options of BERT's class are only in tokenizer_config.json. */
    if (json->data && !t->amended && t->model != &tx_word_piece)
        tx_gguf_put_string(w, "tokenizer.huggingface.json", json->data, json->size);
    for (int tools = 0; tools < 2; tools++) {
        char *text;
        size_t size;
        TX_TRY(tx_tokenizer_chat(t, tools, &text, &size));
        if (text)
            tx_gguf_put_string(w, keys[tools], text, size);
        free(text);
    }
    return TX_OK;
}

/* ---- All values -------------------------------------------------------------------------------------- */

static tx_status put_model(const tx_tokenizer *t, const tx_gguf_ids *ids, tx_gguf_writer *w)
{
    const int64_t vocab = ids->vocab;
    const bool words = t->model == &tx_word_piece, scored = t->model == &tx_unigram;
    const char *model = t->bytes ? "gpt2" : words ? "bert" : scored ? "t5" : "llama", *split = "default";
    bool prefix = scored;
    tx_letters letters;
    tx_letters_make(&letters);
    if (t->model != &tx_bpe && !words && !scored)
        return tx_fail(TX_UNSUPPORTED, "tokenizer: its type is %s, not BPE, WordPiece or Unigram", t->model->name);
    if (tx_bpe_has_affix(t))
        return tx_fail(TX_UNSUPPORTED, "tokenizer: llama.cpp has no BPE with a prefix or suffix such as </w>");
    if (tx_tokenizer_size(t) > vocab)
        return tx_fail(TX_INVALID,
                       "the tokenizer has %" PRId64 " ids, the model's vocab_size is %" PRId64
                       ": put the tokenizer of this model into its folder, or enlarge the model by transformers' "
                       "resize_token_embeddings",
                       tx_tokenizer_size(t), vocab);
    TX_TRY(t->bytes ? tx_gguf_find_split(t, ids->architecture, &split)
           : words  ? put_normalizer(t, w)
           : scored ? put_charsmap(t, w)
                    : find_prefix(t, &prefix));
    tx_gguf_put_string(w, "tokenizer.ggml.model", model, strlen(model));
    tx_gguf_put_string(w, "tokenizer.ggml.pre", split, strlen(split));
    TX_TRY(put_tokens(t, &letters, vocab, w));
    tx_gguf_put_array(w, "tokenizer.ggml.token_type", TX_GGUF_VALUE_I32, vocab);
    for (int64_t id = 0; id < vocab; id++)
        tx_gguf_add_i32(w, (int32_t)type_of(t, id));
    if (words)
        return TX_OK;
    if (t->bytes)
        return put_merges(t, &letters, w);
    tx_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", prefix);
    return scored ? put_unigram(t, vocab, w) : put_scores(t, vocab, w);
}

tx_status tx_tokenizer_put_gguf(const tx_tokenizer *tokenizer, const tx_gguf_ids *ids, tx_gguf_writer *writer)
{
    tx_json *config = NULL;
    tx_status status = put_model(tokenizer, ids, writer);
    TX_THEN(status, tx_tokenizer_config(tokenizer, &config));
    TX_THEN(status, put_special(tokenizer, config, ids, writer));
    TX_THEN(status, put_files(tokenizer, writer));
    tx_json_free(config);
    return status;
}
