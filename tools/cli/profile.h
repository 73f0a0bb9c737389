/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that several programs have: time by op class and direction, devices. */
#ifndef TX_TOOLS_PROFILE_H
#define TX_TOOLS_PROFILE_H

#include "api/base/json.h"
#include "models/train/run.h"

#include <stdio.h>

/* Where the time of the profiled steps went: a table by op class and direction and one by kernel, then what crossed
 * the bus, the launches and the allocations. */
tx_status tx_print_profile(FILE *to, const tx_trainer *trainer, const tx_run_summary *summary);
/* The same of a trainer that was profiled: "steps"; "seconds" a step in operations; "classes" and "kernels", lists with
 * what each is, operations, seconds a step, share, gflops, gbytes. The caller frees it. */
tx_status tx_profile_json(const tx_trainer *trainer, tx_json **profile);
tx_status tx_print_devices(FILE *to);

#endif
