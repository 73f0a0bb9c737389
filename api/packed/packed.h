/* SPDX-License-Identifier: Apache-2.0
 * Functions that the core calls for packed parameters (tx_dtype_packed). */
#ifndef TX_API_PACKED_H
#define TX_API_PACKED_H

#include "api/model/model.h"

/* Checks that the rows of a parameter, and sections that files store separately, are whole units (tx_nf4_unit), or
 * whole blocks. */
tx_status tx_packed_check(const char *name, const tx_param_spec *spec);
/* Quantises elements first .. first + count - 1 of a parameter from fp32 on the host. They start and end at whole units
 * (tx_nf4_unit) or at the parameter's end. The model must be ready. */
tx_status tx_packed_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *data);
/* Reads elements as fp32. */
tx_status tx_packed_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data);

#endif
