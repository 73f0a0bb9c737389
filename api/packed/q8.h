/* SPDX-License-Identifier: Apache-2.0
 * Parameters of types Q8 (backends/q8.h) and MXFP4 (backends/nf4.h). */
#ifndef TX_API_Q8_H
#define TX_API_Q8_H

#include "api/model/model.h"

static inline bool tx_q8_stores(tx_dtype dtype)
{
    return dtype == TX_Q8 || dtype == TX_MXFP4;
}

/* Writes whole blocks from element `first` on: those of Q8_0 at `blocks`, or if it is NULL the fp32 values at x,
 * rounded as Q8_0 is. MXFP4 is always rounded, which keeps values that came from MXFP4. */
tx_status tx_q8_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *x,
                      const uint8_t *blocks);
/* Reads elements as fp32. */
tx_status tx_q8_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *x);

#endif
