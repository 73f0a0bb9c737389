/* SPDX-License-Identifier: Apache-2.0
 * Measured peaks: copy rate, best product, cost of a launch. */
#include "tools/bench/peaks.h"

#include "api/graph/op.h"
#include "tools/cli/alive.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_PRODUCT 512
#define PRODUCT_SECONDS 0.25

/* ---- copy ------------------------------------------------------------------------------------------- */

int64_t tx_bench_copy_most(const tx_device_info *device, int64_t most)
{
    const int64_t extra = INT64_C(1) << 16; /* room for the operand's offset in its allocation */
    if (device->max_allocation > 0 && most > device->max_allocation - extra)
        most = device->max_allocation - extra;
    if (device->memory > 0 && most > device->memory / 4)
        most = device->memory / 4;
    return most / 4 * 4;
}

tx_status tx_bench_copy_once(const tx_target *target, int64_t bytes, int32_t repeats, tx_timing *timing)
{
    tx_command copy = {.op = TX_OP_COPY, .attrs.control = -1};
    for (int i = 1; i < TX_MAX_IN; i++)
        copy.in[i].dtype = TX_DTYPE_COUNT;
    copy.in[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(bytes / 4), .arena = TX_ARENA_PLANNED};
    copy.out[0] = (tx_operand){.dtype = TX_DTYPE_COUNT, .arena = TX_ARENA_PLANNED};
    return tx_conformance_time(target, &copy, repeats, timing);
}

tx_status tx_bench_open(const tx_bench_common *common, tx_target *target, tx_bench_peaks *peaks)
{
    const int32_t repeats = (int32_t)common->repeats;
    tx_open_options options = {.threads = (int32_t)common->threads, .report = tx_alive_reporter()};
    tx_bench_peaks p = {0};
    tx_target t = {0};
    TX_TRY(tx_target_open(common->device, &options, &t));
    tx_status status = tx_conformance_launches(&t, repeats, &p.launch, &p.alone);
    tx_target_close(&t);
    TX_TRY(status);
    options.profile = true;
    TX_TRY(tx_target_open(common->device, &options, &t));
    tx_timing timing = {0};
    p.copy_bytes = tx_bench_copy_most(&t.info, common->largest << 20);
    status = tx_bench_copy_once(&t, p.copy_bytes, repeats, &timing);
    if (status) {
        tx_target_close(&t);
        return tx_fail_in(status, "the copy rate");
    }
    p.copy = 1e9 * timing.gbytes;
    *target = t;
    *peaks = p;
    return TX_OK;
}

/* ---- products --------------------------------------------------------------------------------------- */

void tx_bench_product_command(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, tx_dtype dtype,
                              tx_dtype result, tx_command *command)
{
    *command = (tx_command){
        .op = TX_OP_MATMUL,
        .attrs = {.trans_a = trans_a, .trans_b = trans_b, .flat = true, .control = -1, .alpha = 1.0f},
    };
    for (int i = 2; i < TX_MAX_IN; i++)
        command->in[i].dtype = TX_DTYPE_COUNT;
    command->in[0] = (tx_operand){.dtype = dtype, .shape = TX_SHAPE(trans_a ? k : m, trans_a ? m : k)};
    command->in[1] = (tx_operand){.dtype = dtype, .shape = TX_SHAPE(trans_b ? n : k, trans_b ? k : n)};
    command->out[0].dtype = result;
    command->in[0].arena = command->in[1].arena = command->out[0].arena = TX_ARENA_PLANNED;
}

void tx_bench_raise(tx_bench_peaks *peaks, const tx_timing *timing)
{
    const bool product = strcmp(timing->op, tx_op_info_of(TX_OP_MATMUL)->name) == 0 && timing->dtype < TX_BENCH_REALS;
    if (product && 1e9 * timing->gflops > peaks->product[timing->dtype])
        peaks->product[timing->dtype] = 1e9 * timing->gflops;
}

/* Measures square products with results of at most `most` bytes. Sets `best` to the highest flop/s. */
static tx_status best_product(const tx_target *target, tx_dtype dtype, int64_t most, int32_t repeats, double *best)
{
    tx_timing timing = {0};
    for (int64_t size = LEAST_PRODUCT; 8.0 * timing.seconds < PRODUCT_SECONDS; size *= 2) {
        if (size > LEAST_PRODUCT && 4 * size * size > most)
            break;
        tx_command product;
        tx_bench_product_command(size, size, size, false, false, dtype, TX_F32, &product);
        const tx_status status = tx_conformance_time(target, &product, repeats, &timing);
        if (status)
            return tx_fail_in(status, "the best product of %s", tx_dtype_name(dtype));
        *best = fmax(*best, 1e9 * timing.gflops);
    }
    return TX_OK;
}

tx_status tx_bench_need_product(const tx_target *target, tx_dtype dtype, int32_t repeats, tx_bench_peaks *peaks)
{
    if (peaks->product[dtype] > 0.0)
        return TX_OK;
    return best_product(target, dtype, peaks->copy_bytes, repeats, &peaks->product[dtype]);
}

tx_status tx_bench_tf32(const tx_device_info *device, int32_t repeats, tx_bench_peaks *peaks)
{
    if (!device->tf32)
        return TX_OK;
    tx_target target = {0};
    TX_TRY(tx_target_open(device->id, &(tx_open_options){.profile = true, .tf32 = true, .report = tx_alive_reporter()},
                          &target));
    const tx_status status = best_product(&target, TX_F32, peaks->copy_bytes, repeats, &peaks->tf32);
    tx_target_close(&target);
    return status;
}

/* ---- roofs ------------------------------------------------------------------------------------------ */

tx_dtype tx_bench_bound_dtype(const tx_timing *timing)
{
    return timing->op_class == TX_CONTRACTION && timing->dtype < TX_BENCH_REALS ? timing->dtype : TX_F32;
}

double tx_bench_attainable(const tx_bench_peaks *peaks, const tx_timing *timing, bool *by_copy)
{
    const double product = peaks->product[tx_bench_bound_dtype(timing)];
    const double through = timing->bytes > 0.0 ? peaks->copy * timing->flops / timing->bytes : product;
    *by_copy = through < product;
    return fmin(through, product);
}

void tx_bench_peaks_json(const tx_bench_peaks *peaks, tx_json *object)
{
    tx_json *products = tx_json_object();
    for (int d = 0; d < TX_BENCH_REALS; d++)
        if (peaks->product[d] > 0.0)
            tx_json_set_number(products, tx_dtype_name((tx_dtype)d), 1e-9 * peaks->product[d]);
    if (peaks->tf32 > 0.0)
        tx_json_set_number(products, "TF32", 1e-9 * peaks->tf32);
    tx_json_set(object, "product_gflops", products);
    tx_json_set_number(object, "copy_gbytes", 1e-9 * peaks->copy);
    tx_json_set_int(object, "copy_bytes", peaks->copy_bytes);
    tx_json_set_number(object, "launch_seconds", peaks->launch);
    tx_json_set_number(object, "alone_seconds", peaks->alone);
}
