/* SPDX-License-Identifier: Apache-2.0
 *
 * How a status is handed on. */
#ifndef TX_API_CHECK_H
#define TX_API_CHECK_H

#include "tx.h"

/* Leaves the function with the status of `call` where that is a failure. For functions that have nothing to free. */
#define TX_CHECK(call)              \
    do {                            \
        tx_status status_ = (call); \
        if (status_ != TX_OK)       \
            return status_;         \
    } while (0)

#endif
