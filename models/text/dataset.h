/* SPDX-License-Identifier: Apache-2.0
 *
 * A file as training blocks: its tokens are laid end to end and cut into blocks of equal length, what is left over
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
#ifndef TX_TEXT_DATASET_H
#define TX_TEXT_DATASET_H

#include "models/report.h"
#include "models/text/tokenizer.h"
#include "tx.h"

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
    int32_t threads;               /* that tokenise; at least 1. The result does not depend on it. Where the system
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
/* Digest of the blocks' contents and shape: resumed runs hold it against the checkpoint's. */
const char *tx_dataset_digest(const tx_dataset *dataset);

/* Reads block `number` (from 0) to tokens [block]. Fails where the file became shorter (TX_IO) or got other contents
 * whose ids lie outside the vocabulary (TX_FORMAT): no such id is ever given. */
tx_status tx_dataset_read(const tx_dataset *dataset, int64_t number, int32_t *tokens);

#endif
