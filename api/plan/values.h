/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of parameters, their gradients and their optimizer states. */
#ifndef TX_API_VALUES_H
#define TX_API_VALUES_H

#include "api/plan/plan.h"

/* The shape of a part; fails, naming it, where there is none. */
tx_status tx_values_shape(const tx_model *model, tx_part part, int32_t index, tx_shape *shape);
/* Whether ranks have shards of it: all read it together. */
bool tx_values_spread(const tx_model *model, tx_part part, int32_t index);
/* Copies elements from `from` to a part, or, where that is NULL, to `to`. */
tx_status tx_values_copy(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, const float *from,
                         float *to);

#endif
