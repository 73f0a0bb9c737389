/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs that the kernel knows, and the remedy if OpenCL does not list them. */
#ifndef TX_API_GPUS_H
#define TX_API_GPUS_H

#include "tx.h"

/* Returns true if /dev has a file of a GPU. Programs need not load OpenCL drivers otherwise. `root` is a prefix for all
 * paths, for tests; otherwise "". */
bool tx_gpus_seen(const char *root);

/* Writes why OpenCL lists no GPU and the remedy, for a message: there is none, the user may not open its file, or it
 * has no driver. */
void tx_gpus_missing(const char *root, char *text, size_t size);

#endif
