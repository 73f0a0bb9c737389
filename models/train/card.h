/* SPDX-License-Identifier: Apache-2.0
 *
 * README.md of a trained model, as transformers' Trainer writes its model cards: front matter for the hub, then what
 * was trained on what, with which options and which results. */
#ifndef TX_TRAIN_CARD_H
#define TX_TRAIN_CARD_H

#include "tx.h"
#include "tx_json.h"

/* Writes folder/README.md. `facts` is an object {"base_model": string or null, "adapter": true or null, "dataset":
 * string, "device": string, "hyperparameters": {name: value, ...} in the order to print, "results": {"eval_loss": ...,
 * "perplexity": ..., "train_loss": ..., ...}, "log": [{"step", "epoch", "loss", "eval_loss"}, ...]}; members may be
 * absent. */
tx_status tx_card_write(const char *folder, const tx_json *facts);

#endif
