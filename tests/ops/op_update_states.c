/* SPDX-License-Identifier: Apache-2.0
 * Updates whose states are smaller than the weights: of 16 and 8 bits, and of rows and columns. */
#include "backends/adafactor.h"
#include "tests/ops/update.h"

#include <math.h>
#include <stdio.h>

static const int64_t sizes[] = {1, 255, 256, 257, 1024, 5003, 8000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void adam_attrs(tx_case *c, size_t s)
{
    static const float updates[SIZES] = {1.0f, 2.0f, 7.0f, 100.0f, 5000.0f, 1.0f, 3.0f};
    c->attrs.update.beta1 = 0.9f;
    c->attrs.update.beta2 = s & 1 ? 0.999f : 0.95f;
    c->attrs.eps = 1e-8f;
    c->result[TX_RESULT_UPDATES] = updates[s];
}

/* ---- Any precision ----------------------------------------------------------------------------------- */

/* c collects the weight's rounding errors. Only their sum is determined, so that c may have an error of p's size. The
 * error of stochastic rounding is up to twice that of rounding to nearest. */
static void anyprecision_reference(tx_call *call)
{
    const double ulp = 0x1p-8 / (0x1p-24 * 14.0); /* half a unit of bf16, as a multiple of a magnitude's tolerance */
    const bool kahan = tx_array_present(&call->in[5]);
    const bool by_chance = call->in[0].dtype == TX_BF16;
    for (int32_t o = 0; o < (kahan ? 4 : 3) && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    for (int64_t i = 0; i < call->in[0].count && call->result[TX_RESULT_FINITE] != 0.0; i++) {
        const tx_adam_step s = tx_update_adamw(call, i, call->in[3].value[i], call->in[4].value[i]);
        const double rest = kahan ? call->in[5].value[i] : 0.0;
        tx_array_put(&call->out[0], i, s.p + rest, s.p_size + fabs(rest) + (by_chance ? ulp * fabs(s.p + rest) : 0.0));
        tx_array_put(&call->out[1], i, s.m, s.m_size + (by_chance ? ulp * fabs(s.m) : 0.0));
        tx_array_put(&call->out[2], i, s.v, s.v_size + (by_chance ? ulp * s.v : 0.0));
        if (kahan)
            tx_array_put(&call->out[3], i, 0.0,
                         s.p_size + fabs(rest) + (by_chance ? 2.0 * ulp * fabs(s.p + rest) : 0.0));
    }
}

static void anyprecision_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
    for (int32_t o = 1; o < 4; o++)
        if (tx_array_present(&call->in[2 + o]))
            call->out[o] = (tx_array){.dtype = call->in[2 + o].dtype, .shape = call->in[0].shape};
}

static void anyprecision_cases(tx_cases *list)
{
    static const tx_dtype types[][4] = {
        {TX_F32, TX_F32, TX_F32, TX_DTYPE_COUNT},    {TX_F32, TX_BF16, TX_BF16, TX_DTYPE_COUNT},
        {TX_F32, TX_BF16, TX_F32, TX_BF16},          {TX_F32, TX_F32, TX_BF16, TX_F32},
        {TX_BF16, TX_BF16, TX_BF16, TX_DTYPE_COUNT}, {TX_BF16, TX_F32, TX_BF16, TX_BF16}};
    for (size_t s = 0; s < SIZES; s++)
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            tx_case *c = tx_update_case(list, sizes[s]);
            const tx_shape shape = c->in[0].shape;
            adam_attrs(c, s);
            c->in[0].dtype = c->in[1].dtype = types[k][0];
            tx_update_state(c, 3, tx_spec_of(types[k][1], shape, TX_FILL_UNIFORM, -1.0, 1.0));
            tx_update_state(c, 4, tx_spec_of(types[k][2], shape, TX_FILL_UNIFORM, 0.0, 1.0));
            if (types[k][3] != TX_DTYPE_COUNT) {
                tx_update_state(c, 5, tx_spec_of(types[k][3], shape, TX_FILL_UNIFORM, -1e-3, 1e-3));
                c->flags |= TX_CASE_ZEROS;
            }
            if (sizes[s] == 5003)
                tx_update_skipped(list);
        }
}

/* ---- 8 bits -------------------------------------------------------------------------------------------- */

/* The map by its definition: decades of middles, with 0 and 1, sorted by the way it is made. */
static void make_map(bool has_sign, double map[256])
{
    int32_t n = has_sign ? 127 : 0;
    map[n++] = 0.0;
    for (int32_t i = 0; i < 7; i++) {
        const int32_t parts = has_sign ? 1 << i : 2 << i;
        for (int32_t k = 0; k < parts; k++)
            map[n++] = (0.1 + 0.9 * (k + 0.5) / parts) * pow(10.0, i - 6);
    }
    map[n] = 1.0;
    for (int32_t k = 0; has_sign && k < 127; k++)
        map[126 - k] = -map[128 + k];
}

/* Writes the nearest code. If two codes are equally near within fp32, any result is accepted. */
static void put_code(tx_array *out, int64_t i, const double map[256], double x)
{
    int32_t best = 0, second = 1;
    for (int32_t k = 1; k < 256; k++) {
        const double d = fabs(map[k] - x);
        if (d < fabs(map[best] - x)) {
            second = best;
            best = k;
        } else if (d < fabs(map[second] - x) || second == best) {
            second = k;
        }
    }
    const double gap = fabs(map[second] - x) - fabs(map[best] - x);
    tx_array_put(out, i, best, gap <= 2e-5 * fabs(x) ? (double)INFINITY : 0.0);
}

static void block_reference(tx_call *call, int64_t block, const double of_m[256], const double of_v[256])
{
    enum { M = 1, V = 2, ABSMAX = 3 };
    const int64_t first = block * TX_PARAM_BLOCK, left = call->in[0].count - first;
    const int64_t count = left < TX_PARAM_BLOCK ? left : TX_PARAM_BLOCK;
    const double *absmax = call->in[5].value + 2 * block;
    double m[TX_PARAM_BLOCK], v[TX_PARAM_BLOCK], most[2] = {0.0, 0.0};
    for (int64_t i = 0; i < count; i++) {
        const tx_adam_step s = tx_update_adamw(call, first + i, of_m[(int32_t)call->in[3].value[first + i]] * absmax[0],
                                               of_v[(int32_t)call->in[4].value[first + i]] * absmax[1]);
        tx_array_put(&call->out[0], first + i, s.p, s.p_size);
        m[i] = s.m;
        v[i] = s.v;
        most[0] = fmax(most[0], fabs(s.m));
        most[1] = fmax(most[1], s.v);
    }
    for (int64_t i = 0; i < count; i++) {
        put_code(&call->out[M], first + i, of_m, most[0] > 0.0 ? m[i] / most[0] : 0.0);
        put_code(&call->out[V], first + i, of_v, most[1] > 0.0 ? v[i] / most[1] : 0.0);
    }
    for (int64_t k = 0; k < 2; k++) /* as much room as the moments have */
        tx_array_put(&call->out[ABSMAX], 2 * block + k, most[k], 30.0 * most[k]);
}

static void adamw_8bit_reference(tx_call *call)
{
    double of_m[256], of_v[256];
    make_map(true, of_m);
    make_map(false, of_v);
    for (int32_t o = 0; o < 4 && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    for (int64_t b = 0; b < call->in[2].count && call->result[TX_RESULT_FINITE] != 0.0; b++)
        block_reference(call, b, of_m, of_v);
}

static void adamw_8bit_outputs(tx_call *call)
{
    for (int32_t o = 0; o < 4; o++) {
        const tx_array *in = &call->in[o == 0 ? 0 : 2 + o];
        call->out[o] = (tx_array){.dtype = in->dtype, .shape = in->shape};
    }
}

static void adamw_8bit_cases(tx_cases *list)
{
    for (size_t s = 0; s < SIZES; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        const tx_shape shape = c->in[0].shape, blocks = TX_SHAPE(2 * c->in[2].shape.dim[0]);
        adam_attrs(c, s);
        tx_update_state(c, 3, tx_spec_of(TX_U8, shape, TX_FILL_INDEX, 0.0, 256.0));
        tx_update_state(c, 4, tx_spec_of(TX_U8, shape, TX_FILL_INDEX, 0.0, 256.0));
        tx_update_state(c, 5, tx_spec_of(TX_F32, blocks, TX_FILL_UNIFORM, 0.01, 0.5));
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
    tx_case *c = tx_update_case(list, 257); /* the first step, from moments of zero; and without a gradient */
    adam_attrs(c, 0);
    tx_update_state(c, 3, tx_spec_of(TX_U8, c->in[0].shape, TX_FILL_INDEX, 127.0, 128.0));
    tx_update_state(c, 4, tx_spec_of(TX_U8, c->in[0].shape, TX_FILL_INDEX, 0.0, 1.0));
    tx_update_state(c, 5, tx_spec_of(TX_F32, TX_SHAPE(4), TX_FILL_UNIFORM, 0.0, 0.0));
    c = tx_case_copy(list, ", no gradient");
    c->in[1].lo = c->in[1].hi = 0.0;
    c->flags = TX_CASE_ZEROS;
}

/* If the sign of the update is that of rounding errors, nothing is expected of the weight. */
static void lion_8bit_reference(tx_call *call)
{
    const tx_attrs *a = &call->attrs;
    const double rate = tx_update_rate_of(call), beta1 = a->update.beta1, beta2 = a->update.beta2;
    double map[256];
    make_map(true, map);
    for (int32_t o = 0; o < 3 && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    for (int64_t b = 0; b < call->in[2].count && call->result[TX_RESULT_FINITE] != 0.0; b++) {
        const int64_t first = b * TX_PARAM_BLOCK, left = call->in[0].count - first;
        const int64_t end = first + (left < TX_PARAM_BLOCK ? left : TX_PARAM_BLOCK);
        const double keep = (int64_t)call->in[2].value[b] & 1 ? 1.0 - rate * (double)a->update.weight_decay : 1.0;
        double m[TX_PARAM_BLOCK], most = 0.0;
        for (int64_t i = first; i < end; i++) {
            const double p = call->in[0].value[i], g = call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i];
            const double old = map[(int32_t)call->in[3].value[i]] * call->in[4].value[b];
            const double sum = beta1 * old + (1.0 - beta1) * g, size = fabs(beta1 * old) + fabs((1.0 - beta1) * g);
            m[i - first] = beta2 * old + (1.0 - beta2) * g;
            most = fmax(most, fabs(m[i - first]));
            tx_array_put(&call->out[0], i,
                         p * keep - rate * (sum > 0.0   ? 1.0
                                            : sum < 0.0 ? -1.0
                                                        : 0.0),
                         fabs(sum) < 1e-6 * size ? (double)INFINITY : fabs(p) + rate);
        }
        for (int64_t i = first; i < end; i++)
            put_code(&call->out[1], i, map, most > 0.0 ? m[i - first] / most : 0.0);
        tx_array_put(&call->out[2], b, most, 30.0 * most);
    }
}

static void lion_8bit_outputs(tx_call *call)
{
    for (int32_t o = 0; o < 3; o++) {
        const tx_array *in = &call->in[o == 0 ? 0 : 2 + o];
        call->out[o] = (tx_array){.dtype = in->dtype, .shape = in->shape};
    }
}

static void lion_8bit_cases(tx_cases *list)
{
    for (size_t s = 0; s < SIZES; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        c->attrs.update.beta1 = 0.9f;
        c->attrs.update.beta2 = s & 1 ? 0.99f : 0.95f;
        tx_update_state(c, 3, tx_spec_of(TX_U8, c->in[0].shape, TX_FILL_INDEX, 0.0, 256.0));
        tx_update_state(c, 4, tx_spec_of(TX_F32, c->in[2].shape, TX_FILL_UNIFORM, 0.01, 0.5));
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
}

/* ---- Adafactor ------------------------------------------------------------------------------------------- */

/* Squares of u and of p, as root mean squares, to the rate; and the factor of weights. */
static void rates_of(const tx_call *call, double u, double p, double *rate, double *keep)
{
    const tx_attrs *a = &call->attrs;
    const double t = call->result[TX_RESULT_UPDATES], most = a->update.warmup_init ? 1e-6 * t : 1e-2;
    double r = tx_update_rate_of(call);
    if (a->update.relative_step)
        r = fmin(most, 1.0 / sqrt(t));
    if (a->update.scale_parameter)
        r *= fmax(1e-3, p);
    *keep = (int64_t)call->in[2].value[0] & 1 ? 1.0 - r * (double)a->update.weight_decay : 1.0;
    *rate = r / fmax(1.0, u);
}

/* Second moments of rows (each = columns apart along) or of columns. */
static void factor(const tx_call *call, double beta, int32_t state, int64_t rows, int64_t columns, tx_array *out)
{
    const double scale = call->result[TX_RESULT_GRAD_FACTOR];
    const int64_t count = state == 3 ? rows : columns, length = state == 3 ? columns : rows;
    for (int64_t k = 0; k < count; k++) {
        double sum = 0.0;
        for (int64_t i = 0; i < length; i++) {
            const double g = scale * call->in[1].value[state == 3 ? k * columns + i : i * columns + k];
            sum += g * g + 1e-30;
        }
        const double now = beta * call->in[state].value[k] + (1.0 - beta) * sum / (double)length;
        tx_array_put(out, k, now, now + beta * call->in[state].value[k] / (1.0 - beta));
    }
}

/* The gradient by the root of its second moment. */
static double unscaled(const tx_call *call, int64_t i, int64_t columns, double mean)
{
    const double g = call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i];
    if (columns == 0)
        return g / sqrt(call->out[1].value[i]);
    return g * sqrt(mean / call->out[1].value[i / columns]) / sqrt(call->out[2].value[i % columns]);
}

static void adafactor_reference(tx_call *call)
{
    const bool matrix = call->op == TX_OP_ADAFACTOR;
    const int64_t n = call->in[0].count, rows = matrix ? call->in[0].shape.dim[0] : n,
                  columns = matrix ? call->in[0].shape.dim[1] : 0;
    for (int32_t o = 0; o < (matrix ? 3 : 2) && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    if (call->result[TX_RESULT_FINITE] == 0.0)
        return;
    const double beta = 1.0 - pow(call->result[TX_RESULT_UPDATES], -0.8);
    double mean = 0.0, of_u = 0.0, of_p = 0.0, rate, keep;
    factor(call, beta, 3, rows, matrix ? columns : 1, &call->out[1]);
    if (matrix)
        factor(call, beta, 4, rows, columns, &call->out[2]);
    for (int64_t r = 0; r < rows; r++)
        mean += call->out[1].value[r] / (double)rows;
    for (int64_t i = 0; i < n; i++) {
        const double u = unscaled(call, i, columns, mean), p = call->in[0].value[i];
        of_u += u * u / (double)n;
        of_p += p * p / (double)n;
    }
    rates_of(call, sqrt(of_u), sqrt(of_p), &rate, &keep);
    for (int64_t i = 0; i < n; i++) {
        const double p = call->in[0].value[i], step = rate * unscaled(call, i, columns, mean);
        tx_array_put(&call->out[0], i, keep * p - step, fabs(p) + fabs(step) * (4.0 + 1.0 / (1.0 - beta)));
    }
}

static void adafactor_outputs(tx_call *call)
{
    const bool matrix = call->op == TX_OP_ADAFACTOR;
    const int32_t states = matrix ? 2 : 1;
    for (int32_t o = 0; o <= states; o++)
        call->out[o] = (tx_array){.dtype = TX_F32, .shape = call->in[o == 0 ? 0 : 2 + o].shape};
    call->out[1 + states] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_adafactor_work(&call->in[0].shape))};
}

TX_LENGTH(adafactor_length, call->in[0].count)

/* By the number of the case: the Trainer's settings, the class's defaults, and with warm-up. */
static void adafactor_attrs(tx_case *c, int32_t number)
{
    static const float updates[] = {1.0f, 2.0f, 30.0f, 5000.0f};
    c->attrs.update.relative_step = c->attrs.update.scale_parameter = number % 3 > 0;
    c->attrs.update.warmup_init = number % 3 == 2;
    c->result[TX_RESULT_UPDATES] = updates[number % 4];
    c->in[2] = tx_spec_of(TX_U8, TX_SHAPE(1), TX_FILL_INDEX, number & 1, (number & 1) + 1.0);
    c->in[2].arena = TX_ARENA_STATE;
}

static void adafactor_cases(tx_cases *list)
{
    static const int64_t shapes[][2] = {{1, 1},   {1, 70},   {70, 1},   {2, 2},      {17, 33},
                                        {300, 5}, {5, 1000}, {64, 256}, {2048, 4096}};
    for (int32_t s = 0; s < (int32_t)(sizeof shapes / sizeof shapes[0]); s++)
        for (int32_t k = 0; k < 3; k++) {
            const int64_t rows = shapes[s][0], columns = shapes[s][1];
            tx_case *c = tx_update_case(list, rows * columns);
            snprintf(c->label, sizeof c->label, "%lld by %lld, %d", (long long)rows, (long long)columns, (int)k);
            c->in[0].shape = c->in[1].shape = TX_SHAPE(rows, columns);
            adafactor_attrs(c, s + k);
            tx_update_state(c, 3, tx_spec_of(TX_F32, TX_SHAPE(rows), TX_FILL_UNIFORM, 0.1, 1.0));
            tx_update_state(c, 4, tx_spec_of(TX_F32, TX_SHAPE(columns), TX_FILL_UNIFORM, 0.1, 1.0));
            if (rows == 17)
                tx_update_skipped(list);
        }
}

static void adafactor_vector_cases(tx_cases *list)
{
    for (int32_t s = 0; s < SIZES; s++)
        for (int32_t k = 0; k < 3; k++) {
            tx_case *c = tx_update_case(list, sizes[s]);
            adafactor_attrs(c, s + k);
            tx_update_state(c, 3, tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, 0.1, 1.0));
            if (s == k) /* as the experts of a layer in one tensor */
                c->in[0].shape = c->in[1].shape = TX_SHAPE(1, sizes[s], 1);
            if (sizes[s] == 5003)
                tx_update_skipped(list);
        }
}

const tx_descriptor tx_descriptor_adamw_anyprecision = {.cases = anyprecision_cases,
                                                        .outputs = anyprecision_outputs,
                                                        .reference = anyprecision_reference,
                                                        .lies_on = {1, 4, 5, 6}};
const tx_descriptor tx_descriptor_adamw_8bit = {.cases = adamw_8bit_cases,
                                                .outputs = adamw_8bit_outputs,
                                                .reference = adamw_8bit_reference,
                                                .lies_on = {1, 4, 5, 6}};
const tx_descriptor tx_descriptor_lion_8bit = {
    .cases = lion_8bit_cases, .outputs = lion_8bit_outputs, .reference = lion_8bit_reference, .lies_on = {1, 4, 5}};
const tx_descriptor tx_descriptor_adafactor = {.cases = adafactor_cases,
                                               .outputs = adafactor_outputs,
                                               .reference = adafactor_reference,
                                               .length = adafactor_length,
                                               .lies_on = {1, 4, 5},
                                               .work = 8};
const tx_descriptor tx_descriptor_adafactor_vector = {.cases = adafactor_vector_cases,
                                                      .outputs = adafactor_outputs,
                                                      .reference = adafactor_reference,
                                                      .length = adafactor_length,
                                                      .lies_on = {1, 4},
                                                      .work = 4};
