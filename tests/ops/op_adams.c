/* SPDX-License-Identifier: Apache-2.0
 * AdEMAMix, StableAdamW, schedule-free AdamW and SGD. */
#include "tests/ops/update.h"

#include <math.h>

static const int64_t sizes[] = {1, 255, 256, 257, 1024, 5003, 8000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void adam_attrs(tx_case *c, size_t s)
{
    static const float updates[SIZES] = {1.0f, 2.0f, 7.0f, 100.0f, 5000.0f, 9.0f, 3.0f};
    c->attrs.update.beta1 = 0.9f;
    c->attrs.update.beta2 = s & 1 ? 0.999f : 0.95f;
    c->attrs.eps = 1e-8f;
    c->result[TX_RESULT_UPDATES] = updates[s];
}

/* ---- AdEMAMix ------------------------------------------------------------------------------------------ */

/* The slow moment's decay rate and weight at this step. */
static double slow_rate(const tx_call *call, double *weight)
{
    const tx_attrs *a = &call->attrs;
    const double t = call->result[TX_RESULT_UPDATES], of_1 = log((double)a->update.beta1),
                 of_3 = log((double)a->update.beta3), steps = (double)a->update.beta3_steps,
                 rises = (double)a->update.slow_weight_steps;
    *weight = (double)a->update.slow_weight * (rises > 0 ? fmin(1.0, t / rises) : 1.0);
    if (!(steps > 0))
        return (double)a->update.beta3;
    const double x = fmin(1.0, t / steps);
    return exp(of_1 * of_3 / ((1.0 - x) * of_3 + x * of_1));
}

static void ademamix_reference(tx_call *call)
{
    double weight, beta3 = slow_rate(call, &weight);
    for (int32_t o = 0; o < 4 && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    for (int64_t i = 0; i < call->in[0].count && call->result[TX_RESULT_FINITE] != 0.0; i++) {
        const double t = call->result[TX_RESULT_UPDATES], root = sqrt(1.0 - pow((double)call->attrs.update.beta2, t));
        const double old = call->in[4].value[i], g = call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i];
        const double slow = beta3 * old + (1.0 - beta3) * g, size = fabs(old) + fabs(g);
        const tx_adam_step s = tx_update_adamw(call, i, call->in[3].value[i], call->in[5].value[i]);
        const double rate = tx_update_rate_of(call) * weight / (sqrt(s.v) / root + (double)call->attrs.eps);
        tx_array_put(&call->out[0], i, s.p - rate * slow, s.p_size + fabs(rate) * size * (1.0 + 1.0 / (root * root)));
        tx_array_put(&call->out[1], i, s.m, s.m_size);
        tx_array_put(&call->out[2], i, slow, size);
        tx_array_put(&call->out[3], i, s.v, s.v_size);
    }
}

static void ademamix_outputs(tx_call *call)
{
    for (int32_t o = 0; o < 4; o++)
        call->out[o] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
}

static void ademamix_cases(tx_cases *list)
{
    for (size_t s = 0; s < SIZES; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        adam_attrs(c, s);
        c->attrs.update.beta3 = 0.9999f;
        c->attrs.update.slow_weight = s & 1 ? 5.0f : 2.5f;
        c->attrs.update.beta3_steps = s & 2 ? 0.0f : 50.0f;
        c->attrs.update.slow_weight_steps = s & 4 ? 0.0f : 120.0f;
        tx_update_state(c, 3, tx_spec_real(c->in[0].shape));
        tx_update_state(c, 4, tx_spec_real(c->in[0].shape));
        tx_update_state(c, 5, tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, 0.0, 1.0));
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
}
/* ---- Schedule-free --------------------------------------------------------------------------------------- */

/* The weight of step t in the average: the square of its rate in units of the sum of all squares so far. */
static double average_weight(const tx_call *call)
{
    const double warmup = (double)call->attrs.update.warmup_steps;
    double sum = 0.0, weight = 0.0;
    for (double k = 1.0; k <= call->result[TX_RESULT_UPDATES]; k += 1.0) {
        weight = k < warmup ? k * k / (warmup * warmup) : 1.0;
        sum += weight;
    }
    return weight / sum;
}

static void schedule_free_reference(tx_call *call)
{
    const tx_attrs *a = &call->attrs;
    const bool adam = call->op == TX_OP_SCHEDULE_FREE_ADAMW;
    const double t = call->result[TX_RESULT_UPDATES], b = adam ? a->update.beta1 : a->update.momentum;
    const double b2 = a->update.beta2, root = sqrt(1.0 - pow(b2, t)), c = average_weight(call);
    const double rate = tx_update_rate_of(call), least = (double)a->eps;
    for (int32_t o = 0; o < 3 + adam && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    for (int64_t i = 0; i < call->in[0].count && call->result[TX_RESULT_FINITE] != 0.0; i++) {
        const double p = call->in[0].value[i], g = call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i];
        const double wd = (int64_t)call->in[2].value[i / TX_PARAM_BLOCK] & 1 ? (double)a->update.weight_decay : 0.0;
        const double v = adam ? b2 * call->in[5].value[i] + (1.0 - b2) * g * g : 0.0;
        const double u = (adam ? g / (sqrt(v) / root + least) : g) + wd * p, size = fabs(u) + fabs(wd * p);
        const double z = t == 1.0 ? p : call->in[4].value[i], x = t == 1.0 ? p : call->in[3].value[i];
        const double z1 = z - rate * u, x1 = x + c * (z1 - x), magnitude = fabs(z) + fabs(x) + rate * size * 4.0;
        tx_array_put(&call->out[0], i, x1 + (1.0 - b) * (z1 - x1), magnitude + (adam ? rate * size / (1.0 - b2) : 0.0));
        tx_array_put(&call->out[1], i, x1, magnitude + (adam ? rate * size / (1.0 - b2) : 0.0));
        tx_array_put(&call->out[2], i, z1, magnitude + (adam ? rate * size / (1.0 - b2) : 0.0));
        if (adam)
            tx_array_put(&call->out[3], i, v, fabs(v) + g * g);
    }
}

static void schedule_free_outputs(tx_call *call)
{
    for (int32_t o = 0; o < 3 + (call->op == TX_OP_SCHEDULE_FREE_ADAMW); o++)
        call->out[o] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
}

static void add_schedule_free(tx_cases *list, bool adam)
{
    for (size_t s = 0; s < SIZES; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        adam_attrs(c, s);
        c->attrs.update.momentum = 0.8f;
        c->attrs.update.warmup_steps = s & 1 ? 0.0f : 9.0f; /* in, at the end of, after and without a warm-up */
        tx_update_state(c, 3, tx_spec_real(c->in[0].shape));
        tx_update_state(c, 4, tx_spec_real(c->in[0].shape));
        if (adam)
            tx_update_state(c, 5, tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, 0.0, 1.0));
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
}

static void schedule_free_adamw_cases(tx_cases *list)
{
    add_schedule_free(list, true);
}

static void schedule_free_sgd_cases(tx_cases *list)
{
    add_schedule_free(list, false);
}

static void exchange_reference(tx_call *call)
{
    const int32_t first = call->result[TX_RESULT_UPDATES] == 0.0 ? 0 : 1;
    tx_update_keep(call, 0, first);
    tx_update_keep(call, 1, 1 - first);
}

static void exchange_outputs(tx_call *call)
{
    call->out[0] = call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
}

static void exchange_cases(tx_cases *list)
{
    for (size_t s = 0; s < SIZES; s++) {
        tx_case *c = tx_case_add(list, "%lld elements", (long long)sizes[s]);
        tx_update_state(c, 1, tx_spec_real(TX_SHAPE(sizes[s])));
        c->in[0] = c->in[1];
        c->in[0].arena = TX_ARENA_WEIGHTS;
        c->result[TX_RESULT_UPDATES] = s == 3 ? 0.0f : 5.0f;
        c->result[TX_RESULT_FINITE] = s & 1 ? 0.0f : 1.0f; /* after a skipped update, too */
        c->flags = sizes[s] > 1000000 ? TX_CASE_BENCH : 0u;
    }
}

/* ---- StableAdamW --------------------------------------------------------------------------------------- */

static void stable_reference(tx_call *call)
{
    const tx_attrs *a = &call->attrs;
    const int64_t n = call->in[0].count, group = (int64_t)call->in[2].value[0];
    const double t = call->result[TX_RESULT_UPDATES], b1 = a->update.beta1, b2 = a->update.beta2, eps = a->eps;
    const double weight1 = (1.0 - b1) / (1.0 - pow(b1, t)), weight2 = (1.0 - b2) / (1.0 - pow(b2, t));
    double mean = 0.0;
    for (int32_t o = 0; o < 3 && call->result[TX_RESULT_FINITE] == 0.0; o++)
        tx_update_keep(call, o, o == 0 ? 0 : 2 + o);
    if (call->result[TX_RESULT_FINITE] == 0.0)
        return;
    for (int64_t i = 0; i < n; i++) {
        const double g = call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i];
        const double m = call->in[3].value[i], v = (1.0 - weight2) * call->in[4].value[i] + weight2 * g * g;
        tx_array_put(&call->out[1], i, m + weight1 * (g - m), 10.0 * (fabs(m) + fabs(g)));
        tx_array_put(&call->out[2], i, v, v / (1.0 - b2));
        mean += g * g / fmax(v, eps * eps) / (double)n;
    }
    const double rate = tx_update_rate_of(call) / fmax(1.0, sqrt(mean));
    const double keep = group & 1 ? 1.0 - rate * (double)a->update.weight_decay : 1.0;
    for (int64_t i = 0; i < n; i++) {
        const double p = call->in[0].value[i], root = sqrt(call->out[2].value[i]) + eps;
        const double step = rate * call->out[1].value[i] / root, size = rate * call->out[1].magnitude[i] / root;
        const bool stays = (group & 2) && p == 0.0;
        tx_array_put(&call->out[0], i, stays ? 0.0 : p * keep - step,
                     stays ? 0.0 : fabs(p) + size + fabs(step) / (1.0 - b2));
    }
}

static void stable_outputs(tx_call *call)
{
    for (int32_t o = 0; o < 3; o++)
        call->out[o] = (tx_array){.dtype = TX_F32, .shape = call->in[o == 0 ? 0 : 2 + o].shape};
    call->out[3] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(tx_blocks(call->in[0].count, TX_REDUCE_BLOCK) + 1)};
}

TX_LENGTH(stable_length, call->in[0].count)

static void stable_cases(tx_cases *list)
{
    for (size_t s = 0; s < SIZES; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        const tx_shape n = c->in[0].shape;
        adam_attrs(c, s);
        if (sizes[s] == 1024)
            c->in[0].shape = c->in[1].shape = TX_SHAPE(16, 64);
        c->in[2] = tx_spec_of(TX_U8, TX_SHAPE(1), TX_FILL_INDEX, (double)(s & 3), (double)(s & 3) + 1.0);
        c->in[2].arena = TX_ARENA_STATE;
        tx_update_state(c, 3, tx_spec_real(n));
        tx_update_state(c, 4, tx_spec_of(TX_F32, n, TX_FILL_UNIFORM, 0.01, s & 1 ? 0.02 : 1.0));
        if (s % 3 == 2) { /* a third of the weights are 0 */
            c->in[0].fill = TX_FILL_INDEX;
            c->in[0].hi = 2.0;
        }
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
}

const tx_descriptor tx_descriptor_ademamix = {
    .cases = ademamix_cases, .outputs = ademamix_outputs, .reference = ademamix_reference, .lies_on = {1, 4, 5, 6}};
const tx_descriptor tx_descriptor_stable_adamw = {.cases = stable_cases,
                                                  .outputs = stable_outputs,
                                                  .reference = stable_reference,
                                                  .length = stable_length,
                                                  .lies_on = {1, 4, 5},
                                                  .work = 8};
const tx_descriptor tx_descriptor_schedule_free_adamw = {.cases = schedule_free_adamw_cases,
                                                         .outputs = schedule_free_outputs,
                                                         .reference = schedule_free_reference,
                                                         .lies_on = {1, 4, 5, 6}};
const tx_descriptor tx_descriptor_schedule_free_sgd = {.cases = schedule_free_sgd_cases,
                                                       .outputs = schedule_free_outputs,
                                                       .reference = schedule_free_reference,
                                                       .lies_on = {1, 4, 5}};
const tx_descriptor tx_descriptor_exchange = {
    .cases = exchange_cases, .outputs = exchange_outputs, .reference = exchange_reference, .lies_on = {1, 2}};
