/* SPDX-License-Identifier: Apache-2.0
 *
 * The byte vocabulary: ids 0 to 255 are the bytes, 256 is <|endoftext|>. No training, no file needed, and any
 * data can be written with it. As a Hugging Face tokenizer it is byte-level BPE without merges. */
#ifndef TX_TEXT_BYTES_H
#define TX_TEXT_BYTES_H

#include "tx.h"

#define TX_BYTES_VOCAB 257
#define TX_BYTES_END 256
#define TX_BYTES_END_TEXT "<|endoftext|>"

/* Ids of `size` bytes; `ids` has room for `size` of them. With `special` the text <|endoftext|> becomes 256, as
 * Hugging Face's tokenizers do unless told otherwise; without, every byte stands for itself. Returns
 * the number of ids. */
size_t tx_bytes_encode(const char *text, size_t size, bool special, int32_t *ids);
/* Text of `count` ids; <|endoftext|> is left out with `skip_special`. A NUL follows the `*size` bytes. Ids
 * outside the vocabulary are refused. The caller frees `*text`. */
tx_status tx_bytes_decode(const int32_t *ids, size_t count, bool skip_special, char **text, size_t *size);

/* Writes tokenizer.json and tokenizer_config.json, as transformers' PreTrainedTokenizerFast loads them.
 * model_max_length is the model's number of positions. */
tx_status tx_bytes_save(const char *folder, int64_t model_max_length);
/* Checks that the folder's tokenizer.json is this vocabulary: TX_UNSUPPORTED names what differs. */
tx_status tx_bytes_check(const char *folder);

#endif
