/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: tokenizers with the ids of Hugging Face's, files of text as blocks of tokens, and batches of these in the order
 * of training. txtok, txgen and txtrain are built on it. */
#ifndef TX_TEXT_H
#define TX_TEXT_H

#include "tx.h"

TX_API_BEGIN

/* ---- Tokenizers ---------------------------------------------------------------------------------- */

/* The byte vocabulary, which is BPE without merges: ids 0 to 255 are the bytes, 256 is <|endoftext|>. */
#define TX_END_OF_TEXT "<|endoftext|>"
#define TX_BYTES_VOCAB 257
#define TX_BYTES_END 256

/* Immutable once made: any number of threads may use one at the same time. */
typedef struct tx_tokenizer tx_tokenizer;

/* Opens a folder's tokenizer.json, or its vocab.json and merges.txt where there is none; `path` may also be one of
 * these files, a tokenizer.json under another name, or a GGUF file. TX_NOT_FOUND when the folder has neither;
 * TX_UNSUPPORTED names the type of a part that TX does not have. The caller frees. */
tx_status tx_tokenizer_open(const char *path, tx_tokenizer **tokenizer);
/* The byte vocabulary, which needs no file. */
tx_status tx_tokenizer_bytes(tx_tokenizer **tokenizer);
void tx_tokenizer_free(tx_tokenizer *tokenizer);

/* One more than the largest id, added tokens included. */
int64_t tx_tokenizer_size(const tx_tokenizer *tokenizer);
/* Id of a token by its text as decoded ("<|endoftext|>"), or -1. */
int32_t tx_tokenizer_find(const tx_tokenizer *tokenizer, const char *text);
/* Id that ends a text: tokenizer_config.json's eos_token, else <|endoftext|>, else -1. */
int32_t tx_tokenizer_end(const tx_tokenizer *tokenizer);
/* Digest of all that decides the ids: the same digest, the same ids. */
const char *tx_tokenizer_digest(const tx_tokenizer *tokenizer);

/* ---- Encoding ------------------------------------------------------------------------------------ */

/* Ids that grow; begin with {0}, end with free(ids.id). Where there is a `drain`, an encoder hands it many ids at a
 * time, which it takes over by setting `count` to 0: the ids of a long text are then never all here. */
typedef struct tx_ids {
    int32_t *id;
    size_t count, room;
    tx_status (*drain)(void *context, struct tx_ids *ids);
    void *context; /* of drain */
} tx_ids;

/* Makes room for `count` more ids; those that are there may be drained. */
tx_status tx_ids_reserve(tx_ids *ids, size_t count);

/* What one thread needs to encode: scratch memory and a cache of words. */
typedef struct tx_encoder tx_encoder;

/* The tokenizer must outlive it. The caller frees. */
tx_status tx_encoder_create(const tx_tokenizer *tokenizer, tx_encoder **encoder);
void tx_encoder_free(tx_encoder *encoder);
/* Appends the ids of `size` bytes, NUL allowed, as encode(add_special_tokens=False) of Hugging Face's tokenizers. With
 * `special` the texts of special tokens become their ids; without (split_special_tokens), they are text like any other.
 * Bytes that are not UTF-8 are encoded byte for byte by byte-level BPE without a normalizer, so that decoding gives
 * them back, and are U+FFFD to all others. TX_UNSUPPORTED where a regular expression of the tokenizer's takes too long.
 * Time is linear in `size`, but for single words of megabytes (n log n). */
tx_status tx_encoder_run(tx_encoder *encoder, const char *text, size_t size, bool special, tx_ids *ids);

/* Appends what a model is given of one text: its ids, special tokens by their texts among them, and around these the
 * special tokens that the tokenizer's post-processor adds (Llama's <s>), as transformers encodes prompts and the texts
 * it trains on. */
tx_status tx_encoder_text(tx_encoder *encoder, const char *text, size_t size, tx_ids *ids);

/* Appends what a model is given of the ids of one text, or of two (`second` is not NULL): these with the special tokens
 * that the tokenizer's post-processor adds, as encode(add_special_tokens=True), and of each its type (token_type_ids).
 */
tx_status tx_tokenizer_join(const tx_tokenizer *tokenizer, const tx_ids *first, const tx_ids *second, tx_ids *ids,
                            tx_ids *types);

/* ---- Decoding ------------------------------------------------------------------------------------ */

/* The bytes that one id adds to a text behind others, without a NUL; they live as long as the tokenizer and need not be
 * whole characters. Special tokens give none with `skip_special`. TX_INVALID for an id that has no token. */
tx_status tx_tokenizer_piece(const tx_tokenizer *tokenizer, int32_t id, bool skip_special, const char **bytes,
                             size_t *size);
/* The bytes of `count` ids; a NUL follows the `*size` bytes. The caller frees `*text`. */
tx_status tx_tokenizer_decode(const tx_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                              char **text, size_t *size);

/* ---- Texts of files -------------------------------------------------------------------------------- */

/* Refuses a PDF, an archive, an image and other files that are no text in UTF-8, by their first bytes: TX_FORMAT names
 * the kind of file. `text` is the whole file or its first TX_TEXT_BEGIN bytes. Pass `tokens` if the file may hold
 * tokens instead. `*begin` receives the place of the text's first byte, which is after a byte order mark. */
tx_status tx_text_begin(const char *text, size_t size, bool tokens, size_t *begin);
#define TX_TEXT_BEGIN 4096

/* Whether a line has only white space. */
bool tx_line_is_blank(const char *line, size_t size);

/* A copy in which U+FFFD replaces all bytes that are no character: one for each longest part of a character, as Unicode
 * (chapter 3.9) recommends and Python and Rust do it. A NUL follows the `*made_size` bytes. The caller frees `*made`.
 */
tx_status tx_utf8_replace(const char *text, size_t size, char **made, size_t *made_size);

/* ---- Files and training --------------------------------------------------------------------------- */

/* Writes the tokenizer's files into a folder, as transformers loads them: copies of those it came from, or
 * tokenizer.json and tokenizer_config.json (model_max_length tokens) of one that was made here. */
tx_status tx_tokenizer_save(const tx_tokenizer *tokenizer, const char *folder, int64_t model_max_length);

/* Counts words as the texts are added, then learns merges: the most frequent pair first, ties by the smaller pair of
 * ids, as Hugging Face's BpeTrainer. */
typedef struct tx_tokenizer_trainer tx_tokenizer_trainer;

tx_status tx_tokenizer_trainer_create(tx_tokenizer_trainer **trainer);
void tx_tokenizer_trainer_free(tx_tokenizer_trainer *trainer);
tx_status tx_tokenizer_trainer_add(tx_tokenizer_trainer *trainer, const char *text, size_t size);
/* A tokenizer of at most `vocab` ids: <|endoftext|>, the 256 bytes, then merges of pairs that occur at least `least`
 * times. */
tx_status tx_tokenizer_trainer_finish(tx_tokenizer_trainer *trainer, int64_t vocab, int64_t least,
                                      tx_tokenizer **tokenizer);

/* ---- Files as blocks ----------------------------------------------------------------------------- */

/* A file as training blocks: its tokens are laid end to end and cut into blocks of equal length, what is left over
 * is dropped.
 *
 * A .txt, .raw or .tokens file, or one with an ending that TX does not know, holds texts, one a line, its end
 * included, each tokenised by itself, as run_clm does it: \r\n and \r end lines as well and become \n (Python's text
 * mode), a UTF-8 byte order mark at the beginning is left out, and the texts of special tokens become their ids. A
 * .jsonl file (or .json) holds one object {"text": ...} a line; blank lines are no texts. A .bin file holds tokens:
 * llm.c's (256 int32 of header, magic 20240520 with uint16 or 20240801 with uint32 ids) or nanoGPT's (uint16 from the
 * first byte).
 *
 * Files of tokens are not copied into memory: the tokens of a block are read when it is asked for. */
typedef struct tx_dataset tx_dataset;

typedef struct tx_dataset_options {
    size_t size;                   /* sizeof(tx_dataset_options) */
    const tx_tokenizer *tokenizer; /* of texts; may be NULL for tokens */
    int64_t vocab;                 /* every id must be less */
    int64_t block;                 /* tokens in a block, at least 2 */
    int64_t group;                 /* cut anew after every so many texts of the part used, dropping what is left
                                      over (run_clm's map does so with 1000); 0: never. No matter for a .bin file */
    double from, to;               /* the part of the texts to use, in percent: 0 and 100 for all. A bound falls on a
                                      whole text, or token of a .bin file, rounded to nearest, a half to even, as in
                                      Hugging Face's datasets */
    int64_t most_blocks;           /* keep the first so many blocks; 0: all */
    int64_t skip_bad;              /* lines of a .jsonl file that may be malformed and are left out; more fail */
    const char *cache;             /* folder that keeps tokenised texts; NULL: none. What cannot be written there is
                                      told and done without */
    bool bare_lines;               /* lines of texts are tokenised without their ends, as run_mlm does it */
    int64_t by_text; /* each text of at least so many tokens is a block of its own, of which tx_dataset_read
                        gives `block` at most; 0: end to end. Not of a .bin file */
    int32_t threads; /* that tokenise; at least 1. The result does not depend on it. Where the system
                        refuses some, it is told and done with fewer */
    tx_reporter report;
} tx_dataset_options;

/* Reads, tokenises and cuts. Fails where the file cannot be read, holds something else, is empty or does not fill one
 * block; the message names file and place. The caller frees. */
tx_status tx_dataset_open(const char *path, const tx_dataset_options *options, tx_dataset **dataset);
void tx_dataset_free(tx_dataset *dataset);

int64_t tx_dataset_block(const tx_dataset *dataset);  /* tokens in a block */
int64_t tx_dataset_blocks(const tx_dataset *dataset); /* number of blocks */
int64_t tx_dataset_tokens(const tx_dataset *dataset); /* of the part used, before cutting */
/* Tokens of a block: with by_text those of the whole text. */
int64_t tx_dataset_length(const tx_dataset *dataset, int64_t number);
/* Digest of the blocks' contents and shape: resumed runs hold it against the checkpoint's. */
const char *tx_dataset_digest(const tx_dataset *dataset);

/* Reads block `number` (from 0) to tokens [block], with by_text as many of these as the text has. Fails where the file
 * became shorter (TX_IO) or got other contents whose ids lie outside the vocabulary (TX_FORMAT): no such id is ever
 * given. */
tx_status tx_dataset_read(const tx_dataset *dataset, int64_t number, int32_t *tokens);

/* ---- Batches ------------------------------------------------------------------------------------- */

/* A dataset's blocks in the order of training, shuffled anew in each epoch, without end. What a batch holds depends on
 * its number, the data and the options alone: batches can begin at any number. */
typedef struct tx_batches tx_batches;

typedef struct tx_batches_options {
    size_t size;     /* sizeof(tx_batches_options) */
    int64_t rows;    /* of a batch */
    int64_t first;   /* number of the first batch, from 0 */
    uint64_t seed;   /* of the order */
    int32_t workers; /* threads that prepare batches ahead; 0: none */
} tx_batches_options;

/* Where the data of an epoch end within a batch its last rows are padding: token -1 (tx_embedding gives 0), every label
 * TX_IGNORE_LABEL. */
typedef struct tx_token_batch {
    int64_t number, epoch;    /* from 0 */
    int64_t rows;             /* that are no padding */
    int64_t labels;           /* that count */
    const int32_t *input_ids; /* [options.rows, block] */
    const int32_t *label;     /* of the same shape: of position t the token at t + 1; the last one has none */
} tx_token_batch;

/* The dataset must outlive them. The caller frees. */
tx_status tx_batches_create(const tx_dataset *dataset, const tx_batches_options *options, tx_batches **batches);
void tx_batches_free(tx_batches *batches); /* NULL is fine */
/* The next batch; its rows stay valid until the call after the next one. */
tx_status tx_batches_next(tx_batches *batches, tx_token_batch *batch);
/* In an epoch. */
int64_t tx_batches_count(const tx_batches *batches);

TX_API_END

#endif
