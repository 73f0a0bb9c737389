/* SPDX-License-Identifier: Apache-2.0
 * An opened device: the definition of tx_engine. */
#ifndef TX_API_ENGINE_H
#define TX_API_ENGINE_H

#include "backends/backend.h"

struct tx_engine {
    const tx_backend *backend;
    tx_context *context;
    tx_device_info device;
    bool profile;
    int32_t threads;  /* host threads that this engine may use */
    char reason[512]; /* see tx_engine_reason */
};

/* Finds the backend of device `index` (see tx_device_get) and the device's index in that backend. */
tx_status tx_device_locate(int32_t index, const tx_backend **backend, int32_t *local);

#endif
