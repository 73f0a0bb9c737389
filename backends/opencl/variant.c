/* SPDX-License-Identifier: Apache-2.0
 * Which variant of the kernels a device that is no GPU runs faster: its type says what to expect, and a tuning run
 * measures it. */
#include "backends/opencl/gemm.h"
#include "backends/opencl/solo.h"

#include <stdlib.h>
#include <string.h>

/* The key of the verdict: "cpu" or "gpu". */
#define VERDICT "variant 1"

/* ---- What is timed: a product, attention and a norm at a small model's size -------------------------------- */

static tx_operand f32(tx_shape shape)
{
    return (tx_operand){.dtype = TX_F32, .shape = shape};
}

static tx_command sample(int32_t i)
{
    const int64_t rows = 512, width = 512, B = 2, heads = 8;
    const tx_shape whole = TX_SHAPE(rows, width), one = TX_SHAPE(width);
    tx_command c = {.attrs = {.control = -1, .eps = 1e-5f, .scale = 0.125f, .flat = true, .causal = true}};
    c.attrs.heads = c.attrs.kv_heads = (int32_t)heads;
    for (int k = 0; k < TX_MAX_IN; k++)
        c.in[k].dtype = TX_DTYPE_COUNT;
    for (int k = 0; k < TX_MAX_OUT; k++)
        c.out[k].dtype = TX_DTYPE_COUNT;
    c.in[0] = c.in[1] = c.out[0] = f32(whole);
    if (i == 0) {
        c.op = TX_OP_MATMUL;
    } else if (i == 1) {
        c.op = TX_OP_ATTENTION;
        c.in[0] = f32(TX_SHAPE(B, rows / B, 3 * width));
        c.in[1].dtype = TX_DTYPE_COUNT;
        c.out[0] = f32(TX_SHAPE(B, rows / B, width));
        c.out[1] = f32(TX_SHAPE(B, heads, rows / B));
    } else {
        c.op = TX_OP_LAYER_NORM;
        c.in[1] = c.in[2] = f32(one);
        c.out[1] = c.out[2] = f32(TX_SHAPE(rows));
    }
    return c;
}

#define SAMPLES 3

static tx_status time_sample(tx_context *context, int32_t i, double *seconds)
{
    tx_cl_solo solo = {.command = sample(i)};
    tx_cl_solo_place(&solo);
    void *zeros = calloc(1, (size_t)solo.bytes);
    if (!zeros)
        return tx_fail(TX_MEMORY, "out of host memory");
    double least = 0.0;
    tx_status status = tx_cl_solo_open(context, &solo, zeros);
    if (status == TX_OK)
        status = tx_cl_solo_run(context, &solo);
    if (status == TX_OK)
        status = tx_cl_solo_time(context, &solo, &least);
    tx_cl_solo_close(context, &solo);
    free(zeros);
    *seconds += least;
    return status;
}

/* Seconds of all samples in one variant. */
static tx_status time_variant(int32_t index, bool cpu, double *seconds)
{
    tx_context *context;
    *seconds = 0.0;
    tx_status status = tx_cl_open_as(index, NULL, &cpu, &context);
    if (status != TX_OK)
        return status;
    status = tx_cl_gemm_unmeasured(context);
    for (int32_t i = 0; i < SAMPLES && status == TX_OK; i++)
        status = time_sample(context, i, seconds);
    tx_cl_close(context);
    return status;
}

/* The variant that the type speaks for stays unless the other is clearly faster; one that fails is none. */
static void measure(tx_context *context, int32_t index)
{
    const bool usual = context->limits.cpu;
    const double start = tx_cl_now();
    double seconds[2] = {0.0, 0.0};
    tx_cl_tell(context, "the variant of the kernels");
    const bool works = time_variant(index, usual, &seconds[usual]) == TX_OK,
               other_works = time_variant(index, !usual, &seconds[!usual]) == TX_OK;
    if (other_works && (!works || seconds[!usual] < 0.9 * seconds[usual]))
        context->limits.cpu = !usual;
    const char *verdict = context->limits.cpu ? "cpu" : "gpu";
    context->tune_spent += tx_cl_now() - start;
    tx_cl_cache_store(context, VERDICT, verdict, strlen(verdict));
    tx_cl_tell(context, context->limits.cpu ? "the variant for CPUs" : "the variant for GPUs");
}

void tx_cl_find_variant(tx_context *context, int32_t index)
{
    void *verdict;
    size_t size;
    if (context->tune) {
        measure(context, index);
    } else if (tx_cl_cache_load(context, VERDICT, &verdict, &size)) {
        context->limits.cpu = size > 0 && *(const char *)verdict == 'c';
        free(verdict);
    }
}
