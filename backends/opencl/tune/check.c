/* SPDX-License-Identifier: Apache-2.0
 *
 * The known-answer test of a device at opening. A few kernels of every kind are compared with the cpu backend or with
 * known results: exact arithmetic, conversions, sums in local memory, exponentials, angles, random numbers. So are
 * fills and addresses. Matrix products and attention have their own tests.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include "api/base/hash.h"
#include "api/graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-5 /* some tens of roundings in fp32 */

static const struct check {
    tx_op op;
    tx_dtype from, to; /* fp32 if omitted */
    double tolerance;
    tx_shape in, out, work; /* rank 0 if the op has no work output */
    tx_attrs attrs;
} checks[] = {
#define ROW(name, tolerance_, ...) .op = TX_OP_##name, .tolerance = (tolerance_), .in = __VA_ARGS__, .out = __VA_ARGS__
    {.op = TX_OP_BROADCAST,
     .in = {1, {1}},
     .out = {1, {1003}},
     .attrs = {.alpha = 2, .axis = TX_AXIS_ALL, .control = -1}},
    {.op = TX_OP_REDUCE,
     .tolerance = TOLERANCE,
     .in = {1, {1003}},
     .out = {1, {1}},
     .work = {1, {1}},
     .attrs = {.alpha = 1, .control = -1}},
    /* A full grid of large work-groups: Arc B60 reads local memory too early. */
    {ROW(SOFTMAX, TOLERANCE, {2, {4096, 515}})},
    {ROW(DROPOUT, TOLERANCE, {3, {3, 5, 36}}), .attrs = {.draw.p = 0.25f, .draw.site = 2}},
    {ROW(CAST, 0, {1, {1003}}), .to = TX_F16},
    {ROW(CAST, 0, {1, {1003}}), .from = TX_F16, .to = TX_BF16},
    {ROW(CAST, 0, {1, {1003}}), .from = TX_BF16},
    {ROW(ROTARY, TOLERANCE, {3, {2, 2049, 36}}),
     .attrs = {.attention.heads = 2, .attention.head_size = 12, .rope = &(tx_rope)TX_ROPE(10000.0f)}},
#undef ROW
};

static tx_operand of_shape(const tx_shape *shape, tx_dtype dtype)
{
    return (tx_operand){.dtype = shape->rank ? dtype : TX_DTYPE_COUNT, .shape = *shape};
}

/* Adds to a failed test that the device is not used. */
static tx_status not_used(tx_status status)
{
    return status == TX_DEVICE ? tx_fail_in(status, "the device fails the known-answer test and is not used") : status;
}

/* Keeps as many rows as the device's allocations hold: the input, the output, and bytes around them. */
static void fit_rows(const tx_context *context, tx_operand *x)
{
    const int64_t bytes = tx_operand_bytes(x), most = context->limits.max_allocation / 4;
    if (x->shape.rank < 2 || bytes <= most)
        return;
    int64_t *rows = &x->shape.dim[x->shape.rank - 2];
    *rows = most / (bytes / *rows);
}

static tx_probe probe_of(const tx_context *context, const struct check *c)
{
    tx_probe probe = {.command = tx_probe_command(c->op, &c->attrs), .tolerance = {c->tolerance, -1.0}};
    probe.command.in[0] = of_shape(&c->in, c->from);
    probe.command.out[0] = of_shape(&c->out, c->to);
    fit_rows(context, &probe.command.in[0]);
    fit_rows(context, &probe.command.out[0]);
    probe.command.out[1] = of_shape(&c->work, TX_F32);
    return probe;
}

static tx_status run_check(tx_context *context, const struct check *c)
{
    tx_probe probe = probe_of(context, c);
    const tx_cl_builder asks = tx_cl_asker(context);
    TX_TRY(tx_probe_create(&probe));
    tx_probe_fill(&probe, TX_PROBE_ROUGH, 0);
    tx_status status = tx_cl_verify_candidate(&asks, NULL, &probe);
    tx_probe_free(&probe);
    return not_used(status);
}

/* Tests the fill of an odd range that begins at byte `at`. */
static tx_status try_fill(tx_context *context, int64_t at)
{
    enum { BYTES = 4099, FIRST = 5, LAST = 4090 };
    unsigned char y[BYTES];
    tx_buffer *memory = NULL;
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, at + BYTES, &memory);
    if (status == TX_MEMORY && at > 0)
        return TX_OK; /* another program uses it */
    TX_THEN(status, tx_cl_fill_bytes(context, memory, at, 0xA5, BYTES));
    TX_THEN(status, tx_cl_fill_bytes(context, memory, at + FIRST, 0, LAST - FIRST));
    TX_THEN(status, tx_cl_fill_bytes(context, memory, 0, 1, tx_cl_least(at, BYTES)));
    TX_THEN(status, tx_cl_read(context, memory, at, y, BYTES));
    for (int i = 0; status == TX_OK && i < BYTES; i++)
        if (y[i] != (i >= FIRST && i < LAST ? 0 : 0xA5))
            status = tx_fail(TX_DEVICE, "byte %d after byte %" PRId64 " of filled memory is %d", i, at, y[i]);
    if (memory)
        tx_cl_release(context, memory);
    return not_used(status);
}

/* Tests addresses beyond 4 GiB if the device, a GPU, has plenty of memory. */
static tx_status try_far(tx_context *context)
{
    const int64_t far = (int64_t)1 << 32;
    const tx_device_info *info = &context->info;
    const bool large = info->memory >= 3 * far && info->max_allocation >= far + 4099;
    return info->type == TX_DEVICE_GPU && large ? try_fill(context, far) : TX_OK;
}

/* The text of a passed test, with the facts about the driver that the test found. */
static const char disproved[] = ", in larger work-groups than the driver says";
static const char *const without[] = {
#define X(name, function) ", without " function,
    TX_CL_BUILTIN_MAP(X)
#undef X
};

static void read_verdict(tx_context *context, const char *verdict)
{
    context->driver.groups = strstr(verdict, disproved) ? TX_CL_WRONG : TX_CL_BELIEVED;
    for (int i = 0; i < TX_CL_BUILTINS; i++)
        context->driver.missing[i] = strstr(verdict, without[i]) != NULL;
}

static void store_verdict(const tx_context *context, const char *key)
{
    char verdict[256] = "passed";
    if (context->driver.groups == TX_CL_WRONG)
        tx_list_add(verdict, sizeof verdict, "", "%s", disproved);
    for (int i = 0; i < TX_CL_BUILTINS; i++)
        if (context->driver.missing[i])
            tx_list_add(verdict, sizeof verdict, "", "%s", without[i]);
    tx_cl_cache_store(context, key, verdict, strlen(verdict) + 1);
}

tx_status tx_cl_want_self_test(tx_context *context)
{
    const tx_cl_builder asks = tx_cl_asker(context);
    tx_cl_program *one;
    tx_status status = tx_cl_want_builtins(context);
    for (size_t i = 0; status == TX_OK && i < sizeof checks / sizeof checks[0]; i++) {
        const tx_probe probe = probe_of(context, &checks[i]);
        status = tx_cl_want_candidate(&asks, NULL, &probe.command);
    }
    TX_THEN(status, tx_cl_want_program(context, "fill", NULL, "fill", false, &one));
    TX_THEN(status, tx_cl_want_program(context, TX_CL_PLAIN, NULL, TX_CL_PLAIN_KERNEL, false, &one));
    return status;
}

/* The cached result is valid for this device, driver and variant (the cache adds them to the key) and these kernel
 * sources. */
tx_status tx_cl_self_test(tx_context *context)
{
    char key[48];
    uint64_t texts = TX_HASH_START;
    for (int32_t i = 0; i < tx_cl_source_count; i++)
        texts = tx_hash(texts, tx_cl_sources[i].text, tx_cl_sources[i].size);
    snprintf(key, sizeof key, "known answers, claims %016" PRIx64, texts);
    void *verdict = NULL;
    size_t size = 0;
    if (tx_cl_cache_load(context, key, &verdict, &size)) {
        read_verdict(context, verdict);
        free(verdict);
        return TX_OK;
    }
    tx_status status = tx_cl_try_builtins(context);
    if (status == TX_OK && tx_cl_want_self_test(context) == TX_OK) /* a test that fails to build reports it */
        tx_cl_compile(context);
    for (size_t i = 0; status == TX_OK && i < sizeof checks / sizeof checks[0]; i++)
        status = run_check(context, &checks[i]);
    TX_THEN(status, try_fill(context, 0));
    TX_THEN(status, try_far(context));
    if (context->driver.groups == TX_CL_UNTRIED)
        context->driver.groups = TX_CL_BELIEVED;
    if (status == TX_OK)
        store_verdict(context, key);
    memset(&context->traffic, 0, sizeof context->traffic); /* do not count the traffic of this test */
    return status;
}
