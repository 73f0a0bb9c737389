/* SPDX-License-Identifier: Apache-2.0
 * Tables generated from ops.def. */
#include "api/graph/op.h"

static const tx_op_info table[TX_OP_COUNT] = {
#define ROW(RUNS, NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, grad, in, out) \
    [TX_OP_##NAME] = {#name, TX_##CLASS, TX_CAST_##CAST, TX_ON_##RUNS, min, n_in, n_out, in_place, adds},
#define TX_OP(...) ROW(DEVICE, __VA_ARGS__)
#define TX_VIRTUAL(...) ROW(NOTHING, __VA_ARGS__)
#define TX_HOST(RUNS, host, ...) ROW(RUNS, __VA_ARGS__)
#include "ops.def"
};

#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, grad, in, out)                   \
    _Static_assert(n_in == 0 || n_in == sizeof(struct tx_in_##name), #name ": as many inputs as names of them"); \
    _Static_assert(n_out == 0 || n_out == sizeof(struct tx_out_##name), #name ": as many outputs as names");
#include "ops.def"

const tx_op_info *tx_op_info_of(tx_op op)
{
    return &table[op];
}

bool tx_op_is_same(tx_op op)
{
    static const bool same[TX_OP_COUNT] = {
#define TX_SAME(NAME) [TX_OP_##NAME] = true,
#include "ops.def"
    };
    return same[op];
}

bool tx_op_narrows_gradient(tx_op op)
{
    static const bool narrows[TX_OP_COUNT] = {
#define TX_NARROW_GRADIENT(NAME) [TX_OP_##NAME] = true,
#include "ops.def"
    };
    return narrows[op];
}

bool tx_op_is_residual(tx_op op)
{
    static const bool residual[TX_OP_COUNT] = {
#define TX_RESIDUAL(NAME) [TX_OP_##NAME] = true,
#include "ops.def"
    };
    return residual[op];
}

tx_gemm tx_gemm_of(const tx_attrs *attrs, const tx_shape *a, const tx_shape *b)
{
    int64_t a_last = tx_shape_last(a), b_last = tx_shape_last(b);
    int64_t a_rows = attrs->flat || a->rank < 2 ? tx_shape_rows(a) : a->dim[a->rank - 2];
    int64_t b_rows = attrs->flat || b->rank < 2 ? tx_shape_rows(b) : b->dim[b->rank - 2];
    tx_gemm g = {
        .batch = 1,
        .m = attrs->trans_a ? a_last : a_rows,
        .k = attrs->trans_a ? a_rows : a_last,
        .n = attrs->trans_b ? b_rows : b_last,
        .lda = a_last,
        .ldb = b_last,
    };
    g.ldc = g.n;
    if (!attrs->flat) {
        int64_t a_batch = tx_shape_count(a) / (a_rows * a_last), b_batch = tx_shape_count(b) / (b_rows * b_last);
        g.batch = tx_max(a_batch, b_batch);
        g.stride_a = a_batch > 1 ? a_rows * a_last : 0;
        g.stride_b = b_batch > 1 ? b_rows * b_last : 0;
        g.stride_c = g.batch > 1 ? g.m * g.n : 0;
    }
    return g;
}
