/* SPDX-License-Identifier: Apache-2.0
 * Rules that count the operations and the memory traffic of a command (rows TX_FLOPS and TX_BYTES of ops.def). */
#ifndef TX_API_WORK_H
#define TX_API_WORK_H

#include "api/graph/op.h"

#define TX_FLOPS(NAME, rule) double tx_flops_##rule(const tx_command *c);
#define TX_BYTES(NAME, rule) double tx_bytes_##rule(const tx_command *c);
#include "ops.def"

/* Returns the bytes that a command reads and writes if it reads each operand once. */
double tx_bytes_of(const tx_command *c);
double tx_head_size(const tx_command *c, const tx_shape *qkv);

#endif
