/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command line and a file of options share: names, values, and where they go. */
#ifndef TX_TOOLS_OPTION_VALUE_H
#define TX_TOOLS_OPTION_VALUE_H

#include "api/base/json.h"
#include "tools/cli/options.h"

/* Longest name of an option. */
#define TX_OPTION_NAME 63

typedef struct tx_option_source {
    const tx_cli *program;
    const char *file; /* of the options being read; NULL: the command line */
    char *values;
} tx_option_source;

/* Where an option stands, for "%s%s%s". */
#define TX_OPTION_PLACE(p, name) (p)->file ? (p)->file : "", (p)->file ? ": " : (name)[1] ? "--" : "-", name

/* ---- Names ------------------------------------------------------------------------------------- */

/* Copies the name in "some-name" or "some-name=value", with underscores; false when too long. */
bool tx_option_spell(const char *argument, char name[TX_OPTION_NAME + 1]);
/* Makes `candidate` the nearest to `name` where it is nearer than `least`. */
void tx_option_compare(const char *name, const char *candidate, size_t *least, const char **nearest);
const tx_option *tx_option_find(const tx_cli *program, const char *name);
const tx_foreign *tx_option_find_foreign(const tx_cli *program, const char *name);
/* Complains of a name that no table has, and says which is the nearest. */
int tx_option_unknown(const tx_option_source *p, const char *name);

/* ---- Values, which return TX_GO_ON or the status to exit with ------------------------------------- */

/* Takes over a block or a file that values point to, so that it lives as long as the process; false when out of memory.
 */
bool tx_option_keep(void *block, tx_json *json);
/* 1 and 0 for the words that transformers takes for true and false, -1 for others. */
int tx_option_truth(const char *word);
/* Reads the value's text and puts it in its place. */
int tx_option_store(const tx_option_source *p, const tx_option *option, const char *value);
/* Adds a word to the tx_words at `at`. */
int tx_option_add_word(const tx_option_source *p, const char *word, char *at);
/* An option of others: accepted where its value asks for what TX does. `value` is NULL where none was given. */
int tx_option_judge_foreign(const tx_option_source *p, const tx_foreign *foreign, const char *value);

/* ---- A file of options ------------------------------------------------------------------------------ */

/* Reads the JSON file at `path` into the values of `line`. */
int tx_option_read_file(const tx_option_source *line, const char *path);

#endif
