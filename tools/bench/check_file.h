/* SPDX-License-Identifier: Apache-2.0
 * txcheck file: checks files and folders of models, datasets and runs. */
#ifndef TX_TOOLS_CHECK_FILE_H
#define TX_TOOLS_CHECK_FILE_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"

extern const tx_cli tx_check_file_program;
/* Runs txcheck file. argv[0] is "file". Returns the exit status. */
int tx_check_file(int argc, char *const *argv);

/* ---- Data (check_data.c) ----------------------------------------------------------------------------------------- */

/* Checks a text, or a file of token ids. */
tx_status tx_check_text(const char *path);
/* Checks a .csv or .tsv file of labelled texts. */
tx_status tx_check_table(const char *path);
/* Checks a file of JSON objects: conversations, texts or labelled texts. */
tx_status tx_check_lines(const char *path);
/* Reads every row of a .parquet or .arrow file. */
tx_status tx_check_rows(const char *path);

/* ---- Models (check_abilities.c) ---------------------------------------------------------------------------------- */

/* Writes what TX can do with the model in a folder, as ": ..."; or nothing if the path is no such folder. */
void tx_check_abilities(const char *path, char *text, size_t room);

#endif
