/* SPDX-License-Identifier: Apache-2.0
 * Parameters that are packed (tx_dtype_packed), between the host's fp32 and where they lie. */
#ifndef TX_API_PACKED_H
#define TX_API_PACKED_H

#include "api/model/model.h"

/* Elements first .. first + count - 1, within the parameter: what is written begins and ends at whole units
 * (tx_nf4_unit) or at the end. The model is ready (tx_model_ready). */
tx_status tx_packed_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *data);
tx_status tx_packed_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data);

#endif
