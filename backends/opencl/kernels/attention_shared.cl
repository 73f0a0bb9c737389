/* SPDX-License-Identifier: Apache-2.0
 * What all attention kernels share: rows of a head in global memory.
 *
 *   D        head size; DP is D rounded up to whole vectors, the rest zero
 *   CAUSAL, LENGTHS, DROPOUT, CACHED   0 or 1
 *
 * What takes long goes by several launches, whose work-groups are numbered from first_tile, first_head and first_b on. */

#include "draw.cl"

#define DP ((D + VW - 1) / VW * VW)
#define UNROLL _Pragma("unroll")

/* What the kernels of its gradient are given, before their local memory. */
#define ATTENTION_GRAD_ARGUMENTS                                                                                       \
    const __global float *d_o, long doo, const __global float *qkv, long qo, const __global float *lse, long lso,      \
        const __global float *delta, long deo, const __global int *lengths, long leo, __global float *dqkv, long dqo,  \
        int T, int heads, int kv_heads, float scale, float p, int site, int first_b,      \
        int first_head, int first_tile, const __global uint *control

/* Elements i.. of a row of D in global memory, `p` pointing to the first; the rest of the vector is 0. */
static vec load_row(const __global float *p, int i)
{
#if D % VW == 0
    return VLOAD(p);
#else
    float part[VW];
    for (int k = 0; k < VW; k++)
        part[k] = i + k < D ? p[k] : 0.0f;
    return VLOAD_PRIVATE(part);
#endif
}

static void store_row(vec v, __global float *p, int i)
{
#if D % VW == 0
    VSTORE(v, p);
#else
    float part[VW];
    VSTORE_PRIVATE(v, part);
    for (int k = 0; k < VW; k++)
        if (i + k < D)
            p[k] = part[k];
#endif
}
