/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions used by rows of optimizers.def. */
#ifndef TX_API_OPTIMIZERS_H
#define TX_API_OPTIMIZERS_H

#include "api/model/optimizer.h"

/* Whether AdamW-anyprecision has Kahan's compensation. */
bool tx_optimizer_with_kahan(const tx_optimizer_options *options);

/* Whether a parameter has the optimizer's first form. */
bool tx_optimizer_is_matrix(const tx_param_spec *spec);
bool tx_optimizer_is_hidden_matrix(const tx_param_spec *spec); /* a matrix that is not an embedding table */
/* Whether bitsandbytes (0.50) would store the states in 8 bits: not for tables, and only if all tensors have 4096 or
 * more elements. */
bool tx_optimizer_is_large(const tx_param_spec *spec);

tx_emit_update tx_emit_schedule_free; /* the update, or the exchange of weights and average in their plan */
tx_emit_update tx_emit_muon;          /* momentum, Newton-Schulz steps, update: nine or more nodes a matrix */
tx_emit_update tx_emit_apollo;        /* projection, product, scale of the gradient, update: four nodes a matrix */

#endif
