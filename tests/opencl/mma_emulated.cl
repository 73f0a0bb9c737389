/* SPDX-License-Identifier: Apache-2.0
 * In the place of the instructions of kernels/gemm_mma.cl: the same in OpenCL C, as the PTX manual describes them. Lanes
 * show each other what they hold in local memory, SHOWN elements behind the block that is at hand. */
#define SHOWN (2 * BLOCK_ALONG)
#define SHARED (3 * BLOCK_ALONG + 4096)
#define WORDS 6 /* of a lane */

static void copy_begin(__local void *to, const __global void *from, int bytes)
{
    for (int i = 0; i < 4; i++)
        ((__local uint *)to)[i] = 4 * i < bytes ? ((const __global uint *)from)[i] : 0;
}

static void copies_end(void)
{
}

/* To 10 bits of mantissa, ties away from zero. */
static uint round_tf32(float x)
{
    return isfinite(x) ? (as_uint(x) + 0x1000u) & ~0x1FFFu : as_uint(x);
}

#if WIDEN
#define TERMS 16
#else
#define TERMS 8
#endif
#define PER (TERMS / 8) /* terms in a register */

static float part(uint bits, int half_of)
{
    return as_float(WIDEN ? bits >> (16 * half_of) << 16 : bits);
}

static void emulate_mma(float sum[4], const uint a[4], const uint b[2], __local uint *lanes)
{
    const int item = get_local_id(0), lane = item % 32;
    __local uint *mine = lanes + item * WORDS, *warp = mine - lane * WORDS;
    for (int i = 0; i < WORDS; i++)
        mine[i] = i < 4 ? a[i] : b[i - 4];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        for (int k = 0; k < TERMS; k++) {
            const int t = k / PER % 4, upper = k / (4 * PER);
            sum[e] += part(warp[(row % 8 * 4 + t) * WORDS + row / 8 + 2 * upper], k % PER) *
                      part(warp[(column * 4 + t) * WORDS + 4 + upper], k % PER);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#define multiply_add(sum, left, right) emulate_mma(sum, left, right, (__local uint *)(a + SHOWN))

static void emulate_load(uint out[4], const __local ab_t *row, int turned, const __local ab_t *block)
{
    __local int *lanes = (__local int *)(block + SHOWN);
    const int item = get_local_id(0), lane = item % 32, g = lane / 4, t = lane % 4;
    lanes[item] = (int)(row - block);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++) {
        __local int *rows = lanes + item - lane + 8 * i;
        const uint first = turned ? block[rows[2 * t] + g] : block[rows[g] + 2 * t];
        const uint second = turned ? block[rows[2 * t + 1] + g] : block[rows[g] + 2 * t + 1];
        out[i] = first | second << 16;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#define load_matrices(out, row, turned) emulate_load(out, row, turned, block)

#if 0
