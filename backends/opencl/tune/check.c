/* SPDX-License-Identifier: Apache-2.0
 *
 * The known-answer test of a device at opening: a few kernels of every kind (exact arithmetic, sums in local memory,
 * exponentials, random numbers) are compared with the cpu backend. Matrix products and attention have their own
 * tests.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include "api/base/hash.h"
#include "api/graph/op.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-5 /* some tens of roundings in fp32 */

static const struct check {
    tx_op op;
    tx_shape in, out, work; /* rank 0 if the op has no work output */
    tx_attrs attrs;
    double tolerance;
} checks[] = {
    {TX_OP_SCALE, {1, {1003}}, {1, {1003}}, {0}, {.alpha = 2, .control = -1}, 0},
    {TX_OP_REDUCE, {1, {1003}}, {1, {1}}, {1, {1}}, {.alpha = 1, .control = -1}, TOLERANCE},
    {TX_OP_SOFTMAX, {2, {7, 37}}, {2, {7, 37}}, {0}, {0}, TOLERANCE},
    {TX_OP_DROPOUT, {3, {3, 5, 33}}, {3, {3, 5, 33}}, {0}, {.draw.p = 0.25f, .draw.site = 2}, TOLERANCE},
};

static tx_operand of_shape(const tx_shape *shape)
{
    return (tx_operand){.dtype = shape->rank ? TX_F32 : TX_DTYPE_COUNT, .shape = *shape};
}

/* Adds to a failed test that the device is not used. */
static tx_status not_used(const tx_context *context, tx_status status)
{
    char what[512];
    if (status != TX_DEVICE)
        return status;
    snprintf(what, sizeof what, "%s", tx_error());
    return tx_fail(TX_DEVICE, "the device fails the known-answer test (%s) and is not used; try another driver than %s",
                   what, context->info.driver);
}

static tx_status run_check(tx_context *context, const struct check *c)
{
    tx_probe probe = {.command = tx_probe_command(c->op, &c->attrs), .tolerance = {c->tolerance, -1.0}};
    probe.command.in[0] = of_shape(&c->in);
    probe.command.out[0] = of_shape(&c->out);
    probe.command.out[1] = of_shape(&c->work);
    TX_TRY(tx_probe_create(&probe));
    tx_probe_fill(&probe, TX_PROBE_ROUGH, 0);
    tx_status status = tx_cl_verify_candidate(context, NULL, &probe);
    tx_probe_free(&probe);
    return not_used(context, status);
}

/* Tests the fill of an odd range. */
static tx_status try_fill(tx_context *context)
{
    enum { BYTES = 4099, FIRST = 5, LAST = 4090 };
    unsigned char y[BYTES];
    tx_buffer *memory = NULL;
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, BYTES, &memory);
    TX_THEN(status, tx_cl_fill_bytes(context, memory, 0, 0xA5, BYTES));
    TX_THEN(status, tx_cl_fill_bytes(context, memory, FIRST, 0, LAST - FIRST));
    TX_THEN(status, tx_cl_read(context, memory, 0, y, BYTES));
    for (int i = 0; status == TX_OK && i < BYTES; i++)
        if (y[i] != (i >= FIRST && i < LAST ? 0 : 0xA5))
            status = tx_fail(TX_DEVICE, "byte %d of filled memory is %d", i, y[i]);
    if (memory)
        tx_cl_release(context, memory);
    return not_used(context, status);
}

enum { EXPONENTS = 1024 };

/* Tests native_exp2. GPU attention kernels use it if it is as accurate as exp2, which holds on GPUs by AMD, Intel
 * and NVIDIA. Intel's CPU driver computes only 13 bits. */
static tx_status try_native(tx_context *context)
{
    const size_t items = EXPONENTS;
    float y[EXPONENTS];
    cl_kernel kernel = NULL;
    tx_buffer *memory = NULL;
    tx_status status = tx_cl_kernel(context, "native", "", "native", &kernel);
    TX_THEN(status, tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof y, &memory));
    TX_THEN(status, tx_cl_check(clSetKernelArg(kernel, 0, sizeof(cl_mem), &memory->memory), "clSetKernelArg"));
    TX_THEN(status, tx_cl_check(clEnqueueNDRangeKernel(context->compute, kernel, 1, NULL, &items, NULL, 0, NULL, NULL),
                                "clEnqueueNDRangeKernel"));
    TX_THEN(status, tx_cl_read(context, memory, 0, y, sizeof y));
    context->driver.native_exp2 = status == TX_OK;
    for (int i = 0; status == TX_OK && i < EXPONENTS; i++)
        context->driver.native_exp2 =
            context->driver.native_exp2 && fabs((double)y[i] * exp2(i / 64.0) - 1.0) <= TOLERANCE / 4;
    if (memory)
        tx_cl_release(context, memory);
    if (kernel)
        clReleaseKernel(kernel);
    return status;
}

/* The cached result is valid for this device, driver and variant (the cache adds them to the key) and these kernel
 * sources. */
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
        context->driver.groups = strstr(verdict, disproved) ? TX_CL_WRONG : TX_CL_BELIEVED;
        context->driver.native_exp2 = strstr(verdict, coarse) == NULL;
        free(verdict);
        return TX_OK;
    }
    tx_status status = TX_OK;
    for (size_t i = 0; status == TX_OK && i < sizeof checks / sizeof checks[0]; i++)
        status = run_check(context, &checks[i]);
    TX_THEN(status, try_fill(context));
    TX_THEN(status, try_native(context));
    if (context->driver.groups == TX_CL_UNTRIED)
        context->driver.groups = TX_CL_BELIEVED;
    char found[sizeof disproved + sizeof coarse + 8];
    snprintf(found, sizeof found, "passed%s%s", context->driver.groups == TX_CL_BELIEVED ? "" : disproved,
             context->driver.native_exp2 ? "" : coarse);
    if (status == TX_OK)
        tx_cl_cache_store(context, key, found, strlen(found) + 1);
    memset(&context->traffic, 0, sizeof context->traffic); /* do not count the traffic of this test */
    return status;
}
