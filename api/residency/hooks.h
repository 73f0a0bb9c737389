/* SPDX-License-Identifier: Apache-2.0
 * Functions of copies.c for the table of hooks (tx_residency_hooks) in places.c. */
#ifndef TX_API_RESIDENCY_HOOKS_H
#define TX_API_RESIDENCY_HOOKS_H

#include "api/model/model.h"

tx_status tx_residency_prepare(tx_model *model);
void tx_residency_cast(tx_graph *graph, int32_t number, const tx_copy_range *r);
tx_status tx_residency_renew(const tx_plan *plan);

#endif
