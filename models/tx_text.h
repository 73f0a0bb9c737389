/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: tokenizers that produce the same ids as Hugging Face's, text files as blocks of tokens, and batches of blocks
 * in training order. Used by txtok, txgen and txtrain. */
#ifndef TX_TEXT_H
#define TX_TEXT_H

#include "tx.h"

TX_API_BEGIN

/* ---- Tokenizers ---------------------------------------------------------------------------------- */

/* The byte vocabulary, which is BPE without merges: ids 0 to 255 are the bytes, 256 is <|endoftext|>. */
#define TX_END_OF_TEXT "<|endoftext|>"
#define TX_BYTES_VOCAB 257
#define TX_BYTES_END 256

/* Immutable once made: any number of threads may use one tokenizer at the same time. */
typedef struct tx_tokenizer tx_tokenizer;

/* Opens a folder's tokenizer.json, or its vocab.json and merges.txt if it has no tokenizer.json. `path` may also be one
 * of these files, a tokenizer.json under another name, or a GGUF file. TX_NOT_FOUND if the folder has none of them.
 * TX_UNSUPPORTED, with the type's name, if TX does not support a component. The caller frees. */
tx_status tx_tokenizer_open(const char *path, tx_tokenizer **tokenizer);
/* Makes the byte vocabulary, which needs no file. The caller frees. */
tx_status tx_tokenizer_bytes(tx_tokenizer **tokenizer);
/* Replaces a tokenizer from a folder by one that also has these special tokens, a list with commas. Those that it has
 * stay as they are. TX_UNSUPPORTED if the folder has no tokenizer.json. */
tx_status tx_tokenizer_extend(tx_tokenizer **tokenizer, const char *tokens);
void tx_tokenizer_free(tx_tokenizer *tokenizer);

/* One more than the largest id, added tokens included. */
int64_t tx_tokenizer_size(const tx_tokenizer *tokenizer);
/* Id of a token by its decoded text ("<|endoftext|>"), or -1. */
int32_t tx_tokenizer_find(const tx_tokenizer *tokenizer, const char *text);
/* Id of the end-of-text token: tokenizer_config.json's eos_token, else <|endoftext|>, else -1. */
int32_t tx_tokenizer_end(const tx_tokenizer *tokenizer);
/* model_max_length in tokenizer_config.json, the largest number of tokens of a model input; 0 if it sets none. */
int64_t tx_tokenizer_limit(const tx_tokenizer *tokenizer);
/* The id of pad_token, else of eos_token, which TRL pads with; -1 if there is neither. */
int32_t tx_tokenizer_pad(const tx_tokenizer *tokenizer);
/* Digest of all that affects the ids: tokenizers with the same digest produce the same ids. */
const char *tx_tokenizer_digest(const tx_tokenizer *tokenizer);

/* ---- Encoding ------------------------------------------------------------------------------------ */

/* A growing list of ids; begin with {0}, end with free(ids.id). If `drain` is set, an encoder calls it whenever many
 * ids have accumulated; it consumes them and sets `count` to 0. The ids of a long text are then never all in memory. */
typedef struct tx_ids {
    int32_t *id;
    size_t count, room;
    tx_status (*drain)(void *context, struct tx_ids *ids);
    void *context; /* of drain */
} tx_ids;

/* Makes room for `count` more ids. It may drain the ids in the list. */
tx_status tx_ids_reserve(tx_ids *ids, size_t count);

/* The per-thread state of encoding: scratch memory and a cache of words. */
typedef struct tx_encoder tx_encoder;

/* The tokenizer must outlive it. The caller frees. */
tx_status tx_encoder_create(const tx_tokenizer *tokenizer, tx_encoder **encoder);
void tx_encoder_free(tx_encoder *encoder);
/* Appends the ids of `size` bytes, NUL allowed, like encode(add_special_tokens=False) of Hugging Face's tokenizers.
 * With `special` the texts of special tokens become their ids; without it (split_special_tokens) they are ordinary
 * text. Byte-level BPE without a normalizer encodes bytes that are not UTF-8 one by one, so that decoding returns them.
 * All other tokenizers replace them by U+FFFD. TX_UNSUPPORTED if one of the tokenizer's regular expressions takes too
 * long. Time is linear in `size`, except for single words of megabytes (n log n). */
tx_status tx_encoder_run(tx_encoder *encoder, const char *text, size_t size, bool special, tx_ids *ids);

/* Appends the model input for one text: its ids and the special tokens that the tokenizer's post-processor adds
 * (Llama's <s>). The texts of special tokens become their ids. transformers encodes prompts and training texts in this
 * way. */
tx_status tx_encoder_text(tx_encoder *encoder, const char *text, size_t size, tx_ids *ids);

/* Appends the model input for one text, or for two if `second` is not NULL. These are their ids with the special tokens
 * that the tokenizer's post-processor adds, like encode(add_special_tokens=True). `types` receives each id's
 * token_type_id. */
tx_status tx_tokenizer_join(const tx_tokenizer *tokenizer, const tx_ids *first, const tx_ids *second, tx_ids *ids,
                            tx_ids *types);

/* ---- Decoding ------------------------------------------------------------------------------------ */

/* The bytes that an id adds to a text, unless it is the first, without a NUL. They live as long as the tokenizer and
 * may hold parts of characters. With `skip_special` special tokens have no bytes. TX_INVALID for an id without a token.
 */
tx_status tx_tokenizer_piece(const tx_tokenizer *tokenizer, int32_t id, bool skip_special, const char **bytes,
                             size_t *size);
/* The bytes of `count` ids; a NUL follows the `*size` bytes. The caller frees `*text`. */
tx_status tx_tokenizer_decode(const tx_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                              char **text, size_t *size);

/* ---- Texts of files -------------------------------------------------------------------------------- */

/* Fails with TX_FORMAT if the first bytes are those of a PDF, an archive, an image or another file that is not UTF-8
 * text; the message names the kind of file. `text` is the whole file or its first TX_TEXT_BEGIN bytes. Set `tokens` if
 * the file may hold tokens instead. `*begin` receives the offset of the text's first byte, which is after a byte order
 * mark. */
tx_status tx_text_begin(const char *text, size_t size, bool tokens, size_t *begin);
#define TX_TEXT_BEGIN 4096

/* Returns true if a line has only white space. */
bool tx_line_is_blank(const char *line, size_t size);

/* Copies a text and replaces invalid bytes by U+FFFD: one for each maximal part of a character, as Unicode
 * (chapter 3.9) recommends and Python and Rust do. A NUL follows the `*replaced_size` bytes. The caller frees
 * `*replaced`. */
tx_status tx_utf8_replace(const char *text, size_t size, char **replaced, size_t *replaced_size);

/* ---- Files and training --------------------------------------------------------------------------- */

/* Writes the tokenizer's files into a folder, in the form that transformers loads. They are copies of its source files.
 * A tokenizer that was made here gets tokenizer.json and tokenizer_config.json, with a limit of model_max_length
 * tokens. */
tx_status tx_tokenizer_save(const tx_tokenizer *tokenizer, const char *folder, int64_t model_max_length);

/* Counts words as texts are added, then learns merges: the most frequent pair first, ties by the smaller pair of ids,
 * as in Hugging Face's BpeTrainer. */
typedef struct tx_tokenizer_trainer tx_tokenizer_trainer;

tx_status tx_tokenizer_trainer_create(tx_tokenizer_trainer **trainer);
void tx_tokenizer_trainer_free(tx_tokenizer_trainer *trainer);
tx_status tx_tokenizer_trainer_add(tx_tokenizer_trainer *trainer, const char *text, size_t size);
/* A tokenizer of at most `vocab` ids: <|endoftext|>, the 256 bytes, then merges of pairs that occur at least `least`
 * times. */
tx_status tx_tokenizer_trainer_finish(tx_tokenizer_trainer *trainer, int64_t vocab, int64_t least,
                                      tx_tokenizer **tokenizer);

/* ---- Files as blocks ----------------------------------------------------------------------------- */

/* A file as training blocks: its tokens are concatenated and cut into blocks of equal length. The remainder is dropped.
 *
 * A .txt, .raw or .tokens file, or one with an unknown ending, holds one text a line, with its line end. Each text is
 * tokenised separately, as in run_clm. \r\n and \r also end lines and become \n (Python's text mode). A UTF-8 byte
 * order mark at the beginning is skipped, and the texts of special tokens become their ids. A .jsonl file (or .json)
 * holds one object {"text": ...} a line; blank lines are ignored. A .bin file holds tokens in one of two formats:
 * llm.c's (256 int32 of header, magic 20240520 with uint16 or 20240801 with uint32 ids) or nanoGPT's (uint16 from the
 * first byte).
 *
 * Files of tokens, and cached tokens of texts, are not copied into memory: tx_dataset_read reads the tokens of a block
 * from the file. The memory of such a dataset is 24 bytes for each group of texts, or, with by_text, for each 4096
 * texts. */
typedef struct tx_dataset tx_dataset;

typedef struct tx_dataset_options {
    size_t size;                   /* sizeof(tx_dataset_options) */
    const tx_tokenizer *tokenizer; /* for texts; may be NULL for tokens */
    int64_t vocab;                 /* every id must be less */
    int64_t block;                 /* tokens in a block, at least 2 */
    int64_t group;       /* start a new block after every `group` texts of the part used and drop the remainder
                            (run_clm's map does so with 1000). 0 means never. Ignored for a .bin file */
    double from, to;     /* the part of the texts to use, in percent: 0 and 100 for all. A bound is rounded to
                            the nearest text, or token of a .bin file, a half to even, as in Hugging Face's
                            datasets */
    int64_t most_blocks; /* keep only the first blocks; 0 means all */
    int64_t skip_bad;    /* number of malformed lines of a .jsonl file to skip; more of them are an error */
    const char *cache;   /* folder for the tokens of texts, which are then read from it. With NULL they are in memory,
                            also if the folder cannot be written, of which the user is warned. Tokens that
                            `txtok pack` made are read from its folder instead */
    int64_t part;        /* tokenise texts into the cache in parts of about so many bytes, which several processes
                            share and a later call resumes. 0 makes one part */
    bool bare_lines;     /* tokenise lines without their line ends, as in run_mlm */
    int64_t by_text;     /* each text of at least this many tokens is a block of its own, of which tx_dataset_read
                            returns at most `block` tokens. 0 concatenates texts. Not for a .bin file */
    int32_t threads;     /* that tokenise; at least 1. The result does not depend on it. If the system refuses some of
                            them, the user is warned and fewer are used */
    tx_reporter report;
} tx_dataset_options;

/* Reads, tokenises and cuts a file. Fails if the file cannot be read, has another format, is empty or does not fill one
 * block; the message names file and place. The caller frees. */
tx_status tx_dataset_open(const char *path, const tx_dataset_options *options, tx_dataset **dataset);
void tx_dataset_free(tx_dataset *dataset);

int64_t tx_dataset_block(const tx_dataset *dataset);  /* tokens in a block */
int64_t tx_dataset_blocks(const tx_dataset *dataset); /* number of blocks */
int64_t tx_dataset_tokens(const tx_dataset *dataset); /* of the part used, before cutting */
/* Tokens of block `number`. With by_text it is the length of the whole text. -1, with the message set, if the file
 * became shorter. */
int64_t tx_dataset_length(const tx_dataset *dataset, int64_t number);
/* Digest of the blocks' contents and shape. A resumed run compares it with the checkpoint's. */
const char *tx_dataset_digest(const tx_dataset *dataset);

/* Reads block `number` (from 0) to tokens [block]; with by_text at most the tokens of the text. Fails if the file
 * became shorter (TX_IO), or if it changed and holds ids outside the vocabulary (TX_FORMAT). Such ids are never
 * returned. */
tx_status tx_dataset_read(const tx_dataset *dataset, int64_t number, int32_t *tokens);

typedef struct tx_pack_options {
    size_t size; /* sizeof(tx_pack_options) */
    const tx_tokenizer *tokenizer;
    const char *text_column; /* names of columns with commas between them, whose texts are joined; NULL for "text" */
    const char *delimiter;   /* between joined texts; NULL for a space */
    bool bare_lines;         /* see tx_dataset_options */
    int64_t skip_bad, part;  /* the same; `part` is at least 1 */
    int32_t threads;         /* that tokenise; 0 for one on each core */
    tx_reporter report;
} tx_pack_options;

/* Tokenises files (paths, or patterns such as data/train-*.parquet) as one corpus into the folder cache of $TX_HOME, in
 * which tx_dataset_open and training look for the tokens of these files. Several processes may run at the same time. A
 * later call completes an interrupted one. `*tokens` receives the number of tokens. */
tx_status tx_pack(const char *const *files, int32_t count, const tx_pack_options *options, int64_t *tokens);

/* ---- Batches ------------------------------------------------------------------------------------- */

/* A dataset's blocks in training order, shuffled anew in each epoch, without end. A batch depends only on its number,
 * the data and the options, so batches can begin at any number. */
typedef struct tx_batches tx_batches;

typedef struct tx_batches_options {
    size_t size;     /* sizeof(tx_batches_options) */
    int64_t rows;    /* of a batch */
    int64_t first;   /* number of the first batch, from 0 */
    uint64_t seed;   /* of the order */
    int32_t workers; /* threads that prepare batches ahead; may be 0 */
} tx_batches_options;

/* If the data of an epoch end within a batch, its last rows are padding: their tokens are -1 (tx_embedding returns 0)
 * and their labels TX_IGNORE_LABEL. */
typedef struct tx_token_batch {
    int64_t number, epoch;    /* from 0 */
    int64_t rows;             /* without padding */
    int64_t labels;           /* without TX_IGNORE_LABEL */
    const int32_t *input_ids; /* [options.rows, block] */
    const int32_t *label;     /* same shape: at position t the token at t + 1; the last position has none */
} tx_token_batch;

/* The dataset must outlive the batches. The caller frees. */
tx_status tx_batches_create(const tx_dataset *dataset, const tx_batches_options *options, tx_batches **batches);
void tx_batches_free(tx_batches *batches); /* NULL is fine */
/* The next batch; its rows stay valid until the call after the next one. */
tx_status tx_batches_next(tx_batches *batches, tx_token_batch *batch);
/* Batches in an epoch. */
int64_t tx_batches_count(const tx_batches *batches);

TX_API_END

#endif
