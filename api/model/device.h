/* SPDX-License-Identifier: Apache-2.0
 * From the number of a device to its backend. */
#ifndef TX_API_DEVICE_H
#define TX_API_DEVICE_H

#include "backends/backend.h"

/* The backend of device `index` (as in tx_device_get) and its number there. */
tx_status tx_device_locate(int32_t index, const tx_backend **backend, int32_t *local);

#endif
