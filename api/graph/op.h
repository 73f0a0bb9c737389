/* SPDX-License-Identifier: Apache-2.0
 *
 * The op set for the engine: properties of each row of ops.def, shape inference with validation, and the operations and
 * memory traffic of a command. */
#ifndef TX_API_OP_H
#define TX_API_OP_H

#include "backends/backend.h"

/* Types of an op in mixed precision: column CAST of ops.def. */
typedef enum tx_cast_rule { TX_CAST_FULL, TX_CAST_HALF, TX_CAST_ROUND, TX_CAST_ANY, TX_CAST_STORED } tx_cast_rule;

/* Where an op is executed: the macro of its row in ops.def and column RUNS. */
typedef enum tx_op_place { TX_ON_NOTHING, TX_ON_DEVICE, TX_ON_HOST, TX_ON_HOST_LAST, TX_ON_HOST_IN_RUN } tx_op_place;

typedef struct tx_op_info {
    const char *name;
    tx_op_class op_class;
    tx_cast_rule cast;
    tx_op_place place;
    int32_t inputs_min, inputs, outputs;
    int32_t in_place; /* input whose memory output 0 may reuse, or -1 */
    uint32_t adds;    /* bit i: output i supports attrs.accumulate */
} tx_op_info;

const tx_op_info *tx_op_info_of(tx_op op);

/* Whether the host executes the op, between device programs: collectives, file and host copies. */
static inline bool tx_op_cuts(tx_op op)
{
    return tx_op_info_of(op)->place >= TX_ON_HOST;
}

/* Whether the op has no kernel: it names or renames storage. */
static inline bool tx_op_is_virtual(tx_op op)
{
    return tx_op_info_of(op)->place == TX_ON_NOTHING;
}

/* Whether output 0 is the storage of operand 0. */
static inline bool tx_op_renames(tx_op op)
{
    return tx_op_is_virtual(op) && tx_op_info_of(op)->in_place == 0;
}

/* Whether output 0 has the values of operand 0, perhaps in another type or shape. */
bool tx_op_is_same(tx_op op);

/* Whether the gradients of output 0 and of operand 0 may have 16 bits although these have 32 (TX_NARROW_GRADIENT). */
bool tx_op_narrows_gradient(tx_op op);

/* Whether the op may compute a part of the residual stream (TX_RESIDUAL). */
bool tx_op_is_residual(tx_op op);

/* Whether a shape has 1 to TX_MAX_RANK dimensions of at least 1 and its bytes fit in an int64_t. */
bool tx_shape_possible(const tx_shape *shape);

/* Validates the operands of an op and sets type and shape of all its outputs, but not their addresses. The failure
 * message names the op, the operand and the shapes. If the op has a choice (matmul, embedding, cast), out[0].dtype
 * requests a type; TX_DTYPE_COUNT requests none. Ops fill, reshape and broadcast read their shape from out[0].shape. */
tx_status tx_op_infer(tx_op op, const tx_attrs *attrs, const tx_operand in[TX_MAX_IN], tx_operand out[TX_MAX_OUT]);

/* Returns the matrix product of a MATMUL command with operands of these shapes. */
tx_gemm tx_gemm_of(const tx_attrs *attrs, const tx_shape *a, const tx_shape *b);

/* Counts floating-point operations (a multiply-add is two) and the least bytes read and written. */
void tx_op_work(const tx_command *command, double *flops, double *bytes);

#endif
