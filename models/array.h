/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow. */
#ifndef TX_MODELS_ARRAY_H
#define TX_MODELS_ARRAY_H

#include "tx.h"

/* Makes room for `count` elements of `size` bytes. `array` is the address of the pointer to the first one, `*room` how
 * many there is room for. TX_MEMORY says what they are: `what`, in the plural. */
tx_status tx_array_reserve(void *array, size_t *room, size_t count, size_t size, const char *what);

#endif
