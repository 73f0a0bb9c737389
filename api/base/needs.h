/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the arguments of public functions. */
#ifndef TX_NEEDS_H
#define TX_NEEDS_H

#include "tx_base.h"

/* Returns `otherwise` unless `arguments` is true. The message names the function and the arguments. */
#define TX_NEEDS(arguments, otherwise)                                                      \
    do {                                                                                    \
        if (!(arguments)) {                                                                 \
            tx_fail(TX_INVALID, "%s: an argument is NULL; it needs " #arguments, __func__); \
            return otherwise;                                                               \
        }                                                                                   \
    } while (0)

#endif
