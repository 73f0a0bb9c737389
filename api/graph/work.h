/* SPDX-License-Identifier: Apache-2.0
 * Rules that count the operations of a command (api/work.def). */
#ifndef TX_API_WORK_H
#define TX_API_WORK_H

#include "api/graph/op.h"

#define TX_FLOPS(NAME, function) double tx_flops_##function(const tx_command *c);
#include "work.def"

#endif
