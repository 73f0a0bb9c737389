/* SPDX-License-Identifier: Apache-2.0
 *
 * The op set as the engine sees it: facts of each row of ops.def, shape inference with validation, and the
 * arithmetic and traffic of a command. */
#ifndef TX_API_OP_H
#define TX_API_OP_H

#include "backends/backend.h"

/* What mixed precision makes of an op: column CAST of ops.def. */
typedef enum tx_cast_rule { TX_CAST_FULL, TX_CAST_HALF, TX_CAST_ROUND, TX_CAST_ANY, TX_CAST_STORED } tx_cast_rule;

/* What an op runs on: the kind of its row in ops.def, and column RUNS. */
typedef enum tx_op_place { TX_ON_NOTHING, TX_ON_DEVICE, TX_ON_HOST, TX_ON_HOST_LAST, TX_ON_HOST_IN_RUN } tx_op_place;

typedef struct tx_op_info {
    const char *name;
    tx_op_class op_class;
    tx_cast_rule cast;
    tx_op_place place;
    int32_t inputs_min, inputs, outputs;
    int32_t in_place; /* input that output 0 may lie on, or -1 */
    uint32_t adds;    /* bit i: output i takes attrs.accumulate */
} tx_op_info;

const tx_op_info *tx_op_info_of(tx_op op);

/* Whether the executor does it, between what the device is given. */
static inline bool tx_op_cuts(tx_op op)
{
    return tx_op_info_of(op)->place >= TX_ON_HOST;
}

/* Whether a shape has 1 to TX_MAX_RANK dimensions of at least 1, and no more elements than can be counted in bytes. */
bool tx_shape_possible(const tx_shape *shape);

/* Validates the operands of an op and sets dtype and shape of all its outputs (where they lie is left
 * alone). The failure message names the op, the operand and the shapes. out[0].dtype on entry, when not
 * TX_DTYPE_COUNT, asks for that type where the op has a choice (matmul, embedding, cast); out[0].shape is
 * read by fill, reshape and broadcast, which take their shape from there. */
tx_status tx_op_infer(tx_op op, const tx_attrs *attrs, const tx_operand in[TX_MAX_IN], tx_operand out[TX_MAX_OUT]);

/* The product of a MATMUL command with operands of these shapes. */
tx_gemm tx_gemm_of(const tx_attrs *attrs, const tx_shape *a, const tx_shape *b);

/* Floating-point operations (a multiply-add is two), and bytes that have to be read and written at least. */
void tx_op_work(const tx_command *command, double *flops, double *bytes);

#endif
