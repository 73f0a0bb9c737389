/* SPDX-License-Identifier: Apache-2.0
 * Matrices that become parts of a larger one: references and cases. */
#include "tests/ops/case.h"

/* Returns the element of part `p` that is element i of the larger matrix with `width` columns, or -1. */
static int64_t element_of(const tx_call *call, int p, int64_t i, int64_t width, int64_t columns)
{
    const int64_t row = i / width - call->attrs.place[p], column = i % width - (int64_t)p * call->attrs.step;
    return row >= 0 && row < call->attrs.placed[p] && column >= 0 && column < columns ? row * columns + column : -1;
}

static void place_reference(tx_call *call)
{
    const int64_t width = tx_array_last(&call->out[0]), columns = tx_array_last(&call->in[0]);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        tx_array_put(&call->out[0], i, 0.0, 0.0);
        for (int p = 0; p < TX_PLACES; p++) {
            const int64_t from = element_of(call, p, i, width, columns);
            const double x = from < 0 ? 0.0 : (double)call->attrs.alpha * call->in[p].value[from];
            tx_array_add(&call->out[0], i, x, fabs(x));
        }
    }
}

static int64_t parts_of(const tx_attrs *attrs)
{
    int64_t parts = 0;
    for (int p = 0; p < TX_PLACES; p++)
        parts += attrs->placed[p] > 0;
    return parts;
}

TX_OUTPUT(place_outputs, TX_F32,
          TX_SHAPE(call->attrs.rows,
                   tx_array_last(&call->in[0]) + (parts_of(&call->attrs) - 1) * (int64_t)call->attrs.step))

static const struct {
    int64_t rows, columns, place[TX_PLACES], placed[TX_PLACES];
    int32_t step;
    float alpha;
} all[] = {{1, 1, {0}, {1}, 0, 1.0f},
           {9, 3, {1}, {5}, 2, -1.5f},
           {40, 8, {0, 32}, {32, 8}, 8, 2.0f},
           {41, 5, {30, 1, 9}, {11, 7, 20}, 3, 0.5f},
           {257, 16, {0, 64, 96, 200}, {64, 32, 33, 57}, 16, 2.0f},
           {12, 1, {8, 0}, {4, 8}, 0, 1.0f},
           {100, 130, {99, 7, 50}, {1, 1, 40}, 64, 1.0f},
           {4096, 64, {0, 2048, 2304}, {2048, 256, 256}, 64, 2.0f}};

static tx_case *add_case(tx_cases *list, size_t s)
{
    tx_case *c = tx_case_add(list, "[%lld, %lld] from %lld by %lld", (long long)all[s].rows, (long long)all[s].columns,
                             (long long)all[s].place[0], (long long)all[s].step);
    c->attrs.rows = all[s].rows;
    c->attrs.step = all[s].step;
    c->attrs.alpha = all[s].alpha;
    for (int p = 0; p < TX_PLACES; p++) {
        c->attrs.place[p] = (int32_t)all[s].place[p];
        c->attrs.placed[p] = (int32_t)all[s].placed[p];
    }
    c->flags = all[s].rows == 4096 ? TX_CASE_BENCH : TX_CASE_ZEROS;
    return c;
}

static void place_cases(tx_cases *list)
{
    for (size_t s = 0; s < sizeof all / sizeof all[0]; s++) {
        tx_case *c = add_case(list, s);
        for (int p = 0; p < TX_PLACES; p++)
            if (all[s].placed[p])
                c->in[p] = tx_spec_real(TX_SHAPE(all[s].placed[p], all[s].columns));
    }
}

static void grad_reference(tx_call *call)
{
    const int64_t width = tx_array_last(&call->in[0]), columns = tx_array_last(&call->out[0]);
    for (int p = 0; p < TX_PLACES; p++)
        for (int64_t i = 0; i < call->in[0].count; i++) {
            const int64_t to = element_of(call, p, i, width, columns);
            const double x = (double)call->attrs.alpha * call->in[0].value[i];
            if (to >= 0)
                tx_array_put(&call->out[p], to, x, fabs(x));
        }
}

static void grad_outputs(tx_call *call)
{
    const int64_t parts = parts_of(&call->attrs),
                  columns = tx_array_last(&call->in[0]) - (parts - 1) * call->attrs.step;
    for (int64_t p = 0; p < parts; p++)
        call->out[p] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->attrs.placed[p], columns)};
}

static void grad_cases(tx_cases *list)
{
    for (size_t s = 0; s < sizeof all / sizeof all[0]; s++) {
        tx_case *c = add_case(list, s);
        c->in[0] = tx_spec_real(TX_SHAPE(all[s].rows, all[s].columns + (parts_of(&c->attrs) - 1) * all[s].step));
        if (!(c->flags & TX_CASE_BENCH))
            tx_case_accumulate(list);
    }
}

const tx_descriptor tx_descriptor_place_rows = {
    .cases = place_cases, .outputs = place_outputs, .reference = place_reference};
const tx_descriptor tx_descriptor_place_rows_grad = {
    .cases = grad_cases, .outputs = grad_outputs, .reference = grad_reference};
