/* SPDX-License-Identifier: Apache-2.0
 * Copies bytes between the host and this rank's holdings (own.h). */
#include "api/plan/plan.h"

#include <string.h>

/* Copies the bytes from byte `at` on that this rank's holdings have, to them (`out`) or from them. */
static tx_status copy(tx_model *model, tx_param_role part, int32_t index, int64_t at, char *data, int64_t bytes,
                      bool out)
{
    for (int32_t i = 0; i < model->holdings; i++) {
        const tx_param_slice *h = &model->holding[i];
        const int64_t first = tx_max(at, h->at), ends = h->at + h->bytes;
        const int64_t count = (at + bytes < ends ? at + bytes : ends) - first, address = h->address + first - h->at;
        if (h->param == index && h->part == part && count > 0)
            TX_TRY(out ? tx_model_write_at(model, h->arena, address, data + (first - at), count)
                       : tx_model_read_at(model, h->arena, address, data + (first - at), count));
    }
    return TX_OK;
}

tx_status tx_stored_write(tx_model *model, tx_param_role part, int32_t index, int64_t at, const void *data,
                          int64_t bytes)
{
    return copy(model, part, index, at, (char *)(uintptr_t)data, bytes, true);
}

tx_status tx_stored_read(tx_model *model, tx_param_role part, int32_t index, int64_t at, void *data, int64_t bytes)
{
    const int64_t words = tx_ceil_div(bytes, (int64_t)sizeof(int32_t));
    if (model->hooks)
        memset(data, 0, (size_t)words * sizeof(int32_t));
    const tx_status status = copy(model, part, index, at, data, bytes, false);
    return model->hooks ? model->hooks->complete(model, part, index, data, words, status) : status;
}
