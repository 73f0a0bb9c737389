/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape inference: every operand of every op is validated here, once, above the backends. */
#include "api/op.h"

#include <inttypes.h>

typedef struct infer {
    tx_op op;
    const tx_attrs *attrs;
    const tx_operand *in;
    tx_operand *out;
} infer;

#define TEXT(shape) tx_shape_text(&(shape), (char[96]){0}, 96)

static const char *op_name(const infer *c)
{
    return tx_op_info_of(c->op)->name;
}

static tx_status bad_shape(const infer *c, int i, const char *want)
{
    return tx_fail(TX_INVALID, "%s: input %d has shape %s, wanted %s", op_name(c), i, TEXT(c->in[i].shape), want);
}

static tx_status want_dtype(const infer *c, int i, tx_dtype dtype)
{
    if (!tx_present(&c->in[i]) || c->in[i].dtype == dtype)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: input %d is %s, wanted %s", op_name(c), i, tx_dtype_name(c->in[i].dtype),
                   tx_dtype_name(dtype));
}

static bool is_half_or_float(tx_dtype dtype)
{
    return dtype == TX_F32 || dtype == TX_BF16 || dtype == TX_F16;
}

static tx_status want_float_types(const infer *c, int i)
{
    if (!tx_present(&c->in[i]) || is_half_or_float(c->in[i].dtype))
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: input %d is %s, wanted F32, BF16 or F16", op_name(c), i,
                   tx_dtype_name(c->in[i].dtype));
}

/* All inputs F32. */
static tx_status want_f32(const infer *c)
{
    tx_status status = TX_OK;
    for (int i = 0; i < TX_MAX_IN && status == TX_OK; i++)
        status = want_dtype(c, i, TX_F32);
    return status;
}

static tx_status want_shape(const infer *c, int i, const tx_shape *shape)
{
    if (!tx_present(&c->in[i]) || tx_shape_equal(&c->in[i].shape, shape))
        return TX_OK;
    return bad_shape(c, i, TEXT(*shape));
}

static tx_status want_rank(const infer *c, int i, int32_t rank)
{
    if (!tx_present(&c->in[i]) || c->in[i].shape.rank == rank)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: input %d has shape %s, wanted rank %d", op_name(c), i, TEXT(c->in[i].shape), rank);
}

static void give(const infer *c, int i, tx_dtype dtype, tx_shape shape)
{
    c->out[i].dtype = dtype;
    c->out[i].shape = shape;
}

static tx_shape without_last(const tx_shape *shape)
{
    tx_shape s = *shape;
    if (s.rank > 1)
        s.rank--;
    else
        s = TX_SHAPE(1);
    return s;
}

static tx_shape with_last(const tx_shape *shape, int64_t last)
{
    tx_shape s = *shape;
    s.dim[s.rank - 1] = last;
    return s;
}

#define CHECK(call)                 \
    do {                            \
        tx_status status_ = (call); \
        if (status_ != TX_OK)       \
            return status_;         \
    } while (0)

/* ---- contraction --------------------------------------------------------------------------- */

static tx_status infer_matmul(const infer *c)
{
    const tx_shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    CHECK(want_float_types(c, 0));
    CHECK(want_dtype(c, 1, c->in[0].dtype));
    CHECK(want_dtype(c, 2, TX_F32));
    tx_gemm g = tx_gemm_of(c->attrs, a, b);
    int64_t b_k = c->attrs->trans_b ? tx_shape_last(b) : tx_shape_count(b) / tx_shape_last(b);
    if (!c->attrs->flat) {
        if (a->rank < 2 || b->rank < 2)
            return bad_shape(c, a->rank < 2 ? 0 : 1, "rank 2 or more");
        b_k = c->attrs->trans_b ? tx_shape_last(b) : b->dim[b->rank - 2];
        bool leading = a->rank == b->rank;
        for (int32_t i = 0; leading && i + 2 < a->rank; i++)
            leading = a->dim[i] == b->dim[i];
        if (!leading && a->rank != 2 && b->rank != 2)
            return tx_fail(TX_INVALID, "%s: leading dimensions of %s and %s differ", op_name(c), TEXT(*a), TEXT(*b));
    }
    if (g.k != b_k)
        return tx_fail(TX_INVALID, "%s: inner dimensions of %s%s and %s%s differ", op_name(c), TEXT(*a),
                       c->attrs->trans_a ? " transposed" : "", TEXT(*b), c->attrs->trans_b ? " transposed" : "");
    CHECK(want_shape(c, 2, &TX_SHAPE(g.n)));
    tx_shape y = TX_SHAPE(g.m, g.n);
    if (c->attrs->flat && !c->attrs->trans_a) {
        y = with_last(a, g.n);
    } else if (!c->attrs->flat) {
        y = a->rank >= b->rank ? *a : *b;
        y.dim[y.rank - 2] = g.m;
        y.dim[y.rank - 1] = g.n;
    }
    tx_dtype asked = c->out[0].dtype, own = c->in[0].dtype;
    if (asked != TX_DTYPE_COUNT && asked != TX_F32 && asked != own)
        return tx_fail(TX_INVALID, "%s: %s operands cannot give %s", op_name(c), tx_dtype_name(own),
                       tx_dtype_name(asked));
    give(c, 0, asked != TX_DTYPE_COUNT ? asked : own, y);
    return TX_OK;
}

/* Checks packed qkv [B, T, (heads + 2 kv_heads) d] and tells d. */
static tx_status check_qkv(const infer *c, int i, int64_t *head_size)
{
    const tx_attrs *a = c->attrs;
    CHECK(want_rank(c, i, 3));
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return tx_fail(TX_INVALID, "%s: %d heads cannot share %d key heads", op_name(c), a->heads, a->kv_heads);
    int64_t parts = a->heads + 2 * (int64_t)a->kv_heads, last = tx_shape_last(&c->in[i].shape);
    if (last % parts != 0)
        return tx_fail(TX_INVALID, "%s: the last dimension of %s is no multiple of %" PRId64 " heads", op_name(c),
                       TEXT(c->in[i].shape), parts);
    if (!(a->p >= 0.0f && a->p < 1.0f))
        return tx_fail(TX_INVALID, "%s: dropout %g is not in [0, 1)", op_name(c), (double)a->p);
    *head_size = last / parts;
    return TX_OK;
}

static tx_status infer_attention(const infer *c)
{
    int64_t d = 0;
    CHECK(want_dtype(c, 0, TX_F32));
    CHECK(check_qkv(c, 0, &d));
    int64_t batch = c->in[0].shape.dim[0], time = c->in[0].shape.dim[1];
    CHECK(want_dtype(c, 1, TX_I32));
    CHECK(want_shape(c, 1, &TX_SHAPE(batch)));
    give(c, 0, TX_F32, TX_SHAPE(batch, time, c->attrs->heads * d));
    give(c, 1, TX_F32, TX_SHAPE(batch, c->attrs->heads, time));
    return TX_OK;
}

static tx_status infer_attention_grad(const infer *c)
{
    int64_t d = 0;
    CHECK(want_dtype(c, 1, TX_F32));
    CHECK(check_qkv(c, 1, &d));
    int64_t batch = c->in[1].shape.dim[0], time = c->in[1].shape.dim[1];
    tx_shape o = TX_SHAPE(batch, time, c->attrs->heads * d), lse = TX_SHAPE(batch, c->attrs->heads, time);
    CHECK(want_shape(c, 0, &o));
    CHECK(want_shape(c, 2, &o));
    CHECK(want_shape(c, 3, &lse));
    CHECK(want_dtype(c, 4, TX_I32));
    CHECK(want_shape(c, 4, &TX_SHAPE(batch)));
    give(c, 0, TX_F32, c->in[1].shape);
    give(c, 1, TX_F32, lse);
    return TX_OK;
}

static tx_status check_cache(const infer *c, int64_t *head_size)
{
    CHECK(want_f32(c));
    CHECK(check_qkv(c, 0, head_size));
    const tx_shape *cache = &c->in[1].shape;
    CHECK(want_rank(c, 1, 3));
    if (cache->dim[0] != c->in[0].shape.dim[0] || cache->dim[2] != c->attrs->kv_heads * *head_size ||
        cache->dim[1] < c->in[0].shape.dim[1])
        return tx_fail(TX_INVALID, "%s: the cache %s does not fit %s", op_name(c), TEXT(*cache), TEXT(c->in[0].shape));
    return want_shape(c, 2, cache);
}

static tx_status infer_attention_cached(const infer *c)
{
    int64_t d = 0;
    CHECK(check_cache(c, &d));
    give(c, 0, TX_F32, with_last(&c->in[0].shape, c->attrs->heads * d));
    return TX_OK;
}

static tx_status infer_kv_append(const infer *c)
{
    int64_t d = 0;
    CHECK(check_cache(c, &d));
    give(c, 0, TX_F32, c->in[1].shape);
    give(c, 1, TX_F32, c->in[2].shape);
    return TX_OK;
}

/* ---- normalisation ------------------------------------------------------------------------- */

/* x [.., C] at `x`, vectors [C] from input `first` to `last`. */
static tx_status check_norm(const infer *c, int x, int first, int last)
{
    CHECK(want_f32(c));
    tx_shape channels = TX_SHAPE(tx_shape_last(&c->in[x].shape));
    for (int i = first; i <= last; i++)
        CHECK(want_shape(c, i, &channels));
    return TX_OK;
}

static tx_status infer_layer_norm(const infer *c)
{
    CHECK(check_norm(c, 0, 1, 2));
    tx_shape rows = TX_SHAPE(tx_shape_rows(&c->in[0].shape));
    give(c, 0, TX_F32, c->in[0].shape);
    give(c, 1, TX_F32, rows);
    give(c, 2, TX_F32, rows);
    return TX_OK;
}

static tx_status infer_rms_norm(const infer *c)
{
    CHECK(check_norm(c, 0, 1, 1));
    give(c, 0, TX_F32, c->in[0].shape);
    give(c, 1, TX_F32, TX_SHAPE(tx_shape_rows(&c->in[0].shape)));
    return TX_OK;
}

static tx_status infer_layer_norm_grad(const infer *c)
{
    CHECK(check_norm(c, 1, 2, 2));
    const tx_shape *x = &c->in[1].shape;
    int64_t rows = tx_shape_rows(x), last = tx_shape_last(x);
    CHECK(want_shape(c, 0, x));
    CHECK(want_shape(c, 3, &TX_SHAPE(rows)));
    CHECK(want_shape(c, 4, &TX_SHAPE(rows)));
    give(c, 0, TX_F32, *x);
    give(c, 1, TX_F32, TX_SHAPE(last));
    give(c, 2, TX_F32, TX_SHAPE(last));
    give(c, 3, TX_F32, TX_SHAPE(tx_row_blocks(rows), 2, last));
    return TX_OK;
}

static tx_status infer_rms_norm_grad(const infer *c)
{
    CHECK(check_norm(c, 1, 2, 2));
    const tx_shape *x = &c->in[1].shape;
    int64_t rows = tx_shape_rows(x), last = tx_shape_last(x);
    CHECK(want_shape(c, 0, x));
    CHECK(want_shape(c, 3, &TX_SHAPE(rows)));
    give(c, 0, TX_F32, *x);
    give(c, 1, TX_F32, TX_SHAPE(last));
    give(c, 2, TX_F32, TX_SHAPE(tx_row_blocks(rows), last));
    return TX_OK;
}

static tx_status check_vocab(const infer *c)
{
    int64_t columns = tx_shape_last(&c->in[0].shape);
    if (c->attrs->vocab >= 1 && c->attrs->vocab <= columns)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: a vocabulary of %" PRId64 " does not fit logits %s", op_name(c), c->attrs->vocab,
                   TEXT(c->in[0].shape));
}

static tx_status infer_cross_entropy(const infer *c)
{
    tx_shape rows = without_last(&c->in[0].shape);
    CHECK(want_dtype(c, 0, TX_F32));
    CHECK(want_dtype(c, 1, TX_I32));
    CHECK(want_shape(c, 1, &rows));
    CHECK(check_vocab(c));
    give(c, 0, TX_F32, rows);
    give(c, 1, TX_F32, rows);
    return TX_OK;
}

static tx_status infer_cross_entropy_grad(const infer *c)
{
    tx_shape rows = without_last(&c->in[0].shape);
    const tx_dtype types[] = {TX_F32, TX_F32, TX_I32, TX_F32};
    for (int i = 0; i < 4; i++)
        CHECK(want_dtype(c, i, types[i]));
    for (int i = 1; i < 4; i++)
        CHECK(want_shape(c, i, &rows));
    CHECK(check_vocab(c));
    give(c, 0, TX_F32, c->in[0].shape);
    return TX_OK;
}

static tx_shape reduced(const tx_shape *x, tx_axis axis)
{
    if (axis == TX_AXIS_LAST)
        return without_last(x);
    return axis == TX_AXIS_ROWS ? TX_SHAPE(tx_shape_last(x)) : TX_SHAPE(1);
}

static tx_status infer_reduce(const infer *c)
{
    CHECK(want_f32(c));
    const tx_shape *x = &c->in[0].shape;
    give(c, 0, TX_F32, reduced(x, c->attrs->axis));
    give(c, 1, TX_F32, TX_SHAPE(tx_reduce_work(c->attrs->axis, x)));
    return TX_OK;
}

static tx_status infer_broadcast(const infer *c)
{
    CHECK(want_f32(c));
    tx_shape small = reduced(&c->out[0].shape, c->attrs->axis);
    CHECK(want_shape(c, 0, &small));
    c->out[0].dtype = TX_F32;
    return TX_OK;
}

/* ---- element-wise -------------------------------------------------------------------------- */

static tx_status infer_same(const infer *c)
{
    if (c->op != TX_OP_COPY)
        CHECK(want_f32(c));
    if (c->op == TX_OP_DROPOUT && !(c->attrs->p >= 0.0f && c->attrs->p < 1.0f))
        return tx_fail(TX_INVALID, "dropout: %g is not in [0, 1)", (double)c->attrs->p);
    give(c, 0, c->in[0].dtype, c->in[0].shape);
    return TX_OK;
}

static tx_status infer_same2(const infer *c)
{
    CHECK(want_f32(c));
    if (!tx_shape_equal(&c->in[0].shape, &c->in[1].shape))
        return tx_fail(TX_INVALID, "%s: shapes %s and %s differ", op_name(c), TEXT(c->in[0].shape),
                       TEXT(c->in[1].shape));
    give(c, 0, TX_F32, c->in[0].shape);
    return TX_OK;
}

static tx_status infer_swiglu(const infer *c)
{
    CHECK(want_f32(c));
    int64_t last = tx_shape_last(&c->in[0].shape);
    if (c->in[0].shape.rank < 1 || last % 2 != 0)
        return bad_shape(c, 0, "an even last dimension (gate | up)");
    give(c, 0, TX_F32, with_last(&c->in[0].shape, last / 2));
    return TX_OK;
}

static tx_status infer_swiglu_grad(const infer *c)
{
    CHECK(want_f32(c));
    tx_shape half = with_last(&c->in[1].shape, tx_shape_last(&c->in[1].shape) / 2);
    CHECK(want_shape(c, 0, &half));
    give(c, 0, TX_F32, c->in[1].shape);
    return TX_OK;
}

static tx_status infer_rotary(const infer *c)
{
    const tx_attrs *a = c->attrs;
    CHECK(want_f32(c));
    CHECK(want_rank(c, 0, 3));
    int64_t last = tx_shape_last(&c->in[0].shape);
    if (a->head_size < 2 || a->head_size % 2 != 0 || last % a->head_size != 0 || a->heads < 0 ||
        a->heads > last / a->head_size || !(a->theta > 0.0f))
        return tx_fail(TX_INVALID, "rotary: %d heads of size %d (even) with theta %g do not fit %s", a->heads,
                       a->head_size, (double)a->theta, TEXT(c->in[0].shape));
    give(c, 0, TX_F32, c->in[0].shape);
    return TX_OK;
}

/* Ranges [n] of the flat arenas: p, g, groups, then states. */
static tx_status check_update(const infer *c, int states)
{
    int64_t count = tx_shape_count(&c->in[0].shape);
    CHECK(want_rank(c, 0, 1));
    for (int i = 0; i < 3 + states; i++) {
        bool groups = i == 2;
        CHECK(want_dtype(c, i, groups ? TX_U8 : TX_F32));
        int64_t blocks = (count + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK;
        CHECK(want_shape(c, i, &TX_SHAPE(groups ? blocks : count)));
    }
    return TX_OK;
}

static tx_status infer_sgd(const infer *c)
{
    CHECK(check_update(c, 1));
    give(c, 0, TX_F32, c->in[0].shape);
    if (tx_present(&c->in[3]))
        give(c, 1, TX_F32, c->in[0].shape);
    else
        c->out[1].dtype = TX_DTYPE_COUNT;
    return TX_OK;
}

static tx_status infer_adamw(const infer *c)
{
    CHECK(check_update(c, 2));
    for (int i = 0; i < 3; i++)
        give(c, i, TX_F32, c->in[0].shape);
    return TX_OK;
}

/* ---- movement ------------------------------------------------------------------------------ */

static tx_status infer_embedding(const infer *c)
{
    CHECK(want_dtype(c, 0, TX_I32));
    CHECK(want_rank(c, 0, 2));
    CHECK(want_rank(c, 1, 2));
    CHECK(want_float_types(c, 1));
    CHECK(want_dtype(c, 2, c->in[1].dtype));
    CHECK(want_rank(c, 2, 2));
    const tx_shape *tokens = &c->in[0].shape;
    int64_t channels = c->in[1].shape.dim[1];
    if (tx_present(&c->in[2]) && (c->in[2].shape.dim[1] != channels || c->in[2].shape.dim[0] < tokens->dim[1]))
        return tx_fail(TX_INVALID, "embedding: positions %s do not fit tokens %s and table %s", TEXT(c->in[2].shape),
                       TEXT(*tokens), TEXT(c->in[1].shape));
    tx_dtype asked = c->out[0].dtype;
    if (asked != TX_DTYPE_COUNT && asked != TX_F32 && asked != c->in[1].dtype)
        return tx_fail(TX_INVALID, "embedding: a %s table cannot give %s", tx_dtype_name(c->in[1].dtype),
                       tx_dtype_name(asked));
    give(c, 0, asked != TX_DTYPE_COUNT ? asked : TX_F32, TX_SHAPE(tokens->dim[0], tokens->dim[1], channels));
    return TX_OK;
}

static tx_status infer_position_grad(const infer *c)
{
    CHECK(want_f32(c));
    CHECK(want_rank(c, 0, 3));
    if (c->attrs->rows < c->in[0].shape.dim[1])
        return tx_fail(TX_INVALID, "position_grad: %" PRId64 " rows are too few for %s", c->attrs->rows,
                       TEXT(c->in[0].shape));
    give(c, 0, TX_F32, TX_SHAPE(c->attrs->rows, c->in[0].shape.dim[2]));
    return TX_OK;
}

static tx_status infer_gather(const infer *c)
{
    CHECK(want_float_types(c, 0));
    CHECK(want_rank(c, 0, 2));
    CHECK(want_dtype(c, 1, TX_I32));
    tx_shape y = c->in[1].shape;
    if (y.rank + 1 > TX_MAX_RANK)
        return bad_shape(c, 1, "a smaller rank");
    y.dim[y.rank++] = c->in[0].shape.dim[1];
    give(c, 0, c->in[0].dtype, y);
    return TX_OK;
}

static tx_status infer_scatter_add(const infer *c)
{
    CHECK(want_dtype(c, 0, TX_I32));
    CHECK(want_dtype(c, 1, TX_F32));
    int64_t count = tx_shape_count(&c->in[0].shape);
    if (tx_shape_rows(&c->in[1].shape) != count)
        return tx_fail(TX_INVALID, "scatter_add: indices %s do not fit %s", TEXT(c->in[0].shape), TEXT(c->in[1].shape));
    if (c->attrs->rows < 1)
        return tx_fail(TX_INVALID, "scatter_add: the result has no rows");
    give(c, 0, TX_F32, TX_SHAPE(c->attrs->rows, tx_shape_last(&c->in[1].shape)));
    give(c, 1, TX_I32, TX_SHAPE(2 * count));
    return TX_OK;
}

static tx_status infer_cast(const infer *c)
{
    CHECK(want_float_types(c, 0));
    if (!is_half_or_float(c->out[0].dtype))
        return tx_fail(TX_INVALID, "cast: cannot give %s", tx_dtype_name(c->out[0].dtype));
    c->out[0].shape = c->in[0].shape;
    return TX_OK;
}

static tx_status infer_fill(const infer *c)
{
    c->out[0].dtype = TX_F32;
    return TX_OK;
}

static tx_status infer_reshape(const infer *c)
{
    if (tx_shape_count(&c->out[0].shape) != tx_shape_count(&c->in[0].shape))
        return tx_fail(TX_INVALID, "reshape: %s and %s have different counts", TEXT(c->in[0].shape),
                       TEXT(c->out[0].shape));
    c->out[0].dtype = c->in[0].dtype;
    return TX_OK;
}

static tx_status infer_none(const infer *c)
{
    (void)c;
    return TX_OK;
}

/* ---- dispatch ------------------------------------------------------------------------------ */

static tx_status (*const rules[TX_OP_COUNT])(const infer *) = {
#define TX_OP(NAME, name, CLASS, min, n_in, n_out, in_place, adds, rule, grad) [TX_OP_##NAME] = infer_##rule,
#define TX_VIRTUAL TX_OP
#include "ops.def"
};

static tx_status check_dims(const infer *c, const tx_operand *o, const char *side, int i)
{
    if (o->shape.rank < 1 || o->shape.rank > TX_MAX_RANK)
        return tx_fail(TX_INVALID, "%s: %s %d has rank %d, wanted 1 to %d", op_name(c), side, i, o->shape.rank,
                       TX_MAX_RANK);
    int64_t count = 1;
    for (int32_t d = 0; d < o->shape.rank; d++) {
        int64_t dim = o->shape.dim[d];
        if (dim < 1 || dim > INT64_MAX / 8 / count)
            return tx_fail(TX_INVALID, "%s: %s %d has an impossible shape %s", op_name(c), side, i, TEXT(o->shape));
        count *= dim;
    }
    return TX_OK;
}

tx_status tx_op_infer(tx_op op, const tx_attrs *attrs, const tx_operand in[TX_MAX_IN], tx_operand out[TX_MAX_OUT])
{
    const tx_op_info *info = tx_op_info_of(op);
    tx_operand result[TX_MAX_OUT];
    for (int i = 0; i < TX_MAX_OUT; i++)
        result[i] = out[i];
    infer c = {op, attrs, in, result};
    for (int i = 0; i < TX_MAX_IN; i++) {
        bool present = i < info->inputs && tx_present(&in[i]);
        if (i < info->inputs_min && !present)
            return tx_fail(TX_INVALID, "%s: input %d is missing", info->name, i);
        if (present)
            CHECK(check_dims(&c, &in[i], "input", i));
    }
    CHECK(rules[op](&c));
    for (int i = 0; i < info->outputs; i++)
        if (tx_present(&result[i]))
            CHECK(check_dims(&c, &result[i], "output", i));
    for (int i = 0; i < TX_MAX_OUT; i++) {
        out[i].dtype = i < info->outputs ? result[i].dtype : TX_DTYPE_COUNT;
        out[i].shape = result[i].shape;
    }
    return TX_OK;
}
