/* SPDX-License-Identifier: Apache-2.0
 * The known-answer test that a device passes before it is trusted: a few kernels of every kind (exact arithmetic, sums
 * in local memory, exponentials, random numbers, tiled products), compared with plain C in double precision. */
#include "backends/opencl/internal.h"

#include "backends/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED_LO = 7, SEED_HI = 3, STEP = 5, SAMPLE = 11, SITE = 2 };

typedef struct check {
    tx_op op;
    tx_shape in, out, second; /* `second`: of output 1, rank 0 where there is none */
    tx_attrs attrs;
    double tolerance; /* of the largest expected value */
    void (*expect)(const struct check *check, const float *x, double *y);
} check;

static void expect_scale(const check *c, const float *x, double *y)
{
    for (int64_t i = 0; i < tx_shape_count(&c->in); i++)
        y[i] = (double)c->attrs.alpha * (double)x[i];
}

static void expect_sum(const check *c, const float *x, double *y)
{
    y[0] = 0;
    for (int64_t i = 0; i < tx_shape_count(&c->in); i++)
        y[0] += (double)x[i];
}

static void softmax(const double *scores, int64_t n, double *p)
{
    double top = scores[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        top = scores[i] > top ? scores[i] : top;
    for (int64_t i = 0; i < n; i++)
        sum += p[i] = exp(scores[i] - top);
    for (int64_t i = 0; i < n; i++)
        p[i] /= sum;
}

static void expect_softmax(const check *c, const float *x, double *y)
{
    int64_t n = tx_shape_last(&c->in);
    for (int64_t row = 0; row < tx_shape_rows(&c->in); row++) {
        double scores[64];
        for (int64_t i = 0; i < n; i++)
            scores[i] = (double)x[row * n + i];
        softmax(scores, n, y + row * n);
    }
}

static void expect_dropout(const check *c, const float *x, double *y)
{
    int64_t middle = c->in.dim[1], n = c->in.dim[2];
    for (int64_t i = 0; i < tx_shape_count(&c->in); i++) {
        uint32_t column = (uint32_t)(i % n), line = (uint32_t)(i / n % middle), sample = (uint32_t)(i / n / middle);
        tx_random random = tx_draw(SEED_LO, SEED_HI, STEP, SAMPLE + sample, SITE, 0, line, column >> 2);
        bool keep = random.word[column & 3] >= tx_dropout_threshold(c->attrs.p);
        y[i] = keep ? (double)x[i] / (1.0 - (double)c->attrs.p) : 0.0;
    }
}

/* Causal, one key head a query head. */
static void expect_attention(const check *c, const float *x, double *y)
{
    int64_t T = c->in.dim[1], last = c->in.dim[2], width = c->out.dim[2], d = width / c->attrs.heads;
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < c->attrs.heads; h++) {
            double scores[64], p[64];
            for (int64_t k = 0; k <= t; k++) {
                scores[k] = 0;
                for (int64_t i = 0; i < d; i++)
                    scores[k] += (double)x[t * last + h * d + i] * (double)x[k * last + width + h * d + i];
                scores[k] *= (double)c->attrs.scale;
            }
            softmax(scores, t + 1, p);
            for (int64_t i = 0; i < d; i++) {
                double sum = 0;
                for (int64_t k = 0; k <= t; k++)
                    sum += p[k] * (double)x[k * last + 2 * width + h * d + i];
                y[t * width + h * d + i] = sum;
            }
        }
}

#define TOLERANCE 1e-5 /* some tens of roundings in fp32 */

static const check checks[] = {
    {TX_OP_SCALE, {1, {1003}}, {1, {1003}}, {0}, {.alpha = 2, .control = -1}, 0, expect_scale},
    {TX_OP_REDUCE, {1, {1003}}, {1, {1}}, {1, {1}}, {.alpha = 1, .control = -1}, TOLERANCE, expect_sum},
    {TX_OP_SOFTMAX, {2, {7, 37}}, {2, {7, 37}}, {0}, {0}, TOLERANCE, expect_softmax},
    {TX_OP_DROPOUT, {3, {3, 5, 33}}, {3, {3, 5, 33}}, {0}, {.p = 0.25f, .site = SITE}, TOLERANCE, expect_dropout},
    {TX_OP_ATTENTION,
     {3, {1, 21, 96}},
     {3, {1, 21, 32}},
     {3, {1, 2, 21}},
     {.causal = true, .heads = 2, .kv_heads = 2, .scale = 0.25f},
     TOLERANCE,
     expect_attention},
};

/* Bytes between the operands of a check; every shape above fits. */
#define SPACING 16384
#define MOST (SPACING / (int)sizeof(float))

static tx_operand place(const tx_shape *shape, int slot)
{
    tx_operand o = {.dtype = shape->rank ? TX_F32 : TX_DTYPE_COUNT, .shape = *shape, .arena = TX_ARENA_PLANNED};
    o.offset = (int64_t)slot * SPACING;
    return o;
}

static tx_status compare(const tx_context *context, const check *c, const float *x, const float *y)
{
    double expected[MOST], top = 0;
    int64_t n = tx_shape_count(&c->out);
    c->expect(c, x, expected);
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(expected[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)y[i] - expected[i]) <= c->tolerance * top))
            return tx_fail(
                TX_DEVICE,
                "the device fails the known-answer test (kernel %d, element %lld: %.9g instead of %.9g) and is "
                "not used; another driver than %s may help",
                (int)c->op, (long long)i, (double)y[i], expected[i], context->info.driver);
    return TX_OK;
}

/* Runs one check in `memory` (input, outputs) with controls in `control`. */
static tx_status run_check(tx_context *context, const check *c, tx_buffer *memory, tx_buffer *control, const float *x)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    tx_command command = {.op = c->op, .attrs = c->attrs};
    for (int i = 0; i < TX_MAX_IN; i++)
        command.in[i] = none;
    for (int i = 0; i < TX_MAX_OUT; i++)
        command.out[i] = none;
    command.in[0] = place(&c->in, 0);
    command.out[0] = place(&c->out, 1);
    command.out[1] = place(&c->second, 2);
    const tx_program program = {1, &command};
    tx_bindings bindings = {0};
    bindings.arena[TX_ARENA_PLANNED] = (tx_extent){1, &memory};
    bindings.arena[TX_ARENA_CONTROL] = (tx_extent){1, &control};
    const tx_controls none_set = {0};
    float y[MOST];
    int64_t scratch;
    tx_executable *executable;
    tx_status status = tx_cl_prepare(context, &program, &executable, &scratch);
    if (status != TX_OK)
        return status;
    status = tx_cl_bind(executable, &bindings);
    if (status == TX_OK)
        status = tx_cl_write(context, TX_QUEUE_COMPUTE, memory, 0, x, tx_operand_bytes(&command.in[0]));
    if (status == TX_OK)
        status = tx_cl_run_program(executable, 0, 1, &none_set, NULL);
    if (status == TX_OK)
        status = tx_cl_read(context, memory, SPACING, y, tx_operand_bytes(&command.out[0]));
    tx_cl_destroy(executable);
    return status == TX_OK ? compare(context, c, x, y) : status;
}

static tx_status run_checks(tx_context *context, tx_buffer *memory, tx_buffer *control)
{
    tx_controls controls = {0};
    controls.word[TX_CONTROL_SEED_LO].u32 = SEED_LO;
    controls.word[TX_CONTROL_SEED_HI].u32 = SEED_HI;
    controls.word[TX_CONTROL_STEP].u32 = STEP;
    controls.word[TX_CONTROL_SAMPLE].u32 = SAMPLE;
    float x[MOST];
    for (int i = 0; i < MOST; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 16.0f;
    tx_status status = tx_cl_write(context, TX_QUEUE_COMPUTE, control, 0, &controls, sizeof controls);
    for (size_t i = 0; status == TX_OK && i < sizeof checks / sizeof checks[0]; i++)
        status = run_check(context, &checks[i], memory, control, x);
    tx_cl_finish(context); /* `controls` and `x` are being copied from */
    return status;
}

/* The verdict is about this device, driver and variant (the cache adds them) and these kernel texts. */
static char *verdict_key(void)
{
    size_t size = 64;
    for (int32_t i = 0; i < tx_cl_source_count; i++)
        size += tx_cl_sources[i].size;
    char *key = malloc(size);
    if (!key)
        return NULL;
    char *end = key + sprintf(key, "known answers\n");
    for (int32_t i = 0; i < tx_cl_source_count; i++) {
        memcpy(end, tx_cl_sources[i].text, tx_cl_sources[i].size);
        end += tx_cl_sources[i].size;
    }
    *end = '\0';
    return key;
}

tx_status tx_cl_self_test(tx_context *context)
{
    static const char passed[] = "passed";
    char *key = verdict_key();
    if (!key)
        return tx_fail(TX_MEMORY, "out of host memory");
    void *verdict = NULL;
    size_t size = 0;
    bool known =
        tx_cl_cache_load(context, key, &verdict, &size) && size == sizeof passed && memcmp(verdict, passed, size) == 0;
    free(verdict);
    tx_status status = TX_OK;
    if (!known) {
        tx_buffer *memory = NULL, *control = NULL;
        status = tx_cl_allocate(context, TX_MEMORY_TEMPORARY, TX_SPACE_DEVICE, 3 * SPACING, &memory);
        if (status == TX_OK)
            status = tx_cl_allocate(context, TX_MEMORY_TEMPORARY, TX_SPACE_DEVICE, TX_ALIGNMENT, &control);
        if (status == TX_OK)
            status = run_checks(context, memory, control);
        tx_cl_release(context, memory);
        tx_cl_release(context, control);
        if (status == TX_OK)
            tx_cl_cache_store(context, key, passed, sizeof passed);
    }
    free(key);
    memset(&context->traffic, 0, sizeof context->traffic); /* the account begins with what the engine does */
    return status;
}
