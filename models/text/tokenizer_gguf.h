/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers to and from GGUF files' values, "tokenizer.ggml...": byte-level BPE ("gpt2") of the splitters that
 * llama.cpp knows, and BPE of characters that falls back to bytes ("llama": SentencePiece's, whose merges are the
 * tokens' scores). */
#ifndef TX_TEXT_TOKENIZER_GGUF_H
#define TX_TEXT_TOKENIZER_GGUF_H

#include "models/files/gguf.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* What config.json says: ids of the model, and the tokens that begin and end a text; -1: none. */
typedef struct tx_gguf_ids {
    int64_t vocab, bos, eos;
} tx_gguf_ids;

/* Gives the writer a tokenizer's values; ids without a token become unused ones. tokenizer_config.json's tokens are
 * preferred to `ids`. A tokenizer.json is there as a whole too, for an import. TX_UNSUPPORTED names what llama.cpp
 * would do in another way. */
tx_status tx_tokenizer_put_gguf(const tx_tokenizer *tokenizer, const tx_gguf_ids *ids, tx_gguf_writer *writer);

/* What a file has in the place of tokenizer.json (NOT_FOUND where there is no tokenizer) and, once the tokenizer `t` is
 * read, of tokenizer_config.json. The caller frees `*text`. */
tx_status tx_gguf_tokenizer_text(const tx_gguf_file *file, char **text, size_t *size);
tx_status tx_gguf_tokenizer_config(const tx_gguf_file *file, const tx_tokenizer *t, char **text, size_t *size);

/* A tokenizer.json of the file's tokens; the caller frees. For the first of these. */
tx_status tx_tokenizer_json_of_gguf(const tx_gguf_file *file, tx_json **json);

/* X(NAME, number): types of tokens. */
#define TX_GGUF_TOKEN_MAP(X) \
    X(NORMAL, 1)             \
    X(UNKNOWN, 2)            \
    X(CONTROL, 3)            \
    X(USER_DEFINED, 4)       \
    X(UNUSED, 5)             \
    X(BYTE, 6)

typedef enum tx_gguf_token {
#define X(name, number) TX_GGUF_TOKEN_##name = (number),
    TX_GGUF_TOKEN_MAP(X)
#undef X
} tx_gguf_token;

#define TX_GGUF_REGEXES 5

/* How byte-level tokenizers split, by llama.cpp's names. */
typedef struct tx_gguf_split {
    const char *name;
    const char *regex[TX_GGUF_REGEXES]; /* of the steps before ByteLevel, in order */
    bool own;                           /* ByteLevel splits by its own regular expression at the end */
    bool nfc, whole_words;              /* tokenizer.json of these models has this normalizer, and ignore_merges */
} tx_gguf_split;
/* The split of a name in a file; NULL if TX does not know it. */
const tx_gguf_split *tx_gguf_split_of(const char *name);
/* llama.cpp's name for how a byte-level tokenizer splits (tokenizer_gguf_split.c). */
tx_status tx_gguf_find_split(const tx_tokenizer *t, const char **name);

#endif
