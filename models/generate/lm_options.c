/* SPDX-License-Identifier: Apache-2.0
 * Sets options of opened models (tx_lm.def) by name. */
#include "api/base/needs.h"
#include "models/tx_generate.h"

#include <stddef.h>

static const tx_option rows[] = {
#define LM_OPTION(KIND, name, member, least, most, choices, help) \
    {TX_OPTION_##KIND, #name, offsetof(tx_lm_options, member), least, most, choices, help},
#include "models/tx_lm.def"
};

tx_status tx_lm_set(tx_lm_options *options, const char *name, const char *value)
{
    TX_NEEDS(options && name && value, TX_INVALID);
    tx_option_values to = {.table = {.option = rows, .count = (int32_t)(sizeof rows / sizeof rows[0])},
                           .values = options};
    const tx_option *option = tx_option_find(&to.table, name);
    if (!option) {
        tx_option_unknown(&to.table, "model", name);
        return TX_NOT_FOUND;
    }
    if (option->kind != TX_OPTION_TEXT)
        return tx_option_store(&to, "model", option, value);
    *(const char **)(void *)((char *)options + option->offset) = value;
    return TX_OK;
}
