/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings that come as variables of the environment. */
#ifndef TX_API_ENVIRONMENT_H
#define TX_API_ENVIRONMENT_H

#include "tx.h"

/* The variable's whole number of at least `least`, or `otherwise` where it is not set or empty. Anything else is
 * refused with a message that gives `meaning`, which follows the word "expected". */
tx_status tx_environment_count(const char *name, int32_t least, int32_t otherwise, const char *meaning, int32_t *count);

#endif
