/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefix and suffix tests, and look-up of items by name. */
#ifndef TX_MODELS_NAMES_H
#define TX_MODELS_NAMES_H

#include "tx.h"
#include "tx_json.h"

bool tx_begins_with(const char *text, const char *prefix);
bool tx_ends_with(const char *text, const char *suffix);

/* Lists the keys of an object, or of anything else nothing, with ", " between them; as many as fit. */
void tx_list_keys(const tx_json *object, char *keys, size_t room);

/* Copies a text, or NULL. The caller frees the copy. */
tx_status tx_copy_text(const char *text, char **copy);

/* A name and the index of its item. The name is not owned. */
typedef struct tx_named {
    const char *name;
    int32_t index;
} tx_named;

/* Sorts by name. Returns a name that occurs twice, or NULL. The order of equal names is unspecified. */
const char *tx_named_sort(tx_named *names, size_t count);
/* Returns the index of a name in a sorted list, or -1. */
int32_t tx_named_find(const tx_named *names, size_t count, const char *name);

#endif
