/* SPDX-License-Identifier: Apache-2.0
 *
 * txtrain's command line, for who else reads one. */
#ifndef TX_TOOLS_TRAIN_ARGUMENTS_H
#define TX_TOOLS_TRAIN_ARGUMENTS_H

#include "tools/cli/program.h"

/* Options, other spellings and texts; the values are those of a tx_job_settings. */
tx_cli tx_train_arguments(void);

#endif
