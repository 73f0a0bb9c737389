/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of embeddings on pairs and triplets of texts, with losses of sentence-transformers. A row of a batch is a
 * sample of several texts: an anchor, a positive and any number of negatives, or two sentences with a score. Fields
 * input_ids, token_type_ids, attention_lengths and pooling have a sequence for each text. Labels [rows] are 0 for rows
 * with a sample, and targets [rows] are the scores. The model is saved as a folder of sentence-transformers. */
#ifndef TX_TASK_EMBEDDING_H
#define TX_TASK_EMBEDDING_H

#include "models/arch/pooling.h"
#include "models/task/text_samples.h"

/* Indices of the fields after those of all samples of several texts. */
enum { TX_EMBEDDING_POOLING = TX_TEXTS_OWN, TX_EMBEDDING_LABELS, TX_EMBEDDING_TARGETS };

/* Opened data have a task of their own: the fields have as many sequences as a sample has texts. */
extern const tx_task tx_embeddings;

typedef struct tx_embedding_data {
    tx_text_samples texts;
    float *target; /* [count] */
    int32_t loss;  /* TX_EMBEDDING_LOSS_.. */
    tx_pooling pooling;
    int64_t width, most; /* of the hidden states; tokens of a text */
    tx_own_task own;
} tx_embedding_data;

/* Reads a file (embedding_data.c). As in sentence-transformers a column label, labels, score or scores has the target,
 * and the other columns are the texts in their order. If there are columns anchor and positive, only these and columns
 * that begin with negative are used. */
tx_status tx_embedding_data_read(const char *path, const tx_data_options *options, tx_embedding_data *data);
void tx_embedding_data_release(void *data);

#endif
