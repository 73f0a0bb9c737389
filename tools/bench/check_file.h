/* SPDX-License-Identifier: Apache-2.0
 * txcheck file: judges files and folders of models, datasets and runs. */
#ifndef TX_TOOLS_CHECK_FILE_H
#define TX_TOOLS_CHECK_FILE_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"

extern const tx_cli tx_check_file_program;
/* argv[0] is "file". Returns the status to exit with. */
int tx_check_file(int argc, char *const *argv);

/* ---- Data (check_data.c) ----------------------------------------------------------------------------------------- */

/* A text, or ids of tokens. */
tx_status tx_check_text(const char *path);
/* A .csv or .tsv file of texts with labels. */
tx_status tx_check_table(const char *path);
/* A file of JSON objects: conversations, texts, or texts with labels. */
tx_status tx_check_lines(const char *path);

#endif
