/* SPDX-License-Identifier: Apache-2.0
 * The model Unigram (Kudo, 2018). Each token has a score, its log probability. A word becomes the tokens with the
 * greatest sum of scores, which the Viterbi algorithm finds. A character without a token gets the least score of all
 * tokens less a penalty. Adjacent unknown characters become one unknown token, or the tokens of their bytes. */
#include "api/base/number.h"
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define UNKNOWN_PENALTY 10.0
/* Limits the steps for each byte of a text. SentencePiece's tokens have at most 16 characters by default. */
#define TOKEN_MOST 1024

/* ---- Reading ------------------------------------------------------------------------------------- */

/* Rounds a score as the JSON parser of Hugging Face's tokenizers does, so that sums of scores have the same order. That
 * parser converts the digits and the power of ten to doubles, and divides. It is exact for at most 15 digits. */
static double round_score(double score)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        tx_format(text, sizeof text, "%.*e", digits - 1, score);
        if (tx_number_read(text, NULL) != score && digits < 17)
            continue;
        if (digits == 15)
            return score;
        break;
    }
    char *exponent = strchr(text, 'e'), power[16];
    uint64_t significand = 0;
    int fraction = 0; /* digits after the point */
    for (const char *at = text; at < exponent; at++) {
        fraction = *at == '.' ? 0 : fraction + 1;
        significand = *at >= '0' && *at <= '9' ? 10 * significand + (uint64_t)(*at - '0') : significand;
    }
    const int scale = (int)strtol(exponent + 1, NULL, 10) - fraction;
    snprintf(power, sizeof power, "1e%d", scale < 0 ? -scale : scale);
    const double ten = tx_number_read(power, NULL), size = (double)significand;
    const double result = scale < 0 ? size / ten : size * ten;
    return score < 0 ? -result : result;
}

/* Reads ["token", score]. */
static tx_status read_token(tx_tokenizer *t, const tx_json *pair, int64_t id)
{
    const char *text;
    size_t size;
    double score;
    if (tx_json_type_of(pair) != TX_JSON_ARRAY || tx_json_size(pair) != 2)
        return tx_fail(TX_FORMAT, "expected a token and its score");
    TX_TRY(tx_json_as_text(tx_json_at(pair, 0), "a token", &text, &size));
    TX_TRY(tx_json_as_number(tx_json_at(pair, 1), "a score", -DBL_MAX, DBL_MAX, &score));
    if (size > TOKEN_MOST)
        return tx_fail(TX_UNSUPPORTED, "a token of %zu bytes: at most %d are supported", size, TOKEN_MOST);
    t->score[id] = round_score(score);
    return tx_vocab_put(&t->vocab, id, TX_TOKEN_WORD, text, size);
}

static tx_status build_trie(tx_tokenizer *t)
{
    const tx_vocab *v = &t->vocab;
    tx_trie_key *keys = calloc((size_t)v->count + 1, sizeof *keys);
    if (!keys)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " tokens", v->count);
    for (int32_t id = 0; id < v->count; id++)
        keys[id] = (tx_trie_key){v->bytes.data + v->token[id].at, v->token[id].size, id};
    const tx_status status = tx_trie_build(&t->trie, keys, (size_t)v->count);
    free(keys);
    return status;
}

/* Reads the tokens from last to first: if two are equal, tx_vocab_find returns the one with the greater id. */
static tx_status read_tokens(tx_tokenizer *t, const tx_json *list)
{
    const size_t count = tx_json_size(list);
    if (count > TX_VOCAB_LIMIT)
        return tx_fail(TX_FORMAT, "vocab: %zu tokens, at most %d are supported", count, TX_VOCAB_LIMIT);
    t->score = calloc(count + 1, sizeof *t->score);
    if (!t->score)
        return tx_fail(TX_MEMORY, "no memory for %zu scores", count);
    for (size_t i = count; i-- > 0;)
        TX_TRY(tx_fail_in(read_token(t, tx_json_at(list, i), (int64_t)i), "vocab[%zu]", i));
    t->words = (int32_t)count;
    t->unknown_score = DBL_MAX;
    for (size_t i = 0; i < count; i++)
        t->unknown_score = t->score[i] < t->unknown_score ? t->score[i] : t->unknown_score;
    t->unknown_score -= UNKNOWN_PENALTY;
    return build_trie(t);
}

static tx_status read(tx_tokenizer *t, const tx_json *model, const tx_json *vocab)
{
    int64_t unk = -1;
    tx_json *list;
    (void)vocab;
    TX_TRY(tx_json_get(model, "vocab", TX_JSON_ARRAY, &list));
    TX_TRY(read_tokens(t, list));
    if (tx_json_has(model, "unk_id"))
        TX_TRY(tx_json_get_int(model, "unk_id", 0, t->words - 1, &unk));
    t->unk = (int32_t)unk;
    return tx_model_read_fallback(t, model);
}

/* ---- Encoding ------------------------------------------------------------------------------------ */

/* The best tokens for the bytes before a position. */
typedef struct place {
    double score;
    int32_t id;     /* of the last one */
    uint32_t begin; /* of the last one; NOWHERE if the position is not reached */
} place;

#define NOWHERE UINT32_MAX

static void reach(place *to, double score, int32_t id, size_t begin)
{
    if (to->begin == NOWHERE || score > to->score)
        *to = (place){score, id, (uint32_t)begin};
}

/* Finds the best tokens before each position. */
static tx_status search(const tx_tokenizer *t, const char *word, size_t size, place *places)
{
    const tx_trie trie = t->trie;
    const double *scores = t->score;
    for (size_t i = 1; i <= size; i++)
        places[i].begin = NOWHERE;
    places[0] = (place){0};
    for (size_t at = 0, length; at < size; at += length) {
        const double score = places[at].score;
        bool known = false; /* the character has a token */
        uint32_t node = 0;
        length = (unsigned char)word[at] < 0x80 ? 1 : tx_utf8_read(word + at, size - at, NULL);
        for (size_t end = at; end < size && (node = tx_trie_step(&trie, node, word[end])) != 0;) {
            const int32_t id = trie.node[node].id;
            end++;
            if (id < 0)
                continue;
            known = known || end == at + length;
            reach(&places[end], scores[id] + score, id, at);
        }
        if (known)
            continue;
        place *next = &places[at + length];
        const uint32_t before = next->begin;
        if (t->unk < 0 && (before == NOWHERE || t->unknown_score + score > next->score))
            return tx_fail(TX_UNSUPPORTED, "\"%.*s\" is not in the vocabulary, and there is no unknown token",
                           (int)length, word + at);
        reach(next, t->unknown_score + score, t->unk, at);
    }
    return TX_OK;
}

/* Appends the ids of unknown characters from last to first. */
static void add_unknown(const tx_tokenizer *t, const char *text, size_t size, tx_ids *ids)
{
    const int32_t whole = tx_vocab_find(&t->vocab, TX_TOKEN_WORD, text, size);
    size_t known = 0;
    while (whole < 0 && t->byte_fallback && known < size && t->vocab.byte_ids[(unsigned char)text[known]] >= 0)
        known++;
    if (known < size)
        ids->id[ids->count++] = whole < 0 ? t->unk : whole;
    for (size_t i = size; known == size && i > 0; i--)
        ids->id[ids->count++] = t->vocab.byte_ids[(unsigned char)text[i - 1]];
}

static void reverse(int32_t *id, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        const int32_t last = id[count - 1 - i];
        id[count - 1 - i] = id[i];
        id[i] = last;
    }
}

static tx_status encode(const tx_tokenizer *t, tx_buffer *scratch, const char *word, size_t size, tx_ids *ids)
{
    if (size >= NOWHERE || size >= SIZE_MAX / sizeof(place) - 1)
        return tx_fail(TX_UNSUPPORTED, "a word of %zu bytes: break the text into lines", size);
    tx_buffer_clear(scratch);
    TX_TRY(tx_buffer_reserve(scratch, (size + 1) * sizeof(place)));
    place *places = (void *)scratch->data;
    TX_TRY(search(t, word, size, places));
    TX_TRY(tx_ids_reserve(ids, size));
    const size_t before = ids->count;
    for (size_t end = size; end > 0;) {
        size_t begin = places[end].begin;
        if (places[end].id != t->unk) {
            ids->id[ids->count++] = places[end].id;
        } else {
            while (begin > 0 && places[begin].id == t->unk)
                begin = places[begin].begin;
            add_unknown(t, word + begin, end - begin, ids);
        }
        end = begin;
    }
    reverse(ids->id + before, ids->count - before);
    return TX_OK;
}

const tx_model_kind tx_unigram = {"Unigram", read, encode, true};
