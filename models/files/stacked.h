/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts of a layer in two tensors instead of some for each expert: "mlp.experts.gate_up_proj" [E, 2 F, C] and
 * "mlp.experts.down_proj" [E, C, F], or, as in the published Qwen3-VL, the transposes of their matrices. */
#ifndef TX_FILES_STACKED_H
#define TX_FILES_STACKED_H

#include "models/files/weights.h"

/* Replaces `*weights` by a view of them with the tensors of each expert, as other folders have them. Returns them as
 * they are if they have none in such tensors. Closes them on failure. */
tx_status tx_stacked_open(tx_weights **weights);

/* Finds the tensor of a file for the name of a piece, or NULL. */
typedef const tx_st_tensor *tx_stacked_find(const void *context, const char *piece);

/* Replaces the pieces of experts ("mlp.experts.0.gate_proj.weight") by one for each parameter, if the file has such
 * tensors. Sets `turned` of those whose matrices the file has transposed. */
void tx_stacked_join(tx_weights_piece *pieces, int32_t *count, tx_stacked_find *find, const void *context);

/* to[c * rows + r] = from[r * columns + c] */
void tx_stacked_transpose(const float *from, int64_t rows, int64_t columns, float *to);

#endif
