/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments that the kernels of optimizer updates share. The outputs of an update have the addresses of its inputs.
 */
#ifndef TX_OPENCL_UPDATE_H
#define TX_OPENCL_UPDATE_H

#include "backends/opencl/ops/ops.h"

/* Begins kernel(in..., n, ...) over a range of the flat arenas. New weights are also stored as a 16-bit copy if the
 * command has one. */
void tx_cl_update(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel);

tx_status tx_cl_arg_update(tx_cl_builder *b, const tx_command *c); /* passes the first arguments: in..., n */
void tx_cl_arg_adam(tx_cl_builder *b, const tx_attrs *a);          /* passes AdamW's numbers, which follow them */
tx_status tx_cl_arg_update_end(tx_cl_builder *b);                  /* passes the last arguments: control, result */

#endif
