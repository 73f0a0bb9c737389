/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of options that only the library uses; tx_options.h has the public ones. */
#ifndef TX_MODELS_OPTION_H
#define TX_MODELS_OPTION_H

#include "models/tx_options.h"
#include "tx_json.h"

static inline uint32_t tx_option_traits(const tx_option_table *table, const tx_option *option)
{
    return table->traits ? table->traits[option - table->option] : 0;
}

/* One mark for each option of a table. */
typedef struct tx_option_marks {
    bool mark[TX_OPTIONS_MOST];
} tx_option_marks;

/* The option whose value is at this offset of the struct. Never NULL for the offset of an option's member. */
const tx_option *tx_option_at(const tx_option_table *table, size_t offset);
/* The source of the value at this offset. */
tx_option_source tx_option_from(const tx_option_values *values, size_t offset);
/* tx_option_set for the option whose value is at this offset. */
tx_status tx_option_set_at(tx_option_values *to, size_t offset, const char *value);
/* Sets one option from a file of options. Messages begin with `file`. */
tx_status tx_option_read_member(tx_option_values *to, const char *file, const char *name, const tx_json *value);
/* tx_option_read for the options that were not given and are not marked in `left_out`. They still count as not given
 * afterwards. */
tx_status tx_option_inherit(tx_option_values *to, const char *path, const tx_option_marks *left_out);
/* The values of options as a file of options holds them. Included are options with one of the traits `with` and none of
 * the traits `without`; pass 0 as `with` for all traits. NULL if out of memory. */
tx_json *tx_option_json(const tx_option_values *from, uint32_t with, uint32_t without);
/* Whether a value means the same as one of the words of "false|0". "*" matches any value, NULL none. */
bool tx_option_list_has(const char *choices, const char *value);
/* The index of a word among the choices, regardless of case, or -1. */
int tx_choice_find(const char *choices, const char *word, size_t length);

/* ---- yaml.c ---------------------------------------------------------------------------------- */

/* Reads a file of at most `limit` bytes that holds one document. ${NAME} in a value becomes the value of that
 * environment variable. Plain words become null (null, ~, nothing), truths (true, false), numbers, or strings; yes, no,
 * on and off stay strings. TX_FORMAT names the line of a fault, of a key that is there twice, and of a variable that is
 * not set; anchors, aliases and tags are not supported. The caller frees `*json`. */
tx_status tx_yaml_read(const char *path, int64_t limit, tx_json **json);

#endif
