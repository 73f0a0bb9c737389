/* SPDX-License-Identifier: Apache-2.0
 * Names. */
#include "models/names.h"

#include <stdlib.h>
#include <string.h>

bool tx_begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool tx_ends_with(const char *text, const char *suffix)
{
    const size_t length = strlen(text), of_suffix = strlen(suffix);
    return length >= of_suffix && strcmp(text + length - of_suffix, suffix) == 0;
}

void tx_list_keys(const tx_json *object, char *keys, size_t room)
{
    *keys = '\0';
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i))
        tx_list_add(keys, room, ", ", "%s", tx_json_key(i));
}

tx_status tx_copy_text(const char *text, char **copy)
{
    *copy = text ? strdup(text) : NULL;
    return *copy || !text ? TX_OK : tx_fail(TX_MEMORY, "no memory for a text");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tx_named *)a)->name, ((const tx_named *)b)->name);
}

const char *tx_named_sort(tx_named *names, size_t count)
{
    if (count > 1)
        qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count; i++)
        if (by_name(&names[i - 1], &names[i]) == 0)
            return names[i].name;
    return NULL;
}

int32_t tx_named_find(const tx_named *names, size_t count, const char *name)
{
    const tx_named *found = count ? bsearch(&(tx_named){.name = name}, names, count, sizeof *names, by_name) : NULL;
    return found ? found->index : -1;
}
