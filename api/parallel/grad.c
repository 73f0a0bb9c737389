/* SPDX-License-Identifier: Apache-2.0
 * Gradient rules of chunks of positions that ranks gather and scatter. */
#include "api/passes/grad.h"

void tx_grad_part_scatter(const tx_grad *c)
{
    c->din[0] = tx_part_gather(c->dout[0]);
}

void tx_grad_part_gather(const tx_grad *c)
{
    c->din[0] = tx_part_scatter(tx_grad_as(c->dout[0], TX_F32));
}
