/* SPDX-License-Identifier: Apache-2.0
 *
 * The prelude of every kernel, after rng.h and the enumerators of controls and results.
 *
 * The host defines macros that adapt the kernels to CPU and GPU devices.
 *
 *   WG   Work-group size of kernels that reduce in local memory. It is 1 on CPU devices, where reductions become plain
 *        loops.
 *
 *   VW   Floats in a vector. It is 16 on CPU devices; on others it is 4 if every address is a multiple of 16 bytes,
 *        else 1.
 *
 *   RUN  Consecutive vectors that one work-item processes.
 *
 * Each pointer argument has a 64-bit offset in elements.
 */

#ifndef WG
#define WG 1
#endif
#ifndef VW
#define VW 1
#endif
#ifndef RUN
#define RUN 1
#endif

/* The host defines TX_NO_FMA if the driver has no fma for vectors. */
#ifdef TX_NO_FMA
#undef fma
#define fma(a, b, c) ((a) * (b) + (c))
#endif

/* Inlines functions that reach a barrier before the driver's own passes run (tests/opencl/inline.py). If they are not,
 * threads of PoCL 3.1 overwrite each other's local memory, and llvmpipe of Mesa 25 and 26 crashes. */
#define TX_INLINE static __attribute__((always_inline))

/* Defines an array in local memory, as one of the first statements of a kernel or a later one of its outermost block.
 * In a persistent launch (generation/persistent.c) kernels are functions, which get such memory from `tx_pool`. */
#ifndef TX_LOCAL
#define TX_LOCAL(type, name, count) __local type name[count]
#endif

#define TX_CAT_(a, b) a##b
#define TX_CAT(a, b) TX_CAT_(a, b)

#if VW == 1
typedef float vec;
typedef uint uvec;
typedef int ivec;
#define VLOAD(p) (*(p))
#define VSTORE(v, p) (*(p) = (v))
#define VLOAD_PRIVATE(p) (*(p))
#define VSTORE_PRIVATE(v, p) (*(p) = (v))
#define AS_VEC as_float
#define AS_UVEC as_uint
#define ANY(x) (x)
#elif VW == 4
typedef float4 vec;
typedef uint4 uvec;
typedef int4 ivec;
#define VLOAD(p) (*(const __global float4 *)(p)) /* the host sets VW 4 only for aligned addresses */
#define VSTORE(v, p) (*(__global float4 *)(p) = (v))
#define VLOAD_PRIVATE(p) vload4(0, p)
#define VSTORE_PRIVATE(v, p) vstore4(v, 0, p)
#define AS_VEC as_float4
#define AS_UVEC as_uint4
#define ANY(x) any(x)
#else
typedef float16 vec;
typedef uint16 uvec;
typedef int16 ivec;
#define VLOAD(p) vload16(0, p)
#define VSTORE(v, p) vstore16(v, 0, p)
#define VLOAD_PRIVATE(p) vload16(0, p)
#define VSTORE_PRIVATE(v, p) vstore16(v, 0, p)
#define AS_VEC as_float16
#define AS_UVEC as_uint16
#define ANY(x) any(x)
#endif

/* The first statement of functions that load or store elements i..i+VW-1 of an array of n. It handles a vector that
 * crosses the end, element by element. `value` loads element i + k, `pad` replaces elements beyond the end, and
 * `put` stores part[k]. */
#if VW > 1
#define TX_LOAD_END(value, pad)                                                                                        \
    if (i + VW > n) {                                                                                                  \
        float part[VW];                                                                                                \
        for (int k = 0; k < VW; k++)                                                                                   \
            part[k] = i + k < n ? (value) : (pad);                                                                     \
        return VLOAD_PRIVATE(part);                                                                                    \
    }
#define TX_STORE_END(type, v, put)                                                                                     \
    if (i + VW > n) {                                                                                                  \
        type part[VW];                                                                                                 \
        VSTORE_PRIVATE(v, part);                                                                                       \
        for (int k = 0; k < VW; k++)                                                                                   \
            if (i + k < n)                                                                                             \
                put;                                                                                                   \
        return;                                                                                                        \
    }
#else
#define TX_LOAD_END(value, pad)                                                                                        \
    if (i >= n)                                                                                                        \
        return pad;
#define TX_STORE_END(type, v, put)                                                                                     \
    if (i >= n)                                                                                                        \
        return;
#endif

static vec tx_load(const __global float *p, long i, long n, float pad)
{
    TX_LOAD_END(p[i + k], pad)
    return VLOAD(p + i);
}

static void tx_store(vec v, __global float *p, long i, long n)
{
    TX_STORE_END(float, v, p[i + k] = part[k])
    VSTORE(v, p + i);
}

static float tx_hsum(vec v)
{
#if VW == 1
    return v;
#elif VW == 4
    return (v.x + v.y) + (v.z + v.w);
#else
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
#endif
}

/* Returns the larger number, or NaN if either is NaN. */
static float tx_max1(float a, float b)
{
    return a > b || isnan(a) ? a : b;
}

static vec tx_max(vec a, vec b)
{
#if VW == 1
    return tx_max1(a, b);
#else
    return select(b, a, (a > b) | isnan(a));
#endif
}

static float tx_hmax(vec v)
{
#if VW == 1
    return v;
#elif VW == 4
    return tx_max1(tx_max1(v.x, v.y), tx_max1(v.z, v.w));
#else
    float part[VW], m = v.s0;
    VSTORE_PRIVATE(v, part);
    for (int k = 1; k < VW; k++)
        m = tx_max1(m, part[k]);
    return m;
#endif
}

/* Returns e^x. On CPU devices it is Cephes' expf (Moshier) without branches, within 2 ulp of the exact value: x = n
 * ln 2 + r, a polynomial for e^r, and 2^n in two steps so that results may be subnormal. */
static vec tx_exp(vec x)
{
#if VW == 16
    vec c = clamp(x, (vec)-104.0f, (vec)89.0f);
    vec n = c * 1.44269504f + 12582912.0f - 12582912.0f; /* rounds to an integer: 1.5 2^23 has no fractional bits */
    vec r = fma(n, (vec)-0.693359375f, c);
    r = fma(n, (vec)2.12194440e-4f, r);
    vec y = 1.9875691500e-4f;
    y = fma(y, r, (vec)1.3981999507e-3f);
    y = fma(y, r, (vec)8.3334519073e-3f);
    y = fma(y, r, (vec)4.1665795894e-2f);
    y = fma(y, r, (vec)1.6666665459e-1f);
    y = fma(y, r, (vec)5.0000001201e-1f);
    y = fma(y, r * r, r) + 1.0f;
    ivec e = convert_int16(n), half_e = e >> 1;
    y = y * as_float16((half_e + 127) << 23) * as_float16((e - half_e + 127) << 23);
    return select(y, x, isnan(x));
#else
    return exp(x);
#endif
}

/* The logistic function. Small results keep their relative accuracy. */
static vec tx_sigmoid(vec x)
{
    vec t = tx_exp(-fabs(x));
    return (x < 0.0f ? t : (vec)1.0f) / (1.0f + t);
}

/* Sum and maximum over the work-group (dimension 0), returned to all its items. `part` has WG floats. TX_JOINERS
 * items each reduce a share, then all items reduce these. It takes three barriers for any group size. */
#if WG > 1
#define TX_JOINERS (WG < 16 ? WG : 16)
#define TX_GROUP_JOIN(type, JOIN)                                                                                      \
    const int l = (int)get_local_id(0);                                                                                \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    part[l] = v;                                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    if (l < TX_JOINERS) {                                                                                              \
        for (int k = l + TX_JOINERS; k < WG; k += TX_JOINERS)                                                          \
            v = JOIN(v, part[k]);                                                                                      \
        part[l] = v;                                                                                                   \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    type joined = part[0];                                                                                             \
    for (int k = 1; k < TX_JOINERS; k++)                                                                               \
        joined = JOIN(joined, part[k]);                                                                                \
    return joined;
#define TX_ADD2(a, b) ((a) + (b))
#else
#define TX_GROUP_JOIN(type, JOIN) return v;
#endif

TX_INLINE float tx_group_sum(float v, __local float *part)
{
    TX_GROUP_JOIN(float, TX_ADD2)
}

/* Two sums. */
TX_INLINE float2 tx_group_sum2(float2 v, __local float2 *part)
{
    TX_GROUP_JOIN(float2, TX_ADD2)
}

TX_INLINE float tx_group_max(float v, __local float *part)
{
    TX_GROUP_JOIN(float, tx_max1)
}

/* Returns whether the op adds to the old value in this run; `mode` is a tx_accumulate. */
static int tx_adds(int mode, const __global uint *control)
{
    if (mode == 2)
        return as_float(control[TX_CONTROL_ACCUMULATE]) != 0.0f;
    return mode == 1;
}

#ifndef RATE /* factor of the learning rate */
#define RATE 1.0f
#endif

/* Returns the learning rate of an update from the controls. */
static float tx_update_rate(const __global uint *control, const __global float *result)
{
    const uint from = control[TX_CONTROL_HOLD_FROM];
    const int holds = from && result[TX_RESULT_SKIPPED] >= (float)from;
    return RATE * as_float(control[holds ? TX_CONTROL_HELD_RATE : TX_CONTROL_LEARNING_RATE]);
}

/* Returns a position clamped to 0..last. */
static long tx_position(int position, long last)
{
    return clamp((long)position, 0L, last);
}

/* Returns the position of token t of row b, row = b T + t. Positions of rank 2 belong to tokens, of rank 1 to rows;
 * rank 0 means absent. The position of the first token of a row is clamped to 0..last. */
static long tx_place(const __global int *positions, int rank, long row, long T, long last)
{
    if (rank == 2)
        return tx_position(positions[row], last + T - 1);
    return row % T + (rank ? tx_position(positions[row / T], last) : 0);
}

/* Returns alpha, multiplied by control `which` unless that is negative. */
static float tx_factor(float alpha, int which, const __global uint *control)
{
    return which >= 0 ? alpha * as_float(control[which]) : alpha;
}

/* For kernels over rows and columns: the row, and the first column of round r of this work-item. Rows are dimension
 * 1. They are dimension 0 if there are more rows than a grid allows in other dimensions. */
#ifndef ROW_DIM
#define ROW_DIM 1
#endif
#define TX_ROW ((long)get_global_id(ROW_DIM))
#define TX_COLUMN(r) (((long)get_global_id(1 - ROW_DIM) * RUN + (r)) * VW)

/* Runs `body` for each vector of this work-item. The vector begins at column i, and a row has n columns. */
#define TX_EACH(body)                                                                                                  \
    for (int r = 0; r < RUN; r++) {                                                                                    \
        long i = TX_COLUMN(r);                                                                                         \
        if (i >= n)                                                                                                    \
            break;                                                                                                     \
        body                                                                                                           \
    }

/* ---- 16-bit storage: tx_load_TYPE and tx_store_TYPE are like tx_load and tx_store; TYPE_t is the stored type ---- */

typedef float f32_t;
typedef ushort bf16_t;
typedef ushort f16_t;

#if VW == 1
#define TX_WIDEN(h) ((uint)(h))
#define TX_NARROW(u) ((ushort)(u))
#define TX_HALVES(p) (*(p))
#define TX_HALVES_STORE(v, p) (*(p) = (v))
#define TX_HALF_LOAD(p) vload_half(0, (const __global half *)(p))
#define TX_HALF_STORE(v, p) vstore_half_rte(v, 0, (__global half *)(p))
#else
#define TX_WIDEN TX_CAT(convert_uint, VW)
#define TX_NARROW TX_CAT(convert_ushort, VW)
#if VW == 4 /* four floats aligned to 16 bytes imply four halves aligned to 8 */
#define TX_HALVES(p) (*(const __global ushort4 *)(p))
#define TX_HALVES_STORE(v, p) (*(__global ushort4 *)(p) = (v))
#define TX_HALF_LOAD(p) vloada_half4(0, (const __global half *)(p))
#define TX_HALF_STORE(v, p) vstorea_half4_rte(v, 0, (__global half *)(p))
#else
#define TX_HALVES(p) vload16(0, p)
#define TX_HALVES_STORE(v, p) vstore16(v, 0, p)
#define TX_HALF_LOAD(p) vload_half16(0, (const __global half *)(p))
#define TX_HALF_STORE(v, p) vstore_half16_rte(v, 0, (__global half *)(p))
#endif
#endif

static vec tx_load_f32(const __global float *p, long i, long n)
{
    return tx_load(p, i, n, 0.0f);
}

static void tx_store_f32(vec v, __global float *p, long i, long n)
{
    tx_store(v, p, i, n);
}

static vec tx_load_bf16(const __global ushort *p, long i, long n)
{
    TX_LOAD_END(as_float((uint)p[i + k] << 16), 0.0f)
    return AS_VEC(TX_WIDEN(TX_HALVES(p + i)) << 16);
}

/* Rounds to nearest even; NaN stays NaN. */
static void tx_store_bf16(vec v, __global ushort *p, long i, long n)
{
    uvec u = AS_UVEC(v);
    uvec rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
#if VW == 1
    uvec bits = isnan(v) ? (u >> 16) | 0x40u : rounded;
#else
    uvec bits = select(rounded, (u >> 16) | 0x40u, (u & 0x7FFFFFFFu) > 0x7F800000u);
#endif
    TX_STORE_END(uint, bits, p[i + k] = (ushort)part[k])
    TX_HALVES_STORE(TX_NARROW(bits), p + i);
}

static vec tx_load_f16(const __global ushort *p, long i, long n)
{
    TX_LOAD_END(vload_half(i + k, (const __global half *)p), 0.0f)
    return TX_HALF_LOAD(p + i);
}

static void tx_store_f16(vec v, __global ushort *p, long i, long n)
{
    TX_STORE_END(float, v, vstore_half_rte(part[k], i + k, (__global half *)p))
    TX_HALF_STORE(v, p + i);
}

/* Rounds one number as tx_store_bf16 does. It tests the bits, because isnan of PoCL 3.1 is true for numbers in
 * vectorized parts of gemm_tile. */
static ushort tx_narrow_bf16(float v)
{
    const uint u = as_uint(v);
    return (ushort)((u & 0x7FFFFFFFu) > 0x7F800000u ? (u >> 16) | 0x40u : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* The storage type of operands of type H in ops.def: f32, bf16 or f16, the same for all of a command. */
#ifndef H
#define H f32
#endif
#define h_t TX_CAT(H, _t)
#define tx_load_h TX_CAT(tx_load_, H)
#define tx_store_h TX_CAT(tx_store_, H)
#define tx_get_h(p, i) TX_CAT(TX_GET_, H)(p, i) /* one element */
#define tx_put_h(v, p, i) TX_CAT(TX_PUT_, H)(v, p, i)
#define TX_PUT_f32(v, p, i) ((p)[i] = (v))
#define TX_PUT_bf16(v, p, i) ((p)[i] = tx_narrow_bf16(v))
#define TX_PUT_f16(v, p, i) vstore_half_rte(v, i, (__global half *)(p))
#define TX_GET_f32(p, i) ((p)[i])
#define TX_GET_bf16(p, i) as_float((uint)(p)[i] << 16)
#define TX_GET_f16(p, i) vload_half(i, (const __global half *)(p))

static vec tx_load_h_or(const __global h_t *p, long i, long n, float pad)
{
    TX_LOAD_END(tx_get_h(p, i + k), pad)
    return tx_load_h(p, i, n);
}
