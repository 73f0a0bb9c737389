/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of several texts, each a sequence of its own: the texts of an embedding's pair or triplet, or the choices of
 * a question. The first fields of their tasks are input_ids, token_type_ids and attention_lengths. */
#ifndef TX_TASK_SEVERAL_H
#define TX_TASK_SEVERAL_H

#include "models/files/digest.h"
#include "models/task/task.h"
#include "models/text/joined.h"

/* The largest number of texts of a sample. */
#define TX_SEVERAL_TEXTS 8

/* Indices of the fields; a task's own follow. */
enum { TX_SEVERAL_INPUT_IDS, TX_SEVERAL_TOKEN_TYPE_IDS, TX_SEVERAL_LENGTHS, TX_SEVERAL_OWN };
#define TX_SEVERAL_FIELDS                                                                   \
    [TX_SEVERAL_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0},           \
    [TX_SEVERAL_TOKEN_TYPE_IDS] = {"token_type_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0}, \
    [TX_SEVERAL_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1}

typedef struct tx_several {
    tx_ids ids, types;    /* of all texts, one after the other: those of the first sample, .. */
    int64_t count, texts; /* samples, and texts of a sample */
    int64_t *end;         /* [count * texts]: end of each text's ids */
} tx_several;

/* Allocates `end` for at most `rows` samples of `texts` texts. */
tx_status tx_several_reserve(tx_several *samples, int64_t rows);
void tx_several_free(tx_several *samples);
/* Adds text `text`, or a pair, of the next sample. TX_FORMAT if it has no tokens. */
tx_status tx_several_add(tx_several *samples, int64_t text, tx_joiner *joiner, const char *first, size_t first_size,
                         const char *second, size_t second_size, int64_t most);
/* Removes the texts of the next sample, which is not complete. */
void tx_several_drop(tx_several *samples);
/* Computes the digest of all samples and of `size` bytes of the task's own. */
tx_status tx_several_digest(const tx_several *samples, const void *own, size_t size, char text[TX_DIGEST_TEXT]);
/* The number of tokens of a text of a sample. */
int64_t tx_several_length(const tx_several *samples, int64_t number, int64_t text);
/* That of the longest text of a sample. */
int64_t tx_several_longest(const tx_several *samples, int64_t number);
/* Writes the texts of a sample to the first fields of a row of `block` positions. */
void tx_several_row(const tx_several *samples, int64_t number, int64_t block, const tx_batch *row);

#endif
