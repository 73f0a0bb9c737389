/* SPDX-License-Identifier: Apache-2.0
 * The first and last nodes of Muon's chain, and the ops between its products. */
#include "tests/ops/update.h"

#include <math.h>

static const int64_t shapes[][2] = {{1, 1}, {2, 2}, {3, 85}, {17, 33}, {64, 128}, {2048, 4096}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void momentum_reference(tx_call *call)
{
    const double momentum = call->attrs.update.momentum, factor = call->result[TX_RESULT_GRAD_FACTOR];
    const bool finite = call->result[TX_RESULT_FINITE] != 0.0;
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double g = factor * call->in[0].value[i], old = call->in[1].value[i];
        const double b = old + (g - old) * (1.0 - momentum), size = fabs(g) + fabs(old);
        tx_array_put(&call->out[0], i, finite ? b : old, finite ? size : 0.0);
        tx_array_put(&call->out[1], i,
                     !finite                       ? 0.0
                     : call->attrs.update.nesterov ? g + momentum * (b - g)
                                                   : b,
                     finite ? 2.0 * size : 0.0);
    }
}

static void momentum_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[1].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
}

static void momentum_cases(tx_cases *list)
{
    for (int32_t s = 0; s < SHAPES; s++) {
        const int64_t n = shapes[s][0] * shapes[s][1];
        tx_case *c = tx_case_add(list, "%lld by %lld", (long long)shapes[s][0], (long long)shapes[s][1]);
        c->in[0] = tx_spec_real(TX_SHAPE(shapes[s][0], shapes[s][1]));
        c->in[0].arena = TX_ARENA_GRADIENTS;
        tx_update_state(c, 1, tx_spec_real(TX_SHAPE(n)));
        c->attrs.update.momentum = 0.95f;
        c->attrs.update.nesterov = s & 1;
        c->flags = n > 1000000 ? TX_CASE_BENCH : 0u;
        if (s == 3) {
            tx_case *skipped = tx_case_copy(list, ", not finite");
            skipped->in[0].fill = TX_FILL_NAN;
            skipped->result[TX_RESULT_FINITE] = 0.0f;
            skipped->result[TX_RESULT_GRAD_FACTOR] = 0.0f;
            skipped->flags = TX_CASE_ZEROS;
        }
    }
}

static void muon_reference(tx_call *call)
{
    const double rate = tx_update_rate_of(call);
    const bool decays = (int64_t)call->in[2].value[0] & 1, zeros_stay = (int64_t)call->in[2].value[0] & 2;
    if (call->result[TX_RESULT_FINITE] == 0.0) {
        tx_update_keep(call, 0, 0);
        return;
    }
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double p = call->in[0].value[i], step = rate * (double)call->attrs.scale * call->in[1].value[i];
        const double kept = decays ? p * (1.0 - rate * (double)call->attrs.update.weight_decay) : p;
        if (zeros_stay && p == 0.0)
            tx_array_put(&call->out[0], i, 0.0, 0.0);
        else
            tx_array_put(&call->out[0], i, kept - step, fabs(p) + fabs(step));
    }
}

static void muon_cases(tx_cases *list)
{
    for (int32_t s = 0; s < SHAPES; s++) {
        tx_case *c = tx_update_case(list, shapes[s][0] * shapes[s][1]);
        c->in[0].shape = c->in[1].shape = TX_SHAPE(shapes[s][0], shapes[s][1]);
        c->in[2] = tx_spec_of(TX_U8, TX_SHAPE(1), TX_FILL_INDEX, s & 3, (s & 3) + 1.0);
        c->in[2].arena = TX_ARENA_STATE;
        if (s % 2) { /* a third of the weights are 0 */
            c->in[0].fill = TX_FILL_INDEX;
            c->in[0].hi = 2.0;
        }
        c->attrs.scale = 1.5f;
        if (s == 3)
            tx_update_skipped(list);
    }
}

static void normalize_reference(tx_call *call)
{
    const double norm = fmax(sqrt(call->in[1].value[0]), (double)call->attrs.eps);
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double y = call->in[0].value[i] / norm;
        tx_array_put(&call->out[0], i, y, fabs(y));
    }
}

static void normalize_cases(tx_cases *list)
{
    for (int32_t s = 0; s < SHAPES; s++) {
        tx_case *c = tx_case_add(list, "%lld by %lld", (long long)shapes[s][0], (long long)shapes[s][1]);
        c->in[0] = tx_spec_real(TX_SHAPE(shapes[s][0], shapes[s][1]));
        c->in[1] = tx_spec_of(TX_F32, TX_SHAPE(1), TX_FILL_UNIFORM, 0.5, 2.0);
        c->attrs.eps = s & 1 ? 1e-7f : 1.0f;
        c->flags = shapes[s][0] > 1000 ? TX_CASE_BENCH : 0u;
    }
}

static void blend_reference(tx_call *call)
{
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double a = (double)call->attrs.alpha * call->in[0].value[i],
                     b = (double)call->attrs.scale * call->in[1].value[i];
        tx_array_put(&call->out[0], i, a + b, fabs(a) + fabs(b));
    }
}

static void blend_cases(tx_cases *list)
{
    for (int32_t s = 0; s < SHAPES; s++) {
        tx_case *c = tx_case_add(list, "%lld by %lld", (long long)shapes[s][0], (long long)shapes[s][1]);
        c->in[0] = c->in[1] = tx_spec_real(TX_SHAPE(shapes[s][0], shapes[s][1]));
        c->attrs.alpha = -4.775f;
        c->attrs.scale = 2.0315f;
        c->flags = shapes[s][0] > 1000 ? TX_CASE_BENCH : 0u;
    }
}

const tx_descriptor tx_descriptor_muon_momentum = {
    .cases = momentum_cases, .outputs = momentum_outputs, .reference = momentum_reference, .lies_on = {2}};
const tx_descriptor tx_descriptor_muon = {.cases = muon_cases, .reference = muon_reference, .lies_on = {1}};
const tx_descriptor tx_descriptor_normalize = {.cases = normalize_cases, .reference = normalize_reference};
const tx_descriptor tx_descriptor_blend = {.cases = blend_cases, .reference = blend_reference};
