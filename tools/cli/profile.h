/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that several programs have: time by op class and direction, devices. */
#ifndef TX_TOOLS_PROFILE_H
#define TX_TOOLS_PROFILE_H

#include "tx.h"
#include "tx_json.h"

#include <stdio.h>

/* The plans that were profiled, as tx_job_plan has them: plan 0 runs once a step; NULL ends them. */
typedef const tx_plan *tx_profiled(const void *context, int32_t index, int64_t *runs);

/* Where the time of the profiled steps went: a table by op class and direction and one by kernel, then the bytes that
 * crossed the bus, the launches and the allocations of `steps` steps. */
tx_status tx_print_profile(FILE *to, tx_profiled *plan, const void *context, int64_t steps, const tx_traffic *traffic);
/* The same as JSON, without traffic: "steps"; "seconds" a step in operations; "classes" and "kernels", lists with the
 * name, operations, seconds a step, share, gflops and gbytes of each. The caller frees it. */
tx_status tx_profile_json(tx_profiled *plan, const void *context, tx_json **profile);
tx_status tx_print_devices(FILE *to);

#endif
