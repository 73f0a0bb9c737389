/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device can do, measured: the roofs that its operations are held against (Williams, Waterman, Patterson:
 * Roofline, 2009). */
#ifndef TX_TOOLS_BENCH_PEAKS_H
#define TX_TOOLS_BENCH_PEAKS_H

#include "tests/ops/conformance.h"
#include "tools/bench/bench.h"
#include "tx_json.h"

/* What all measurements of a device are told. */
typedef struct tx_bench_common {
    const char *device;
    int64_t repeats, threads;
    int64_t largest; /* MiB of the arrays that give the peaks */
    double seconds;  /* no measurement but the first begins after so many */
    bool json;
} tx_bench_common;

/* Rows of an option table, for settings that begin with a tx_bench_common. */
#define TX_COMMON_AT(field) offsetof(tx_bench_common, field)
/* clang-format off */
#define TX_BENCH_OPTIONS                                                                                              \
    TX_BENCH_DEVICE(TX_COMMON_AT),                                                                                    \
    {TX_OPTION_INTEGER, "repeats", TX_COMMON_AT(repeats), 0, 1 << 20, "N",                                            \
     "runs a measurement, 200 at most; 0: as many as fit in half a second"},                                          \
    {TX_OPTION_INTEGER, "largest", TX_COMMON_AT(largest), 1, 1 << 20, "MIB",                                          \
     "of the array whose copy gives the copy rate, more than caches hold; products for the peak go up to that, too"}, \
    {TX_OPTION_REAL, "seconds", TX_COMMON_AT(seconds), 0, 1e6, "X", "no measurement but the first begins after so many"}, \
    TX_BENCH_JSON(TX_COMMON_AT)
#define TX_BENCH_DEFAULTS {.device = "cpu", .largest = 256, .seconds = 1e6}
/* clang-format on */

#define TX_BENCH_REALS 3 /* F32, BF16, F16: the types that products take */

typedef struct tx_bench_peaks {
    double copy; /* bytes read and written a second, by a copy of an array of copy_bytes */
    int64_t copy_bytes;
    double product[TX_BENCH_REALS]; /* flop/s of the best product of this run by the type of its operands; 0: none yet.
                                       Not the arithmetic units' own limit, which no operation of TX reaches */
    double tf32;                    /* the same of F32 operands that are rounded to tf32; 0: not measured */
    double launch, alone;           /* seconds of a small operation: one of many, and given and waited for by itself */
} tx_bench_peaks;

/* Opens a device for measuring and sets all peaks but the products. The caller closes the target. */
tx_status tx_bench_open(const tx_bench_common *common, tx_target *target, tx_bench_peaks *peaks);

/* Times a copy of `bytes` (a multiple of 4) on the device. */
tx_status tx_bench_copy_once(const tx_target *target, int64_t bytes, int32_t repeats, tx_timing *timing);
/* Largest array, not over `most` bytes, that a copy should be tried with: it has to fit twice. */
int64_t tx_bench_copy_most(const tx_device_info *device, int64_t most);

/* Fills in a command of matrices: op(a) is m x k, op(b) k x n, the result of type `result`. */
void tx_bench_product_command(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, tx_dtype dtype,
                              tx_dtype result, tx_command *command);
/* The same for self-attention, forward or backward (attention.c). */
void tx_bench_attention_command(int64_t batch, int64_t block, int64_t heads, int64_t kv_heads, int64_t head_size,
                                bool causal, tx_dtype dtype, bool backward, tx_command *command);
/* Sees to it that the peak of products of `dtype` is there: the best of square ones, from 512 on, whose results are no
 * larger than the array of the copy rate and that take a quarter of a second or less. Measures once; later products
 * raise it by tx_bench_raise. */
tx_status tx_bench_need_product(const tx_target *target, tx_dtype dtype, int32_t repeats, tx_bench_peaks *peaks);
/* Measures the peak in tf32 where the device has units for it, by an engine of its own. */
tx_status tx_bench_tf32(const tx_device_info *device, int32_t repeats, tx_bench_peaks *peaks);
/* A product that was faster than the best one is the best one. */
void tx_bench_raise(tx_bench_peaks *peaks, const tx_timing *timing);

/* The type whose products bound an operation: contractions by that of their operands, the rest by F32. */
tx_dtype tx_bench_bound_dtype(const tx_timing *timing);
/* The least of the best product's rate and of what the copy rate lets through at this arithmetic a byte, in flop/s.
 * Sets `by_copy` to which of the two it is. */
double tx_bench_attainable(const tx_bench_peaks *peaks, const tx_timing *timing, bool *by_copy);

void tx_bench_peaks_json(const tx_bench_peaks *peaks, tx_json *object);

#endif
