/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a file, as compact as their vocabulary allows: between the readers of files and the dataset. */
#ifndef TX_TEXT_TOKENS_H
#define TX_TEXT_TOKENS_H

#include "models/files/data_file.h"
#include "models/tx_text.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian, and are used as they are: this machine is not"
#endif

typedef struct tx_tokens {
    void *ids;         /* uint16_t or uint32_t; NULL: they are read from the file when they are wanted */
    tx_data_file file; /* that file */
    int64_t header;    /* bytes before the tokens in it */
    int32_t width;     /* 2 or 4 */
    int64_t count;
    uint32_t *lengths; /* tokens of each text; NULL: the file has no texts */
    int64_t texts;
    int64_t bad, first_bad; /* malformed lines left out, and the number of the first */
} tx_tokens;

/* Frees what it holds; leaves {0}. */
void tx_tokens_free(tx_tokens *tokens);

/* Tokens that are worth reading at once. */
#define TX_TOKENS_PIECE 4096

/* Reads the tokens first..first+count-1, at most TX_TOKENS_PIECE; TX_IO where the file became shorter. */
tx_status tx_tokens_read(const tx_tokens *tokens, int64_t first, int64_t count, uint32_t *ids);

/* A .bin file. Takes the file over when it succeeds. */
tx_status tx_tokens_of_bin(tx_data_file *file, tx_tokens *tokens);

/* What a file of texts is split into; BARE: lines without their ends. */
typedef enum tx_text_form { TX_TEXT_LINES, TX_TEXT_JSONL, TX_TEXT_BARE } tx_text_form;

/* Tokenises with options' tokenizer and threads. */
tx_status tx_tokens_of_text(const tx_data_file *file, tx_text_form form, const tx_dataset_options *options,
                            tx_tokens *tokens);

/* The tokens of a text from the folder options->cache, or tokenised and kept there. */
tx_status tx_tokens_cached(const tx_data_file *file, tx_text_form form, const tx_dataset_options *options,
                           tx_tokens *tokens);

#endif
