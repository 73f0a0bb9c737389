/* SPDX-License-Identifier: Apache-2.0
 * Merged weights of adapted layers: reference and cases. A backend must have the bits of fp32 sums in order. Products
 * and sums of two fp32 numbers in double precision, rounded to fp32, are those of fp32. */
#include "tests/ops/case.h"

/* The place of an element of the weight. */
typedef struct place {
    int64_t matrix, output, input, inputs;
} place;

static place place_of(const tx_call *call, int64_t i)
{
    const tx_shape *w = &call->in[0].shape;
    const int64_t last = tx_shape_last(w), rows = w->dim[w->rank - 2], row = i / last % rows;
    const bool turned = call->attrs.trans_a;
    return (place){i / last / rows, turned ? i % last : row, turned ? row : i % last, turned ? rows : last};
}

static void add_low_rank_reference(tx_call *call)
{
    const int64_t rank = tx_array_last(&call->in[2]);
    const int64_t all = call->in[1].shape.dim[call->in[1].shape.rank - 2];
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const place at = place_of(call, i);
        double x = call->in[0].value[i];
        for (int p = 0; p < TX_PLACES; p++) {
            const int64_t row = at.output - call->attrs.place[p], count = call->attrs.placed[p];
            if (row < 0 || row >= count)
                continue;
            const double *b = call->in[2 + p].value + (at.matrix * count + row) * rank;
            const double *a = call->in[1].value + (at.matrix * all + p * rank) * at.inputs + at.input;
            double sum = 0.0;
            for (int64_t k = 0; k < rank; k++)
                sum = tx_number_round(TX_F32, sum + tx_number_round(TX_F32, b[k] * a[k * at.inputs]));
            x = tx_number_round(TX_F32, x + tx_number_round(TX_F32, (double)call->attrs.alpha * sum));
        }
        tx_array_put(&call->out[0], i, x, 0.0);
    }
}

TX_OUTPUT(add_low_rank_outputs, TX_F32, call->in[0].shape)

static const struct {
    int64_t matrices, out, in, rank; /* no leading dimension if there are 0 matrices */
    int32_t place[TX_PLACES], placed[TX_PLACES];
    float scale;
} all[] = {{0, 1, 1, 1, {0}, {1}, 1.0f},
           {0, 7, 5, 3, {0}, {7}, 0.3f},
           {0, 33, 300, 4, {20, 1}, {13, 16}, -2.0f},
           {0, 64, 31, 9, {0, 16, 24, 60}, {16, 8, 33, 4}, 1.7f},
           {3, 17, 20, 2, {0}, {17}, 0.7f},
           {0, 2048, 2048, 16, {0}, {2048}, 2.0f}};

static void add(tx_cases *list, size_t s, bool turned)
{
    tx_case *c = tx_case_add(list, "[%lld, %lld] of rank %lld%s", (long long)all[s].out, (long long)all[s].in,
                             (long long)all[s].rank, turned ? ", turned" : "");
    const int64_t n = all[s].matrices, out = all[s].out, in = all[s].in, rank = all[s].rank;
    int64_t parts = 0;
    c->attrs.alpha = all[s].scale;
    c->attrs.trans_a = turned;
    c->attrs.rows = out;
    c->flags = out == 2048 ? TX_CASE_BENCH : 0u;
    for (int p = 0; p < TX_PLACES; p++) {
        const int32_t rows = all[s].placed[p];
        c->attrs.place[p] = all[s].place[p];
        c->attrs.placed[p] = rows;
        parts += rows > 0;
        if (rows)
            c->in[2 + p] = tx_spec_real(n ? TX_SHAPE(n, rows, rank) : TX_SHAPE(rows, rank));
    }
    const int64_t first = turned ? in : out, last = turned ? out : in;
    c->in[0] = tx_spec_real(n ? TX_SHAPE(n, first, last) : TX_SHAPE(first, last));
    c->in[1] = tx_spec_real(n ? TX_SHAPE(n, parts * rank, in) : TX_SHAPE(parts * rank, in));
}

static void add_low_rank_cases(tx_cases *list)
{
    for (size_t s = 0; s < sizeof all / sizeof all[0]; s++) {
        add(list, s, false);
        add(list, s, true);
    }
}

const tx_descriptor tx_descriptor_add_low_rank = {
    .cases = add_low_rank_cases, .outputs = add_low_rank_outputs, .reference = add_low_rank_reference};
