/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic and least traffic of a command, by the rules of its op. */
#include "api/graph/work.h"

static double (*const counts[TX_OP_COUNT])(const tx_command *) = {
#define TX_FLOPS(NAME, rule) [TX_OP_##NAME] = tx_flops_##rule,
#include "ops.def"
};

static double flops_of(const tx_command *c)
{
    if (counts[c->op])
        return counts[c->op](c);
    int64_t count = tx_present(&c->out[0]) ? tx_operand_count(&c->out[0]) : 0;
    if (tx_present(&c->in[0]) && tx_operand_count(&c->in[0]) > count)
        count = tx_operand_count(&c->in[0]);
    return (double)count;
}

static double (*const traffic[TX_OP_COUNT])(const tx_command *) = {
#define TX_BYTES(NAME, rule) [TX_OP_##NAME] = tx_bytes_##rule,
#include "ops.def"
};

void tx_op_work(const tx_command *command, double *flops, double *bytes)
{
    *flops = flops_of(command);
    *bytes = traffic[command->op] ? traffic[command->op](command) : tx_bytes_of(command);
}
