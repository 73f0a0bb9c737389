/* SPDX-License-Identifier: Apache-2.0
 *
 * txtrain's command line, for who else reads one. */
#ifndef TX_TOOLS_TRAIN_ARGUMENTS_H
#define TX_TOOLS_TRAIN_ARGUMENTS_H

#include "tools/cli/program.h"

/* Names and texts of the program, with the table of tx_job_options. */
tx_cli tx_train_arguments(const tx_option_table *table);

#endif
