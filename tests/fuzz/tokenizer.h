/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the fuzz targets of tokenizers. */
#ifndef TX_TESTS_FUZZ_TOKENIZER_H
#define TX_TESTS_FUZZ_TOKENIZER_H

#include "models/tokenizer/bpe.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Whether `back`, blanks left out, is `text` with something left out. */
static inline bool tx_fuzz_within(const char *back, size_t size, const char *text, size_t text_size)
{
    size_t at = 0;
    for (size_t i = 0; i < size; i++) {
        if (back[i] == ' ')
            continue;
        while (at < text_size && text[at] != back[i])
            at++;
        if (at++ == text_size)
            return false;
    }
    return true;
}

/* Encodes a text with every byte and with words of the vocabulary, and decodes it again. Byte-level BPE may put blanks
 * before words, added tokens may remove spaces, and a pre-tokenizer may remove its matches. Only a normalizer may make
 * other changes. Texts that take too long, or become too long, are refused. */
static inline void tx_fuzz_round_trip(const tx_tokenizer *tokenizer)
{
    static const char words[] =
        "ab abc  aab\n\tba <|endoftext|>b\xc3\xa9\xe2\x82\xac 12 3!!?\xf0\x9f\x98\x80<x>\xff\xfe";
    char text[256 + sizeof words];
    tx_encoder *encoder;
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    memcpy(text + 256, words, sizeof words);
    FUZZ_CHECK(!tx_encoder_create(tokenizer, &encoder));
    for (int special = 0; special < 2; special++) {
        tx_ids ids = {0};
        char *back;
        size_t size;
        tx_status status = tx_encoder_run(encoder, text, sizeof text, special, &ids);
        FUZZ_CHECK(!status || status == TX_UNSUPPORTED);
        for (size_t i = 0; i < ids.count; i++)
            FUZZ_CHECK(ids.id[i] >= 0 && ids.id[i] < tx_tokenizer_size(tokenizer));
        status = status ? status : tx_tokenizer_decode(tokenizer, ids.id, ids.count, false, &back, &size);
        FUZZ_CHECK(!status || status == TX_UNSUPPORTED);
        if (!status) {
            FUZZ_CHECK(!tokenizer->bytes || tokenizer->normalizer.count ||
                       tx_fuzz_within(back, size, text, sizeof text));
            free(back);
        }
        free(ids.id);
    }
    tx_encoder_free(encoder);
}

/* Opens `path` and tests the tokenizer. If the file is refused, the message must name `name`. */
static inline void tx_fuzz_tokenizer(const char *path, const char *name)
{
    tx_tokenizer *tokenizer;
    if (tx_fuzz_refused(tx_tokenizer_open(path, &tokenizer), name))
        return;
    FUZZ_CHECK(!tokenizer->bytes || tx_tokenizer_size(tokenizer) >= 256);
    FUZZ_CHECK(tx_tokenizer_end(tokenizer) < tx_tokenizer_size(tokenizer));
    tx_fuzz_round_trip(tokenizer);
    tx_tokenizer_free(tokenizer);
}

#endif
