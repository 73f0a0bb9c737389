/* SPDX-License-Identifier: Apache-2.0
 * An opened device. */
#ifndef TX_API_ENGINE_H
#define TX_API_ENGINE_H

#include "backends/backend.h"

struct tx_engine {
    const tx_backend *backend;
    tx_context *context;
    tx_device_info device;
    bool profile;
    int32_t threads; /* of the host, that this engine may use */
};

/* The backend of device `index` (as in tx_device_get) and its number there. */
tx_status tx_device_locate(int32_t index, const tx_backend **backend, int32_t *local);

#endif
