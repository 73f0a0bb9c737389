/* SPDX-License-Identifier: Apache-2.0
 * Lists of cases, calls made of them, and the table of descriptors. */
#include "tests/ops/case.h"
#include "api/graph/op.h"
#include "backends/rng.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tx_descriptor *const descriptors[TX_OP_KERNELS] = {
#define TX_OP(NAME, name, ...) [TX_OP_##NAME] = &tx_descriptor_##name,
#define TX_VIRTUAL(...)
#include "ops.def"
};

const tx_descriptor *tx_descriptor_of(tx_op op)
{
    return descriptors[op];
}

/* ---- Lists ------------------------------------------------------------------------------------ */

tx_case *tx_case_add(tx_cases *list, const char *format, ...)
{
    if (list->count == TX_CASES_MAX) {
        list->overflow = true;
        list->count--;
    }
    tx_case *c = &list->item[list->count++];
    memset(c, 0, sizeof *c);
    va_list args;
    va_start(args, format);
    vsnprintf(c->label, sizeof c->label, format, args);
    va_end(args);
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        c->in[i].dtype = TX_DTYPE_COUNT;
    c->out_dtype = TX_DTYPE_COUNT;
    c->attrs.control = -1;
    c->controls.word[TX_CONTROL_LEARNING_RATE].f32 = 0.01f;
    c->controls.word[TX_CONTROL_INVERSE_LABELS].f32 = 1.0f / 7.0f;
    c->controls.word[TX_CONTROL_NOISE].f32 = 1.5f;
    c->controls.word[TX_CONTROL_FAKE_QUANTIZE].f32 = 1.0f;
    c->controls.word[TX_CONTROL_MAX_GRAD_NORM].f32 = 1.0f;
    c->controls.word[TX_CONTROL_SEED_LO].u32 = 0x12345678u;
    c->controls.word[TX_CONTROL_SEED_HI].u32 = 0x9ABCDEF0u;
    c->controls.word[TX_CONTROL_STEP].u32 = 3;
    c->controls.word[TX_CONTROL_SAMPLE].u32 = 5;
    c->result[TX_RESULT_LOSS] = 0.5f;
    c->result[TX_RESULT_GRAD_SUMSQ] = 4.0f;
    c->result[TX_RESULT_GRAD_NORM] = 2.0f;
    c->result[TX_RESULT_GRAD_FACTOR] = 0.5f;
    c->result[TX_RESULT_FINITE] = 1.0f;
    c->result[TX_RESULT_UPDATES] = 1.0f;
    c->result[TX_RESULT_LOSS_SCALE] = 1.0f;
    return c;
}

static tx_case *copy_of(tx_cases *list, tx_case base, const char *suffix)
{
    tx_case *c = tx_case_add(list, "%.70s%s", base.label, suffix);
    memcpy(base.label, c->label, sizeof base.label);
    *c = base;
    return c;
}

tx_case *tx_case_copy(tx_cases *list, const char *suffix)
{
    return copy_of(list, list->item[list->count - 1], suffix);
}

void tx_case_accumulate(tx_cases *list)
{
    tx_case base = list->item[list->count - 1];
    tx_case_copy(list, ", add")->attrs.accumulate = TX_ADD;
    for (int32_t control = 0; control < 2; control++) {
        tx_case *c = tx_case_copy(list, "");
        snprintf(c->label, sizeof c->label, "%.70s, add if %d", base.label, control);
        c->attrs.accumulate = TX_ADD_CONTROL;
        c->controls.word[TX_CONTROL_ACCUMULATE].f32 = (float)control;
    }
}

void tx_case_half(tx_cases *list, uint32_t in, bool out)
{
    const int32_t count = list->count;
    for (int32_t n = 0; n < count; n++) {
        const bool f16 = n % 2;
        if (list->item[n].flags & TX_CASE_BENCH)
            continue;
        tx_case *c = copy_of(list, list->item[n], f16 ? ", fp16" : ", bf16");
        for (int32_t i = 0; i < TX_MAX_IN; i++)
            if (in >> i & 1u && c->in[i].dtype == TX_F32)
                c->in[i].dtype = f16 ? TX_F16 : TX_BF16;
        if (out)
            c->out_dtype = f16 ? TX_F16 : TX_BF16;
    }
}

void tx_case_chunks(tx_cases *list)
{
    tx_case_copy(list, ", two chunks")->flags |= TX_CASE_CHUNKS;
}

void tx_case_salt(tx_case *c)
{
    tx_word *w = c->controls.word;
    c->salt++;
    w[TX_CONTROL_LEARNING_RATE].f32 *= 1.5f;
    w[TX_CONTROL_INVERSE_LABELS].f32 *= 0.75f;
    w[TX_CONTROL_MAX_GRAD_NORM].f32 *= 1.25f;
    w[TX_CONTROL_ACCUMULATE].f32 = 1.0f - w[TX_CONTROL_ACCUMULATE].f32;
    w[TX_CONTROL_SEED_LO].u32 += 1;
    w[TX_CONTROL_SEED_HI].u32 += 3;
    w[TX_CONTROL_STEP].u32 += 1;
    w[TX_CONTROL_SAMPLE].u32 += 2;
}

int32_t tx_shapes_plain(const tx_shape **shapes)
{
    static const tx_shape plain[] = {
        {1, {1}},      {1, {7}},      {2, {1, 1}},     {2, {3, 5}},      {2, {15, 17}},     {2, {16, 16}},
        {2, {63, 65}}, {2, {64, 64}}, {3, {2, 3, 33}}, {3, {1, 129, 1}}, {4, {2, 1, 3, 7}}, {2, {5, 1027}},
    };
    *shapes = plain;
    return (int32_t)(sizeof plain / sizeof plain[0]);
}

/* ---- Filling ----------------------------------------------------------------------------------- */

/* Returns a number in [0, 1) that depends only on operand and element (the finaliser of SplitMix64). */
static double draw(int64_t operand, int64_t element)
{
    uint64_t z = ((uint64_t)operand << 48) + (uint64_t)element * UINT64_C(0x9E3779B97F4A7C15) + 1;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static double special(int64_t i)
{
    static const double values[] = {
        0.0,
        -0.0,
        INFINITY,
        -INFINITY,
        NAN,
        65504.0,
        65519.99,
        65520.0,
        -65520.0,
        1e30,
        3.39e38,
        0x1p-24,
        0x1p-25,
        0x1.000002p-25,
        0x1.8p-24,
        0x1p-14,
        0x1.ffcp-15,
        0x1.ff8p-15,
        -0x1.4p-20,
        1.0 + 0x1p-8,
        1.0 + 0x1.8p-7,
        1.0 + 0x1p-11,
        1.0 + 0x1.8p-10,
        1.0 + 0x1.00002p-8,
        1.0 + 0x1.00002p-11,
        2048.5,
        0x1.fffffep127,
    };
    return i < (int64_t)(sizeof values / sizeof values[0]) ? values[i] : NAN;
}

static double offset_at(const tx_spec *s, int64_t i)
{
    const int64_t groups = tx_shape_count(&s->shape) - 1;
    if (s->lo == 0.0)
        return floor(s->hi * (double)i / (double)groups);
    if (s->lo == 1.0)
        return floor(s->hi * (double)(i / 2 * 2) / (double)(groups + 1));
    return s->lo == 2.0 && i > groups / 2 ? s->hi : 0.0;
}

static double span_at(const tx_spec *s, int64_t i, double whole)
{
    const int64_t b = i / 3;
    const double numbers[] = {b ? (double)(s->shape.dim[0] - b) : 1e6, b % 2 ? 0.0 : 5.0,
                              b == 0       ? s->hi + 7.0
                              : b % 3 == 2 ? 0.0
                                           : whole};
    return numbers[i % 3];
}

static double fill_one(const tx_spec *s, const tx_case *c, int64_t operand, int64_t i)
{
    double u = draw(operand + 32 * (int64_t)c->salt, i), real = s->lo + (s->hi - s->lo) * u, whole = floor(real);
    int64_t last = tx_shape_last(&s->shape);
    switch (s->fill) {
    case TX_FILL_INDEX:
        return whole;
    case TX_FILL_SPARSE:
        return i % 5 == 2 ? -1.0 : whole;
    case TX_FILL_LABELS:
        return i % 5 == 2 ? TX_IGNORE_LABEL : whole;
    case TX_FILL_LENGTHS:
        return i == 0 ? s->hi : i == 1 ? s->lo : whole;
    case TX_FILL_STARTS:
        return i / last % 2 ? whole : (double)(i % last / (1 + last / 3) * (1 + last / 3));
    case TX_FILL_SPECIAL:
        return i < 27 ? special(i) : real;
    case TX_FILL_HOLES:
        return i < last ? (i == 0 ? real : -INFINITY) : i < 2 * last ? -INFINITY : real;
    case TX_FILL_NAN:
        return i == tx_shape_count(&s->shape) / 2 ? NAN : real;
    case TX_FILL_PADDED:
        return i % last >= c->attrs.vocab ? 1e4 : real;
    case TX_FILL_DISTINCT:
        return (double)((i / last + i % last) % (int64_t)s->hi);
    case TX_FILL_PLACES:
        return i % 5 == 4 ? -1.0 : (double)(tx_shape_count(&s->shape) - 1 - i);
    case TX_FILL_TOKENS:
        i = last - 1 - i;
        return i % 5 == 4 ? -1.0 : (double)(i / (int64_t)s->hi);
    case TX_FILL_OFFSETS:
        return offset_at(s, i);
    case TX_FILL_SPANS:
        return span_at(s, i, whole);
    case TX_FILL_BLOCKS: /* the upper byte of a scale is that of 2^-8 to 2^-6 */
        return i % 34 == 1 ? 28.0 + floor(8.0 * u) : whole;
    case TX_FILL_UNIFORM:
    case TX_FILL_DERIVED:
        break;
    }
    return real;
}

double *tx_array_blocks(const tx_array *array)
{
    double *values = array->dtype == TX_U8 ? calloc((size_t)array->count, sizeof *values) : NULL;
    for (int64_t b = 0; values && b < array->count / 34; b++) {
        const double *byte = array->value + 34 * b;
        const uint16_t half = (uint16_t)(byte[0] + 256.0 * byte[1]);
        double scale;
        tx_number_decode(TX_F16, &half, 1, &scale);
        for (int i = 0; i < 32; i++)
            values[32 * b + i] = scale * (byte[2 + i] < 128.0 ? byte[2 + i] : byte[2 + i] - 256.0);
    }
    return values;
}

/* ---- Calls -------------------------------------------------------------------------------------- */

tx_status tx_array_allocate(tx_array *array, bool output)
{
    array->count = tx_shape_count(&array->shape);
    array->value = calloc((size_t)array->count, sizeof(double));
    array->magnitude = output ? calloc((size_t)array->count, sizeof(double)) : NULL;
    if (!array->value || (output && !array->magnitude))
        return tx_fail(TX_MEMORY, "conformance: no memory for an operand of %lld elements", (long long)array->count);
    return TX_OK;
}

static void array_free(tx_array *array)
{
    free(array->value);
    free(array->magnitude);
    array->value = array->magnitude = NULL;
}

void tx_call_free(tx_call *call)
{
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        array_free(&call->in[i]);
    for (int32_t i = 0; i < TX_MAX_OUT; i++)
        array_free(&call->out[i]);
}

double tx_call_beta(const tx_call *call, int32_t o)
{
    if (!(tx_op_info_of(call->op)->adds >> o & 1u))
        return 0.0;
    return tx_beta(call->attrs.accumulate, &call->controls);
}

uint32_t tx_call_draw(const tx_call *call, int in, int64_t i)
{
    const tx_shape *s = &call->in[in].shape;
    const tx_word *w = call->controls.word;
    int64_t columns = tx_shape_last(s), rows = tx_shape_rows(s) / (s->rank > 1 ? s->dim[0] : 1);
    uint32_t column = (uint32_t)(i % columns), row = (uint32_t)(i / columns % rows);
    uint32_t sample = w[TX_CONTROL_SAMPLE].u32 + (uint32_t)(i / columns / rows);
    row += row < (uint32_t)(rows / 2) ? 0 : (uint32_t)call->attrs.gap;
    tx_random r = tx_draw(w[TX_CONTROL_SEED_LO].u32, w[TX_CONTROL_SEED_HI].u32, w[TX_CONTROL_STEP].u32, sample,
                          (uint32_t)call->attrs.draw.site, 0, (uint32_t)call->attrs.draw.row + row, column >> 2);
    return r.word[column & 3];
}

double tx_call_dropped(const tx_call *call, int in, int64_t i)
{
    const bool keeps = tx_call_draw(call, in, i) >= tx_dropout_threshold(call->attrs.draw.p);
    return keeps ? 1.0 / (1.0 - (double)call->attrs.draw.p) * call->in[in].value[i] : 0.0;
}

tx_status tx_call_outputs(tx_call *call)
{
    const tx_descriptor *d = tx_descriptor_of(call->op);
    for (int32_t o = 1; o < TX_MAX_OUT; o++)
        call->out[o].dtype = TX_DTYPE_COUNT;
    if (d->outputs) {
        d->outputs(call);
    } else {
        call->out[0].dtype = call->in[0].dtype;
        call->out[0].shape = call->in[0].shape;
    }
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        tx_array *out = &call->out[o];
        if (!tx_array_present(out))
            continue;
        TX_TRY(tx_array_allocate(out, true));
        bool adds = tx_call_beta(call, o) != 0.0;
        for (int64_t i = 0; i < out->count; i++)
            out->value[i] = adds ? tx_number_round(out->dtype, 2.0 * draw(16 + o, i) - 1.0) : (double)NAN;
    }
    return TX_OK;
}

/* Runs the forward reference on the inputs that a gradient op shares with it and takes over its outputs. */
static tx_status derive_inputs(const tx_case *c, tx_call *call)
{
    const tx_descriptor *d = tx_descriptor_of(call->op);
    bool any = false;
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        any = any || (c->in[i].dtype != TX_DTYPE_COUNT && c->in[i].fill == TX_FILL_DERIVED);
    if (!any)
        return TX_OK;
    tx_call forward = {.op = d->forward, .attrs = call->attrs, .controls = call->controls};
    forward.attrs.accumulate = TX_STORE;
    forward.out[0].dtype = TX_DTYPE_COUNT;
    for (int32_t k = 0; k < TX_MAX_IN; k++)
        forward.in[k].dtype = TX_DTYPE_COUNT;
    for (int32_t i = 0; i < TX_MAX_IN; i++)
        if (d->source[i] >= TX_FROM_IN(0) && d->source[i] < TX_FROM_OUT(0))
            forward.in[d->source[i] - TX_FROM_IN(0)] = call->in[i];
    tx_status status = tx_call_outputs(&forward);
    TX_THEN(status, tx_call_reference(&forward));
    for (int32_t i = 0; i < TX_MAX_IN && !status; i++) {
        if (d->source[i] < TX_FROM_OUT(0))
            continue;
        const tx_array *from = &forward.out[d->source[i] - TX_FROM_OUT(0)];
        for (int64_t j = 0; j < from->count; j++)
            call->in[i].value[j] =
                isinf(from->magnitude[j]) ? (double)NAN : tx_number_round(call->in[i].dtype, from->value[j]);
    }
    for (int32_t o = 0; o < TX_MAX_OUT; o++)
        array_free(&forward.out[o]);
    return status;
}

tx_status tx_call_of_case(tx_op op, const tx_case *c, bool derive, tx_call *call)
{
    const tx_descriptor *d = tx_descriptor_of(op);
    *call = (tx_call){.op = op, .attrs = c->attrs, .controls = c->controls};
    for (int32_t r = 0; r < TX_RESULT_COUNT; r++)
        call->result[r] = c->result[r];
    tx_status status = TX_OK;
    for (int32_t i = 0; i < TX_MAX_IN && !status; i++) {
        const tx_spec *s = &c->in[i];
        call->in[i] = (tx_array){.dtype = s->dtype, .shape = s->shape};
        if (s->dtype == TX_DTYPE_COUNT)
            continue;
        status = tx_array_allocate(&call->in[i], false);
        for (int64_t j = 0; j < call->in[i].count && !status; j++)
            call->in[i].value[j] = tx_number_round(s->dtype, fill_one(s, c, i, j));
        if (!status && tx_dtype_packed(s->dtype))
            tx_number_settle(s->dtype, call->in[i].value, call->in[i].count);
    }
    call->out[0] = (tx_array){.dtype = c->out_dtype, .shape = c->out_shape};
    if (!status && d->gradient && derive)
        status = derive_inputs(c, call);
    TX_THEN(status, tx_call_outputs(call));
    if (status)
        tx_call_free(call);
    return status;
}

tx_status tx_call_reference(tx_call *call)
{
    double *old[TX_MAX_OUT] = {NULL};
    tx_status status = TX_OK;
    for (int32_t o = 0; o < TX_MAX_OUT && !status; o++) {
        if (!tx_array_present(&call->out[o]) || tx_call_beta(call, o) == 0.0)
            continue;
        size_t bytes = (size_t)call->out[o].count * sizeof(double);
        old[o] = malloc(bytes);
        if (old[o])
            memcpy(old[o], call->out[o].value, bytes);
        else
            status = tx_fail(TX_MEMORY, "conformance: no memory for old contents");
    }
    if (!status)
        tx_descriptor_of(call->op)->reference(call);
    for (int32_t o = 0; o < TX_MAX_OUT; o++) {
        for (int64_t i = 0; !status && old[o] && i < call->out[o].count; i++) {
            call->out[o].value[i] += old[o][i];
            call->out[o].magnitude[i] += fabs(old[o][i]);
        }
        free(old[o]);
    }
    return status;
}
