/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a file, which the dataset cuts into blocks. */
#ifndef TX_DATA_TOKENS_H
#define TX_DATA_TOKENS_H

#include "models/files/data_file.h"
#include "models/tx_text.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian and used unchanged; this machine is big-endian"
#endif

typedef struct tx_tokens {
    void *ids;         /* uint16_t or uint32_t; NULL if they are read from the file on demand */
    tx_data_file file; /* that file */
    int64_t header;    /* bytes before the tokens in it */
    int32_t width;     /* bytes of an id: 2 or 4 */
    int64_t count;
    bool of_texts;          /* false if the file has no texts */
    int64_t texts;          /* number of them */
    uint32_t *lengths;      /* tokens of each text; NULL if they are read from the file on demand */
    int64_t lengths_at;     /* offset of the lengths in the file */
    int64_t bad, first_bad; /* number of skipped malformed lines, and the number of the first */
    int64_t ids_end;        /* all ids are less; 0 if unknown */
} tx_tokens;

/* Frees the contents and sets it to {0}. */
void tx_tokens_free(tx_tokens *tokens);

/* Tokens per reading. */
#define TX_TOKENS_PIECE 4096

/* Reads the tokens first..first+count-1, at most TX_TOKENS_PIECE. TX_IO if the file became shorter. */
tx_status tx_tokens_read(const tx_tokens *tokens, int64_t first, int64_t count, uint32_t *ids);

/* Reads the lengths of the texts first..first+count-1. TX_IO if the file became shorter. */
tx_status tx_tokens_lengths(const tx_tokens *tokens, int64_t first, int64_t count, uint32_t *lengths);

/* Opens a .bin file. Takes ownership of the file if it succeeds. */
tx_status tx_tokens_of_bin(tx_data_file *file, tx_tokens *tokens);

/* The form of a file of texts. BARE means lines without their line ends. */
typedef enum tx_text_form { TX_TEXT_LINES, TX_TEXT_JSONL, TX_TEXT_BARE } tx_text_form;

/* A range of a file of texts that begins and ends with a line. */
typedef struct tx_text_range {
    const tx_data_file *file;
    tx_text_form form;
    int64_t begin, end;
} tx_text_range;

/* Tokenises texts with the options' tokenizer and threads, into memory. */
tx_status tx_tokens_of_text(const tx_text_range *texts, const tx_dataset_options *options, tx_tokens *tokens);

/* Tokens of some texts, in arrays with room to grow. */
typedef struct tx_tokens_piece {
    void *ids; /* of `width` bytes each */
    int32_t width;
    size_t count, room;
    uint32_t *lengths;
    size_t texts, texts_room;
} tx_tokens_piece;

/* Receives the tokens of a file in order, a few megabytes at a time. It may keep a piece's arrays and set them to NULL
 * and their rooms to 0. */
typedef struct tx_tokens_sink {
    tx_status (*take)(void *context, tx_tokens_piece *piece);
    void *context;
} tx_tokens_sink;

/* Tokenises texts into a sink, in memory that does not depend on their length (a line is in memory as a whole). Sets
 * the numbers of `tokens`, not its contents. */
tx_status tx_tokens_stream(const tx_text_range *texts, const tx_dataset_options *options, const tx_tokens_sink *sink,
                           tx_tokens *tokens);

/* Tokenises a file into the folder options->cache, unless its tokens are there or in the cache of tx_hub_cache. They
 * are then read from that file on demand. If the folder cannot be written the user is warned, and the tokens are in
 * memory. With options->part a failure to write is an error. */
tx_status tx_tokens_cached(const tx_text_range *texts, const tx_dataset_options *options, tx_tokens *tokens);

#endif
