/* SPDX-License-Identifier: Apache-2.0
 * Functions of this extension that the core calls for parameters that are packed (tx_dtype_packed). */
#ifndef TX_API_PACKED_H
#define TX_API_PACKED_H

#include "api/model/model.h"

/* Refuses a parameter whose rows, or whose sections that files may hold apart, are not whole units (tx_nf4_unit). */
tx_status tx_packed_check(const char *name, const tx_param_spec *spec);
/* Quantises elements first .. first + count - 1 of a parameter from the host's fp32. They begin and end at whole units
 * (tx_nf4_unit), or at the parameter's end. The model is ready. */
tx_status tx_packed_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *data);
/* Reads elements as fp32. */
tx_status tx_packed_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data);

#endif
