/* SPDX-License-Identifier: Apache-2.0
 * ONNX ops expressed by TX's ops. Operands may be reordered, padded or given another shape here; the device does all
 * arithmetic. Ops that cannot be expressed return TX_UNSUPPORTED with the reason. */
#include "tests/ops/onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Help ----------------------------------------------------------------------------------------- */

tx_status tx_onnx_cannot(const char *why)
{
    return tx_fail(TX_UNSUPPORTED, "%s", why);
}

/* Input `role` if it is of a type that TX has and not empty; else the reason is set. */
const tx_onnx_tensor *tx_onnx_operand(const tx_onnx_case *c, const char *role)
{
    const tx_onnx_tensor *t = tx_onnx_find(c, role);
    if (t && t->count > 0 && t->value)
        return t;
    tx_fail(TX_UNSUPPORTED, "%s",
            !t              ? "an operand is absent"
            : t->count == 0 ? "empty tensors"
                            : "types that TX does not have");
    return NULL;
}

/* The same, F32 only. */
const tx_onnx_tensor *tx_onnx_real(const tx_onnx_case *c, const char *role)
{
    const tx_onnx_tensor *t = tx_onnx_operand(c, role);
    if (t && t->dtype != TX_ST_F32) {
        tx_onnx_cannot("types that TX's op does not take");
        return NULL;
    }
    return t;
}

tx_shape tx_onnx_shape(const tx_onnx_tensor *t)
{
    tx_shape s = {.rank = t->rank > TX_MAX_RANK || t->rank == 0 ? 1 : t->rank, .dim = {t->count}};
    for (int32_t i = 0; t->rank <= TX_MAX_RANK && i < t->rank; i++)
        s.dim[i] = t->dim[i];
    return s;
}

tx_call tx_onnx_begin(tx_op op)
{
    tx_call call = {.op = op, .attrs = {.control = -1, .alpha = 1.0f}};
    call.out[0].dtype = TX_DTYPE_COUNT;
    return call;
}

tx_array tx_onnx_whole(const tx_onnx_tensor *t)
{
    return tx_onnx_array(tx_onnx_dtype(t), tx_onnx_shape(t), t->value);
}

static tx_status finish_onto(tx_onnx_case *c, tx_call *call, const double *onto)
{
    tx_status status = tx_onnx_call_onto(c, call, onto);
    if (status)
        return status;
    status = tx_onnx_expect(c, "out0", call->out[0].value, call->out[0].count);
    tx_call_free(call);
    return status;
}

tx_status tx_onnx_finish(tx_onnx_case *c, tx_call *call)
{
    return finish_onto(c, call, NULL);
}

/* ---- Element-wise --------------------------------------------------------------------------------- */

static tx_status unary(tx_onnx_case *c, tx_op op, bool exact)
{
    const tx_onnx_tensor *x = tx_onnx_real(c, "in0");
    if (!x)
        return TX_UNSUPPORTED;
    tx_call call = tx_onnx_begin(op);
    call.attrs.exact = exact;
    call.in[0] = tx_onnx_whole(x);
    return tx_onnx_finish(c, &call);
}

static tx_status run_gelu(tx_onnx_case *c)
{
    const char *form = "none";
    if (tx_json_has(c->attributes, "approximate") && tx_json_get_string(c->attributes, "approximate", &form))
        return TX_FORMAT;
    return unary(c, TX_OP_GELU, strcmp(form, "tanh") != 0);
}

/* An ONNX op that one expression says. */
#define RUN(name, said)                    \
    static tx_status name(tx_onnx_case *c) \
    {                                      \
        return said;                       \
    }

RUN(run_swish, tx_onnx_number(c, "alpha", 1.0) != 1.0 ? tx_onnx_cannot("alpha") : unary(c, TX_OP_SILU, false))
RUN(run_tanh, unary(c, TX_OP_TANH, false))
RUN(run_relu, unary(c, TX_OP_RELU, false))

static tx_status run_identity(tx_onnx_case *c)
{
    c->exact = true;
    return unary(c, TX_OP_COPY, false);
}

static tx_status binary(tx_onnx_case *c, tx_op op)
{
    const tx_onnx_tensor *a = tx_onnx_real(c, "in0"), *b = a ? tx_onnx_real(c, "in1") : NULL;
    if (!b)
        return TX_UNSUPPORTED;
    tx_shape left = tx_onnx_shape(a), right = tx_onnx_shape(b);
    if (tx_onnx_find(c, "in2"))
        return tx_onnx_cannot("more than two operands");
    if (!tx_shape_equal(&left, &right))
        return tx_onnx_cannot("operands of two shapes");
    tx_call call = tx_onnx_begin(op);
    call.in[0] = tx_onnx_whole(a);
    call.in[1] = tx_onnx_whole(b);
    return tx_onnx_finish(c, &call);
}

RUN(run_add, binary(c, TX_OP_ADD))
RUN(run_mul, binary(c, TX_OP_MUL))

static tx_status run_cast(tx_onnx_case *c)
{
    const tx_onnx_tensor *x = tx_onnx_operand(c, "in0"), *y = tx_onnx_find(c, "out0");
    if (!x || !y)
        return TX_UNSUPPORTED;
    if (tx_onnx_dtype(x) == TX_DTYPE_COUNT || tx_onnx_dtype(y) == TX_DTYPE_COUNT)
        return tx_onnx_cannot("types that TX does not have");
    c->exact = true;
    tx_call call = tx_onnx_begin(TX_OP_CAST);
    call.in[0] = tx_onnx_whole(x);
    call.out[0].dtype = tx_onnx_dtype(y);
    return tx_onnx_finish(c, &call);
}

/* ---- Products ------------------------------------------------------------------------------------- */

static tx_status run_matmul(tx_onnx_case *c)
{
    const tx_onnx_tensor *a = tx_onnx_real(c, "in0"), *b = a ? tx_onnx_real(c, "in1") : NULL;
    if (!b)
        return TX_UNSUPPORTED;
    tx_shape left = a->rank == 1 ? TX_SHAPE(1, a->dim[0]) : tx_onnx_shape(a);
    tx_shape right = b->rank == 1 ? TX_SHAPE(b->dim[0], 1) : tx_onnx_shape(b);
    for (int32_t i = 0; left.rank > 2 && right.rank > 2 && i < left.rank - 2; i++)
        if (left.rank != right.rank || left.dim[i] != right.dim[i])
            return tx_onnx_cannot("both operands repeated over a batch");
    tx_call call = tx_onnx_begin(TX_OP_MATMUL);
    call.in[0] = tx_onnx_array(TX_F32, left, a->value);
    call.in[1] = tx_onnx_array(TX_F32, right, b->value);
    return tx_onnx_finish(c, &call);
}

/* A bias row is an input of the product; a bias matrix is the product's initial value. */
static tx_status run_gemm(tx_onnx_case *c)
{
    const tx_onnx_tensor *a = tx_onnx_real(c, "in0"), *b = a ? tx_onnx_real(c, "in1") : NULL,
                         *bias = tx_onnx_find(c, "in2");
    if (!b)
        return TX_UNSUPPORTED;
    if (tx_onnx_number(c, "alpha", 1.0) != 1.0 || tx_onnx_number(c, "beta", 1.0) != 1.0)
        return tx_onnx_cannot("alpha and beta");
    tx_call call = tx_onnx_begin(TX_OP_MATMUL);
    call.attrs.trans_a = tx_onnx_number(c, "transA", 0.0) != 0.0;
    call.attrs.trans_b = tx_onnx_number(c, "transB", 0.0) != 0.0;
    call.attrs.flat = true;
    call.in[0] = tx_onnx_whole(a);
    call.in[1] = tx_onnx_whole(b);
    int64_t n = call.attrs.trans_b ? b->dim[0] : b->dim[1];
    bool row = bias && (bias->count == 1 || bias->count == n);
    if (row) {
        call.in[2] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(n)};
        if (tx_array_allocate(&call.in[2], false))
            return TX_MEMORY;
        for (int64_t i = 0; i < n; i++)
            call.in[2].value[i] = bias->value[bias->count == 1 ? 0 : i];
    }
    if (!bias || row)
        return tx_onnx_finish(c, &call);
    call.attrs.accumulate = TX_ADD;
    return finish_onto(c, &call, bias->value);
}

/* ---- Normalisation ---------------------------------------------------------------------------------- */

/* x as [rows, n], n the elements from dimension `axis` on. */
static tx_shape split_at(const tx_onnx_tensor *x, double axis)
{
    int32_t first = (int32_t)axis + (axis < 0.0 ? x->rank : 0);
    int64_t n = 1;
    for (int32_t d = first; d < x->rank; d++)
        n *= x->dim[d];
    return TX_SHAPE(x->count / n, n);
}

static tx_status run_layer_norm(tx_onnx_case *c)
{
    static const char *const roles[] = {"out0", "out1", "out2"};
    const tx_onnx_tensor *x = tx_onnx_real(c, "in0"), *w = x ? tx_onnx_real(c, "in1") : NULL,
                         *b = w ? tx_onnx_real(c, "in2") : NULL;
    if (!b)
        return TX_UNSUPPORTED;
    tx_call call = tx_onnx_begin(TX_OP_LAYER_NORM);
    tx_shape shape = split_at(x, tx_onnx_number(c, "axis", -1.0));
    call.attrs.eps = (float)tx_onnx_number(c, "epsilon", 1e-5);
    call.in[0] = tx_onnx_array(TX_F32, shape, x->value);
    call.in[1] = tx_onnx_array(TX_F32, TX_SHAPE(w->count), w->value);
    call.in[2] = tx_onnx_array(TX_F32, TX_SHAPE(b->count), b->value);
    tx_status status = tx_onnx_call(c, &call);
    if (status)
        return status;
    for (int32_t o = 0; o < 3 && !status; o++)
        if (tx_onnx_find(c, roles[o]))
            status = tx_onnx_expect(c, roles[o], call.out[o].value, call.out[o].count);
    tx_call_free(&call);
    return status;
}

static tx_status run_rms_norm(tx_onnx_case *c)
{
    const tx_onnx_tensor *x = tx_onnx_real(c, "in0"), *w = x ? tx_onnx_real(c, "in1") : NULL;
    if (!w)
        return TX_UNSUPPORTED;
    tx_call call = tx_onnx_begin(TX_OP_RMS_NORM);
    call.attrs.eps = (float)tx_onnx_number(c, "epsilon", 1e-5);
    call.in[0] = tx_onnx_array(TX_F32, split_at(x, tx_onnx_number(c, "axis", -1.0)), x->value);
    call.in[1] = tx_onnx_array(TX_F32, TX_SHAPE(w->count), w->value);
    return tx_onnx_finish(c, &call);
}

/* Softmax over one dimension: it is moved last, in the operand and in the expected result. */
static tx_status run_softmax(tx_onnx_case *c)
{
    const tx_onnx_tensor *x = tx_onnx_real(c, "in0"), *y = x ? tx_onnx_real(c, "out0") : NULL;
    if (!y)
        return TX_UNSUPPORTED;
    int32_t axis = (int32_t)tx_onnx_number(c, "axis", -1.0);
    bool axes[TX_ST_MAX_RANK] = {false};
    axes[axis < 0 ? axis + x->rank : axis] = true;
    int64_t n = 1;
    double *from = tx_onnx_move_last(x, axes, &n), *want = tx_onnx_move_last(y, axes, &n);
    tx_call call = tx_onnx_begin(TX_OP_SOFTMAX);
    tx_status status = from && want ? TX_OK : tx_fail(TX_MEMORY, "onnx: no memory");
    if (!status) {
        call.in[0] = tx_onnx_array(TX_F32, TX_SHAPE(x->count / n, n), from);
        status = tx_onnx_call(c, &call);
    }
    TX_THEN(status, tx_onnx_expect_values(c, "out0", want, call.out[0].value, call.out[0].count));
    tx_call_free(&call);
    free(from);
    free(want);
    return status;
}

static tx_status reduction(tx_onnx_case *c, tx_reduction kind)
{
    const tx_onnx_tensor *x = tx_onnx_real(c, "in0"), *list = tx_onnx_find(c, "in1");
    if (!x)
        return TX_UNSUPPORTED;
    bool axes[TX_ST_MAX_RANK] = {false}, all = !list || list->count == 0;
    if (all && tx_onnx_number(c, "noop_with_empty_axes", 0.0) != 0.0)
        return tx_onnx_cannot("no dimension is reduced");
    for (int64_t i = 0; list && i < list->count; i++)
        axes[(int32_t)list->value[i] + (list->value[i] < 0.0 ? x->rank : 0)] = true;
    int64_t n = x->count;
    double *from = tx_onnx_move_last(x, axes, &n);
    if (!from)
        return tx_fail(TX_MEMORY, "onnx: no memory");
    tx_call call = tx_onnx_begin(TX_OP_REDUCE);
    call.attrs.reduction = kind;
    call.attrs.axis = all ? TX_AXIS_ALL : TX_AXIS_LAST;
    call.in[0] = tx_onnx_array(TX_F32, all ? tx_onnx_shape(x) : TX_SHAPE(x->count / n, n), from);
    free(from);
    return tx_onnx_finish(c, &call);
}

RUN(run_reduce_sum, reduction(c, TX_REDUCE_SUM))
RUN(run_reduce_mean, reduction(c, TX_REDUCE_MEAN))
RUN(run_reduce_max, reduction(c, TX_REDUCE_MAX))
RUN(run_reduce_sumsq, reduction(c, TX_REDUCE_SUMSQ))

/* ---- Movement ------------------------------------------------------------------------------------- */

static tx_status run_gather(tx_onnx_case *c)
{
    const tx_onnx_tensor *table = tx_onnx_real(c, "in0"), *indices = table ? tx_onnx_operand(c, "in1") : NULL;
    if (!indices)
        return TX_UNSUPPORTED;
    if (tx_onnx_number(c, "axis", 0.0) != 0.0)
        return tx_onnx_cannot("a dimension that is not the first");
    for (int64_t i = 0; i < indices->count; i++)
        if (indices->value[i] < 0.0)
            return tx_onnx_cannot("negative indices count from the end");
    c->exact = true;
    tx_call call = tx_onnx_begin(TX_OP_GATHER);
    call.in[0] = tx_onnx_array(TX_F32, TX_SHAPE(table->dim[0], table->count / table->dim[0]), table->value);
    call.in[1] = tx_onnx_array(TX_I32, tx_onnx_shape(indices), indices->value);
    return tx_onnx_finish(c, &call);
}

static tx_status run_rotary(tx_onnx_case *c)
{
    (void)c;
    return tx_onnx_cannot("tables of any sine and cosine");
}

/* ---- Table ---------------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    tx_status (*run)(tx_onnx_case *c);
} table[] = {
    {"Adam", tx_onnx_adam},
    {"Add", run_add},
    {"Attention", tx_onnx_attention},
    {"Cast", run_cast},
    {"Gather", run_gather},
    {"Gelu", run_gelu},
    {"Gemm", run_gemm},
    {"Identity", run_identity},
    {"LayerNormalization", run_layer_norm},
    {"MatMul", run_matmul},
    {"Momentum", tx_onnx_momentum},
    {"Mul", run_mul},
    {"RMSNormalization", run_rms_norm},
    {"ReduceMax", run_reduce_max},
    {"ReduceMean", run_reduce_mean},
    {"ReduceSum", run_reduce_sum},
    {"ReduceSumSquare", run_reduce_sumsq},
    {"Relu", run_relu},
    {"RotaryEmbedding", run_rotary},
    {"Softmax", run_softmax},
    {"SoftmaxCrossEntropyLoss", tx_onnx_softmax_loss},
    {"Sum", run_add},
    {"Swish", run_swish},
    {"Tanh", run_tanh},
};

bool tx_onnx_known(const char *op)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].op, op) == 0)
            return true;
    return false;
}

tx_status tx_onnx_run(tx_onnx_case *c, const char *op)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].op, op) == 0)
            return table[i].run(c);
    return tx_fail(TX_UNSUPPORTED, "no op %s", op);
}
