/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL drivers that no .icd file names: containers and programs that bring their own loader lack the files, though
 * the drivers are where their vendors put them. */
#ifndef TX_API_DRIVERS_H
#define TX_API_DRIVERS_H

#include "tx.h"

/* Calls `load`, which makes OpenCL's loader look for drivers. Where the loader would find none, for no variable names
 * any (OCL_ICD_VENDORS, OCL_ICD_FILENAMES, OPENCL_VENDOR_PATH) and /etc/OpenCL/vendors has no .icd file, a temporary
 * folder with such files for NVIDIA's, AMD's and Intel's libraries is shown to it. To be called before other threads
 * read or change the environment. `root` stands before all paths that are looked at; "" nothing. */
void tx_load_drivers(const char *root, void (*load)(void));

#endif
