/* SPDX-License-Identifier: Apache-2.0
 * Element-wise ops: references and cases. */
#include "backends/rng.h"
#include "tests/ops/case.h"

#include <math.h>

/* ---- Activations ------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double silu_slope(double x)
{
    double s = sigmoid(x);
    return s * (1.0 + x * (1.0 - s));
}

/* 1 + tanh or erf cancels for x < 0 */
TX_POINTWISE(gelu_reference, tx_number_gelu(x, call->attrs.exact), fabs(x))
TX_POINTWISE(gelu_grad_reference, tx_number_gelu_slope(y, call->attrs.exact) * x, fabs(x) * (1.0 + fabs(y)))
TX_POINTWISE(relu_reference, x < 0.0 ? 0.0 : x, 0.0)
TX_POINTWISE(relu_grad_reference, y <= 0.0 ? 0.0 : x, 0.0)
/* the last term: a sigmoid below 2^-126 may be flushed to zero */
TX_POINTWISE(silu_reference, (sigmoid(x) * x), fabs(sigmoid(x) * x) * (1.0 + fabs(x)) + fabs(x) * 0x1p-104)
TX_POINTWISE(silu_grad_reference, silu_slope(y) * x, fabs(x) * (1.0 + fabs(y)))
TX_POINTWISE(tanh_reference, tanh(x), 1.0) /* near 0 a difference of numbers near 1 */
TX_POINTWISE(exponential_reference, exp(x), exp(x) * (1.0 + fabs(x)))
TX_POINTWISE(logarithm_reference, log(x), 1.0 + fabs(log(x)))
TX_POINTWISE(rsqrt_reference, 1.0 / sqrt(x), 1.0 / sqrt(x))
TX_POINTWISE(tanh_grad_reference, (1.0 - y * y) * x, fabs(x) * (1.0 + y * y))
TX_POINTWISE(sigmoid_reference, sigmoid(x), sigmoid(x) * (1.0 + fabs(x)) + 0x1p-104)
TX_POINTWISE(sigmoid_grad_reference, y *(1.0 - y) * x, fabs(x *y))

/* The function of the gate, and its derivative. */
static double gate_of(const tx_call *call, double gate)
{
    return call->attrs.gate == TX_GATE_GELU ? tx_number_gelu(gate, false) : gate * sigmoid(gate);
}

static double gate_slope(const tx_call *call, double gate)
{
    return call->attrs.gate == TX_GATE_GELU ? tx_number_gelu_slope(gate, false) : silu_slope(gate);
}

static double clamped(const tx_call *call, double *gate, double *up)
{
    const double limit = (double)call->attrs.scale, alpha = (double)call->attrs.alpha;
    *gate = fmin(*gate, limit);
    *up = fmax(fmin(*up, limit), -limit) + 1.0;
    return 1.0 / (1.0 + exp(-alpha * *gate));
}

static void clamped_reference(tx_call *call)
{
    int64_t f = tx_array_last(&call->out[0]);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double gate = call->in[0].value[i / f * 2 * f + i % f], up = call->in[0].value[i / f * 2 * f + f + i % f];
        double y = clamped(call, &gate, &up) * gate * up;
        tx_array_put(&call->out[0], i, y, fabs(y) * (1.0 + fabs(gate)) + fabs(gate));
    }
}

static void clamped_grad_reference(tx_call *call)
{
    int64_t f = tx_array_last(&call->in[0]);
    for (int64_t i = 0; i < call->in[0].count; i++) {
        int64_t g = i / f * 2 * f + i % f;
        double dy = call->in[0].value[i], of_gate = call->in[1].value[g], of_up = call->in[1].value[g + f];
        double gate = of_gate, up = of_up, sigmoid = clamped(call, &gate, &up), alpha = (double)call->attrs.alpha;
        double slope = sigmoid * (1.0 + alpha * gate * (1.0 - sigmoid));
        tx_array_put(&call->out[0], g, of_gate > gate ? 0.0 : dy * up * slope,
                     fabs(dy) * (1.0 + fabs(of_up)) * (1.0 + fabs(gate)));
        tx_array_put(&call->out[0], g + f, of_up == up - 1.0 ? dy * gate * sigmoid : 0.0, fabs(dy * gate));
    }
}

static void swiglu_reference(tx_call *call)
{
    if (call->attrs.gate == TX_GATE_CLAMPED) {
        clamped_reference(call);
        return;
    }
    int64_t f = tx_array_last(&call->out[0]);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double gate = call->in[0].value[i / f * 2 * f + i % f], up = call->in[0].value[i / f * 2 * f + f + i % f];
        double y = gate_of(call, gate) * up, of_gelu = call->attrs.gate == TX_GATE_GELU ? fabs(gate * up) : 0.0;
        tx_array_put(&call->out[0], i, y, fabs(y) * (1.0 + fabs(gate)) + of_gelu);
    }
}

static void swiglu_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
    call->out[0].shape.dim[call->in[0].shape.rank - 1] /= 2;
}

static void swiglu_grad_reference(tx_call *call)
{
    if (call->attrs.gate == TX_GATE_CLAMPED) {
        clamped_grad_reference(call);
        return;
    }
    int64_t f = tx_array_last(&call->in[0]);
    for (int64_t i = 0; i < call->in[0].count; i++) {
        int64_t g = i / f * 2 * f + i % f;
        double dy = call->in[0].value[i], gate = call->in[1].value[g], up = call->in[1].value[g + f];
        tx_array_put(&call->out[0], g, dy * up * gate_slope(call, gate), fabs(dy * up) * (1.0 + fabs(gate)));
        tx_array_put(&call->out[0], g + f, dy * gate_of(call, gate), fabs(dy * gate));
    }
}

TX_OUTPUT(like_second, call->in[1].dtype, call->in[1].shape)

/* ---- Arithmetic -------------------------------------------------------------------------------- */

TX_POINTWISE(add_reference, x + y, fabs(x + y))
TX_POINTWISE(mul_reference, (x * y), fabs(x *y))

static void scale_reference(tx_call *call)
{
    double factor = call->attrs.alpha;
    if (call->attrs.control >= 0)
        factor *= (double)call->controls.word[call->attrs.control].f32;
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, factor * call->in[0].value[i], fabs(factor * call->in[0].value[i]));
}

static void noise_reference(tx_call *call)
{
    for (int64_t i = 0; i < call->out[0].count; i++) {
        double x = call->in[0].value[i],
               scale = (double)(call->attrs.scale * call->controls.word[TX_CONTROL_NOISE].f32);
        tx_array_put(&call->out[0], i, x + scale * ((double)(tx_call_draw(call, 0, i) >> 8) / 8388608.0 - 1.0),
                     fabs(x) + scale);
    }
}

static void dropout_outputs(tx_call *call)
{
    const tx_dtype asked = call->out[0].dtype;
    call->out[0] = (tx_array){.dtype = asked == TX_DTYPE_COUNT ? TX_F32 : asked, .shape = call->in[0].shape};
}

TX_POINTWISE(dropout_reference, tx_call_dropped(call, 0, i), fabs(tx_call_dropped(call, 0, i)))

/* ---- Rotary positions (Su et al., RoFormer, 2021) ------------------------------------------------ */

/* The turn of a pair at position 1, each of its steps rounded to fp32. */
static int64_t rotary_rotated(const tx_attrs *attrs)
{
    return attrs->rope->rotated ? attrs->rope->rotated : attrs->attention.head_size;
}
static double rotary_frequency(const tx_attrs *attrs, int64_t pair)
{
    const tx_rope *r = attrs->rope;
    double exponent = (double)(float)(2.0 * (double)pair / (double)rotary_rotated(attrs));
    double power = (double)(float)pow((double)r->theta, exponent);
    double divisor = r->divisor[pair] != 0.0f ? (double)r->divisor[pair] : 1.0;
    double f = (double)(float)(1.0 / (double)(float)(divisor * power));
    double slow = (double)r->ramp + (double)r->ramp_pair * (double)pair + (double)r->ramp_frequency * f;
    slow = slow < 0.0 ? 0.0 : slow > 1.0 ? 1.0 : slow;
    return (double)(float)((1.0 - slow) * f + slow * f / (double)r->factor);
}

static void rotary_reference(tx_call *call)
{
    const tx_array *x = &call->in[0];
    int64_t d = call->attrs.attention.head_size, time = x->shape.dim[1], row = x->shape.dim[2];
    const int64_t half = rotary_rotated(&call->attrs) / 2;
    for (int64_t i = 0; i < x->count; i++) {
        int64_t column = i % row, head = column / d, at = column % d, pair = at % half;
        if (head >= call->attrs.attention.heads || at >= 2 * half) {
            tx_array_put(&call->out[0], i, x->value[i], 0.0);
            continue;
        }
        double position = (double)tx_place_of(&call->in[1], i / row, INT32_MAX + time, time);
        const tx_array *rates = &call->in[2];
        double rate = rates->value ? rates->value[i / row / time * half + pair] : rotary_frequency(&call->attrs, pair);
        double angle = position * rate;
        double turn = call->attrs.inverse ? -angle : angle, low = x->value[i - at + pair],
               high = x->value[i - at + pair + half];
        double magnitude = (double)call->attrs.rope->magnitude;
        double y = at < half ? low * cos(turn) - high * sin(turn) : low * sin(turn) + high * cos(turn);
        tx_array_put(&call->out[0], i, magnitude * y, magnitude * (fabs(low) + fabs(high)) * (1.0 + angle));
    }
}

/* ---- Cases ------------------------------------------------------------------------------------ */

/* The case numbered i of an op over n operands of one shape in [lo, hi); false after the last. */
static bool plain_case(tx_cases *list, int32_t i, int32_t n, double lo, double hi)
{
    const tx_shape *shapes;
    int32_t count = tx_shapes_plain(&shapes);
    if (i > count)
        return false;
    tx_shape shape = i < count ? shapes[i] : TX_SHAPE(4096, 3072);
    char text[64];
    tx_case *c = tx_case_add(list, "%s", tx_shape_text(&shape, text, sizeof text));
    for (int32_t k = 0; k < n; k++)
        c->in[k] = tx_spec_of(TX_F32, shape, TX_FILL_UNIFORM, lo, hi);
    c->flags = i == count ? TX_CASE_BENCH : 0u;
    return true;
}

static void unary_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 1, -12.0, 12.0); i++) {
        tx_case *c = &list->item[list->count - 1];
        c->attrs.exact = i & 1;
        if (c->flags & TX_CASE_BENCH) /* as in models: CPUs take many times longer over results that are subnormal */
            c->in[0] = tx_spec_of(TX_F32, c->in[0].shape, TX_FILL_UNIFORM, -6.0, 6.0);
    }
    plain_case(list, 3, 1, -12.0, 12.0);
    list->item[list->count - 1].in[0].fill = TX_FILL_NAN;
    tx_case_chunks(list);
}

static void gelu_cases(tx_cases *list)
{
    unary_cases(list);
    for (int exact = 0; exact < 2; exact++) {
        plain_case(list, 7, 1, -100.0, 100.0); /* the cube is large, tanh and erf are flat */
        list->item[list->count - 1].attrs.exact = exact;
    }
    tx_case_half(list, 1, false);
}

static void silu_cases(tx_cases *list)
{
    unary_cases(list);
    for (int32_t i = 0; i < list->count; i++)
        list->item[i].attrs.exact = false;
    plain_case(list, 7, 1, -200.0, 200.0); /* exp overflows */
    tx_case_half(list, 1, false);
}

/* Mostly positive numbers, because the checks refuse results that are mostly 0. */
static void relu_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 1, -3.0, 12.0); i++)
        continue;
    plain_case(list, 3, 1, -3.0, 12.0);
    list->item[list->count - 1].in[0].fill = TX_FILL_NAN;
    tx_case_chunks(list);
    tx_case_half(list, 1, false);
}

static void relu_grad_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 2, -3.0, 12.0); i++)
        continue;
    tx_case_half(list, 3, false);
}

static void exp_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 1, -10.0, 10.0); i++)
        continue;
    plain_case(list, 7, 1, -80.0, 80.0);
    tx_case_half(list, 1, false);
}

static void rsqrt_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 1, 0.01, 100.0); i++)
        continue;
    plain_case(list, 7, 1, 1e-4, 1e-2);
    tx_case_half(list, 1, false);
}

static void gelu_grad_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 2, -6.0, 6.0); i++)
        list->item[list->count - 1].attrs.exact = i & 1;
    for (int exact = 0; exact < 2; exact++) {
        plain_case(list, 7, 2, -50.0, 50.0);
        list->item[list->count - 1].attrs.exact = exact;
    }
    tx_case_half(list, 3, false);
}

static void silu_grad_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 2, -6.0, 6.0); i++)
        continue;
    plain_case(list, 7, 2, -200.0, 200.0);
    tx_case_half(list, 3, false);
}

static void of_output_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 2, -1.0, 1.0); i++)
        list->item[list->count - 1].in[1].fill = TX_FILL_DERIVED;
    tx_case_half(list, 3, false);
}

static void widen(tx_spec *s)
{
    s->shape.dim[s->shape.rank - 1] *= 2;
}

/* SiLU, GELU, clamped. No bf16 or fp16 number equals the limit, at which there is no derivative. */
static void choose_gate(tx_case *c, int32_t i)
{
    c->attrs.gate = (tx_gate)(i % 3);
    c->attrs.scale = i % 3 == 2 ? 2.503f : 0.0f;
    c->attrs.alpha = i % 3 == 2 ? 1.702f : 1.0f;
}

static void swiglu_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i / 3, 1, -6.0, 6.0); i++) {
        widen(&list->item[list->count - 1].in[0]);
        choose_gate(&list->item[list->count - 1], i);
    }
    tx_case_half(list, 1, false);
}

static void swiglu_grad_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i / 3, 2, -6.0, 6.0); i++) {
        widen(&list->item[list->count - 1].in[1]);
        choose_gate(&list->item[list->count - 1], i);
    }
    tx_case_half(list, 3, false);
}

static void binary_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 2, -3.0, 3.0); i++)
        continue;
    plain_case(list, 6, 2, -3.0, 3.0);
    tx_case_chunks(list);
    list->item[list->count - 1].in[1].fill = TX_FILL_NAN;
    tx_case_half(list, 3, false);
}

static void scale_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 1, -3.0, 3.0); i++) {
        tx_case *c = &list->item[list->count - 1];
        c->attrs.alpha = 0.5f + (float)i;
        c->attrs.control = i & 1 ? TX_CONTROL_INVERSE_LABELS : -1;
    }
    tx_case_half(list, 1, false);
}

static void noise_cases(tx_cases *list)
{
    for (int32_t i = 0; plain_case(list, i, 1, -1.0, 1.0); i++) {
        tx_case *c = &list->item[list->count - 1];
        c->attrs.scale = 0.25f * (float)(i & 3);
        c->attrs.draw.site = 7 + i;
        c->controls.word[TX_CONTROL_STEP].u32 = (uint32_t)i;
    }
}

static void dropout_cases(tx_cases *list)
{
    static const float p[] = {0.1f, 0.5f, 0.0f, 0.9f};
    for (int32_t i = 0; plain_case(list, i, 1, 1.0, 3.0); i++) {
        tx_case *c = &list->item[list->count - 1];
        c->attrs.draw.p = p[i & 3];
        c->attrs.draw.site = 7 + i;
        c->attrs.draw.row = i % 3 * 100; /* of a model whose rows before it others have, */
        c->attrs.gap = i % 2 * 60;       /* and those between its halves */
        c->flags |= TX_CASE_ZEROS;
        if (c->flags & TX_CASE_BENCH)
            continue;
        const tx_dtype half = i % 2 ? TX_F16 : TX_BF16;
        tx_case_copy(list, ", x of 16 bits")->in[0].dtype = half;
        c = tx_case_copy(list, ", y of 16 bits");
        c->in[0].dtype = TX_F32;
        c->out_dtype = half;
    }
    plain_case(list, 8, 1, 1.0, 3.0);
    tx_case *c = &list->item[list->count - 1];
    c->attrs.draw.p = 0.3f;
    c->controls.word[TX_CONTROL_SEED_HI].u32 = 0xFFFFFFFFu;
    c->controls.word[TX_CONTROL_STEP].u32 = 123456789u;
    c->controls.word[TX_CONTROL_SAMPLE].u32 = 0xFFFFFFFFu; /* wraps within the batch */
}

static void rotary_cases(tx_cases *list)
{
    static const struct {
        int32_t batch, time, heads, all, size;
        bool inverse;
        int32_t position; /* the last; -1: no operand */
        tx_rope rope;
    } r[] = {{1, 1, 1, 1, 2, false, -1, TX_ROPE(5e5f)},
             {2, 5, 2, 3, 8, false, -1, TX_ROPE(1e4f)},
             {1, 17, 4, 6, 64, true, -1, TX_ROPE(5e5f)},
             {3, 33, 3, 3, 6, false, 100, TX_ROPE(1e4f)},
             {1, 3, 1, 5, 128, true, 2000, TX_ROPE(5e5f)},
             {1, 65, 2, 4, 256, false, -1, TX_ROPE(1e4f)},
             {5, 1, 2, 4, 8, false, 9, TX_ROPE(5e5f)},
             {4, 1024, 24, 36, 64, false, -1, TX_ROPE(1e4f)},
             {2, 5, 2, 3, 8, false, -1, TX_ROPE(0.5f)},
             {1, 17, 1, 2, 64, true, 2000, TX_ROPE(0.5f)},
             {1, 33, 2, 2, 6, false, -1, TX_ROPE(1.0f)},
             {1, 5, 1, 2, 8, false, 100, TX_ROPE(1e-6f)},
             {2, 9, 2, 4, 64, false, 5000, {1e4f, 4.0f, 1.0f, 0.0f, 0.0f, 1.0f, {0}, 0}},           /* linear */
             {2, 9, 2, 4, 64, true, 9000, {1e4f, 40.0f, -0.8f, 0.09f, 0.0f, 1.3688879f, {0}, 0}},   /* YaRN */
             {2, 9, 2, 4, 128, false, 9000, {5e5f, 8.0f, 1.3333334f, 0.0f, -434.6f, 1.0f, {0}, 0}}, /* llama3 */
             {2, 9, 2, 4, 8, true, 700, {1e4f, 1.0f, 0.0f, 0.0f, 0.0f, 1.19f, {1.0f, 2.5f, 4.0f, (float)INFINITY}, 0}},
             {2, 9, 2, 4, 80, false, -1, {1e4f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, {0}, 20}},     /* a part of each head */
             {1, 17, 1, 3, 10, true, 700, {1e4f, 1.0f, 0.0f, 0.0f, 0.0f, 1.19f, {2.0f}, 6}}, /* its gradient */
             {3, 5, 2, 2, 64, false, 90, {1e4f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, {0}, 2}},
             {2, 5, 2, 3, 512, false, -1, {31.6f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, {0}, 128}},
             {1, 9, 1, 2, 320, true, 700, {31.6f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, {0}, 80}}};
    for (size_t i = 0; i < sizeof r / sizeof r[0]; i++) {
        tx_case *c = tx_case_add(list, "b%d t%d h%d/%d d%d theta %g%s%s", r[i].batch, r[i].time, r[i].heads, r[i].all,
                                 r[i].size, (double)r[i].rope.theta, r[i].inverse ? " inverse" : "",
                                 r[i].position < 0 ? "" : " at positions");
        c->attrs.attention.heads = r[i].heads;
        c->attrs.attention.head_size = r[i].size;
        c->attrs.rope = &r[i].rope;
        c->attrs.inverse = r[i].inverse;
        c->in[0] = tx_spec_real(TX_SHAPE(r[i].batch, r[i].time, r[i].all * r[i].size));
        if (r[i].position >= 0)
            c->in[1] = tx_spec_positions(r[i].batch, -1, r[i].position);
        if (r[i].position >= 0 && i % 2) /* of each token */
            c->in[1] = tx_spec_of(TX_I32, TX_SHAPE(r[i].batch, r[i].time), TX_FILL_INDEX, -1.0, r[i].position + 1.0);
        if (i % 3 == 1) /* of each row */
            c->in[2] =
                tx_spec_of(TX_F32, TX_SHAPE(r[i].batch, rotary_rotated(&c->attrs) / 2), TX_FILL_UNIFORM, 0.0, 1.0);
        c->flags = r[i].time > 1000 ? TX_CASE_BENCH : 0u;
    }
    tx_case_half(list, 1, false);
}

#define GRADIENT_OF(NAME) .gradient = true, .forward = TX_OP_##NAME, .gradient_of = {1}

const tx_descriptor tx_descriptor_gelu = {.cases = gelu_cases, .reference = gelu_reference};
const tx_descriptor tx_descriptor_gelu_grad = {.cases = gelu_grad_cases,
                                               .reference = gelu_grad_reference,
                                               GRADIENT_OF(GELU),
                                               .source = {TX_FROM_DY, TX_FROM_IN(0)}};
const tx_descriptor tx_descriptor_relu = {.cases = relu_cases, .reference = relu_reference};
const tx_descriptor tx_descriptor_silu = {.cases = silu_cases, .reference = silu_reference};
const tx_descriptor tx_descriptor_tanh = {.cases = silu_cases, .reference = tanh_reference};
const tx_descriptor tx_descriptor_exponential = {.cases = exp_cases, .reference = exponential_reference};
const tx_descriptor tx_descriptor_logarithm = {.cases = rsqrt_cases, .reference = logarithm_reference};
const tx_descriptor tx_descriptor_rsqrt = {.cases = rsqrt_cases, .reference = rsqrt_reference};
const tx_descriptor tx_descriptor_tanh_grad = {.cases = of_output_cases,
                                               .reference = tanh_grad_reference,
                                               GRADIENT_OF(TANH),
                                               .source = {TX_FROM_DY, TX_FROM_OUT(0)}};
const tx_descriptor tx_descriptor_sigmoid = {.cases = silu_cases, .reference = sigmoid_reference};
const tx_descriptor tx_descriptor_sigmoid_grad = {.cases = of_output_cases,
                                                  .reference = sigmoid_grad_reference,
                                                  GRADIENT_OF(SIGMOID),
                                                  .source = {TX_FROM_DY, TX_FROM_OUT(0)}};
const tx_descriptor tx_descriptor_relu_grad = {.cases = relu_grad_cases,
                                               .reference = relu_grad_reference,
                                               GRADIENT_OF(RELU),
                                               .source = {TX_FROM_DY, TX_FROM_OUT(0)}};
const tx_descriptor tx_descriptor_silu_grad = {.cases = silu_grad_cases,
                                               .reference = silu_grad_reference,
                                               GRADIENT_OF(SILU),
                                               .source = {TX_FROM_DY, TX_FROM_IN(0)}};
const tx_descriptor tx_descriptor_swiglu = {
    .cases = swiglu_cases, .outputs = swiglu_outputs, .reference = swiglu_reference};
const tx_descriptor tx_descriptor_swiglu_grad = {.cases = swiglu_grad_cases,
                                                 .outputs = like_second,
                                                 .reference = swiglu_grad_reference,
                                                 GRADIENT_OF(SWIGLU),
                                                 .source = {TX_FROM_DY, TX_FROM_IN(0)}};
const tx_descriptor tx_descriptor_add = {.cases = binary_cases, .reference = add_reference};
const tx_descriptor tx_descriptor_mul = {.cases = binary_cases, .reference = mul_reference};
const tx_descriptor tx_descriptor_scale = {.cases = scale_cases, .reference = scale_reference};
const tx_descriptor tx_descriptor_dropout = {
    .cases = dropout_cases, .outputs = dropout_outputs, .reference = dropout_reference};
const tx_descriptor tx_descriptor_noise = {.cases = noise_cases, .reference = noise_reference};
const tx_descriptor tx_descriptor_rotary = {.cases = rotary_cases, .reference = rotary_reference};
