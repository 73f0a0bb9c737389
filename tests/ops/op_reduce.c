/* SPDX-License-Identifier: Apache-2.0
 * Reductions and their converse, the broadcast: references and cases. */
#include "tests/ops/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* attrs.alpha times the control that attrs.control names. */
static double factor_of(const tx_call *call)
{
    double factor = call->attrs.alpha;
    if (call->attrs.control >= 0)
        factor *= (double)call->controls.word[call->attrs.control].f32;
    return factor;
}

/* Which element of the reduced tensor element i of x belongs to. */
static int64_t group_of(tx_axis axis, const tx_shape *x, int64_t i)
{
    int64_t last = tx_shape_last(x);
    return axis == TX_AXIS_ALL ? 0 : axis == TX_AXIS_LAST ? i / last : i % last;
}

static tx_shape reduced_shape(tx_axis axis, const tx_shape *x)
{
    if (axis == TX_AXIS_ROWS)
        return TX_SHAPE(tx_shape_last(x));
    if (axis == TX_AXIS_ALL || x->rank == 1)
        return TX_SHAPE(1);
    tx_shape s = *x;
    s.dim[--s.rank] = 0;
    return s;
}

static void reduce_reference(tx_call *call)
{
    const tx_array *x = &call->in[0];
    tx_array *y = &call->out[0];
    tx_reduction kind = call->attrs.reduction;
    double factor = factor_of(call), share = kind == TX_REDUCE_MEAN ? (double)y->count / (double)x->count : 1.0;
    for (int64_t i = 0; i < y->count; i++)
        tx_array_put(y, i, kind == TX_REDUCE_MAX ? -INFINITY : 0.0, 0.0);
    for (int64_t i = 0; i < x->count; i++) {
        int64_t g = group_of(call->attrs.axis, &x->shape, i);
        double v = kind == TX_REDUCE_SUMSQ ? x->value[i] * x->value[i] : x->value[i];
        if (kind == TX_REDUCE_MAX) {
            double top = fmax(y->value[g], v);
            tx_array_put(y, g, top, fabs(top));
        } else {
            tx_array_put(y, g, y->value[g] + share * v, y->magnitude[g] + share * fabs(v));
        }
    }
    for (int64_t i = 0; i < y->count; i++)
        tx_array_put(y, i, factor * y->value[i], fabs(factor) * y->magnitude[i]);
}

static void reduce_outputs(tx_call *call)
{
    const tx_shape *x = &call->in[0].shape;
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = reduced_shape(call->attrs.axis, x)};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_reduce_work(call->attrs.axis, x))};
}

TX_LENGTH(reduce_length, (double)call->in[0].count / (double)call->out[0].count)

static const char *const axis_names[] = {"all", "last", "rows"};

static tx_case *add_reduction(tx_cases *list, tx_shape shape, tx_reduction reduction, tx_axis axis)
{
    static const char *const names[] = {"sum", "mean", "max", "sumsq"};
    char text[64];
    tx_case *c =
        tx_case_add(list, "%s %s %s", names[reduction], axis_names[axis], tx_shape_text(&shape, text, sizeof text));
    c->attrs.reduction = reduction;
    c->attrs.axis = axis;
    c->attrs.alpha = 1.0f;
    c->in[0] = tx_spec_of(TX_F32, shape, TX_FILL_UNIFORM, -1.0, 1.5);
    if (reduction == TX_REDUCE_MAX)
        c->in[0].hi = -0.25; /* a kernel that begins at 0 is wrong here */
    return c;
}

static void reduce_cases(tx_cases *list)
{
    static const tx_shape shapes[] = {{1, {1}},        {1, {7}},     {2, {3, 5}},    {2, {17, 63}},
                                      {3, {3, 5, 65}}, {2, {64, 1}}, {2, {1, 4097}}, {2, {90, 100}}};
    for (int r = 0; r < 4; r++)
        for (int a = 0; a < 3; a++) {
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                add_reduction(list, shapes[s], (tx_reduction)r, (tx_axis)a);
            tx_case *c = add_reduction(list, shapes[3], (tx_reduction)r, (tx_axis)a);
            c->attrs.alpha = -2.5f;
            c->attrs.control = TX_CONTROL_INVERSE_LABELS;
            tx_case_accumulate(list);
            if (a == TX_AXIS_ALL) {
                add_reduction(list, TX_SHAPE(33, 129), (tx_reduction)r, (tx_axis)a)->flags |= TX_CASE_RESULT;
                tx_case_accumulate(list);
            }
            if (r != TX_REDUCE_MAX) {
                c = add_reduction(list, shapes[3], (tx_reduction)r, (tx_axis)a);
                c->in[0].fill = TX_FILL_NAN;
            }
        }
    add_reduction(list, TX_SHAPE(4100, 3), TX_REDUCE_SUM, TX_AXIS_ROWS);
    add_reduction(list, TX_SHAPE(1100000), TX_REDUCE_SUMSQ, TX_AXIS_ALL);
    tx_case_chunks(list);
    tx_case_half(list, 1, false);
    for (int a = 0; a < 3; a++)
        add_reduction(list, TX_SHAPE(4096, 3072), TX_REDUCE_SUM, (tx_axis)a)->flags |= TX_CASE_BENCH;
}

/* ---- Broadcast --------------------------------------------------------------------------------- */

static void broadcast_reference(tx_call *call)
{
    double factor = factor_of(call);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double y = factor * call->in[0].value[group_of(call->attrs.axis, &call->out[0].shape, i)];
        tx_array_put(&call->out[0], i, y, fabs(y));
    }
}

static void broadcast_outputs(tx_call *call)
{
    call->out[0].dtype = TX_F32;
}

static tx_case *add_broadcast(tx_cases *list, tx_shape shape, tx_axis axis)
{
    char text[64];
    tx_case *c = tx_case_add(list, "%s %s", axis_names[axis], tx_shape_text(&shape, text, sizeof text));
    bool scaled = list->count % 2 == 0;
    c->attrs.axis = axis;
    c->attrs.alpha = scaled ? -1.75f : 1.0f;
    c->attrs.control = scaled ? TX_CONTROL_INVERSE_LABELS : -1;
    c->in[0] = tx_spec_real(reduced_shape(axis, &shape));
    c->out_shape = shape;
    c->flags = tx_shape_count(&c->in[0].shape) == 1 ? TX_CASE_ZEROS : 0u; /* one value, everywhere */
    return c;
}

static void broadcast_cases(tx_cases *list)
{
    static const tx_shape shapes[] = {{1, {1}},        {1, {7}},     {2, {3, 5}},   {2, {17, 63}},
                                      {3, {3, 5, 65}}, {2, {64, 1}}, {2, {1, 1027}}};
    for (int a = 0; a < 3; a++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            add_broadcast(list, shapes[s], (tx_axis)a);
        tx_case_chunks(list);
        add_broadcast(list, TX_SHAPE(4096, 3072), (tx_axis)a)->flags |= TX_CASE_BENCH;
    }
}

/* ---- Quantile ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void quantile_reference(tx_call *call)
{
    const tx_array *x = &call->in[0];
    double *sorted = malloc((size_t)x->count * sizeof *sorted), value = 0.0, size = 0.0;
    int64_t n = 0;
    bool nan = false;
    for (int64_t i = 0; sorted && i < x->count; i++)
        if (call->in[1].value[i] != 0.0) {
            sorted[n++] = x->value[i];
            nan = nan || isnan(x->value[i]);
        }
    if (sorted && n) {
        qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        const double at = (double)(call->attrs.alpha * (float)(n - 1));
        const double a = sorted[(int64_t)floor(at)], b = sorted[(int64_t)ceil(at)];
        value = nan ? (double)NAN : a + (at - floor(at)) * (b - a);
        size = fabs(a) + fabs(b);
    }
    tx_array_put(&call->out[0], 0, sorted ? value : (double)NAN, size);
    free(sorted);
}

TX_OUTPUT(quantile_outputs, TX_F32, TX_SHAPE(1))

static void quantile_cases(tx_cases *list)
{
    static const float shares[] = {0.0f, 0.2f, 0.5f, 0.8f, 1.0f};
    static const tx_shape shapes[] = {{1, {1}}, {2, {3, 5}}, {2, {17, 63}}, {2, {90, 100}}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++) {
            char text[64];
            tx_case *c = tx_case_add(list, "%g %s", (double)shares[k], tx_shape_text(&shapes[s], text, sizeof text));
            c->attrs.alpha = shares[k];
            /* Every second list has many equal elements. */
            c->in[0] = k % 2 ? tx_spec_of(TX_F32, shapes[s], TX_FILL_INDEX, -3.0, 4.0) : tx_spec_real(shapes[s]);
            c->in[1] = tx_spec_of(TX_F32, shapes[s], TX_FILL_INDEX, s ? 0.0 : 1.0, 2.0);
            c->flags = TX_CASE_ZEROS;
        }
    tx_case *c = tx_case_copy(list, ", nothing counts");
    c->in[1].hi = 1.0;
    tx_case_copy(list, ", NaN")->in[0].fill = TX_FILL_NAN;
    list->item[list->count - 1].in[1] = tx_spec_of(TX_F32, shapes[3], TX_FILL_INDEX, 1.0, 2.0);
    tx_case_chunks(list);
}

const tx_descriptor tx_descriptor_reduce = {.cases = reduce_cases,
                                            .outputs = reduce_outputs,
                                            .reference = reduce_reference,
                                            .length = reduce_length,
                                            .work = 2};
const tx_descriptor tx_descriptor_quantile = {
    .cases = quantile_cases, .outputs = quantile_outputs, .reference = quantile_reference};
const tx_descriptor tx_descriptor_broadcast = {
    .cases = broadcast_cases, .outputs = broadcast_outputs, .reference = broadcast_reference};
