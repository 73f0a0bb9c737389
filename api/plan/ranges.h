/* SPDX-License-Identifier: Apache-2.0
 *
 * What the numbers of a watched plan range over (tx_plan_watch). */
#ifndef TX_API_RANGES_H
#define TX_API_RANGES_H

#include "api/plan/plan.h"

/* Runs commands first .. end - 1 of a plan that is watched, one by one. */
tx_status tx_ranges_run(tx_plan *plan, int32_t first, int32_t end);
void tx_ranges_free(tx_ranges *ranges);

#endif
