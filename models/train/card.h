/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the model card of a trained model, README.md, as transformers' Trainer does: front matter for the hub, then
 * base model, data, options and results. */
#ifndef TX_TRAIN_CARD_H
#define TX_TRAIN_CARD_H

#include "tx.h"
#include "tx_json.h"

/* Writes folder/README.md. `facts` is an object whose members may all be absent:
 *
 *   {"base_model": string or null, "adapter": true or null, "dataset": string, "device": string,
 *    "hyperparameters": {name: value, ...},
 *    "results": {"eval_loss": ..., "perplexity": ..., "train_loss": ..., ...},
 *    "log": [{"step", "epoch", "loss", "eval_loss"}, ...]}
 *
 * The hyperparameters are printed in their order. */
tx_status tx_card_write(const char *folder, const tx_json *facts);

#endif
