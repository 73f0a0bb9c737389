/* SPDX-License-Identifier: Apache-2.0
 *
 * Names: how they begin and end, and things found by them. */
#ifndef TX_MODELS_NAMES_H
#define TX_MODELS_NAMES_H

#include "tx.h"

bool tx_begins_with(const char *text, const char *prefix);
bool tx_ends_with(const char *text, const char *suffix);

/* Copies a text, or NULL. The caller frees the copy. */
tx_status tx_copy_text(const char *text, char **copy);

/* The number of something by its name, which it does not own. */
typedef struct tx_named {
    const char *name;
    int32_t index;
} tx_named;

/* Sorts by name. Returns a name that is there twice, or NULL; which of equal names comes first is not said. */
const char *tx_named_sort(tx_named *names, size_t count);
/* Number of a name in a sorted list, or -1. */
int32_t tx_named_find(const tx_named *names, size_t count, const char *name);

#endif
