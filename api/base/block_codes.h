/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables and searches that the types of blocks share. Included by block_*.c.
 *
 * The searches choose scales as ggml's reference quantizers do (ggml-org/ggml, src/ggml-quants.c). Sums run in the
 * order of the values and are never contracted to multiply-adds, so that bytes are equal. Several groups of values are
 * searched side by side, one in each lane. Valid C and OpenCL C, with the files block_*.c that include it. */
#ifndef TX_BLOCK_CODES_H
#define TX_BLOCK_CODES_H

#include "api/base/blocks.h"

/* The values of IQ4_NL and IQ4_XS. */
TX_BLOCK_CONSTANT float tx_block_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

/* 2^(e - 128), also if it is subnormal. */
static inline float tx_block_power(uint8_t e)
{
    return tx_float_of(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

static inline float tx_block_mean_square(const float *x, int64_t count)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sum / (float)count;
}

/* ---- Searches ------------------------------------------------------------------------------------------------ */

#define TX_LANES 8
#define TX_BLOCK_LEAST 1e-15f /* magnitudes below this are 0 */
#define TX_LANE_VALUES 32     /* most values of a group */

/* Value i of group j is at [i][j]. */
typedef float tx_lanes[TX_LANES];
/* A loop over lanes. gcc would unroll it before it vectorizes; clang does not, and warns of the pragma. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPENCL_VERSION__)
#define TX_EACH_LANE _Pragma("omp simd") for (int l = 0; l < TX_LANES; l++)
#else
#define TX_EACH_LANE for (int l = 0; l < TX_LANES; l++)
#endif

/* Compiles a static function and all that it calls for AVX2 as well, if its caller can choose at run time. Neither
 * version contracts multiply-adds, so their results are equal. Sanitizers cannot run before the choice. gcc exports
 * such functions unless they are static. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TX_BLOCK_CLONES __attribute__((target_clones("avx2", "default"), flatten))
#else
#define TX_BLOCK_CLONES
#endif

/* The nearest integer, halves to even, of a number between bounds, which are integers below 2^22. NaN becomes `least`.
 */
static inline float tx_block_nearest(float x, float least, float most)
{
    x = x > least ? x : least;
    x = x < most ? x : most;
    return (x + 12582912.0f) - 12582912.0f;
}

/* Loads `groups` groups of `n` values that follow one another. The other lanes become 0. */
void tx_block_load(const float *x, int n, int groups, tx_lanes *to);

/* x = scale (q - N), q from 0 to 2 N - 1: the scale with the least error, weighted by w, among those that map the
 * largest magnitude to N + k / 10, k from -trials to trials. */
void tx_block_symmetric(int n, int trials, float most, const tx_lanes *x, const tx_lanes *w, tx_lanes *q,
                        tx_lanes scale);
/* Improves the codes of a search by itself, one value at a time, and then the scale. */
void tx_block_refine(int n, float most, const tx_lanes *x, const tx_lanes *w, tx_lanes *q, tx_lanes scale);

/* How ranges are tried: `most` + first + step k levels, k from 0 to `trials`. */
typedef struct tx_block_range {
    float most, first, step;
    int trials;
    bool absolute; /* minimize absolute errors, not squares */
} tx_block_range;
/* x = scale q - minimum, q from 0 to how->most, minimum at least 0. */
void tx_block_affine(const tx_block_range *how, int n, const tx_lanes *x, const tx_lanes *w, tx_lanes *q,
                     tx_lanes scale, tx_lanes minimum);

/* x = scale q, q from 0 to `most`, for values that are at least 0. Returns the scale. */
float tx_block_positive(int n, float most, const float *x, const float *w, float *q);

#endif
