/* SPDX-License-Identifier: Apache-2.0
 *
 * Token classification: a label for each word of a text, as run_ner.py of transformers trains it (named entities, parts
 * of speech). The fields are input_ids, token_type_ids and labels [rows, block], and attention_lengths [rows]. The
 * first token of a word has its label; all other tokens are ignored. */
#ifndef TX_TASK_TOKENS_H
#define TX_TASK_TOKENS_H

#include "models/task/text_samples.h"

/* Indices of the fields. */
enum { TX_TOKENS_INPUT_IDS, TX_TOKENS_TOKEN_TYPE_IDS, TX_TOKENS_LENGTHS, TX_TOKENS_LABELS };

extern const tx_task tx_token_classification;

/* The parts of a label such as B-LOC: its position in an entity, B, I, O, E or S, and the index of its type. */
typedef struct tx_tag {
    char position; /* '?' for any other letter */
    int32_t type;
} tx_tag;

typedef struct tx_token_data {
    tx_text_samples texts;
    tx_store label; /* of each id; TX_IGNORE_LABEL if it has none */
    tx_store first; /* of each id: 1 if it is the first of a word, else 0 */
    int64_t labels; /* of the model */
    tx_tag *tag;    /* [labels + 1], and one after the last word of a text */
} tx_token_data;

/* Reads a .jsonl or .json file, or Parquet files, whose rows have a list of words and a list of labels. */
tx_status tx_token_data_read(tx_samples *samples, const char *path, const tx_data_options *options);
void tx_token_data_release(void *data);
/* Returns true if the first row of a .jsonl or .json file has a list of words. */
bool tx_tokens_find(const char *path);

#endif
