/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds OpenCL drivers without .icd files. Containers, and programs with their own loader, lack these files although
 * the drivers are installed in the vendors' folders. */
#ifndef TX_API_DRIVERS_H
#define TX_API_DRIVERS_H

#include "tx.h"

/* Calls `load`, which makes the OpenCL loader search for drivers. The loader finds none if no variable
 * (OCL_ICD_VENDORS, OCL_ICD_FILENAMES, OPENCL_VENDOR_PATH) is set and /etc/OpenCL/vendors has no .icd file. In this
 * case a temporary folder with .icd files for NVIDIA's, AMD's and Intel's libraries is passed to it. Call this before
 * other threads read or change the environment. `root` is a prefix for all paths, for tests; otherwise "". */
void tx_load_drivers(const char *root, void (*load)(void));

/* Lists the drivers by `list` in a child process first, because they may crash or hang then. Returns TX_OK if this
 * process may list them. Only the first call starts a child; later calls return its result. */
tx_status tx_rehearse_drivers(tx_status (*list)(const void *));
/* The message of drivers that failed the rehearsal, or NULL. */
const char *tx_driver_failure(void);

#endif
