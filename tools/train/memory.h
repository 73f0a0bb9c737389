/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a run: by category, and by what is alive while a training step goes on. */
#ifndef TX_TOOLS_MEMORY_H
#define TX_TOOLS_MEMORY_H

#include "tx_train.h"

#include <stdio.h>

/* Bytes by category, bytes a parameter, and their total. `counted` (may be NULL) is shown beside; the backend sees
 * activations and temporary as one block. */
void tx_print_memory(FILE *to, const tx_memory *planned, const tx_memory *counted, int64_t params);
/* When most is alive of what the plan places by lifetimes, and the largest of it. */
tx_status tx_print_peak(FILE *to, const tx_plan *plan);

#endif
