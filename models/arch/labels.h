/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a classifier in config.json: id2label and label2id. Their number is the configuration's, `labels`; one
 * label alone is a number that is to be guessed (regression). */
#ifndef TX_MODELS_LABELS_H
#define TX_MODELS_LABELS_H

#include "models/arch/arch.h"

#define TX_LABELS_DEFAULT 2
#define TX_LABELS_MOST 65536

/* Reads their number: of id2label, else num_labels, else TX_LABELS_DEFAULT. Refuses problems of other kinds than
 * regression and single_label_classification. */
tx_status tx_labels_read(const tx_json *json, tx_config *config);
/* The name of a label, which lives as long as the configuration; NULL where it is transformers' LABEL_n or none. */
const char *tx_label_name(const tx_config *config, int64_t label);
/* Gives a classifier `count` labels of these names, 1 and NULL being regression. */
tx_status tx_labels_set(tx_config *config, const char *const *names, int64_t count);

#endif
