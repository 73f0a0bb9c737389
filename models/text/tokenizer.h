/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers with the ids of Hugging Face's: byte-level BPE (Radford et al., Language Models are
 * Unsupervised Multitask Learners, 2019, section 2.2; Sennrich et al., 2016), and the byte vocabulary, which is BPE
 * without merges: ids 0 to 255 are the bytes, 256 is <|endoftext|>. */
#ifndef TX_TEXT_TOKENIZER_H
#define TX_TEXT_TOKENIZER_H

#include "models/files/digest.h"
#include "tx.h"

#define TX_END_OF_TEXT "<|endoftext|>"
#define TX_BYTES_VOCAB 257
#define TX_BYTES_END 256

/* Immutable once made: any number of threads may use one at the same time. */
typedef struct tx_tokenizer tx_tokenizer;

/* Opens a folder's tokenizer.json, or its vocab.json and merges.txt where there is none; `path` may also be one of
 * these files, or a tokenizer.json under another name. TX_NOT_FOUND when the folder has neither; TX_UNSUPPORTED names
 * the type of a part that TX does not have. The caller frees. */
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

#endif
