/* SPDX-License-Identifier: Apache-2.0
 * What backends/opencl/kernels/gemm_mma.cl needs to be compiled as C and run by threads, one a work-item: OpenCL's
 * words, and the instructions of the matrix units as the PTX manual describes them. Local arrays become static
 * (CMakeLists.txt). */
#ifndef TX_TESTS_MMA_HOST_H
#define TX_TESTS_MMA_HOST_H

#include "api/base/half.h"
#include "backends/backend.h"
#include "tests/opencl/mma_host_state.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define __kernel
#define __global
#define __local
#define reqd_work_group_size(...) unused
#define CLK_LOCAL_MEM_FENCE 0
#define TX_CAT_(a, b) a##b
#define TX_CAT(a, b) TX_CAT_(a, b)
#define EMULATED 1
#define erfc erfcf
#define min(a, b) ((a) < (b) ? (a) : (b))
typedef float f32_t;
typedef float vec;

#define EMULATED 1

static inline long get_local_id(int dimension)
{
    return dimension == 0 ? host_item : 0;
}

static inline long get_group_id(int dimension)
{
    return host_group[dimension];
}

static inline void barrier(int fence)
{
    (void)fence;
    pthread_barrier_wait(&host_meet);
}

static inline int tx_adds(int mode, const uint *control)
{
    (void)control;
    return mode == 1;
}

static inline float tx_load_f32(const f32_t *p, long i, long n)
{
    return i < n ? p[i] : 0.0f;
}

static inline void tx_store_f32(float v, f32_t *p, long i, long n)
{
    if (i < n)
        p[i] = v;
}

static inline float tx_load(const float *p, long i, long n, float pad)
{
    return i < n ? p[i] : pad;
}

static inline void tx_store(float v, float *p, long i, long n)
{
    if (i < n)
        p[i] = v;
}

static inline float tx_exp(float x)
{
    return expf(x);
}

static inline float tx_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static inline float tx_load_bf16(const bf16_t *p, long i, long n)
{
    return i < n ? tx_bf16_to_f32(p[i]) : 0.0f;
}

static inline void tx_store_bf16(float v, bf16_t *p, long i, long n)
{
    if (i < n)
        p[i] = tx_f32_to_bf16(v);
}

/* ---- Instructions -------------------------------------------------------------------------------------------------- */

static inline void copy_begin(void *to, const void *from, int bytes)
{
    memset(to, 0, 16);
    memcpy(to, from, (size_t)bytes);
}

static inline void copies_end(void)
{
}

/* To 10 bits of mantissa, ties away from zero. */
static inline uint round_tf32(float x)
{
    uint bits;
    memcpy(&bits, &x, sizeof bits);
    return isfinite(x) ? (bits + 0x1000u) & ~0x1FFFu : bits;
}

#if WIDEN
#define TERMS_A 16
/* Terms 2 i and 2 i + 1 of a register, or the one that it is. */
static inline float part(uint bits, int half)
{
    return tx_bf16_to_f32((bf16_t)(bits >> (16 * half)));
}
#else
#define TERMS_A 8
static inline float part(uint bits, int half)
{
    float x;
    (void)half;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

/* Element (row, term) of a: register and half by the manual's tables of m16n8k8 (.tf32) and m16n8k16 (.bf16). */
static inline float element_a(const host_warp *w, int row, int term)
{
    const int per = TERMS_A / 8, lane = row % 8 * 4 + term / per % 4;
    return part(w->a[lane][row / 8 + term / (4 * per) * 2], term % per);
}

static inline float element_b(const host_warp *w, int term, int column)
{
    const int per = TERMS_A / 8, lane = column * 4 + term / per % 4;
    return part(w->b[lane][term / (4 * per)], term % per);
}

static inline void multiply_add(float sum[4], const uint a[4], const uint b[2])
{
    const int lane = host_item % LANES;
    host_warp *w = &host_warps[host_item / LANES];
    memcpy(w->a[lane], a, sizeof w->a[lane]);
    memcpy(w->b[lane], b, sizeof w->b[lane]);
    pthread_barrier_wait(&w->meet);
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < TERMS_A; k++)
            sum[e] += element_a(w, lane / 4 + e / 2 * 8, k) * element_b(w, k, lane % 4 * 2 + e % 2);
    pthread_barrier_wait(&w->meet);
}

static inline void load_matrices(uint out[4], const bf16_t *row, int turned)
{
    const int lane = host_item % LANES, g = lane / 4, t = lane % 4;
    host_warp *w = &host_warps[host_item / LANES];
    w->row[lane] = row;
    pthread_barrier_wait(&w->meet);
    for (int i = 0; i < 4; i++) {
        const bf16_t *const *rows = &w->row[8 * i];
        const uint first = turned ? rows[2 * t][g] : rows[g][2 * t];
        const uint second = turned ? rows[2 * t + 1][g] : rows[g][2 * t + 1];
        out[i] = first | second << 16;
    }
    pthread_barrier_wait(&w->meet);
}

#endif
