/* SPDX-License-Identifier: Apache-2.0
 *
 * What txtrain leaves behind and prints at the end, in the form of run_clm: train_results.json, eval_results.json,
 * all_results.json, README.md. */
#ifndef TX_TOOLS_TRAIN_RESULTS_H
#define TX_TOOLS_TRAIN_RESULTS_H

#include "models/train/run.h"
#include "tools/train/inputs.h"

/* Prints "***** train metrics *****" with a line a metric, and writes folder/train_results.json; the metrics are also
 * put into folder/all_results.json, beside those that it has. `split` is "train" or "eval". */
tx_status tx_train_report(const char *folder, const char *split, const tx_json *metrics);

/* The metrics of training and of an evaluation by transformers' names; NULL when out of memory. */
tx_json *tx_train_metrics(const tx_run_summary *summary, const tx_run_state *state, const tx_dataset *data);
tx_json *tx_eval_metrics(const tx_run_evaluation *evaluation);

/* Writes the model card. `train` and `eval` are metrics, or NULL. */
tx_status tx_train_card(const tx_train_settings *set, const tx_train_inputs *inputs, const tx_device_info *device,
                        const tx_json *train, const tx_json *eval);

#endif
