/* SPDX-License-Identifier: Apache-2.0
 *
 * Options: the parts of tx_options.h that only the library uses. */
#ifndef TX_MODELS_OPTION_H
#define TX_MODELS_OPTION_H

#include "models/tx_options.h"

static inline uint32_t tx_option_traits(const tx_option_table *table, const tx_option *option)
{
    return table->traits ? table->traits[option - table->option] : 0;
}

/* A mark for each option of a table. */
typedef struct tx_option_marks {
    bool mark[TX_OPTIONS_MOST];
} tx_option_marks;

/* The option whose value is at an offset in the struct; never NULL for the offset of a member that an option sets. */
const tx_option *tx_option_at(const tx_option_table *table, size_t offset);
/* Where its value is from. */
tx_option_source tx_option_from(const tx_option_values *values, size_t offset);
/* tx_option_set for the option whose value is at an offset. */
tx_status tx_option_set_at(tx_option_values *to, size_t offset, const char *value);
/* Sets one option from a file of options; `file` starts the messages. */
tx_status tx_option_read_member(tx_option_values *to, const char *file, const char *name, const tx_json *value);
/* tx_option_read for options that were not given, and are not given by this. Those marked in `left_out` stay as they
 * are. */
tx_status tx_option_inherit(tx_option_values *to, const char *path, const tx_option_marks *left_out);
/* Options with their values, as a file of options holds them: those that have one of the traits `with` (0: all of them)
 * and none of the traits `without`. NULL if out of memory. */
tx_json *tx_option_json(const tx_option_values *from, uint32_t with, uint32_t without);
/* Whether a value asks for the same as one of "false|0"; "*": any does; NULL: none. */
bool tx_option_list_has(const char *choices, const char *value);
/* The others after the first of "linear|cosine", or NULL; the place of a word among them in upper or lower case, or -1.
 */
const char *tx_choice_next(const char *choices);
int tx_choice_find(const char *choices, const char *word, size_t length);

#endif
