/* SPDX-License-Identifier: Apache-2.0
 * Tests of the references themselves: gradients against central finite differences in double precision, linear ops
 * against their adjoints, Philox against its published vectors, storage types against api/half.h. */
#include "api/base/half.h"
#include "api/graph/op.h"
#include "backends/rng.h"
#include "tests/ops/case.h"

#include "tests/unit.h"

/* ---- Finite differences -------------------------------------------------------------------------- */

/* Builds the forward call of gradient call `call`. Shared inputs are copied, the others are drawn again. */
static void forward_of(const tx_call *call, tx_call *forward)
{
    const tx_descriptor *d = tx_descriptor_of(call->op);
    tx_case c = {.attrs = call->attrs, .controls = call->controls, .out_dtype = TX_DTYPE_COUNT};
    c.attrs.accumulate = TX_STORE;
    for (int32_t k = 0; k < TX_MAX_IN; k++)
        c.in[k].dtype = TX_DTYPE_COUNT;
    for (int32_t o = 0; o < TX_MAX_OUT; o++)
        if (d->gradient_of[o] && tx_array_present(&call->out[o]))
            c.in[d->gradient_of[o] - 1] = tx_spec_real(call->out[o].shape);
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        if (d->source[i] >= TX_FROM_IN(0) && d->source[i] < TX_FROM_OUT(0) && tx_array_present(&call->in[i]))
            c.in[d->source[i] - TX_FROM_IN(0)] =
                tx_spec_of(call->in[i].dtype, call->in[i].shape, TX_FILL_UNIFORM, 0.0, 1.0);
    assert_int_equal(tx_call_of_case(d->forward, &c, false, forward), TX_OK);
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        if (d->source[i] >= TX_FROM_IN(0) && d->source[i] < TX_FROM_OUT(0) && tx_array_present(&call->in[i]))
            memcpy(forward->in[d->source[i] - TX_FROM_IN(0)].value, call->in[i].value,
                   (size_t)call->in[i].count * sizeof(double));
}

/* sum of dy * output 0 of the forward op */
static double loss_of(tx_call *forward, const tx_array *dy)
{
    assert_int_equal(tx_call_reference(forward), TX_OK);
    assert_int_equal(forward->out[0].count, dy->count);
    double sum = 0.0;
    for (int64_t i = 0; i < dy->count; i++)
        sum += dy->value[i] * forward->out[0].value[i];
    return sum;
}

static double slope(tx_call *forward, const tx_array *dy, double *x)
{
    const double step = 1e-5;
    double at = *x;
    *x = at + step;
    double above = loss_of(forward, dy);
    *x = at - step;
    double below = loss_of(forward, dy);
    *x = at;
    return (above - below) / (2.0 * step);
}

/* Compares up to 60 elements of each gradient of one case. Returns how many were compared. */
static int check_gradient(tx_op op, const tx_case *c)
{
    const tx_descriptor *d = tx_descriptor_of(op);
    tx_call call, forward;
    int compared = 0;
    assert_int_equal(tx_call_of_case(op, c, true, &call), TX_OK);
    forward_of(&call, &forward);
    assert_int_equal(tx_call_reference(&forward), TX_OK);
    const tx_array *dy = NULL;
    for (int32_t i = 0; i < TX_MAX_IN; i++) {
        if (!tx_array_present(&call.in[i]))
            continue;
        if (d->source[i] == TX_FROM_NOWHERE)
            memset(call.in[i].value, 0, (size_t)call.in[i].count * sizeof(double));
        else if (d->source[i] == TX_FROM_DY)
            dy = &call.in[i];
        else if (d->source[i] >= TX_FROM_OUT(0)) /* unrounded */
            memcpy(call.in[i].value, forward.out[d->source[i] - TX_FROM_OUT(0)].value,
                   (size_t)call.in[i].count * sizeof(double));
    }
    assert_non_null(dy);
    assert_int_equal(tx_call_reference(&call), TX_OK);
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        if (!d->gradient_of[o] || !tx_array_present(&call.out[o]))
            continue;
        tx_array *x = &forward.in[d->gradient_of[o] - 1], *dx = &call.out[o];
        int64_t step = x->count / 60 + 1;
        for (int64_t i = 0; i < x->count; i += step, compared++) {
            double want = slope(&forward, dy, &x->value[i]), error = fabs(dx->value[i] - want);
            if (!(error <= 1e-6 * (1.0 + fabs(want) + dx->magnitude[i])))
                fail_msg("%s %s: gradient %d, element %lld: %.12g, finite difference %.12g", tx_op_info_of(op)->name,
                         c->label, o, (long long)i, dx->value[i], want);
        }
    }
    tx_call_free(&call);
    tx_call_free(&forward);
    return compared;
}

static bool small(const tx_case *c)
{
    int64_t total = 0;
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        total += c->in[i].dtype != TX_DTYPE_COUNT ? tx_shape_count(&c->in[i].shape) : 0;
    return total < 20000 && c->attrs.accumulate == TX_STORE && !(c->flags & TX_CASE_BENCH);
}

static void test_gradients(void **state)
{
    tx_cases *list = calloc(1, sizeof *list);
    assert_non_null(list);
    for (int op = 0; op < TX_OP_KERNELS; op++) {
        const tx_descriptor *d = tx_descriptor_of((tx_op)op);
        if (!d->gradient)
            continue;
        memset(list, 0, sizeof *list);
        d->cases(list);
        int compared = 0;
        for (int32_t i = 0; i < list->count; i++)
            if (small(&list->item[i]))
                compared += check_gradient((tx_op)op, &list->item[i]);
        print_message("%s: %d elements\n", tx_op_info_of((tx_op)op)->name, compared);
        assert_true(compared > 50);
    }
    free(list);
}

/* ---- Adjoints ------------------------------------------------------------------------------------ */

static double dot(const tx_array *a, const tx_array *b)
{
    assert_int_equal(a->count, b->count);
    double sum = 0.0;
    for (int64_t i = 0; i < a->count; i++)
        sum += a->value[i] * b->value[i];
    return sum;
}

/* <F x, y> = <x, F' y> for a linear op F, x its input `x_at`, and its adjoint, y at input `y_at`. */
static void check_adjoint(tx_op op, const tx_case *c, int x_at, tx_op adjoint_op, const tx_case *adjoint, int y_at)
{
    tx_call f, g;
    assert_int_equal(tx_call_of_case(op, c, true, &f), TX_OK);
    assert_int_equal(tx_call_of_case(adjoint_op, adjoint, true, &g), TX_OK);
    assert_int_equal(tx_call_reference(&f), TX_OK);
    assert_int_equal(tx_call_reference(&g), TX_OK);
    double left = dot(&f.out[0], &g.in[y_at]), right = dot(&f.in[x_at], &g.out[0]);
    assert_true(fabs(left) > 1e-9);
    assert_true(fabs(left - right) <= 1e-12 * (1.0 + fabs(left)) * (double)f.in[x_at].count);
    tx_call_free(&f);
    tx_call_free(&g);
}

static tx_case case_of(tx_spec first)
{
    tx_case c = {.out_dtype = TX_DTYPE_COUNT};
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        c.in[i].dtype = TX_DTYPE_COUNT;
    c.attrs.control = -1;
    c.attrs.alpha = 1.5f;
    c.in[0] = first;
    return c;
}

static void test_reduce_broadcast(void **state)
{
    tx_shape x = TX_SHAPE(3, 4, 5), y[] = {TX_SHAPE(1), TX_SHAPE(3, 4), TX_SHAPE(5)};
    for (int axis = 0; axis < 3; axis++) {
        tx_case reduce = case_of(tx_spec_real(x)), broadcast = case_of(tx_spec_real(y[axis]));
        reduce.attrs.axis = broadcast.attrs.axis = (tx_axis)axis;
        broadcast.out_shape = x;
        broadcast.salt = 1;
        check_adjoint(TX_OP_REDUCE, &reduce, 0, TX_OP_BROADCAST, &broadcast, 0);
    }
}

static void test_self_adjoint(void **state)
{
    tx_case turn = case_of(tx_spec_real(TX_SHAPE(2, 7, 30)));
    turn.attrs.attention.heads = 3;
    turn.attrs.attention.head_size = 6;
    turn.attrs.rope = &(tx_rope)TX_ROPE(100.0f);
    tx_case back = turn;
    back.attrs.inverse = true;
    back.salt = 1;
    check_adjoint(TX_OP_ROTARY, &turn, 0, TX_OP_ROTARY, &back, 0);
    tx_case drop = case_of(tx_spec_real(TX_SHAPE(3, 5, 9))), same = drop;
    drop.attrs.draw.p = same.attrs.draw.p = 0.4f;
    same.salt = 1;
    check_adjoint(TX_OP_DROPOUT, &drop, 0, TX_OP_DROPOUT, &same, 0);
}

static void test_gather_scatter(void **state)
{
    tx_spec indices = tx_spec_of(TX_I32, TX_SHAPE(2, 9), TX_FILL_SPARSE, 0.0, 6.0);
    tx_case gather = case_of(tx_spec_real(TX_SHAPE(6, 4))), scatter = case_of(indices);
    gather.in[1] = indices;
    scatter.in[1] = tx_spec_real(TX_SHAPE(2, 9, 4));
    scatter.attrs.rows = 6;
    tx_call f, g;
    assert_int_equal(tx_call_of_case(TX_OP_GATHER, &gather, true, &f), TX_OK);
    assert_int_equal(tx_call_of_case(TX_OP_SCATTER_ADD, &scatter, true, &g), TX_OK);
    memcpy(g.in[0].value, f.in[1].value, (size_t)f.in[1].count * sizeof(double));
    assert_int_equal(tx_call_reference(&f), TX_OK);
    assert_int_equal(tx_call_reference(&g), TX_OK);
    assert_true(fabs(dot(&f.out[0], &g.in[1]) - dot(&f.in[0], &g.out[0])) < 1e-12);
    tx_call_free(&f);
    tx_call_free(&g);
}

/* ---- Philox and storage types --------------------------------------------------------------------- */

/* Vectors published with Random123 (kat_vectors, philox4x32 10). */
static void test_philox(void **state)
{
    static const uint32_t vectors[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u},
        {0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0x408F276Du, 0x41C83B0Eu,
         0xA20BC7C6u, 0x6D5451FDu},
        {0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u, 0xA4093822u, 0x299F31D0u, 0xD16CFE09u, 0x94FDCCEBu,
         0x5001E420u, 0x24126EA1u},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const uint32_t *v = vectors[i];
        tx_random r = tx_philox(v[0], v[1], v[2], v[3], v[4], v[5]);
        assert_memory_equal(r.word, v + 6, sizeof r.word);
    }
}

/* Two ways to round, written apart, have to agree; a NaN keeps its sign and the upper bits of its mantissa, and is
 * quiet. */
static void check_rounding(float x)
{
    const uint32_t bits = tx_bits_of(x);
    uint16_t b = (uint16_t)(bits >> 16 | 0x40u),
             f = (uint16_t)((bits >> 16 & 0x8000u) | 0x7E00u | (bits >> 13 & 0x3FFu));
    if (!isnan(x)) {
        double d = x;
        tx_number_encode(TX_BF16, &d, 1, &b);
        tx_number_encode(TX_F16, &d, 1, &f);
    }
    assert_int_equal(b, tx_f32_to_bf16(x));
    assert_int_equal(f, tx_f32_to_f16(x));
}

/* x, and its neighbours on both sides. */
static void check_about(float x)
{
    check_rounding(x);
    check_rounding(tx_float_of(tx_bits_of(x) - 1));
    check_rounding(tx_float_of(tx_bits_of(x) + 1));
}

/* All 16-bit numbers, to the bit, with the midpoints between neighbours, and fp32 numbers of the whole range. */
static void test_numbers(void **state)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint16_t h = (uint16_t)bits;
        const float b32 = tx_bf16_to_f32(h), f32 = tx_f16_to_f32(h);
        double f;
        tx_number_decode(TX_F16, &h, 1, &f);
        const uint32_t nan = (bits & 0x8000u) << 16 | 0x7F800000u | (bits & 0x3FFu) << 13;
        assert_int_equal(tx_bits_of(b32), bits << 16);
        assert_int_equal(tx_bits_of(f32), isnan(f) ? nan : tx_bits_of((float)f));
        check_about(b32);
        check_about(tx_float_of(bits << 16 | 0x8000u));
        check_about(f32);
        check_about(tx_float_of(tx_bits_of(f32) | 0x1000u));      /* halfway between normal numbers */
        check_about(ldexpf((float)(2 * (bits % 1024) + 1), -25)); /* and between subnormal ones */
    }
    for (uint32_t i = 0; i < 400000; i++)
        check_rounding(tx_float_of(i * 10739u)); /* covers all of the 32-bit patterns evenly */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),    cmocka_unit_test(test_reduce_broadcast),
        cmocka_unit_test(test_self_adjoint), cmocka_unit_test(test_gather_scatter),
        cmocka_unit_test(test_philox),       cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
