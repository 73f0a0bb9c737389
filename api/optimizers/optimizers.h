/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that rows of optimizers.def name. */
#ifndef TX_API_OPTIMIZERS_H
#define TX_API_OPTIMIZERS_H

#include "api/model/optimizer.h"

/* True if AdamW-anyprecision keeps Kahan's compensation. */
bool tx_optimizer_with_kahan(const tx_optimizer_options *options);

/* Which parameters have an optimizer's first form. */
bool tx_optimizer_is_matrix(const tx_param_spec *spec);
bool tx_optimizer_is_hidden_matrix(const tx_param_spec *spec); /* a matrix that is no embedding table */
/* True for the parameters that bitsandbytes (0.50) keeps in 8 bits: no tables, and all tensors of 4096 or more
 * elements. */
bool tx_optimizer_is_large(const tx_param_spec *spec);

tx_emit_update tx_emit_muon; /* momentum, Newton-Schulz steps, update: nine and more nodes a matrix */

#endif
