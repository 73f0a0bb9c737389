/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tokenizer is made of; shared by the files that read, use, write and train tokenizers.
 *
 * Encoding a text: added tokens are cut out of it, what lies between is cut into words by the splitters, one after
 * the other, and the bytes of a word are merged, the pair of the lowest rank first. */
#ifndef TX_TEXT_BPE_H
#define TX_TEXT_BPE_H

#include "api/base/json.h"
#include "models/text/regex.h"
#include "models/text/tokenizer.h"

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

typedef struct tx_pair {
    uint64_t key; /* left and right; all ones: an empty place */
    uint32_t rank;
    int32_t id;
} tx_pair;

/* Merges by rank, and an index of their pairs (open addressing). */
typedef struct tx_merges {
    tx_merge *at;
    size_t count, room;
    tx_pair *index;
    size_t mask;   /* places of the index, less one */
    size_t window; /* bytes of a long word that can be merged at a time; 0: only the whole */
    size_t reach;  /* bytes from the end of a window from which on all is as in the whole word */
} tx_merges;

#define TX_NO_RANK UINT32_MAX

/* Room for `count` merges; before the first one is added. */
tx_status tx_merges_reserve(tx_merges *merges, size_t count);
/* Adds the merge of the next rank; TX_FORMAT where the pair has one already. */
tx_status tx_merges_add(tx_merges *merges, tx_merge merge);
bool tx_merges_has(const tx_merges *merges, int32_t left, int32_t right);
void tx_merges_free(tx_merges *merges);

/* Appends what becomes of the bytes of one word. `byte_ids` are the ids of the 256 bytes. */
tx_status tx_merges_apply(const tx_merges *merges, const int32_t *byte_ids, const char *word, size_t size, tx_ids *ids);

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

typedef enum tx_token_kind {
    TX_TOKEN_NONE,   /* an id without a token */
    TX_TOKEN_WORD,   /* spelled in letters */
    TX_TOKEN_FOREIGN /* added, or not spelled in letters: no word becomes it */
} tx_token_kind;

typedef struct tx_token {
    size_t at; /* of its bytes in `bytes` */
    uint32_t size;
    uint8_t kind; /* tx_token_kind */
    bool special;
} tx_token;

typedef struct tx_vocab {
    tx_token *token; /* by id */
    int32_t count, room;
    char *bytes;
    size_t used, bytes_room;
    int32_t byte_ids[256];
    int32_t *index; /* of the words by their bytes (open addressing), once it has been asked for */
    size_t mask;
} tx_vocab;

/* Finds how long words are merged, once all merges are there. */
tx_status tx_merges_seal(tx_merges *merges, const tx_vocab *vocab);

/* More ids than any vocabulary has. */
#define TX_VOCAB_LIMIT (1 << 22)

/* Gives `id` its token; TX_FORMAT where it has one. */
tx_status tx_vocab_put(tx_vocab *vocab, int64_t id, tx_token_kind kind, const char *bytes, size_t size);
/* Makes the index, for at most `room` tokens. */
tx_status tx_vocab_index(tx_vocab *vocab, int32_t room);
/* Id of a word, -1 where there is none. The index must be there. */
int32_t tx_vocab_find(const tx_vocab *vocab, const char *bytes, size_t size);
void tx_vocab_free(tx_vocab *vocab);

/* ---- Added tokens -------------------------------------------------------------------------------- */

typedef struct tx_added {
    int32_t id;
    char *text;
    size_t size;
    bool special;
    bool single_word;    /* only where no character of a word is beside it */
    bool lstrip, rstrip; /* takes the spaces before, after it */
    bool normalized;     /* looked for in what the others leave */
} tx_added;

typedef struct tx_trie tx_trie;

typedef struct tx_additions {
    tx_added *at;
    int32_t count, room;
    int32_t next;            /* one more than the largest id */
    int32_t *index;          /* numbers by their texts; -1: an empty place */
    size_t mask;             /* places of the index, less one */
    tx_trie *trie[2];        /* of the tokens that are not normalized, and of those that are; NULL: none */
    tx_regex word_character; /* without code when no token is a single word */
} tx_additions;

/* The added token of that text, or NULL. */
const tx_added *tx_additions_get(const tx_additions *additions, const char *text);
/* Takes `added` over, its text copied. */
tx_status tx_additions_put(tx_additions *additions, const tx_added *added);
/* Builds what finds them. */
tx_status tx_additions_seal(tx_additions *additions);
void tx_additions_free(tx_additions *additions);

typedef struct tx_found {
    const tx_added *added; /* NULL: there is none any more */
    size_t begin, end;     /* with the spaces that it takes */
    size_t resume;         /* where the search goes on */
} tx_found;

/* Finds the next added token of `trie` after the one `found`, which is all zeros for the first: the leftmost, and the
 * longest where several begin at one place. `special`: special tokens count. */
void tx_additions_find(const tx_additions *additions, int trie, const char *text, size_t size, bool special,
                       pcre2_match_data *match, tx_found *found);

/* ---- Splitters ----------------------------------------------------------------------------------- */

typedef enum tx_split_mode {
    TX_SPLIT_ISOLATED, /* matches and what lies between them */
    TX_SPLIT_REMOVED,
    TX_SPLIT_MERGED_WITH_PREVIOUS,
    TX_SPLIT_MERGED_WITH_NEXT,
    TX_SPLIT_CONTIGUOUS
} tx_split_mode;

typedef struct tx_splitter {
    tx_regex regex;
    tx_split_mode mode;
    bool invert; /* what lies between matches takes their part */
} tx_splitter;

#define TX_SPLITTERS_MAX 16

typedef struct tx_splitters {
    tx_splitter at[TX_SPLITTERS_MAX];
    int32_t count;
    int32_t
        prefix; /* before this splitter (or after all) a space is put before texts that begin with none; -1: never */
} tx_splitters;

/* How GPT-2 splits, and what ByteLevel means by use_regex. */
extern const char tx_split_gpt2[];

/* Adds a splitter by a regular expression. */
tx_status tx_splitters_add(tx_splitters *splitters, const char *pattern, tx_split_mode mode, bool invert);
void tx_splitters_free(tx_splitters *splitters);
/* Reads tokenizer.json's pre_tokenizer. */
tx_status tx_splitters_read(tx_splitters *splitters, const tx_json *pre_tokenizer);

/* Takes a word: whole characters, or one byte that is no part of one. */
typedef tx_status (*tx_word_sink)(void *context, const char *word, size_t size);

/* What one thread needs to cut texts into words. */
typedef struct tx_cutter tx_cutter;

/* The splitters must outlive it. */
tx_status tx_cutter_create(const tx_splitters *splitters, tx_word_sink sink, void *context, tx_cutter **cutter);
void tx_cutter_free(tx_cutter *cutter);
/* Hands the words of a text to the sink, in order. */
tx_status tx_cutter_run(tx_cutter *cutter, const char *text, size_t size);

/* ---- The tokenizer --------------------------------------------------------------------------------- */

/* A file that the tokenizer came from. */
typedef struct tx_source {
    const char *name;
    char *data; /* NULL: not there */
    size_t size;
} tx_source;

#define TX_SOURCES 7

struct tx_tokenizer {
    tx_vocab vocab;
    tx_merges merges;
    bool ignore_merges; /* a word that has an id becomes that */
    tx_additions additions;
    tx_splitters splitters;
    int32_t end;
    char digest[TX_DIGEST_TEXT];
    tx_source source[TX_SOURCES]; /* none of a tokenizer that was made here */
};

tx_status tx_tokenizer_new(tx_tokenizer **tokenizer);
/* Checks and completes a tokenizer whose parts have been read. */
tx_status tx_tokenizer_seal(tx_tokenizer *tokenizer);
/* Makes `text`, whose characters are letters of themselves, a special token without flags; the vocabulary has it as
 * `id`, or gets it. */
tx_status tx_tokenizer_add_special(tx_tokenizer *tokenizer, const char *text, int32_t id);

/* Reads a vocabulary from an object of words and ids. */
tx_status tx_bpe_read_vocab(tx_tokenizer *tokenizer, const tx_json *vocab);
/* Reads the merge of two words, which the vocabulary names. */
tx_status tx_bpe_read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const char *left, size_t left_size,
                            const char *right, size_t right_size);
/* Reads one added token from an object of its text and flags. `vocab` tells which words the model has. */
tx_status tx_bpe_read_added(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *token, int64_t id);
/* Reads tokenizer.json. */
tx_status tx_bpe_read(tx_tokenizer *tokenizer, const tx_json *json);

#endif
