/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of one or several texts, each a sequence of its own: a text with a label or with labelled words, the texts of
 * an embedding's pair or triplet, or the choices of a question. The first fields of their tasks are input_ids,
 * token_type_ids and attention_lengths. Their ids are in a tx_store; memory has 8 bytes for each text. */
#ifndef TX_TASK_TEXT_SAMPLES_H
#define TX_TASK_TEXT_SAMPLES_H

#include "models/files/digest.h"
#include "models/task/store.h"
#include "models/tokenizer/joined.h"

/* The largest number of texts of a sample. */
#define TX_TEXTS_MOST 8

/* Indices of the fields; a task's own follow. */
enum { TX_TEXTS_INPUT_IDS, TX_TEXTS_TOKEN_TYPE_IDS, TX_TEXTS_LENGTHS, TX_TEXTS_OWN };
#define TX_TEXTS_FIELDS                                                                   \
    [TX_TEXTS_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0},           \
    [TX_TEXTS_TOKEN_TYPE_IDS] = {"token_type_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0}, \
    [TX_TEXTS_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1}

/* The first member of the data of its tasks. Begin with {.per_sample} and tx_text_samples_begin. */
typedef struct tx_text_samples {
    tx_store ids, types;       /* of all texts, one after the other: those of the first sample, .. */
    int64_t count, per_sample; /* samples, and texts of a sample */
    int64_t *end;              /* [count * per_sample]: end of each text's ids */
    size_t room;
    tx_ids id, type;             /* of the next sample */
    int64_t at[TX_TEXTS_MOST];   /* end of each of its texts in these */
    char digest[TX_DIGEST_TEXT]; /* set by tx_text_samples_digest or by the task */
} tx_text_samples;

void tx_text_samples_begin(tx_text_samples *samples, const tx_data_options *options);
void tx_text_samples_free(tx_text_samples *samples);
/* Begins the next sample: clears `id` and `type`. tx_text_samples_add does so for text 0. */
void tx_text_samples_clear(tx_text_samples *samples);
/* Adds text `text`, or a pair, to the next sample. TX_FORMAT if it has no tokens. */
tx_status tx_text_samples_add(tx_text_samples *samples, int64_t text, tx_joiner *joiner, const char *first,
                              size_t first_size, const char *second, size_t second_size, int64_t most);
/* Checks the ids of the next sample, and adds it to the samples. */
tx_status tx_text_samples_keep(tx_text_samples *samples, const tx_data_options *options);
/* Computes the digest of all samples and of `size` bytes of the task's own. */
tx_status tx_text_samples_digest(tx_text_samples *samples, const void *own, size_t size);
/* Fills in the numbers of a task's samples. */
void tx_text_samples_finish(const tx_text_samples *texts, tx_samples *samples);
/* Gives samples a task of their own, whose first `fields` fields have a sequence for each text. */
void tx_text_samples_task(const tx_text_samples *texts, tx_samples *samples, int32_t fields, tx_own_task *own);
/* The number of tokens of a text of a sample. */
int64_t tx_text_samples_length(const tx_text_samples *samples, int64_t number, int64_t text);
/* The `length` of the tasks: that of the longest text of a sample. */
int64_t tx_text_samples_longest(const tx_samples *samples, int64_t number);
/* Writes the texts of a sample to the first fields of a row of `block` positions. */
tx_status tx_text_samples_row(const tx_text_samples *samples, int64_t number, int64_t block, const tx_batch *row);

#endif
