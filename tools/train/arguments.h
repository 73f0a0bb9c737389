/* SPDX-License-Identifier: Apache-2.0
 *
 * txtrain's command line, for txtrain and for programs that start it. */
#ifndef TX_TOOLS_TRAIN_ARGUMENTS_H
#define TX_TOOLS_TRAIN_ARGUMENTS_H

#include "tools/cli/program.h"

/* Returns the program's description with the option table of a job (tx_job_options). */
tx_cli tx_train_arguments(const tx_option_table *table);

#endif
