/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers as values "tokenizer.ggml..." of GGUF files, in both directions. Byte-level BPE ("gpt2") is supported with
 * the pre-tokenizers in tokenizer_gguf_split.c. BPE of characters with byte fallback ("llama") is SentencePiece's,
 * whose merges follow from the scores of tokens. WordPiece ("bert") is that of BERT's class, Unigram
 * ("t5") that of T5's and XLM-RoBERTa's. */
#ifndef TX_TOKENIZER_GGUF_H
#define TX_TOKENIZER_GGUF_H

#include "models/gguf/gguf_file.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* Values of config.json: the number of ids, and the tokens that begin and end a text, or -1. And llama.cpp's name of
 * the architecture. */
typedef struct tx_gguf_ids {
    int64_t vocab, bos, eos;
    const char *architecture;
} tx_gguf_ids;

/* Writes a tokenizer's values. Ids without a token become unused tokens. Tokens of tokenizer_config.json override
 * `ids`. The file also gets a copy of tokenizer.json, for an import. TX_UNSUPPORTED names a setting that llama.cpp
 * would treat differently. */
tx_status tx_tokenizer_put_gguf(const tx_tokenizer *tokenizer, const tx_gguf_ids *ids, tx_gguf_writer *writer);

/* Make the text of tokenizer.json for a file (TX_NOT_FOUND if it has no tokenizer), and of tokenizer_config.json after
 * the tokenizer `t` was read. The caller frees `*text`. */
tx_status tx_gguf_tokenizer_text(const tx_gguf_file *file, char **text, size_t *size);
tx_status tx_gguf_tokenizer_config(const tx_gguf_file *file, const tx_tokenizer *t, char **text, size_t *size);

/* Makes a tokenizer.json of the file's tokens, for tx_gguf_tokenizer_text. The caller frees. */
tx_status tx_tokenizer_json_of_gguf(const tx_gguf_file *file, tx_json **json);

/* The keys of special tokens, and their roles in tokenizer_config.json of a BERT. The first is that of other models'
 * first token, too. */
#define TX_GGUF_ROLES 5
typedef struct tx_gguf_role {
    const char *key, *role;
} tx_gguf_role;
extern const tx_gguf_role tx_gguf_roles[TX_GGUF_ROLES];

#define TX_GGUF_SEPARATOR "tokenizer.ggml.seperator_token_id" /* llama.cpp's spelling */
#define TX_GGUF_MASK "tokenizer.ggml.mask_token_id"
#define TX_GGUF_LOWERCASE "tokenizer.ggml.normalizer.lowercase"
#define TX_GGUF_MERGE_SPACES "tokenizer.ggml.remove_extra_whitespaces"
#define TX_GGUF_CHARSMAP "tokenizer.ggml.precompiled_charsmap"
#define TX_GGUF_STRIP_ACCENTS "tokenizer.ggml.normalizer.strip_accents"

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

/* The pre-tokenizer of byte-level BPE, under llama.cpp's name. */
typedef struct tx_gguf_split {
    const char *name;
    const char *regex[TX_GGUF_REGEXES]; /* of the Split steps before ByteLevel, in order */
    const char *steps;                  /* or the whole pre_tokenizer of tokenizer.json */
    bool own;                           /* ByteLevel also splits by its own regular expression */
    bool nfc, whole_words;              /* tokenizer.json of these models has this normalizer; has ignore_merges */
} tx_gguf_split;
/* Finds the pre-tokenizer with a name in a file. NULL if TX does not know it. */
const tx_gguf_split *tx_gguf_split_of(const char *name);
/* Finds llama.cpp's name for the pre-tokenizer of a byte-level tokenizer (tokenizer_gguf_split.c). */
tx_status tx_gguf_find_split(const tx_tokenizer *t, const char *architecture, const char **name);

#endif
