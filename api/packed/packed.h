/* SPDX-License-Identifier: Apache-2.0
 * Functions that the core calls for packed parameters (tx_dtype_packed). */
#ifndef TX_API_PACKED_H
#define TX_API_PACKED_H

#include "api/graph/graph.h"
#include "api/model/model.h"

/* Pass: inserts FAKE_QUANTIZE after parameters with a tx_rounding, or after the sum with their adapter. */
tx_status tx_fake_quantize(tx_graph *graph);

/* Returns NULL if a matrix of the shape can be rounded so, or the reason. */
const char *tx_rounding_problem(const tx_rounding *rounding, const tx_shape *shape);
/* Checks that a parameter can be rounded. */
tx_status tx_rounding_check(const char *name, const tx_param_spec *spec);

/* Checks that the rows of a parameter, and sections that files store separately, are whole units (tx_nf4_unit), or
 * whole blocks. */
tx_status tx_packed_check(const char *name, const tx_param_spec *spec);
/* Quantises elements first .. first + count - 1 of a parameter from fp32 on the host. They start and end at whole units
 * (tx_nf4_unit, blocks of Q8) or at the parameter's end. With `blocks`, the same elements in blocks of Q8_0, a
 * parameter of type Q8 gets their codes. The model must be ready. */
tx_status tx_packed_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *data,
                          const uint8_t *blocks);
/* Reads elements as fp32. */
tx_status tx_packed_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *data);

#endif
