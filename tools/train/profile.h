/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that several programs print: memory by category, time by op class and direction, devices. */
#ifndef TX_TOOLS_PROFILE_H
#define TX_TOOLS_PROFILE_H

#include "models/train/run.h"

#include <stdio.h>

/* Where the time of the profiled steps went: a table by op class and direction and one by kernel, then what crossed
 * the bus, the launches and the allocations. */
tx_status tx_print_profile(FILE *to, const tx_trainer *trainer, const tx_run_summary *summary);
/* Bytes by category and their total. `counted` (may be NULL) is shown beside; the backend sees
 * activations and temporary as one block. */
void tx_print_memory(FILE *to, const tx_memory *planned, const tx_memory *counted);
tx_status tx_print_devices(FILE *to);

#endif
