/* SPDX-License-Identifier: Apache-2.0
 *
 * What a public function must be given. */
#ifndef TX_NEEDS_H
#define TX_NEEDS_H

#include "tx_base.h"

/* Returns `otherwise`, with a message that names the function and the arguments, unless these are there. */
#define TX_NEEDS(arguments, otherwise)                                                      \
    do {                                                                                    \
        if (!(arguments)) {                                                                 \
            tx_fail(TX_INVALID, "%s: an argument is NULL; it needs " #arguments, __func__); \
            return otherwise;                                                               \
        }                                                                                   \
    } while (0)

#endif
