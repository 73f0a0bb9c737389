/* SPDX-License-Identifier: Apache-2.0
 * The nodes of APOLLO's chain: projection, scale of the gradient, update. */
#include "tests/ops/update.h"

#include "backends/rng.h"

#include <math.h>

/* ---- Projection ---------------------------------------------------------------------------------------- */

static const int64_t projections[][2] = {{1, 1}, {2, 3}, {85, 1}, {33, 17}, {64, 128}, {257, 5}, {4096, 256}};
enum { PROJECTIONS = sizeof projections / sizeof projections[0] };

static double uniform(uint32_t word)
{
    return ((double)(word >> 9) + 0.5) / 8388608.0;
}

static void projection_reference(tx_call *call)
{
    const int64_t columns = tx_array_last(&call->out[0]);
    const tx_word *w = call->controls.word;
    const uint32_t steps = (uint32_t)call->attrs.update.projection_steps;
    const uint32_t t = (uint32_t)call->result[TX_RESULT_UPDATES], number = t ? (t - 1) / steps : 0;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        const uint32_t row = (uint32_t)(i / columns), column = (uint32_t)(i % columns), pair = column & 2;
        const tx_random r = tx_draw(w[TX_CONTROL_SEED_LO].u32, w[TX_CONTROL_SEED_HI].u32, number,
                                    (uint32_t)call->attrs.draw.site, TX_PROJECTION_SITE, 0, row, column >> 2);
        const double size = sqrt(-2.0 * log(uniform(r.word[pair])) / (double)columns);
        const double angle = 2.0 * acos(-1.0) * uniform(r.word[pair + 1]);
        tx_array_put(&call->out[0], i, size * (column & 1 ? sin(angle) : cos(angle)), 8.0 * size);
    }
}

TX_OUTPUT(projection_outputs, TX_F32, call->out[0].shape)

static void projection_cases(tx_cases *list)
{
    for (int32_t s = 0; s < PROJECTIONS; s++) {
        tx_case *c = tx_case_add(list, "%lld by %lld", (long long)projections[s][0], (long long)projections[s][1]);
        c->out_shape = TX_SHAPE(projections[s][0], projections[s][1]);
        c->attrs.draw.site = 7 - 1000 * s;
        c->attrs.update.projection_steps = s & 1 ? 1 : 200;
        c->result[TX_RESULT_UPDATES] = (float)(s * 200 + (s & 2) / 2);
        c->flags = projections[s][0] > 1000 ? TX_CASE_BENCH : 0u;
    }
}

/* ---- Scale of the gradient ------------------------------------------------------------------------------- */

static const int64_t shapes[][2] = {{1, 1}, {2, 2}, {85, 1}, {17, 33}, {300, 8}, {64, 257}, {4096, 256}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void scale_outputs(tx_call *call)
{
    const int64_t rows = call->in[0].shape.dim[0];
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[1].shape};
    call->out[1] = call->out[0];
    call->out[2] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->attrs.update.by_tensor ? 1 : rows)};
    call->out[3] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(2 * rows)};
}

static void scale_reference(tx_call *call)
{
    const tx_attrs *a = &call->attrs;
    const double b1 = a->update.beta1, b2 = a->update.beta2;
    const int64_t n = tx_array_last(&call->in[0]);
    double step = 0.0, gradient = 0.0;
    if (call->result[TX_RESULT_FINITE] == 0.0) {
        tx_update_keep(call, 0, 1);
        tx_update_keep(call, 1, 2);
        for (int64_t i = 0; i < call->out[2].count; i++)
            tx_array_put(&call->out[2], i, 0.0, (double)INFINITY);
        return;
    }
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double x = call->result[TX_RESULT_GRAD_FACTOR] * call->in[0].value[i], old = call->in[1].value[i];
        const double m = b1 * old + (1.0 - b1) * x, v = b2 * call->in[2].value[i] + (1.0 - b2) * x * x;
        const double u = m / (sqrt(v) + (double)a->eps);
        tx_array_put(&call->out[0], i, m, fabs(old) + fabs(x));
        tx_array_put(&call->out[1], i, v, v / (1.0 - b2));
        step += u * u;
        gradient += x * x;
        if ((i + 1) % n == 0 && !a->update.by_tensor) {
            const double s = sqrt(step) / (sqrt(gradient) + 1e-8);
            tx_array_put(&call->out[2], i / n, s, s / (1.0 - b2));
            step = gradient = 0.0;
        }
    }
    if (a->update.by_tensor)
        tx_array_put(&call->out[2], 0, sqrt(step) / (sqrt(gradient) + 1e-8),
                     sqrt(step) / (sqrt(gradient) + 1e-8) / (1.0 - b2));
}

TX_LENGTH(scale_length, call->attrs.update.by_tensor ? call->in[0].count : tx_array_last(&call->in[0]))

static void scale_cases(tx_cases *list)
{
    for (int32_t s = 0; s < 2 * SHAPES; s++) {
        const int64_t rows = shapes[s / 2][0], columns = shapes[s / 2][1];
        tx_case *c =
            tx_case_add(list, "%lld by %lld%s", (long long)rows, (long long)columns, s & 1 ? ", a tensor" : "");
        c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(rows, columns), TX_FILL_UNIFORM, 0.1, 1.0);
        tx_update_state(c, 1, tx_spec_of(TX_F32, TX_SHAPE(rows * columns), TX_FILL_UNIFORM, 0.1, 1.0));
        tx_update_state(c, 2, tx_spec_of(TX_F32, TX_SHAPE(rows * columns), TX_FILL_UNIFORM, 0.01, 1.0));
        c->attrs.update.beta1 = 0.9f;
        c->attrs.update.beta2 = s & 2 ? 0.999f : 0.95f;
        c->attrs.eps = s & 4 ? 1e-2f : 1e-8f;
        c->attrs.update.by_tensor = s & 1;
        c->flags = rows > 1000 ? TX_CASE_BENCH : 0u;
        if (rows == 17) {
            tx_case *skipped = tx_case_copy(list, ", not finite");
            skipped->in[0].fill = TX_FILL_NAN;
            skipped->result[TX_RESULT_FINITE] = 0.0f;
            skipped->result[TX_RESULT_GRAD_FACTOR] = 0.0f;
            skipped->flags = TX_CASE_ZEROS;
        }
    }
}

/* ---- Update ------------------------------------------------------------------------------------------------ */

static const int64_t matrices[][2] = {{1, 1}, {2, 2}, {85, 3}, {17, 33}, {128, 64}, {64, 257}, {2048, 4096}};
enum { MATRICES = sizeof matrices / sizeof matrices[0] };

static double scale_at(const tx_call *call, int64_t i)
{
    const int64_t rows = call->in[0].shape.dim[0], columns = tx_array_last(&call->in[0]);
    return call->in[3].value[call->attrs.update.by_tensor ? 0 : rows < columns ? i % columns : i / columns];
}

static void apollo_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    call->out[1] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(1)};
    call->out[2] = (tx_array){.dtype = TX_F32, .shape = TX_SHAPE(call->in[0].shape.dim[0] + 1)};
}

static void apollo_reference(tx_call *call)
{
    const tx_attrs *a = &call->attrs;
    const double t = call->result[TX_RESULT_UPDATES], rate = tx_update_rate_of(call);
    const double bias = sqrt(1.0 - pow((double)a->update.beta2, t)) / (1.0 - pow((double)a->update.beta1, t));
    const int64_t group = (int64_t)call->in[2].value[0];
    const double keep = group & 1 ? 1.0 - rate * (double)a->update.weight_decay : 1.0;
    double norm = 0.0, limit = 1.0;
    if (call->result[TX_RESULT_FINITE] == 0.0) {
        tx_update_keep(call, 0, 0);
        tx_update_keep(call, 1, 4);
        return;
    }
    for (int64_t i = 0; i < call->in[0].count; i++)
        norm += pow(call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i] * scale_at(call, i), 2.0);
    norm = sqrt(norm) * (a->update.scale_front ? (double)a->scale : 1.0);
    if (t > 1.0 && !a->update.unlimited)
        limit = fmax(1.0, norm / (1.01 * (call->in[4].value[0] + 1e-8)));
    tx_array_put(&call->out[1], 0, norm / limit, norm);
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double g = call->result[TX_RESULT_GRAD_FACTOR] * call->in[1].value[i], p = call->in[0].value[i];
        const double step = rate * bias * (double)a->scale * g * scale_at(call, i) / limit;
        const bool stays = (group & 2) && p == 0.0;
        tx_array_put(&call->out[0], i, stays ? 0.0 : (p - step) * keep,
                     stays ? 0.0 : fabs(p) + fabs(step) / (1.0 - (double)a->update.beta2));
    }
}

TX_LENGTH(apollo_length, call->in[0].count)

static void apollo_cases(tx_cases *list)
{
    static const float updates[] = {1.0f, 2.0f, 100.0f};
    for (int32_t s = 0; s < 2 * MATRICES; s++) {
        const int64_t rows = matrices[s / 2][0], columns = matrices[s / 2][1];
        tx_case *c = tx_update_case(list, rows * columns);
        c->in[0].shape = c->in[1].shape = TX_SHAPE(rows, columns);
        c->in[2] = tx_spec_of(TX_U8, TX_SHAPE(1), TX_FILL_INDEX, s & 3, (s & 3) + 1.0);
        c->in[2].arena = TX_ARENA_STATE;
        c->attrs.update.by_tensor = s & 1;
        c->in[3] = tx_spec_of(TX_F32, TX_SHAPE(s & 1 ? 1 : rows < columns ? columns : rows), TX_FILL_UNIFORM, 0.5, 2.0);
        tx_update_state(c, 4, tx_spec_of(TX_F32, TX_SHAPE(1), TX_FILL_UNIFORM, s & 2 ? 0.1 : 1e4, s & 2 ? 0.2 : 2e4));
        c->attrs.update.beta1 = 0.9f;
        c->attrs.update.beta2 = s & 2 ? 0.999f : 0.95f;
        c->attrs.update.scale_front = s & 4;
        c->attrs.update.unlimited = s % 5 == 4;
        c->attrs.scale = 1.5f;
        c->result[TX_RESULT_UPDATES] = updates[s % 3];
        if (s % 4 == 2) { /* a third of the weights are 0 */
            c->in[0].fill = TX_FILL_INDEX;
            c->in[0].hi = 2.0;
        }
        if (rows == 17)
            tx_update_skipped(list);
    }
}

const tx_descriptor tx_descriptor_projection = {
    .cases = projection_cases, .outputs = projection_outputs, .reference = projection_reference};
const tx_descriptor tx_descriptor_apollo_scale = {.cases = scale_cases,
                                                  .outputs = scale_outputs,
                                                  .reference = scale_reference,
                                                  .length = scale_length,
                                                  .lies_on = {2, 3},
                                                  .work = 8};
const tx_descriptor tx_descriptor_apollo = {.cases = apollo_cases,
                                            .outputs = apollo_outputs,
                                            .reference = apollo_reference,
                                            .length = apollo_length,
                                            .lies_on = {1, 5},
                                            .work = 4};
