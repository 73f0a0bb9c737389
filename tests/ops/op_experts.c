/* SPDX-License-Identifier: Apache-2.0
 * The greatest elements of rows, routes to experts and weighted sums: references and cases. */
#include "tests/ops/case.h"

#include <math.h>

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

/* ---- The greatest elements --------------------------------------------------------------------- */

/* The key of element i of a row, rounded as the op rounds it. */
static double key_of(const tx_call *call, const double *x, int64_t i)
{
    const double key = call->in[1].count ? tx_number_round(TX_F32, x[i] + call->in[1].value[i]) : x[i];
    return isnan(key) ? INFINITY : key;
}

/* How many elements first..last-1 of the row come before element i: an order by counting, which sorts nothing. */
static int64_t rank_of(const tx_call *call, const double *x, int64_t first, int64_t last, int64_t i)
{
    int64_t before = 0;
    for (int64_t j = first; j < last; j++) {
        const double a = key_of(call, x, j), b = key_of(call, x, i);
        before += a > b || (a == b && j < i);
    }
    return before;
}

#define MOST_GROUPS 64

/* The sum of the greatest keys of a group. */
static double score_of(const tx_call *call, const double *x, int64_t group, int64_t size)
{
    double sum = 0.0;
    for (int64_t rank = 0; rank < call->attrs.choice.best; rank++)
        for (int64_t i = group * size; i < (group + 1) * size; i++)
            if (rank_of(call, x, group * size, (group + 1) * size, i) == rank)
                sum = tx_number_round(TX_F32, sum + key_of(call, x, i));
    return sum;
}

/* Sets which groups of a row are kept: those with fewer than attrs.choice.kept others before them. */
static void mark_kept(const tx_call *call, const double *x, int64_t size, bool kept[])
{
    const int32_t groups = call->attrs.choice.groups;
    double score[MOST_GROUPS];
    for (int32_t g = 0; g < groups; g++)
        score[g] = score_of(call, x, g, size);
    for (int32_t g = 0; g < groups; g++) {
        int32_t before = 0;
        for (int32_t o = 0; o < groups; o++)
            before += score[o] > score[g] || (score[o] == score[g] && o < g);
        kept[g] = before < call->attrs.choice.kept;
    }
}

/* The number of chosen elements before element i of a row; the number of elements if its group is not kept. */
static int64_t place_of(const tx_call *call, const double *x, int64_t n, int64_t i, const bool kept[])
{
    const int64_t groups = call->attrs.choice.groups, size = groups ? n / groups : n;
    int64_t place = 0;
    if (!groups)
        return rank_of(call, x, 0, n, i);
    for (int64_t g = 0; g < groups && kept[i / size]; g++)
        place += kept[g] ? rank_of(call, x, g * size, (g + 1) * size, i) : 0;
    return kept[i / size] ? place : n;
}

static void top_k_reference(tx_call *call)
{
    const int64_t n = tx_array_last(&call->in[0]), k = call->attrs.rows;
    bool kept[MOST_GROUPS] = {false};
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double *x = call->in[0].value + i / n * n;
        if (i % n == 0 && call->attrs.choice.groups)
            mark_kept(call, x, n / call->attrs.choice.groups, kept);
        const int64_t place = place_of(call, x, n, i % n, kept);
        if (place >= k)
            continue;
        tx_array_put(&call->out[0], i / n * k + place, call->in[0].value[i] * (double)call->attrs.alpha,
                     call->attrs.alpha == 1.0f ? 0.0 : fabs(call->in[0].value[i] * (double)call->attrs.alpha));
        tx_array_put(&call->out[1], i / n * k + place, (double)(i % n), 0.0);
    }
    for (int64_t row = 0; row < call->out[0].count / k && call->attrs.choice.normalized; row++) {
        double *y = call->out[0].value + row * k, sum = 0.0;
        for (int64_t i = 0; i < k; i++)
            sum += y[i] / (double)call->attrs.alpha;
        for (int64_t i = 0; i < k; i++)
            tx_array_put(&call->out[0], row * k + i, y[i] / fmax(sum, (double)call->attrs.eps),
                         4.0 * y[i] / fmax(sum, (double)call->attrs.eps));
    }
}

static void top_k_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    call->out[0].shape.dim[call->out[0].shape.rank - 1] = call->attrs.rows;
    call->out[1] = call->out[0];
    call->out[1].dtype = TX_I32;
}

/* Biases, groups, normalised weights, scales; the eps of the last but one exceeds some sums. */
static const struct {
    int64_t of, k;
    int32_t groups, kept, best;
    bool biased, normalized;
    float eps, scale;
} rules[] = {{8, 3, 0, 0, 0, true, false, 0.0f, 1.0f},    {8, 2, 2, 1, 2, true, true, 1e-20f, 2.5f},
             {60, 6, 6, 3, 1, false, false, 0.0f, 16.0f}, {256, 8, 8, 4, 2, true, true, 1e-20f, 2.5f},
             {64, 4, 64, 7, 1, true, true, 1e-12f, 1.0f}, {33, 5, 3, 2, 4, true, true, 1e-20f, 1.8f},
             {12, 2, 0, 0, 0, false, true, 1.0f, 1.5f},   {128, 8, 1, 1, 2, true, true, 1e-20f, 1.0f}};
#define RULES (sizeof rules / sizeof rules[0])

static void set_choice(tx_case *c, size_t i, int64_t rows)
{
    c->attrs.rows = rows;
    c->attrs.alpha = rules[i].scale;
    c->attrs.eps = rules[i].eps;
    c->attrs.choice.groups = rules[i].groups;
    c->attrs.choice.kept = rules[i].kept;
    c->attrs.choice.best = rules[i].best;
    c->attrs.choice.normalized = rules[i].normalized;
}

static void top_k_cases(tx_cases *list)
{
    static const int64_t sizes[][3] = {/* rows, of, k */
                                       {1, 1, 1},    {3, 4, 2},    {17, 8, 2},   {5, 60, 4},   {9, 7, 7},
                                       {130, 33, 3}, {65, 128, 8}, {2, 1025, 5}, {4096, 64, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int ties = 0; ties < 2; ties++) {
            const int64_t *n = sizes[s];
            tx_case *c = tx_case_add(list, "%lld of [%lld, %lld]%s", (long long)n[2], (long long)n[0], (long long)n[1],
                                     ties ? ", equal ones" : "");
            c->in[0] = ties ? tx_spec_of(TX_F32, TX_SHAPE(n[0], n[1]), TX_FILL_INDEX, -1.0, 2.0)
                            : tx_spec_real(TX_SHAPE(n[0], n[1]));
            c->attrs.rows = n[2];
            c->attrs.alpha = 1.0f;
            c->flags = n[0] == 4096 ? TX_CASE_BENCH : ties ? TX_CASE_ZEROS : 0u;
        }
    tx_case *c = tx_case_add(list, "infinities and NaN");
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(3, 5), TX_FILL_SPECIAL, -1.0, 1.0);
    c->attrs.rows = 4;
    c->attrs.alpha = 1.0f;
    c = tx_case_add(list, "rows of -inf");
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(3, 5), TX_FILL_HOLES, -1.0, 1.0);
    c->attrs.rows = 3;
    c->attrs.alpha = 1.0f;
    c->flags = TX_CASE_ZEROS;
    for (size_t i = 0; i < RULES; i++) {
        c = tx_case_add(list, "choice %d", (int)i);
        c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(9, rules[i].of), TX_FILL_UNIFORM, 0.05, 1.0);
        c->in[1] = rules[i].biased ? tx_spec_real(TX_SHAPE(rules[i].of)) : c->in[1];
        set_choice(c, i, rules[i].k);
    }
    tx_case_chunks(list);
}

static void top_k_grad_reference(tx_call *call)
{
    const int64_t k = tx_array_last(&call->in[0]), n = call->attrs.rows;
    const double alpha = (double)call->attrs.alpha, eps = (double)call->attrs.eps;
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t i = 0; i < call->in[0].count; i++) {
        double sum = 0.0, dot = 0.0, dy = call->in[0].value[i] * alpha;
        for (int64_t j = i / k * k; j < (i / k + 1) * k && call->attrs.choice.normalized; j++) {
            const double x = call->in[2].value[i / k * n + (int64_t)call->in[1].value[j]];
            sum += x;
            dot += x * call->in[0].value[j] * alpha;
        }
        const double magnitude = fabs(dy) + fabs(sum > eps ? dot / sum : 0.0) + (double)k;
        if (call->attrs.choice.normalized)
            dy = sum > eps ? (dy - dot / sum) / sum : dy / eps;
        tx_array_put(&call->out[0], i / k * n + (int64_t)call->in[1].value[i], dy,
                     call->attrs.choice.normalized ? 4.0 * magnitude / fmax(sum, eps)
                     : alpha == 1.0                ? 0.0
                                                   : fabs(dy));
    }
}

static void top_k_grad_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    call->out[0].shape.dim[call->out[0].shape.rank - 1] = call->attrs.rows;
}

static void top_k_grad_cases(tx_cases *list)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 4, 2}, {17, 8, 2}, {9, 7, 7}, {130, 33, 3}, {4096, 64, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t *n = sizes[s];
        tx_case *c = tx_case_add(list, "%lld of [%lld, %lld]", (long long)n[2], (long long)n[0], (long long)n[1]);
        c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[2]));
        c->in[1] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[2]), TX_FILL_DISTINCT, 0.0, (double)n[1]);
        c->attrs.rows = n[1];
        c->attrs.alpha = 1.0f;
        c->flags = TX_CASE_ZEROS | (n[0] == 4096 ? TX_CASE_BENCH : 0u);
    }
    for (size_t i = 0; i < RULES; i++) {
        tx_case *c = tx_case_add(list, "choice %d", (int)i);
        c->in[0] = tx_spec_real(TX_SHAPE(9, rules[i].k));
        c->in[1] = tx_spec_of(TX_I32, TX_SHAPE(9, rules[i].k), TX_FILL_DISTINCT, 0.0, (double)rules[i].of);
        if (rules[i].normalized)
            c->in[2] = tx_spec_of(TX_F32, TX_SHAPE(9, rules[i].of), TX_FILL_UNIFORM, 0.05, 1.0);
        set_choice(c, i, rules[i].of);
        c->flags = TX_CASE_ZEROS;
    }
}

/* ---- Routes ------------------------------------------------------------------------------------ */

/* Expert by expert, all choices of first rank, then of second. */
static void route_reference(tx_call *call)
{
    const tx_array *choices = &call->in[0];
    const int64_t k = tx_array_last(choices), tokens = choices->count / k;
    const double *ids = call->in[1].count ? call->in[1].value : NULL;
    int64_t place = 0;
    double all = 0.0;
    for (int64_t i = 0; i < choices->count; i++) {
        tx_array_put(&call->out[0], i, -1.0, 0.0);
        tx_array_put(&call->out[1], i, -1.0, 0.0);
        all += !ids || ids[i / k] >= 0.0;
    }
    const double most = ceil((double)call->attrs.scale * all / (double)call->attrs.rows);
    for (int64_t e = 0; e < call->attrs.rows; e++) {
        int64_t chosen = 0;
        tx_array_put(&call->out[2], e, (double)place, 0.0);
        for (int64_t j = 0; j < k; j++)
            for (int64_t n = 0; n < tokens; n++) {
                if (choices->value[n * k + j] != (double)e || (ids && ids[n] < 0.0))
                    continue;
                chosen++;
                if (call->attrs.scale > 0.0f && (double)chosen > most)
                    continue;
                call->out[0].value[place] = (double)n;
                call->out[1].value[n * k + j] = (double)place++;
            }
        tx_array_put(&call->out[3], e, (double)chosen, 0.0);
    }
    tx_array_put(&call->out[2], call->attrs.rows, (double)place, 0.0);
}

static void route_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_I32, .shape = TX_SHAPE(call->in[0].count)};
    call->out[1] = (tx_array){.dtype = TX_I32, .shape = call->in[0].shape};
    call->out[2] = (tx_array){.dtype = TX_I32, .shape = TX_SHAPE(call->attrs.rows + 1)};
    call->out[3] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->attrs.rows)};
}

static void route_cases(tx_cases *list)
{
    static const struct {
        int64_t tokens, k, experts, chosen; /* of the experts */
        float capacity;                     /* times an even share; 0 if all are kept */
        bool padded;
    } sizes[] = {
        {1, 1, 1, 1, 0.0f, false},     {5, 2, 4, 4, 0.0f, false},        {5, 2, 4, 4, 0.0f, true},
        {17, 2, 8, 8, 0.7f, false},    {16, 2, 8, 1, 0.0f, false},       {16, 2, 8, 1, 1.25f, true},
        {33, 3, 5, 2, 1.0f, false},    {33, 3, 5, 2, 1.0f, true},        {300, 4, 60, 60, 0.0f, false},
        {300, 4, 60, 60, 0.95f, true}, {257, 8, 128, 9, 0x1p-70f, true}, {64, 1, 3, 3, 1e6f, true},
        {8192, 2, 8, 8, 0.0f, false},  {1, 2, 3, 3, 1.0f, true},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t n = sizes[s].tokens, k = sizes[s].k;
        tx_case *c = tx_case_add(list, "[%lld, %lld] to %lld of %lld, %g times an even share%s", (long long)n,
                                 (long long)k, (long long)sizes[s].chosen, (long long)sizes[s].experts,
                                 (double)sizes[s].capacity, sizes[s].padded ? ", padding" : "");
        c->in[0] = tx_spec_of(TX_I32, TX_SHAPE(n, k), TX_FILL_INDEX, 0.0, (double)sizes[s].chosen);
        if (sizes[s].padded)
            c->in[1] = tx_spec_of(TX_I32, TX_SHAPE(n), TX_FILL_INDEX, -2.0, 3.0);
        c->attrs.rows = sizes[s].experts;
        c->attrs.scale = sizes[s].capacity;
        c->flags = TX_CASE_ZEROS | (n == 8192 ? TX_CASE_BENCH : 0u);
    }
    tx_case_chunks(list);
}

/* ---- The sum of the experts' outputs ------------------------------------------------------------- */

static void combine_reference(tx_call *call)
{
    const tx_array *x = &call->in[0], *weights = &call->in[1];
    const int64_t width = tx_array_last(x), k = tx_array_last(weights);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t j = i / width * k; j < (i / width + 1) * k; j++) {
            const int64_t place = (int64_t)call->in[2].value[j];
            const double term = place < 0 ? 0.0 : weights->value[j] * x->value[place * width + i % width];
            sum += term;
            magnitude += fabs(term);
        }
        tx_array_put(&call->out[0], i, sum, magnitude);
    }
}

static void combine_outputs(tx_call *call)
{
    call->out[0] =
        (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->in[1].shape.dim[0], tx_array_last(&call->in[0]))};
}

TX_LENGTH(combine_length, tx_array_last(&call->in[1]))

static void combine_grad_reference(tx_call *call)
{
    const tx_array *dy = &call->in[0], *x = &call->in[1], *weights = &call->in[2];
    const int64_t width = tx_array_last(x), k = tx_array_last(weights);
    for (int64_t i = 0; i < x->count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t j = 0; j < weights->count; j++) {
        const int64_t place = (int64_t)call->in[3].value[j];
        double sum = 0.0, magnitude = 0.0;
        for (int64_t i = 0; i < width && place >= 0; i++) {
            const double d = dy->value[j / k * width + i], term = d * x->value[place * width + i];
            sum += term;
            magnitude += fabs(term);
            tx_array_put(&call->out[0], place * width + i, d * weights->value[j], fabs(d * weights->value[j]));
        }
        tx_array_put(&call->out[1], j, sum, magnitude);
    }
}

static void combine_grad_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[2].shape};
}

TX_LENGTH(combine_grad_length, tx_array_last(&call->in[1]))

/* Appends operands from input x on. */
static void add_combined(tx_cases *list, int x)
{
    static const int64_t sizes[][3] = {/* tokens, k, width */
                                       {1, 1, 1},    {7, 2, 5},   {17, 3, 33},  {16, 2, 64},
                                       {65, 8, 128}, {300, 1, 9}, {3, 2, 1027}, {4096, 2, 1024}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 3; t++) {
            const int64_t *n = sizes[s];
            tx_case *c = tx_case_add(list, "%s [%lld, %lld] of %lld", tx_dtype_name(floats[t]), (long long)n[0],
                                     (long long)n[1], (long long)n[2]);
            if (x > 0)
                c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[2]));
            c->in[x] = tx_spec_real(TX_SHAPE(n[0] * n[1], n[2]));
            c->in[x].dtype = floats[t];
            c->in[x + 1] = tx_spec_real(TX_SHAPE(n[0], n[1]));
            c->in[x + 2] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), TX_FILL_PLACES, 0.0, 0.0);
            c->in[x + 3] = tx_spec_of(TX_I32, TX_SHAPE(n[0] * n[1]), TX_FILL_TOKENS, 0.0, (double)n[1]);
            c->flags = n[0] == 4096 ? TX_CASE_BENCH : 0u;
        }
    tx_case_chunks(list);
}

static void combine_cases(tx_cases *list)
{
    add_combined(list, 0);
}

static void combine_grad_cases(tx_cases *list)
{
    add_combined(list, 1);
}

const tx_descriptor tx_descriptor_top_k = {
    .cases = top_k_cases, .outputs = top_k_outputs, .reference = top_k_reference};
const tx_descriptor tx_descriptor_top_k_grad = {
    .cases = top_k_grad_cases, .outputs = top_k_grad_outputs, .reference = top_k_grad_reference};
const tx_descriptor tx_descriptor_route = {
    .cases = route_cases, .outputs = route_outputs, .reference = route_reference};
const tx_descriptor tx_descriptor_combine = {
    .cases = combine_cases, .outputs = combine_outputs, .reference = combine_reference, .length = combine_length};
const tx_descriptor tx_descriptor_combine_grad = {
    .cases = combine_grad_cases,
    .outputs = combine_grad_outputs,
    .reference = combine_grad_reference,
    .length = combine_grad_length,
    .gradient = true,
    .forward = TX_OP_COMBINE,
    .source = {TX_FROM_DY, TX_FROM_IN(0), TX_FROM_IN(1), TX_FROM_IN(2), TX_FROM_IN(3)},
    .gradient_of = {1, 2}};
