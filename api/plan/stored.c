/* SPDX-License-Identifier: Apache-2.0
 * Copies bytes between the host and this rank's holdings (own.h). */
#include "api/plan/plan.h"

#include <string.h>

/* Returns the number of bytes that a holding has among `bytes` from `at` on, and the first one. 0 or less means none.
 */
static int64_t overlap(const tx_param_slice *h, int64_t at, int64_t bytes, int64_t *first)
{
    const int64_t end = at + bytes < h->at + h->bytes ? at + bytes : h->at + h->bytes;
    *first = at > h->at ? at : h->at;
    return end - *first;
}

tx_status tx_stored_write(tx_model *model, tx_param_role part, int32_t index, int64_t at, const void *data,
                          int64_t bytes)
{
    int64_t first, count;
    for (int32_t i = 0; i < model->holdings; i++) {
        const tx_param_slice *h = &model->holding[i];
        if (h->param == index && h->part == part && (count = overlap(h, at, bytes, &first)) > 0)
            TX_TRY(tx_model_write_at(model, h->arena, h->address + first - h->at, (const char *)data + (first - at),
                                     count));
    }
    return TX_OK;
}

tx_status tx_stored_read(tx_model *model, tx_param_role part, int32_t index, int64_t at, void *data, int64_t bytes)
{
    const int64_t words = (bytes + (int64_t)sizeof(int32_t) - 1) / (int64_t)sizeof(int32_t);
    tx_status status = TX_OK;
    int64_t first, count;
    if (model->hooks)
        memset(data, 0, (size_t)words * sizeof(int32_t));
    for (int32_t i = 0; i < model->holdings && status == TX_OK; i++) {
        const tx_param_slice *h = &model->holding[i];
        if (h->param == index && h->part == part && (count = overlap(h, at, bytes, &first)) > 0)
            status = tx_model_read_at(model, h->arena, h->address + first - h->at, (char *)data + (first - at), count);
    }
    return model->hooks ? model->hooks->complete(model, part, index, data, words, status) : status;
}
