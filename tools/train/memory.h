/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a run: by category, and by what is alive while a training step goes on. */
#ifndef TX_TOOLS_MEMORY_H
#define TX_TOOLS_MEMORY_H

#include "models/job/job.h"

#include <stdio.h>

/* The text of tools/train/memory.html, a NUL after it; @DATA@ stands for the memory. */
extern const unsigned char tx_memory_page[];

/* Bytes by category, bytes a parameter, and their total. `counted` (may be NULL) is shown beside; the backend sees
 * activations and temporary as one block. */
void tx_print_memory(FILE *to, const tx_memory *planned, const tx_memory *counted, int64_t params);
/* When most is alive of what the plan places by lifetimes, and the largest of it. */
tx_status tx_print_peak(FILE *to, const tx_plan *plan);
/* Writes the memory of the job's run, whose plans have been made: a page, or, where the path ends in .json, the data
 * that the page shows. */
tx_status tx_memory_plot(const tx_job *job, const char *path);

#endif
