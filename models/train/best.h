/* SPDX-License-Identifier: Apache-2.0
 *
 * What run_state.json says of the best checkpoint. */
#ifndef TX_TRAIN_BEST_H
#define TX_TRAIN_BEST_H

#include "models/train/state.h"

tx_status tx_best_write(const tx_run_state *state, tx_json *json);
/* Sets the state's best_checkpoint as it is seen from output_dir; `checkpoint` is the folder of run_state.json. What
 * names no checkpoint up to the state's best_step is refused (TX_FORMAT). */
tx_status tx_best_read(const tx_json *json, const char *checkpoint, const char *output_dir, tx_run_state *state);

#endif
