/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured peaks of a device, with which its operations are compared (the roofline model: Williams, Waterman,
 * Patterson, 2009). */
#ifndef TX_TOOLS_BENCH_PEAKS_H
#define TX_TOOLS_BENCH_PEAKS_H

#include "tests/ops/conformance.h"
#include "tools/bench/bench.h"
#include "tx_json.h"

/* The options that all measurements of a device share. */
typedef struct tx_bench_common {
    const char *device;
    int64_t repeats, threads;
    int64_t largest; /* size in MiB of the array whose copy gives the copy rate */
    double seconds;  /* no new measurement starts after this time, except the first */
    bool json;
} tx_bench_common;

/* Rows of an option table, for settings that begin with a tx_bench_common. */
#define TX_COMMON_AT(field) offsetof(tx_bench_common, field)
/* clang-format off */
#define TX_BENCH_OPTIONS                                                                                              \
    TX_BENCH_DEVICE(TX_COMMON_AT),                                                                                    \
    {TX_OPTION_INTEGER, "repeats", TX_COMMON_AT(repeats), 0, 1 << 20, "N",                                            \
     "runs per measurement, at most 200; 0 means as many as fit in half a second"},                                   \
    {TX_OPTION_INTEGER, "largest", TX_COMMON_AT(largest), 1, 1 << 20, "MIB",                                          \
     "size of the array whose copy gives the copy rate, larger than all caches; also limits the products"},           \
    {TX_OPTION_REAL, "seconds", TX_COMMON_AT(seconds), 0, 1e6, "X",                                                   \
     "start no new measurement after X seconds, except the first"},                                                   \
    TX_BENCH_JSON(TX_COMMON_AT)
#define TX_BENCH_DEFAULTS {.device = "auto", .largest = 256, .seconds = 1e6}
/* clang-format on */

#define TX_BENCH_REALS 3 /* F32, BF16, F16: the operand types of products */

typedef struct tx_bench_peaks {
    double copy;        /* copy rate in bytes read and written a second */
    int64_t copy_bytes; /* size of the copied array */
    /* flop/s of the fastest product of this run, by operand type; 0 if none is measured. The theoretical peak of the
     * arithmetic units is higher. */
    double product[TX_BENCH_REALS];
    double tf32;          /* the same for F32 operands rounded to tf32; 0 if not measured */
    double launch, alone; /* seconds of a small operation, queued among many and run by itself */
} tx_bench_peaks;

/* Opens a device for measuring and sets all peaks except those of products. The caller closes the target. */
tx_status tx_bench_open(const tx_bench_common *common, tx_target *target, tx_bench_peaks *peaks);

/* Times a copy of `bytes` (a multiple of 4) on the device. */
tx_status tx_bench_copy_once(const tx_target *target, int64_t bytes, int32_t repeats, tx_timing *timing);
/* Returns the largest array of at most `most` bytes that fits twice on the device. */
int64_t tx_bench_copy_most(const tx_device_info *device, int64_t most);

/* Fills in the command of a matrix product: op(a) is m x k, op(b) is k x n, the result has type `result`. */
void tx_bench_product_command(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, tx_dtype dtype,
                              tx_dtype result, tx_command *command);
/* Measures the peak of products of `dtype` unless it is known. Tries square products of size 512, 1024, ... while the
 * result is no larger than the array of the copy rate and the time is at most a quarter of a second. */
tx_status tx_bench_need_product(const tx_target *target, tx_dtype dtype, int32_t repeats, tx_bench_peaks *peaks);
/* Measures the peak of tf32 with a separate engine, if the device has tf32 units. */
tx_status tx_bench_tf32(const tx_device_info *device, int32_t repeats, tx_bench_peaks *peaks);
/* Raises the peak of its type if the timed product is faster. */
void tx_bench_raise(tx_bench_peaks *peaks, const tx_timing *timing);

/* Returns the type whose product peak bounds an operation: the operand type of a contraction, or else F32. */
tx_dtype tx_bench_bound_dtype(const tx_timing *timing);
/* Returns the attainable flop/s by the roofline model: min(product peak, copy rate * flops / bytes). Sets `by_copy` if
 * the copy rate is the bound. */
double tx_bench_attainable(const tx_bench_peaks *peaks, const tx_timing *timing, bool *by_copy);

void tx_bench_peaks_json(const tx_bench_peaks *peaks, tx_json *object);

#endif
