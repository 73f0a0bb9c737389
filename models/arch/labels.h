/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a classifier in config.json: id2label and label2id. The configuration's `labels` is their number, and
 * `problem` their use. As in transformers, one label without a problem_type means regression. */
#ifndef TX_MODELS_LABELS_H
#define TX_MODELS_LABELS_H

#include "models/arch/arch.h"

#define TX_LABELS_DEFAULT 2
#define TX_LABELS_MOST 65536

/* Reads the number of labels: from id2label, else num_labels, else TX_LABELS_DEFAULT. TX_UNSUPPORTED if problem_type is
 * not one of transformers'. */
tx_status tx_labels_read(const tx_json *json, tx_config *config);
/* The name of a label, which lives as long as the configuration. NULL if it is transformers' LABEL_n or missing. */
const char *tx_label_name(const tx_config *config, int64_t label);
/* Turns the logits of a classifier into scores: of all labels together by a softmax, or of `each` by itself. */
void tx_label_scores(const float *logits, int64_t count, bool each, float *scores);
/* Sets the labels of a classifier. Pass NULL to name them LABEL_n. */
tx_status tx_labels_set(tx_config *config, tx_problem problem, const char *const *names, int64_t count);
/* True if the file has no problem_type and its labels allow several: transformers then follows the data. */
bool tx_problem_is_open(const tx_config *config);
/* Sets problem_type. */
tx_status tx_problem_set(tx_config *config, tx_problem problem);
const char *tx_problem_name(tx_problem problem);
/* The id of the padding, before which a decoder's classifier finds the last token; -1 if there is none. */
int64_t tx_pad_token(const tx_config *config);
tx_status tx_pad_token_set(tx_config *config, int64_t id);
/* Writes 1 at the last id that is not `pad`, or at the first, and 0 elsewhere: the input last_token of a row. */
void tx_mark_last_token(const int32_t *ids, int64_t length, int64_t pad, int64_t block, float *last);

#endif
