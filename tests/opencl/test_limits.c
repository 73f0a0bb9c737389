/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates a smaller device with TX_OCL_LIMITS. Ops are correct on it, and a tiny GPT-2 trains to the same losses as
 * without limits. The functions below replace libOpenCL's, for TX and for CLBlast, and check that launches and memory
 * respect the limits, which the real device would not enforce.
 *
 *     test_limits ops|train cpu|gpu LIMITS      exit status 77: there is no such OpenCL device
 *
 * With ops every fourth case of the conformance suite runs. */
#include "api/model/model.h"
#include "backends/opencl/runtime/cl.h"
#include "tests/opencl/tiny_training.h"
#include "tests/ops/conformance.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
        *(void **)&real = dlsym(RTLD_NEXT, #name);

/* ---- Launches and allocations ------------------------------------------------------------------------------- */

static struct {
    tx_cl_limits limits; /* max_group is 0 until the limits are known */
    cl_device_id device;
    long launches, buffers, windows;
    char broken[256]; /* the first limit that was exceeded */
} seen;

static void broken(const char *what, long long value, long long most)
{
    if (!seen.broken[0])
        snprintf(seen.broken, sizeof seen.broken, "%s of %lld, where %lld is the limit", what, value, most);
}

static void check_launch(cl_kernel kernel, cl_uint dims, const size_t *local)
{
    size_t items = 1;
    cl_ulong bytes = 0;
    char name[64] = "", what[128];
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    clGetKernelWorkGroupInfo(kernel, seen.device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    for (cl_uint i = 0; local && i < dims; i++)
        items *= local[i];
    snprintf(what, sizeof what, "%s: a work-group", name);
    if (items > seen.limits.max_group)
        broken(what, (long long)items, (long long)seen.limits.max_group);
    snprintf(what, sizeof what, "%s: local memory", name);
    if (bytes > (cl_ulong)seen.limits.local_bytes)
        broken(what, (long long)bytes, seen.limits.local_bytes);
    seen.launches++;
}

EXPORT cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                                 const size_t *first, const size_t *global, const size_t *local,
                                                 cl_uint count, const cl_event *wait, cl_event *event)
{
    REAL(clEnqueueNDRangeKernel)
    if (seen.limits.max_group)
        check_launch(kernel, dims, local);
    return real(queue, kernel, dims, first, global, local, count, wait, event);
}

EXPORT cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code)
{
    REAL(clCreateBuffer)
    if (seen.limits.max_group && size > (size_t)seen.limits.max_allocation)
        broken("a buffer", (long long)size, seen.limits.max_allocation);
    seen.buffers++;
    return real(context, flags, size, host, code);
}

EXPORT cl_mem CL_API_CALL clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type,
                                            const void *info, cl_int *code)
{
    REAL(clCreateSubBuffer)
    const cl_buffer_region *region = info;
    if (seen.limits.max_group && region->origin % (size_t)seen.limits.alignment != 0)
        broken("a sub-buffer at an offset", (long long)region->origin, seen.limits.alignment);
    seen.windows++;
    return real(buffer, flags, type, info, code);
}

/* Sets variant and limits. "" keeps the device's own. */
static void simulate(const char *variant, const char *limits)
{
    setenv("TX_OCL_VARIANT", variant, 1);
    setenv("TX_OCL_LIMITS", limits, 1);
}

/* From now on launches and memory are checked. */
static void watch(const tx_context *context)
{
    seen.device = context->device;
    seen.limits = context->limits;
}

static bool kept(void)
{
    if (seen.broken[0])
        printf("limits are not kept to: %s\n", seen.broken);
    return !seen.broken[0];
}

/* ---- Ops ---------------------------------------------------------------------------------------------------- */

static int run_ops(const char *variant, const char *limits)
{
    tx_target target;
    simulate(variant, limits);
    tx_status status = tx_target_open("opencl", &(tx_open_options){0}, &target);
    if (status)
        return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    watch(target.context);
    const tx_conformance_options how = {.every = 4};
    int failures = 0;
    for (int op = 0; op < TX_OP_KERNELS; op++) {
        tx_verdict v = {0};
        if (tx_conformance_op(&target, (tx_op)op, &how, &v))
            snprintf(v.failure, sizeof v.failure, "%s", tx_error());
        if (v.failure[0] || v.passed != v.cases)
            printf("%s: %s\n", v.op, v.failure);
        failures += v.failure[0] || v.passed != v.cases;
    }
    printf("%s: %d ops, %d failed, %ld launches, %ld sub-buffers\n", target.info.name, TX_OP_KERNELS, failures,
           seen.launches, seen.windows);
    seen.limits.max_group = 0;
    tx_target_close(&target);
    return kept() && seen.launches > 0 && failures == 0 ? 0 : 1;
}

/* ---- Training ------------------------------------------------------------------------------------------------ */

enum { STEPS = TINY_STEPS };

typedef struct course {
    double loss[STEPS], norm[STEPS];
    int32_t chunks;         /* of the weights */
    int64_t max_allocation; /* of the device */
} course;

static tx_status train_model(tx_engine *engine, course *out)
{
    tiny_training t = {.config =
                           "n_layer=4,n_embd=128,n_head=2,vocab_size=256,n_positions=96," /* GPT-2's heads of 64 */
                           "attn_pdrop=0.1,embd_pdrop=0.1,resid_pdrop=0.1",
                       .rows = 2,
                       .block = 96,
                       .vocab = 256,
                       .steps = STEPS,
                       .rate = 1e-3};
    tx_status status = tiny_train(engine, &t);
    if (!status)
        out->chunks = t.model->arena[TX_ARENA_WEIGHTS].chunks;
    memcpy(out->loss, t.loss, sizeof out->loss);
    memcpy(out->norm, t.norm, sizeof out->norm);
    tiny_free(&t);
    return status;
}

static tx_status train(const char *variant, const char *limits, course *out)
{
    const tx_engine_options options = {.size = sizeof options, .device = "opencl"};
    tx_engine *engine = NULL;
    simulate(variant, limits);
    tx_status status = tx_engine_create(&options, &engine);
    if (status)
        return status;
    watch(engine->context);
    out->max_allocation = engine->device.max_allocation;
    status = train_model(engine, out);
    printf("%s: loss %.6f, then %.6f; %d chunks of weights, %ld sub-buffers\n", engine->device.name, out->loss[0],
           out->loss[STEPS - 1], out->chunks, seen.windows);
    seen.limits.max_group = 0;
    tx_engine_free(engine);
    return status;
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-4 * fabs(b);
}

static int run_training(const char *variant, const char *limits)
{
    course whole = {0}, limited = {0};
    tx_status status = train("", "", &whole); /* by the kernels that suit the device */
    if (status == TX_NOT_FOUND)
        return printf("skipped: %s\n", tx_error()), 77;
    TX_THEN(status, train(variant, limits, &limited));
    if (status)
        return printf("%s\n", tx_error()), 1;
    bool good = whole.loss[STEPS - 1] < whole.loss[0];
    for (int i = 0; i < STEPS; i++)
        good = good && close_to(limited.loss[i], whole.loss[i]) && close_to(limited.norm[i], whole.norm[i]);
    if (!good)
        printf("the losses are not those without limits\n");
    if (limited.max_allocation <= 1 << 20 && limited.chunks < 3)
        return printf("the weights are not in many chunks\n"), 1;
    return good && kept() && seen.launches > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 4 || (strcmp(argv[1], "ops") != 0 && strcmp(argv[1], "train") != 0))
        return fprintf(stderr, "usage: test_limits ops|train cpu|gpu LIMITS\n"), 2;
    return (strcmp(argv[1], "ops") == 0 ? run_ops : run_training)(argv[2], argv[3]);
}
