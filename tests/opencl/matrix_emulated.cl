/* SPDX-License-Identifier: Apache-2.0
 * In the place of the instructions of kernels/matrix_mma.cl, matrix_mma_tile.cl and matrix_amd.cl: the same in OpenCL C, as the PTX manual and AMD's
 * matrix instruction calculator describe them. Lanes show each other what they hold in local memory, SHOWN words each. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#undef EMULATED
#define EMULATED 1

/* Element i of what lies in 32-bit words. */
static float element_of(const __local uint *words, int i)
{
#if WIDEN
    const __local ab_t *at = (const __local ab_t *)words + i;
#define IS_f16 1
#define IS_bf16 0
    return TX_CAT(IS_, AB) ? vload_half(0, (const __local half *)at) : as_float((uint)*at << 16);
#else
    return as_float(words[i]);
#endif
}

#if ATOM == MMA
#define SHOWN 6

static void copy_begin(__local void *to, const __global void *from, int bytes)
{
    for (int i = 0; i < 4; i++)
        ((__local uint *)to)[i] = 4 * i < bytes ? ((const __global uint *)from)[i] : 0;
}

static void copy_close(void)
{
}

static void copy_wait(void)
{
}

/* Of matrix_mma_tile.cl. */
static void copy_wait_oldest(void)
{
}

static float beside(float x, __local uint *shown)
{
    const int item = get_local_id(0);
    shown[item] = as_uint(x);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float other = as_float(shown[item ^ 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return other;
}

/* The sum of all products is exact, and what of it does not fit into an fp32 is dropped. */
static void multiply_add(float *sum, const uint *a, const uint *b, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % 32, per = WIDEN ? 2 : 1; /* terms in a register */
    const uint read = WIDEN ? ~0u : ~0x1FFFu;
    __local uint *mine = shown + item * SHOWN, *warp = mine - lane * SHOWN;
    for (int i = 0; i < SHOWN; i++)
        mine[i] = (i < 4 ? a[i] : b[i - 4]) & read;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        double all = sum[e];
        for (int k = 0; k < 8 * per; k++) {
            const int t = k / per % 4, upper = k / (4 * per);
            all += (double)element_of(warp + (row % 8 * 4 + t) * SHOWN + row / 8 + 2 * upper, k % per) *
                   (double)element_of(warp + (column * 4 + t) * SHOWN + 4 + upper, k % per);
        }
        sum[e] = convert_float_rtz(all);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static void load_matrices(uint out[4], const __local ab_t *row, int turned, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % 32, g = lane / 4, t = lane % 4;
    shown[2 * item] = (uint)(ulong)row;
    shown[2 * item + 1] = (uint)((ulong)row >> 32);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++) {
        const __local uint *rows = shown + 2 * (item - lane + 8 * i);
#define ROW(j) ((const __local ab_t *)((ulong)rows[2 * (j) + 1] << 32 | rows[2 * (j)]))
        const uint first = turned ? ROW(2 * t)[g] : ROW(g)[2 * t];
        const uint second = turned ? ROW(2 * t + 1)[g] : ROW(g)[2 * t + 1];
#undef ROW
        out[i] = first | second << 16;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#else
#define SHOWN (8 * HELD)

static void multiply(float *sum, const uint4 *a, const uint4 *b, __local uint *shown)
{
    const int item = get_local_id(0), lane = item % LANES;
    __local uint *mine = shown + item * SHOWN, *warp = mine - lane * SHOWN;
    for (int i = 0; i < HELD; i++) {
        vstore4(a[i], i, mine);
        vstore4(b[i], i + HELD, mine);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < SUMS; e++)
        for (int k = 0; k < ATOM_K; k++) {
            /* With WMMA11 each half of the lanes reads its own. */
            const int half_of = HELD == 2 ? lane / ATOM_M : k / PIECE, at = HELD == 2 ? k : k % PIECE;
            sum[e] += element_of(warp + (ROW_OF(e, lane) + half_of * ATOM_M) * SHOWN, at) *
                      element_of(warp + (COLUMN_OF(e, lane) + half_of * ATOM_N) * SHOWN + 4 * HELD, at);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

#if 0
