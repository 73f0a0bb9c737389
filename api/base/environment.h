/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings from environment variables. */
#ifndef TX_API_ENVIRONMENT_H
#define TX_API_ENVIRONMENT_H

#include "tx.h"

/* Reads a whole number of at least `least` from a variable, or `otherwise` if it is unset or empty. Anything else fails
 * with a message that contains "expected" and `meaning`. */
tx_status tx_environment_count(const char *name, int32_t least, int32_t otherwise, const char *meaning, int32_t *count);

#endif
