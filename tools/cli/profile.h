/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that several programs print: time by op class and direction, and devices. */
#ifndef TX_TOOLS_PROFILE_H
#define TX_TOOLS_PROFILE_H

#include "tx.h"
#include "tx_json.h"

#include <stdio.h>

/* Returns the profiled plan `index` and its runs, or NULL after the last plan (see tx_job_plan). Plan 0 runs once a
 * step. */
typedef const tx_plan *tx_profiled(const void *context, int32_t index, int64_t *runs);

/* Prints the time of the profiled steps by op class and direction, then by kernel. A last line has the bytes copied
 * between host and device, the kernel launches and the allocations of `steps` steps. */
tx_status tx_print_profile(FILE *to, tx_profiled *plan, const void *context, int64_t steps, const tx_traffic *traffic);
/* The same as JSON, without traffic. "seconds" is the time of all operations of a step; "classes" and "kernels" are
 * lists with the name, operations, seconds a step, share, gflops and gbytes of each. The caller frees the JSON. */
tx_status tx_profile_json(tx_profiled *plan, const void *context, tx_json **profile);
tx_status tx_print_devices(FILE *to);

#endif
