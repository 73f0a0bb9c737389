/* SPDX-License-Identifier: Apache-2.0
 * The known-answer test that a device passes before it is trusted: a few kernels of every kind (exact arithmetic, sums
 * in local memory, exponentials, random numbers), compared with plain C in double precision. Products and attention
 * have trials of their own. */
#include "backends/opencl/solo.h"

#include "api/base/hash.h"
#include "backends/rng.h"

#include <inttypes.h>
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
        bool keep = random.word[column & 3] >= tx_dropout_threshold(c->attrs.draw.p);
        y[i] = keep ? (double)x[i] / (1.0 - (double)c->attrs.draw.p) : 0.0;
    }
}

#define TOLERANCE 1e-5 /* some tens of roundings in fp32 */

static const check checks[] = {
    {TX_OP_SCALE, {1, {1003}}, {1, {1003}}, {0}, {.alpha = 2, .control = -1}, 0, expect_scale},
    {TX_OP_REDUCE, {1, {1003}}, {1, {1}}, {1, {1}}, {.alpha = 1, .control = -1}, TOLERANCE, expect_sum},
    {TX_OP_SOFTMAX, {2, {7, 37}}, {2, {7, 37}}, {0}, {0}, TOLERANCE, expect_softmax},
    {TX_OP_DROPOUT,
     {3, {3, 5, 33}},
     {3, {3, 5, 33}},
     {0},
     {.draw.p = 0.25f, .draw.site = SITE},
     TOLERANCE,
     expect_dropout},
};

#define MOST 4096 /* elements of every shape above, at most */

static tx_operand of_shape(const tx_shape *shape)
{
    return (tx_operand){.dtype = shape->rank ? TX_F32 : TX_DTYPE_COUNT, .shape = *shape};
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

static tx_status run_check(tx_context *context, const check *c)
{
    tx_cl_solo solo = {.command = tx_cl_solo_command(c->op, &c->attrs)};
    tx_operand *in = &solo.command.in[0], *out = solo.command.out;
    *in = of_shape(&c->in);
    out[0] = of_shape(&c->out);
    out[1] = of_shape(&c->second);
    tx_cl_solo_place(&solo);
    solo.controls.word[TX_CONTROL_SEED_LO].u32 = SEED_LO;
    solo.controls.word[TX_CONTROL_SEED_HI].u32 = SEED_HI;
    solo.controls.word[TX_CONTROL_STEP].u32 = STEP;
    solo.controls.word[TX_CONTROL_SAMPLE].u32 = SAMPLE;
    unsigned char *host = malloc((size_t)solo.bytes);
    if (!host)
        return tx_fail(TX_MEMORY, "out of host memory");
    memset(host, 0xFF, (size_t)solo.bytes); /* NaN in what is to be stored over */
    float *x = (float *)(host + in->offset), *y = (float *)(host + out[0].offset);
    for (int64_t i = 0; i < tx_operand_count(in); i++)
        x[i] = (float)(i * 37 % 101 - 50) / 16.0f;
    tx_status status = tx_cl_solo_open(context, &solo, host);
    if (status == TX_OK)
        status = tx_cl_solo_run(context, &solo);
    if (status == TX_OK)
        status = tx_cl_read(context, solo.memory, out[0].offset, y, tx_operand_bytes(out));
    if (status == TX_OK)
        status = compare(context, c, x, y);
    tx_cl_solo_close(context, &solo);
    free(host);
    return status;
}

enum { EXPONENTS = 1024 };

/* Attention's kernels for GPUs take native_exp2 where it is as good as exp2, as it is on GPUs by AMD, Intel and NVIDIA.
 * Intel's driver for CPUs has 13 bits of it. */
static tx_status try_native(tx_context *context)
{
    const size_t items = EXPONENTS;
    float y[EXPONENTS];
    cl_kernel kernel = NULL;
    tx_buffer *memory = NULL;
    tx_status status = tx_cl_kernel(context, "native", "", "native", &kernel);
    if (status == TX_OK)
        status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof y, &memory);
    if (status == TX_OK)
        status = tx_cl_check(clSetKernelArg(kernel, 0, sizeof(cl_mem), &memory->memory), "clSetKernelArg");
    if (status == TX_OK)
        status = tx_cl_check(clEnqueueNDRangeKernel(context->compute, kernel, 1, NULL, &items, NULL, 0, NULL, NULL),
                             "clEnqueueNDRangeKernel");
    if (status == TX_OK)
        status = tx_cl_read(context, memory, 0, y, sizeof y);
    for (int i = 0; status == TX_OK && i < EXPONENTS; i++)
        context->coarse_exp2 = context->coarse_exp2 || !(fabs((double)y[i] * exp2(i / 64.0) - 1.0) <= TOLERANCE / 4);
    if (memory)
        tx_cl_release(context, memory);
    if (kernel)
        clReleaseKernel(kernel);
    return status;
}

/* The verdict is about this device, driver and variant (the cache adds them) and these kernel texts. */
tx_status tx_cl_self_test(tx_context *context)
{
    static const char disproved[] = ", in larger work-groups than the driver says",
                      coarse[] = ", native_exp2 is coarse";
    char key[48];
    uint64_t texts = TX_HASH_START;
    for (int32_t i = 0; i < tx_cl_source_count; i++)
        texts = tx_hash(texts, tx_cl_sources[i].text, tx_cl_sources[i].size);
    snprintf(key, sizeof key, "known answers, claims %016" PRIx64, texts);
    void *verdict = NULL;
    size_t size = 0;
    if (tx_cl_cache_load(context, key, &verdict, &size)) {
        context->claims = strstr(verdict, disproved) ? TX_CL_DISPROVED : TX_CL_BELIEVED;
        context->coarse_exp2 = strstr(verdict, coarse) != NULL;
        free(verdict);
        return TX_OK;
    }
    tx_status status = TX_OK;
    for (size_t i = 0; status == TX_OK && i < sizeof checks / sizeof checks[0]; i++)
        status = run_check(context, &checks[i]);
    if (status == TX_OK)
        status = try_native(context);
    if (context->claims == TX_CL_UNTRIED)
        context->claims = TX_CL_BELIEVED;
    char found[sizeof disproved + sizeof coarse + 8];
    snprintf(found, sizeof found, "passed%s%s", context->claims == TX_CL_BELIEVED ? "" : disproved,
             context->coarse_exp2 ? coarse : "");
    if (status == TX_OK)
        tx_cl_cache_store(context, key, found, strlen(found) + 1);
    memset(&context->traffic, 0, sizeof context->traffic); /* the account begins with what the engine does */
    return status;
}
