/* SPDX-License-Identifier: Apache-2.0
 * Optimizer updates and the global norm: references and cases. */
#include "tests/ops/update.h"

#include <float.h>
#include <math.h>

/* Whether weight decay applies to an element of a range. */
static bool decays(const tx_call *call, int64_t i)
{
    return (int64_t)call->in[2].value[i / TX_PARAM_BLOCK] & 1;
}

void tx_update_keep(tx_call *call, int32_t o, int32_t i)
{
    for (int64_t k = 0; k < call->out[o].count; k++)
        tx_array_put(&call->out[o], k, call->in[i].value[k], 0.0);
}

/* Writes the 16-bit copy, output o, if there is one as input i. A copy of weights that do not change is exact. */
static void put_copy(tx_call *call, int32_t o, int32_t i)
{
    const bool kept = call->result[TX_RESULT_FINITE] == 0.0;
    for (int64_t k = 0; k < call->out[o].count && tx_array_present(&call->in[i]); k++) {
        const double p = call->out[0].value[k];
        tx_array_put(&call->out[o], k, kept ? tx_number_round(call->out[o].dtype, p) : p, call->out[0].magnitude[k]);
    }
}

static void copy_outputs(tx_call *call, int32_t o, int32_t i)
{
    if (tx_array_present(&call->in[i]))
        call->out[o] = (tx_array){.dtype = call->in[i].dtype, .shape = call->in[i].shape};
}

static void sgd_reference(tx_call *call)
{
    bool has_momentum = tx_array_present(&call->in[3]);
    if (call->result[TX_RESULT_FINITE] == 0.0) {
        tx_update_keep(call, 0, 0);
        if (has_momentum)
            tx_update_keep(call, 1, 3);
        put_copy(call, 2, 4);
        return;
    }
    double rate = tx_update_rate_of(call), factor = call->result[TX_RESULT_GRAD_FACTOR];
    for (int64_t i = 0; i < call->in[0].count; i++) {
        double p = call->in[0].value[i], g = factor * call->in[1].value[i], size = fabs(g);
        if (decays(call, i)) {
            g += (double)call->attrs.update.weight_decay * p;
            size += fabs((double)call->attrs.update.weight_decay * p);
        }
        if (has_momentum) {
            double momentum = call->attrs.update.momentum, old = momentum * call->in[3].value[i], v = g + old;
            double v_size = size + fabs(old);
            tx_array_put(&call->out[1], i, v, v_size);
            g = call->attrs.update.nesterov ? g + momentum * v : v;
            size = call->attrs.update.nesterov ? size + momentum * v_size : v_size;
        }
        tx_array_put(&call->out[0], i, p - rate * g, fabs(p) + rate * size);
    }
    put_copy(call, 2, 4);
}

static void sgd_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    if (tx_array_present(&call->in[3]))
        call->out[1] = call->out[0];
    copy_outputs(call, 2, 4);
}

tx_adam_step tx_update_adamw(const tx_call *call, int64_t i, double old_m, double old_v)
{
    const tx_attrs *a = &call->attrs;
    double rate = tx_update_rate_of(call), factor = call->result[TX_RESULT_GRAD_FACTOR];
    double t = call->result[TX_RESULT_UPDATES], beta1 = a->update.beta1, beta2 = a->update.beta2;
    double correction1 = 1.0 - pow(beta1, t), correction2 = 1.0 - pow(beta2, t);
    double p = call->in[0].value[i], g = factor * call->in[1].value[i];
    double m = beta1 * old_m + (1.0 - beta1) * g, v = beta2 * old_v + (1.0 - beta2) * g * g;
    double m_size = fabs(beta1 * old_m) + fabs((1.0 - beta1) * g);
    double kept = decays(call, i) ? p * (1.0 - rate * (double)a->update.weight_decay) : p;
    double step = rate / correction1 / (sqrt(v) / sqrt(correction2) + (double)a->eps);
    /* 1 - beta^t loses the digits that beta^t shares with 1, and so does 1 - beta for v. */
    double grow = 1.0 + 1.0 / correction1 + 1.0 / correction2;
    return (tx_adam_step){m,
                          v,
                          kept - step * m,
                          m_size * (1.0 + beta1 / (1.0 - beta1)),
                          v * (1.0 + beta2 / (1.0 - beta2)),
                          fabs(p) + step * m_size * grow};
}

static void adamw_reference(tx_call *call)
{
    if (call->result[TX_RESULT_FINITE] == 0.0) {
        tx_update_keep(call, 0, 0);
        tx_update_keep(call, 1, 3);
        tx_update_keep(call, 2, 4);
        put_copy(call, 3, 5);
        return;
    }
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const tx_adam_step s = tx_update_adamw(call, i, call->in[3].value[i], call->in[4].value[i]);
        tx_array_put(&call->out[0], i, s.p, s.p_size);
        tx_array_put(&call->out[1], i, s.m, s.m_size);
        tx_array_put(&call->out[2], i, s.v, s.v_size);
    }
    put_copy(call, 3, 5);
}

static void adamw_outputs(tx_call *call)
{
    for (int32_t o = 0; o < 3; o++)
        call->out[o] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    copy_outputs(call, 3, 5);
}

/* Two numbers that cancel leave their sign to the rounding: of such an element nothing is expected. */
static void lion_reference(tx_call *call)
{
    const tx_attrs *a = &call->attrs;
    if (call->result[TX_RESULT_FINITE] == 0.0) {
        tx_update_keep(call, 0, 0);
        tx_update_keep(call, 1, 3);
        put_copy(call, 2, 4);
        return;
    }
    double rate = tx_update_rate_of(call), factor = call->result[TX_RESULT_GRAD_FACTOR];
    double beta1 = a->update.beta1, beta2 = a->update.beta2;
    for (int64_t i = 0; i < call->in[0].count; i++) {
        double p = call->in[0].value[i], g = factor * call->in[1].value[i], m = call->in[3].value[i];
        double sum = beta1 * m + (1.0 - beta1) * g, size = fabs(beta1 * m) + fabs((1.0 - beta1) * g);
        double sign = sum > 0.0 ? 1.0 : sum < 0.0 ? -1.0 : 0.0;
        double kept = decays(call, i) ? p * (1.0 - rate * (double)a->update.weight_decay) : p;
        tx_array_put(&call->out[0], i, kept - rate * sign, fabs(sum) < 1e-6 * size ? (double)INFINITY : fabs(p) + rate);
        tx_array_put(&call->out[1], i, beta2 * m + (1.0 - beta2) * g, fabs(beta2 * m) + fabs((1.0 - beta2) * g));
    }
    put_copy(call, 2, 4);
}

static void lion_outputs(tx_call *call)
{
    call->out[0] = call->out[1] = (tx_array){.dtype = TX_F32, .shape = call->in[0].shape};
    copy_outputs(call, 2, 4);
}

/* Range sizes: within a block, whole blocks, and a last block that is not full. */
static const int64_t sizes[] = {1, 255, 256, 257, 1024, 5003, 8000000};

static bool is_masked(const tx_call *call, int64_t i)
{
    return (int64_t)call->in[2].value[i / TX_PARAM_BLOCK] & 2 && call->in[0].value[i] == 0.0;
}

static void mask_reference(tx_call *call)
{
    for (int64_t i = 0; i < call->in[0].count; i++)
        tx_array_put(&call->out[0], i, is_masked(call, i) ? 0.0 : call->in[1].value[i], 0.0);
}

TX_OUTPUT(mask_outputs, call->in[1].dtype, call->in[1].shape)

static void mask_cases(tx_cases *list)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        c->in[0].fill = TX_FILL_INDEX; /* a third of the weights are 0 */
        c->in[0].hi = 2.0;
        c->attrs = (tx_attrs){.control = -1};
        c->flags |= TX_CASE_ZEROS;
        c = tx_case_copy(list, ", bf16");
        c->in[0].dtype = c->in[1].dtype = TX_BF16;
    }
}

tx_case *tx_update_case(tx_cases *list, int64_t n)
{
    tx_case *c = tx_case_add(list, "%lld elements", (long long)n);
    c->in[0] = tx_spec_real(TX_SHAPE(n));
    c->in[0].arena = TX_ARENA_WEIGHTS;
    c->in[1] = tx_spec_real(TX_SHAPE(n));
    c->in[1].arena = TX_ARENA_GRADIENTS;
    /* only MASK_GRADIENT reads bit 1 */
    c->in[2] = tx_spec_of(TX_U8, TX_SHAPE((n + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK), TX_FILL_INDEX, 0.0, 4.0);
    c->in[2].arena = TX_ARENA_STATE;
    c->attrs.update.weight_decay = 0.1f;
    c->attrs.update.rate = n == 257 || n == 17 * 33 ? 1.5f : 0.0f;
    /* A warm-up begins with a rate of 0. */
    c->controls.word[TX_CONTROL_LEARNING_RATE].f32 = n == 255 ? 0.0f : 0.05f;
    c->controls.word[TX_CONTROL_HELD_RATE].f32 = n == 255 ? 0.0f : 0.035f;
    c->controls.word[TX_CONTROL_HOLD_FROM].u32 =
        n % 3 ? 4 : 0; /* by then so many updates are left out, or more, or less */
    c->result[TX_RESULT_SKIPPED] = (float)(3 + n % 3);
    c->flags = n > 1000000 ? TX_CASE_BENCH : 0u;
    return c;
}

/* The last case with a copy of the weights as operand `operand`. */
static void add_copy(tx_cases *list, int32_t operand, bool bf16)
{
    tx_case *c = tx_case_copy(list, bf16 ? ", copy in bf16" : ", copy in fp16");
    c->in[operand] = tx_spec_real(c->in[0].shape);
    c->in[operand].dtype = bf16 ? TX_BF16 : TX_F16;
    c->in[operand].arena = TX_ARENA_HALF;
    c->flags = 0;
}

void tx_update_state(tx_case *c, int32_t i, tx_spec spec)
{
    c->in[i] = spec;
    c->in[i].arena = TX_ARENA_OPTIMIZER;
}

void tx_update_skipped(tx_cases *list)
{
    tx_case *skipped = tx_case_copy(list, ", not finite");
    skipped->in[1].fill = TX_FILL_NAN;
    skipped->result[TX_RESULT_FINITE] = 0.0f;
    skipped->result[TX_RESULT_GRAD_FACTOR] = 0.0f;
}

static void sgd_cases(tx_cases *list)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int momentum = 0; momentum < 3; momentum++) {
            tx_case *c = tx_update_case(list, sizes[s]);
            c->attrs.update.nesterov = momentum == 2;
            if (momentum) {
                c->attrs.update.momentum = 0.9f;
                c->in[3] = tx_spec_real(c->in[0].shape);
                c->in[3].arena = TX_ARENA_OPTIMIZER;
            }
            if (sizes[s] < 1000000)
                add_copy(list, 4, momentum);
            if (sizes[s] == 5003)
                tx_update_skipped(list);
        }
}

static void adamw_cases(tx_cases *list)
{
    static const float updates[] = {1.0f, 2.0f, 7.0f, 100.0f, 5000.0f, 1.0f, 3.0f};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        c->attrs.update.beta1 = 0.9f;
        c->attrs.update.beta2 = s & 1 ? 0.999f : 0.95f;
        c->attrs.eps = 1e-8f;
        c->result[TX_RESULT_UPDATES] = updates[s];
        c->in[3] = tx_spec_real(c->in[0].shape);
        c->in[4] = tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, 0.0, 1.0);
        c->in[3].arena = c->in[4].arena = TX_ARENA_OPTIMIZER;
        if (sizes[s] < 1000000)
            add_copy(list, 5, s & 1);
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
    tx_case *c = tx_update_case(list, sizes[3]); /* the first step, from moments of zero */
    c->attrs = (tx_attrs){.update.beta1 = 0.9f, .update.beta2 = 0.999f, .eps = 1e-8f, .control = -1};
    c->in[3] = tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, 0.0, 0.0);
    c->in[4] = c->in[3];
    c->in[3].arena = c->in[4].arena = TX_ARENA_OPTIMIZER;
}

static void lion_cases(tx_cases *list)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        tx_case *c = tx_update_case(list, sizes[s]);
        c->attrs.update.beta1 = 0.9f;
        c->attrs.update.beta2 = s & 1 ? 0.99f : 0.95f;
        c->in[3] = tx_spec_real(c->in[0].shape);
        c->in[3].arena = TX_ARENA_OPTIMIZER;
        if (sizes[s] < 1000000)
            add_copy(list, 4, s & 1);
        if (sizes[s] == 5003)
            tx_update_skipped(list);
    }
    tx_case *c = tx_update_case(list, sizes[3]); /* only decay changes weights without gradients, such as padding */
    c->attrs.update.beta1 = c->attrs.update.beta2 = 0.9f;
    c->in[1] = c->in[3] = tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, 0.0, 0.0);
    c->in[1].arena = TX_ARENA_GRADIENTS;
    c->in[3].arena = TX_ARENA_OPTIMIZER;
    c->flags = TX_CASE_ZEROS;
}

/* ---- Global norm ------------------------------------------------------------------------------- */

static void clip_norm_reference(tx_call *call)
{
    double *r = call->result, *magnitude = call->result_magnitude;
    double scale = r[TX_RESULT_LOSS_SCALE], interval = call->controls.word[TX_CONTROL_GROWTH_INTERVAL].f32;
    double most = call->controls.word[TX_CONTROL_MAX_GRAD_NORM].f32;
    double norm = sqrt(r[TX_RESULT_GRAD_SUMSQ]) / scale;
    r[TX_RESULT_GRAD_NORM] = norm;
    magnitude[TX_RESULT_GRAD_NORM] = norm;
    r[TX_RESULT_FINITE] = isfinite(norm) ? 1.0 : 0.0;
    r[isfinite(norm) ? TX_RESULT_UPDATES : TX_RESULT_SKIPPED] += 1.0;
    r[TX_RESULT_GRAD_FACTOR] = (most > 0.0 ? fmin(1.0, most / (norm + 1e-6)) : 1.0) / scale;
    magnitude[TX_RESULT_GRAD_FACTOR] = isfinite(norm) ? r[TX_RESULT_GRAD_FACTOR] : (double)INFINITY;
    if (interval == 0.0)
        return;
    if (!isfinite(norm)) {
        r[TX_RESULT_LOSS_SCALE] = scale / 2.0;
        r[TX_RESULT_SCALE_STEPS] = 0.0;
    } else if (r[TX_RESULT_SCALE_STEPS] + 1.0 < interval) {
        r[TX_RESULT_SCALE_STEPS] += 1.0;
    } else {
        r[TX_RESULT_LOSS_SCALE] = 2.0 * scale > (double)FLT_MAX ? scale : 2.0 * scale;
        r[TX_RESULT_SCALE_STEPS] = 0.0;
    }
}

static void clip_norm_outputs(tx_call *call)
{
    call->out[0].dtype = TX_DTYPE_COUNT;
}

static void clip_norm_cases(tx_cases *list)
{
    static const struct {
        float sumsq, scale, most, interval, steps;
    } norms[] = {{4.0f, 1.0f, 1.0f, 0.0f, 0.0f},
                 {0.25f, 1.0f, 1.0f, 0.0f, 0.0f},
                 {4.0f, 1.0f, 0.0f, 0.0f, 0.0f},
                 {0.0f, 1.0f, 1.0f, 0.0f, 0.0f},
                 {1e10f, 1024.0f, 1.0f, 0.0f, 0.0f},
                 {9.0f, 65536.0f, 0.5f, 0.0f, 7.0f},
                 {INFINITY, 1.0f, 1.0f, 0.0f, 0.0f},
                 {NAN, 1.0f, 1.0f, 0.0f, 0.0f},
                 {INFINITY, 1024.0f, 0.0f, 0.0f, 3.0f},
                 {1e-20f, 2.0f, 1e-3f, 0.0f, 0.0f},
                 {9.0f, 65536.0f, 1.0f, 2000.0f, 7.0f},    /* counts */
                 {9.0f, 65536.0f, 1.0f, 2000.0f, 1999.0f}, /* doubles */
                 {9.0f, 0x1p127f, 0.0f, 1.0f, 0.0f},       /* would be infinite */
                 {INFINITY, 65536.0f, 1.0f, 2000.0f, 1999.0f},
                 {NAN, 0.5f, 0.0f, 1.0f, 0.0f}};
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
        tx_case *c = tx_case_add(list, "sumsq %g scale %g max %g interval %g after %g", (double)norms[i].sumsq,
                                 (double)norms[i].scale, (double)norms[i].most, (double)norms[i].interval,
                                 (double)norms[i].steps);
        c->result[TX_RESULT_GRAD_SUMSQ] = norms[i].sumsq;
        c->result[TX_RESULT_UPDATES] = 41.0f;
        c->result[TX_RESULT_SKIPPED] = 6.0f;
        c->result[TX_RESULT_LOSS_SCALE] = norms[i].scale;
        c->result[TX_RESULT_SCALE_STEPS] = norms[i].steps;
        c->controls.word[TX_CONTROL_GROWTH_INTERVAL].f32 = norms[i].interval;
        c->controls.word[TX_CONTROL_MAX_GRAD_NORM].f32 = norms[i].most;
    }
}

const tx_descriptor tx_descriptor_sgd = {
    .cases = sgd_cases, .outputs = sgd_outputs, .reference = sgd_reference, .lies_on = {1, 4, 5}};
const tx_descriptor tx_descriptor_adamw = {
    .cases = adamw_cases, .outputs = adamw_outputs, .reference = adamw_reference, .lies_on = {1, 4, 5, 6}};
const tx_descriptor tx_descriptor_lion = {
    .cases = lion_cases, .outputs = lion_outputs, .reference = lion_reference, .lies_on = {1, 4, 5}};
const tx_descriptor tx_descriptor_clip_norm = {
    .cases = clip_norm_cases, .outputs = clip_norm_outputs, .reference = clip_norm_reference};
const tx_descriptor tx_descriptor_mask_gradient = {
    .cases = mask_cases, .outputs = mask_outputs, .reference = mask_reference, .lies_on = {2}};
