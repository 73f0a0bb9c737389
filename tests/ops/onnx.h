/* SPDX-License-Identifier: Apache-2.0
 * Inside the conformance suite: one ONNX backend node case, and how it is said with TX's ops. */
#ifndef TX_TESTS_OPS_ONNX_H
#define TX_TESTS_OPS_ONNX_H

#include "models/files/safetensors.h"
#include "tests/ops/rig.h"
#include "tx_json.h"

#define TX_ONNX_TENSORS 16

typedef struct tx_onnx_tensor {
    char name[48]; /* "in0:x": role, position, name in the node */
    tx_st_dtype dtype;
    int32_t rank;
    int64_t dim[TX_ST_MAX_RANK];
    int64_t count;
    double *value; /* NULL for types that TX has no use for */
} tx_onnx_tensor;

typedef struct tx_onnx_case {
    const tx_target *target;
    const tx_json *attributes;
    int32_t tensors;
    tx_onnx_tensor tensor[TX_ONNX_TENSORS];
    bool exact;       /* nothing is computed: the result must be equal */
    int32_t compared; /* outputs that were compared */
} tx_onnx_case;

/* Runs a case of the ONNX op `op`. Returns TX_UNSUPPORTED with a reason if TX's ops cannot express it, and TX_INTERNAL
 * if the result is wrong. */
tx_status tx_onnx_run(tx_onnx_case *c, const char *op);
/* Returns whether TX has this op at all. */
bool tx_onnx_known(const char *op);

/* The tensor of that role ("in0"), or NULL. */
const tx_onnx_tensor *tx_onnx_find(const tx_onnx_case *c, const char *role);
double tx_onnx_number(const tx_onnx_case *c, const char *attribute, double otherwise);

/* ---- For the functions that say one ONNX op ------------------------------------------------------ */

/* Sets the reason why a case cannot be said; TX_UNSUPPORTED. */
tx_status tx_onnx_cannot(const char *why);
/* Input `role` if it has values; `real`: F32 only. Else NULL, and the reason is set. */
const tx_onnx_tensor *tx_onnx_operand(const tx_onnx_case *c, const char *role);
const tx_onnx_tensor *tx_onnx_real(const tx_onnx_case *c, const char *role);
/* Returns TX's type of a tensor, or TX_DTYPE_COUNT if there is none, and its shape ([1] for scalars). */
tx_dtype tx_onnx_dtype(const tx_onnx_tensor *t);
tx_shape tx_onnx_shape(const tx_onnx_tensor *t);

/* A call without operands. */
tx_call tx_onnx_begin(tx_op op);
/* Operands: of a type and shape with copied values, or an unchanged tensor. */
tx_array tx_onnx_array(tx_dtype dtype, tx_shape shape, const double *value);
tx_array tx_onnx_whole(const tx_onnx_tensor *t);
/* Runs one op on the device and sets its outputs. `onto` is the old value of output 0, for calls that add. On failure
 * the call is freed. */
tx_status tx_onnx_call(const tx_onnx_case *c, tx_call *call);
tx_status tx_onnx_call_onto(const tx_onnx_case *c, tx_call *call, const double *onto);
/* Runs the call, compares output 0 with out0, and frees. */
tx_status tx_onnx_finish(tx_onnx_case *c, tx_call *call);

/* Compares `count` values with the expected output of that role. */
tx_status tx_onnx_expect(tx_onnx_case *c, const char *role, const double *got, int64_t count);
/* The same against values that the caller has put in another order. */
tx_status tx_onnx_expect_values(tx_onnx_case *c, const char *role, const double *want, const double *got,
                                int64_t count);
/* Returns a copy of the values with the marked dimensions moved last, and the number of elements in these dimensions.
 * Returns NULL without memory. */
double *tx_onnx_move_last(const tx_onnx_tensor *t, const bool axes[TX_ST_MAX_RANK], int64_t *inner);

tx_status tx_onnx_attention(tx_onnx_case *c);
tx_status tx_onnx_softmax_loss(tx_onnx_case *c);
tx_status tx_onnx_momentum(tx_onnx_case *c);
tx_status tx_onnx_adam(tx_onnx_case *c);

#endif
