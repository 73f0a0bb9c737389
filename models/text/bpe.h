/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tokenizer is made of; shared by the files that read, use, write and train tokenizers.
 *
 * Encoding a text: added tokens are cut out of it, what lies between is normalized, further added tokens are cut out,
 * the pre-tokenizer cuts the rest into words, and the model makes ids of a word. The post-processor puts special tokens
 * around the ids; the decoder makes a text of them. */
#ifndef TX_TEXT_BPE_H
#define TX_TEXT_BPE_H

#include "models/files/digest.h"
#include "models/text/decoder.h"
#include "models/text/hash.h"
#include "models/text/marks.h"
#include "models/text/post_processor.h"
#include "models/text/pre_tokenizer.h"
#include "models/tx_text.h"
#include "tx_json.h"

/* ---- Letters ------------------------------------------------------------------------------------- */

/* Files write each byte as a printable character, its letter: printable Latin-1 stands for itself, the other bytes, in
 * order, are U+0100 and up (Radford et al., 2019). */
#define TX_LETTER_CODES 324

typedef struct tx_letters {
    uint16_t code[256];
    int16_t byte[TX_LETTER_CODES]; /* -1: no byte's letter */
} tx_letters;

void tx_letters_make(tx_letters *letters);
/* Writes the bytes that `text` spells (no more than it has itself) and their number; false where a character is no
 * letter. */
bool tx_letters_read(const tx_letters *letters, const char *text, size_t size, char *bytes, size_t *count);
/* Writes the letters of `size` bytes, at most twice as many, and a NUL. */
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
    size_t window;  /* bytes of a long word that can be merged at a time; 0: only the whole */
    size_t reach;   /* bytes from the end of a window from which on all is as in the whole word */
} tx_merges;

#define TX_NO_RANK TX_INDEX_NONE

/* Adds the merge of the next rank; TX_FORMAT where the pair has one already. */
tx_status tx_merges_add(tx_merges *merges, tx_merge merge);
/* The rank of a pair, or TX_NO_RANK. */
uint32_t tx_merges_rank(const tx_merges *merges, int32_t left, int32_t right);
void tx_merges_free(tx_merges *merges);

/* What a word is merged from: ids, or bytes and the ids of the 256 bytes. */
typedef struct tx_symbols {
    const int32_t *id;
    const char *bytes; /* NULL: the ids are those of the symbols */
    size_t count;
} tx_symbols;

/* Appends what becomes of the symbols of one word. */
tx_status tx_merges_apply(const tx_merges *merges, const tx_symbols *symbols, tx_ids *ids);

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

typedef enum tx_token_kind {
    TX_TOKEN_NONE,   /* an id without a token */
    TX_TOKEN_WORD,   /* of the model; of one of bytes, spelled in letters */
    TX_TOKEN_FOREIGN /* added, or not spelled in letters: no word becomes it */
} tx_token_kind;

typedef struct tx_token {
    size_t at; /* of its bytes in `bytes` */
    uint32_t size;
    uint8_t kind; /* tx_token_kind */
    bool added, special;
} tx_token;

typedef struct tx_vocab {
    tx_token *token; /* by id */
    int32_t count;
    size_t room;
    tx_buffer bytes;
    int32_t byte_ids[256]; /* of bytes, of bytes that characters fall back to; -1: none */
    tx_index index;        /* of tokens by their bytes */
} tx_vocab;

/* Finds how long words are merged, once all merges are there. */
tx_status tx_merges_seal(tx_merges *merges, const tx_vocab *vocab);

/* More ids than any vocabulary has. */
#define TX_VOCAB_LIMIT (1 << 22)

/* Gives `id` its token; TX_FORMAT where it has one. */
tx_status tx_vocab_put(tx_vocab *vocab, int64_t id, tx_token_kind kind, const char *bytes, size_t size);
/* Id of the token of that kind, -1 where there is none. */
int32_t tx_vocab_find(const tx_vocab *vocab, tx_token_kind kind, const char *bytes, size_t size);
void tx_vocab_free(tx_vocab *vocab);

/* ---- Added tokens -------------------------------------------------------------------------------- */

/* X(flag), as files name and order them. */
#define TX_ADDED_FLAGS(X)                                               \
    X(single_word) /* only where no character of a word is beside it */ \
    X(lstrip)      /* takes the spaces before it */                     \
    X(rstrip)      /* and those after it */                             \
    X(normalized)  /* looked for in what the others leave */            \
    X(special)

typedef struct tx_added {
    int32_t id;
    char *text;
    size_t size;
    char *sought; /* what it is found by: the text, normalized if that is asked for */
#define X(flag) bool flag;
    TX_ADDED_FLAGS(X)
#undef X
} tx_added;

typedef struct tx_finder tx_finder;

typedef struct tx_additions {
    tx_added *at;
    int32_t count;
    size_t room;
    int32_t next;            /* one more than the largest id */
    tx_finder *finder[2];    /* of the tokens that are not normalized, and of those that are; NULL: none */
    tx_regex word_character; /* without code when no token is a single word */
} tx_additions;

/* Builds what finds them. `normalizer` has its say on those that are normalized. */
tx_status tx_additions_seal(tx_additions *additions, const tx_steps *normalizer);
void tx_additions_free(tx_additions *additions);

typedef struct tx_found {
    const tx_added *added; /* NULL: there is none any more */
    size_t begin, end;     /* with the spaces that it takes */
    size_t resume;         /* where the search goes on */
} tx_found;

/* Finds the next added token of a finder after the one `found`, which is all zeros for the first: the leftmost, and the
 * longest where several begin at one place. `special`: special tokens count; with marks (NULL: none) where these let
 * them, which must be of the text that `text` is a part of. */
void tx_additions_find(const tx_additions *additions, int finder, const char *text, size_t size, bool special,
                       const tx_marks *marks, pcre2_match_data *match, tx_found *found);

/* ---- Models ---------------------------------------------------------------------------------------- */

/* A row of the table of models. */
typedef struct tx_model_kind {
    const char *name;
    /* Reads what the model's object says beside the vocabulary. */
    tx_status (*read)(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab);
    /* Appends the ids of a word. `scratch` is the thread's. */
    tx_status (*encode)(const tx_tokenizer *tokenizer, tx_buffer *scratch, const char *word, size_t size, tx_ids *ids);
} tx_model_kind;

extern const tx_model_kind tx_bpe, tx_word_piece;

/* The unknown token, which must be there. */
tx_status tx_model_read_unk(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab);
/* Id of a word that the model's vocabulary in JSON has, or -1. */
int32_t tx_vocab_id(const tx_json *vocab, const char *text);

/* ---- The tokenizer --------------------------------------------------------------------------------- */

/* A file that the tokenizer came from. */
typedef struct tx_source {
    const char *name;
    char *data; /* NULL: not there */
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

struct tx_tokenizer {
    tx_steps normalizer, pre_tokenizer, decoder;
    tx_post_processor post_processor;
    bool bytes; /* words are bytes (ByteLevel), otherwise whole characters */
    const tx_model_kind *model;
    tx_vocab vocab;
    tx_additions additions;
    int32_t unk; /* what a word without ids becomes, or -1 */

    tx_merges merges;   /* BPE */
    bool ignore_merges; /* a word that has an id becomes that */
    bool byte_fallback; /* characters without a token become those of their bytes */
    bool fuse_unk;      /* neighbours that are unknown become one */

    char *prefix;    /* WordPiece: of what goes on a word */
    int64_t longest; /* characters of a word that is not unknown */

    char *piece;        /* what ids add to a text, one after the other; NULL: their bytes */
    size_t *piece_at;   /* where that of an id begins; and one more */
    int32_t begin, end; /* bos_token and eos_token, -1: none */
    bool amended;       /* tokenizer_config.json and the like add tokens or flags to tokenizer.json's */
    char digest[TX_DIGEST_TEXT];
    tx_source source[TX_SOURCES]; /* by tx_tokenizer_file; none of a tokenizer that was made here */
};

tx_status tx_tokenizer_new(tx_tokenizer **tokenizer);
/* The text of the folder's chat template, chat_template.jinja or tokenizer_config.json's, and its size; NULL where
 * there is none. The caller frees. */
tx_status tx_tokenizer_chat(const tx_tokenizer *tokenizer, char **text, size_t *size);
/* Checks and completes a tokenizer whose parts have been read. */
tx_status tx_tokenizer_seal(tx_tokenizer *tokenizer);
/* Makes the digest of a tokenizer that is complete. */
tx_status tx_tokenizer_make_digest(tx_tokenizer *t);
/* Adds a token, which the vocabulary has: `added` says all of it but its text. */
tx_status tx_tokenizer_add(tx_tokenizer *tokenizer, const tx_added *added, const char *text);
/* Makes `text`, whose characters are letters of themselves, a special token without flags; the vocabulary has it as
 * `id`, or gets it. */
tx_status tx_tokenizer_add_special(tx_tokenizer *tokenizer, const char *text, int32_t id);

/* Reads a vocabulary from an object of words and ids. */
tx_status tx_bpe_read_vocab(tx_tokenizer *tokenizer, const tx_json *vocab);
/* Reads the merge of two words, which the vocabulary names. */
tx_status tx_bpe_read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const char *left, size_t left_size,
                            const char *right, size_t right_size);
/* Adds a token with the flags of `flags`. `vocab` holds the words of the model. With id -1 it gets the id that Hugging
 * Face's tokenizers give it: its word's, or the next one. */
tx_status tx_bpe_add(tx_tokenizer *tokenizer, const tx_json *vocab, const char *text, const tx_added *flags,
                     int64_t id);
/* Reads tokenizer.json; `*vocab` is the part of it that holds the words. */
tx_status tx_tokenizer_read(tx_tokenizer *tokenizer, const tx_json *json, tx_json **vocab);

/* ---- tokenizer_config.json and its companions (tokenizer_config.c) --------------------------------------- */

/* tokenizer_config.json together with special_tokens_map.json, as transformers reads them; NULL if there is neither.
 * The caller frees it. */
tx_status tx_tokenizer_config(const tx_tokenizer *t, tx_json **config);
/* The text of the token that the configuration (which may be NULL) gives a role, "bos_token"; NULL if it is empty or
 * not named. */
tx_status tx_tokenizer_role(const tx_json *config, const char *role, const char **text);
/* Sets bos_token and eos_token. */
tx_status tx_tokenizer_find_ends(tx_tokenizer *t, const tx_json *config);
/* Adds the tokens of the configuration and of added_tokens.json, and changes the flags of those that are there. */
tx_status tx_tokenizer_add_config(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *config);

/* ---- As files have it (tokenizer_write.c) ---------------------------------------------------------------- */

/* The tokenizer.json of byte-level BPE, without its tokens and merges. */
extern const char tx_tokenizer_frame[];
/* Appends a token as files spell it, and a NUL, which does not count. */
tx_status tx_tokenizer_spell(const tx_tokenizer *t, const tx_letters *letters, int32_t id, tx_buffer *text);
/* Appends an added token to tokenizer.json's list. */
tx_status tx_added_write(const tx_added *added, const char *text, tx_json *list);
/* Makes a token eos_token, also in the files that tx_tokenizer_save writes. */
tx_status tx_tokenizer_set_end(tx_tokenizer *tokenizer, int32_t id);

#endif
