/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the memory of a run by category, and the live tensors at the peak of a training step. */
#ifndef TX_TOOLS_MEMORY_H
#define TX_TOOLS_MEMORY_H

#include "tx_train.h"

#include <stdio.h>

/* Prints planned bytes and bytes per parameter by category, and their totals. If `counted` is not NULL, it adds a
 * column with the bytes that the backend counted. The backend counts activations and temporaries as one block. */
void tx_print_memory(FILE *to, const tx_memory *planned, const tx_memory *counted, int64_t params);
/* Prints the node at which the most activation and temporary bytes are live, and the largest live tensors. */
tx_status tx_print_peak(FILE *to, const tx_plan *plan);

#endif
