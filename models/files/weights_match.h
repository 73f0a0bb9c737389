/* SPDX-License-Identifier: Apache-2.0
 * Matches the tensors of weight files with the pieces of a model. */
#ifndef TX_FILES_WEIGHTS_MATCH_H
#define TX_FILES_WEIGHTS_MATCH_H

#include "models/files/weights.h"

/* Sets source[p] to the index of the tensor for piece p, or -1. Collects all faults before it fails. */
tx_status tx_weights_match(const tx_weights *w, const tx_weights_piece *pieces, int32_t count,
                           const tx_weights_names *names, int32_t *source);

#endif
