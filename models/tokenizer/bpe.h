/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer, shared by the files that read, use, write and train tokenizers.
 *
 * Encoding: added tokens are cut out of the text, the rest is normalized, more added tokens are cut out, the
 * pre-tokenizer splits the rest into words, and the model converts each word to ids. The post-processor adds special
 * tokens around the ids. The decoder converts ids to a text. */
#ifndef TX_TOKENIZER_BPE_H
#define TX_TOKENIZER_BPE_H

#include "models/files/digest.h"
#include "models/tokenizer/decoder.h"
#include "models/tokenizer/hash.h"
#include "models/tokenizer/marks.h"
#include "models/tokenizer/post_processor.h"
#include "models/tokenizer/pre_tokenizer.h"
#include "models/tokenizer/trie.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* ---- Letters ------------------------------------------------------------------------------------- */

/* Files write each byte as a printable character, its letter. Printable Latin-1 characters stand for themselves; the
 * other bytes, in order, are U+0100 and up (Radford et al., 2019). */
#define TX_LETTER_CODES 324

typedef struct tx_letters {
    uint16_t code[256];
    int16_t byte[TX_LETTER_CODES]; /* -1 if the code is not a letter */
} tx_letters;

void tx_letters_make(tx_letters *letters);
/* Writes the bytes that `text` spells and their number, at most `size`. False if a character is not a letter. */
bool tx_letters_read(const tx_letters *letters, const char *text, size_t size, char *bytes, size_t *count);
/* Writes the letters of `size` bytes, at most twice as many bytes, and a NUL. */
void tx_letters_write(const tx_letters *letters, const char *bytes, size_t size, char *text);

/* ---- Merges -------------------------------------------------------------------------------------- */

typedef struct tx_merge {
    int32_t left, right, id;
} tx_merge;

/* Merges by rank. */
typedef struct tx_merges {
    tx_merge *at;
    size_t count, room;
    tx_index index; /* of their pairs */
    size_t window;  /* bytes of a long word that can be merged at a time; 0 allows only the whole word */
    size_t reach;   /* bytes at the end of a window whose merges may depend on the bytes that follow */
} tx_merges;

#define TX_NO_RANK TX_INDEX_NONE

/* Adds the merge of the next rank. TX_FORMAT if the pair has one already. */
tx_status tx_merges_add(tx_merges *merges, tx_merge merge);
/* The rank of a pair, or TX_NO_RANK. */
uint32_t tx_merges_rank(const tx_merges *merges, int32_t left, int32_t right);
void tx_merges_free(tx_merges *merges);

/* The symbols of a word: ids, or bytes and the ids of the 256 bytes. */
typedef struct tx_symbols {
    const int32_t *id;
    const char *bytes; /* NULL if `id` has the ids of the symbols */
    size_t count;
} tx_symbols;

/* Merges the symbols of one word and appends the ids. */
tx_status tx_merges_apply(const tx_merges *merges, const tx_symbols *symbols, tx_ids *ids);

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

typedef enum tx_token_kind {
    TX_TOKEN_NONE,   /* an id without a token */
    TX_TOKEN_WORD,   /* of the model; with ByteLevel it is spelled in letters */
    TX_TOKEN_FOREIGN /* added, or not spelled in letters: no word is encoded to it */
} tx_token_kind;

typedef struct tx_token {
    size_t at; /* offset in `bytes` */
    uint32_t size;
    uint8_t kind; /* tx_token_kind */
    bool added, special;
} tx_token;

typedef struct tx_vocab {
    tx_token *token; /* by id */
    int32_t count;
    size_t room;
    tx_buffer bytes;
    int32_t byte_ids[256]; /* ids of bytes, also for byte fallback; -1 if there is none */
    tx_index index;        /* of tokens by their bytes */
} tx_vocab;

/* Computes `window` and `reach` after all merges were added. */
tx_status tx_merges_seal(tx_merges *merges, const tx_vocab *vocab);

/* Upper limit of ids. */
#define TX_VOCAB_LIMIT (1 << 22)

/* Sets the token of `id`. TX_FORMAT if it has one already. */
tx_status tx_vocab_put(tx_vocab *vocab, int64_t id, tx_token_kind kind, const char *bytes, size_t size);
/* Id of the token of that kind, or -1. */
int32_t tx_vocab_find(const tx_vocab *vocab, tx_token_kind kind, const char *bytes, size_t size);
void tx_vocab_free(tx_vocab *vocab);

/* ---- Added tokens -------------------------------------------------------------------------------- */

/* X(flag), with the names and order of files. */
#define TX_ADDED_FLAGS(X)                                                 \
    X(single_word) /* only if no word character is next to it */          \
    X(lstrip)      /* includes the spaces before it */                    \
    X(rstrip)      /* includes the spaces after it */                     \
    X(normalized)  /* is searched in normalized text, after the others */ \
    X(special)

typedef struct tx_added {
    int32_t id;
    char *text;
    size_t size;
    char *sought; /* the search text: `text`, normalized if the flag is set */
#define X(flag) bool flag;
    TX_ADDED_FLAGS(X)
#undef X
} tx_added;

typedef struct tx_finder tx_finder;

typedef struct tx_additions {
    tx_added *at;
    int32_t count;
    size_t room;
    int32_t next;            /* largest id + 1 */
    tx_finder *finder[2];    /* for tokens that are not normalized, and for those that are; may be NULL */
    tx_regex word_character; /* without code if no token has single_word */
} tx_additions;

/* Builds the finders. `normalizer` is applied to tokens with the flag normalized. */
tx_status tx_additions_seal(tx_additions *additions, const tx_tokenizer_steps *normalizer);
void tx_additions_free(tx_additions *additions);

typedef struct tx_found {
    const tx_added *added; /* NULL after the last one */
    size_t begin, end;     /* including spaces, by lstrip and rstrip */
    size_t resume;         /* start of the next search */
} tx_found;

/* Finds the next added token of a finder after `found`, which is all zeros for the first search. It is the leftmost
 * one, and the longest of those at the same position. Special tokens are found only with `special`. With `marks`
 * (may be NULL) they are found only in the parts of a frame, and `text` must be inside the marked text. */
void tx_additions_find(const tx_additions *additions, int finder, const char *text, size_t size, bool special,
                       const tx_marks *marks, pcre2_match_data *match, tx_found *found);

/* ---- Models ---------------------------------------------------------------------------------------- */

/* A row of the table of models. */
typedef struct tx_model_kind {
    const char *name;
    /* Reads the members of the model's object, except the vocabulary. */
    tx_status (*read)(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab);
    /* Appends the ids of a word. `scratch` is the thread's. */
    tx_status (*encode)(const tx_tokenizer *tokenizer, tx_buffer *scratch, const char *word, size_t size, tx_ids *ids);
    bool scored; /* the vocabulary is a list of tokens with scores, which `read` reads; `vocab` is NULL */
} tx_model_kind;

extern const tx_model_kind tx_bpe, tx_word_piece, tx_word_level, tx_unigram;

/* Reads the unknown token, which must exist. */
tx_status tx_model_read_unk(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab);
/* Reads byte_fallback and finds the tokens of bytes, <0x00> to <0xFF>. */
tx_status tx_model_read_fallback(tx_tokenizer *tokenizer, const tx_json *model);
/* Id of a word in the model's vocabulary in JSON, or -1. */
int32_t tx_vocab_id(const tx_json *vocab, const char *text);

/* ---- The tokenizer --------------------------------------------------------------------------------- */

/* A source file of a tokenizer. */
typedef struct tx_source {
    const char *name;
    char *data; /* NULL if the file does not exist */
    size_t size;
} tx_source;

/* The files of a folder that make up its tokenizer. */
typedef enum tx_tokenizer_file {
    TX_TOKENIZER_JSON,
    TX_TOKENIZER_CONFIG,
    TX_TOKENIZER_VOCAB,
    TX_TOKENIZER_MERGES,
    TX_TOKENIZER_ADDED,
    TX_TOKENIZER_SPECIAL,
    TX_TOKENIZER_TEMPLATE,
    TX_SOURCES
} tx_tokenizer_file;
/* The names of these files and of others from which a tokenizer can be made: NULL after the last. */
const char *tx_tokenizer_file_name(size_t index);

struct tx_tokenizer {
    tx_tokenizer_steps normalizer, pre_tokenizer, decoder;
    tx_post_processor post_processor;
    bool bytes;   /* words are bytes (ByteLevel), otherwise whole characters */
    bool generic; /* the class of the tokenizer in transformers has no options of its own */
    const tx_model_kind *model;
    tx_vocab vocab;
    tx_additions additions;
    int32_t words; /* number of the model's tokens */
    int32_t unk;   /* unknown token, or -1 */

    tx_merges merges;   /* BPE */
    bool ignore_merges; /* a word that is a token is not merged */
    bool byte_fallback; /* a character without a token becomes the tokens of its bytes */
    bool fuse_unk;      /* adjacent unknown tokens become one */

    tx_trie trie;         /* Unigram: the tokens */
    double *score;        /* Unigram: by id */
    double unknown_score; /* Unigram: of a character without a token */

    char *prefix;    /* WordPiece and BPE: of tokens inside a word; may be NULL */
    char *suffix;    /* BPE: of tokens at the end of a word; may be NULL */
    int64_t longest; /* WordPiece: longer words are unknown, in characters */

    char *piece;      /* the bytes that each id adds to a text, concatenated; NULL if they are the tokens' bytes */
    size_t *piece_at; /* offset of each id's bytes, and the total */
    int32_t begin, end, pad; /* bos_token, eos_token and pad_token, or -1 */
    bool amended;            /* tokenizer_config.json or another file added tokens or flags to tokenizer.json's */
    char digest[TX_DIGEST_TEXT];
    tx_source older, model_config; /* while it is opened: a file from which tokenizer.json is made, and config.json */
    tx_source tools;               /* while it is opened: the chat template tool_use */
    tx_source source[TX_SOURCES];  /* by tx_tokenizer_file; empty for a tokenizer that was made here */
};

tx_status tx_tokenizer_new(tx_tokenizer **tokenizer);
/* The text and size of the chat template, from chat_template.jinja, chat_template.json or tokenizer_config.json, or
 * with `tools` of the one that transformers uses for conversations with tools, which is called tool_use. NULL if there
 * is none. The caller frees. */
tx_status tx_tokenizer_chat(const tx_tokenizer *tokenizer, bool tools, char **text, size_t *size);
/* Checks and completes a tokenizer after its parts were read. */
tx_status tx_tokenizer_seal(tx_tokenizer *tokenizer);
/* Computes the digest of a complete tokenizer. */
tx_status tx_tokenizer_make_digest(tx_tokenizer *t);
/* Adds a token that is in the vocabulary. `added` has all members except the text. */
tx_status tx_tokenizer_add(tx_tokenizer *tokenizer, const tx_added *added, const char *text);
/* Adds `text` as a special token without flags. Its characters must be their own letters. It gets `id`, unless the
 * vocabulary already has it under that id. */
tx_status tx_tokenizer_add_special(tx_tokenizer *tokenizer, const char *text, int32_t id);

/* Reads a vocabulary: an object that maps words to ids. */
tx_status tx_bpe_read_vocab(tx_tokenizer *tokenizer, const tx_json *vocab);
/* Reads the merge of two words, which must be in the vocabulary. */
tx_status tx_bpe_read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const char *left, size_t left_size,
                            const char *right, size_t right_size);
/* Whether characters get a prefix or a suffix before they are merged. */
bool tx_bpe_has_affix(const tx_tokenizer *tokenizer);
/* Adds a token with the flags of `flags`. `vocab` has the words of the model. With id -1 it gets the id that Hugging
 * Face's tokenizers assign: that of its word, or the next free one. */
tx_status tx_bpe_add(tx_tokenizer *tokenizer, const tx_json *vocab, const char *text, const tx_added *flags,
                     int64_t id);
/* Reads tokenizer.json. `*vocab` receives its member with the words. */
tx_status tx_tokenizer_read(tx_tokenizer *tokenizer, const tx_json *json, tx_json **vocab);

/* ---- tokenizer_config.json and its companions (tokenizer_config.c) --------------------------------------- */

/* Merges tokenizer_config.json and special_tokens_map.json, as transformers reads them. NULL if there is neither. The
 * caller frees it. */
tx_status tx_tokenizer_config(const tx_tokenizer *t, tx_json **config);
/* The text of the token with a role, such as "bos_token", in the configuration (may be NULL). NULL if it is empty or
 * missing. */
tx_status tx_tokenizer_role(const tx_json *config, const char *role, const char **text);
/* Sets bos_token, eos_token and pad_token. */
tx_status tx_tokenizer_find_ends(tx_tokenizer *t, const tx_json *config);
/* Adds the tokens of the configuration and of added_tokens.json, and updates the flags of existing ones. */
tx_status tx_tokenizer_add_config(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *config);

/* ---- Writing (tokenizer_write.c) ------------------------------------------------------------------------- */

/* The tokenizer.json of byte-level BPE, without its tokens and merges. */
extern const char tx_tokenizer_frame[];
/* Appends a token as files spell it, and a NUL that is not counted. */
tx_status tx_tokenizer_spell(const tx_tokenizer *t, const tx_letters *letters, int32_t id, tx_buffer *text);
/* Appends an added token to tokenizer.json's list. */
tx_status tx_added_write(const tx_added *added, const char *text, tx_json *list);
/* Sets eos_token, also in the files that tx_tokenizer_save writes. */
tx_status tx_tokenizer_set_end(tx_tokenizer *tokenizer, int32_t id);

#endif
