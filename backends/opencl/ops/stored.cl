/* SPDX-License-Identifier: Apache-2.0
 *
 * tx_stored_TYPE rounds like tx_store_TYPE, so that a fused op has the results of separate ones.
 */

static vec tx_stored_f32(vec v)
{
    return v;
}

static vec tx_stored_bf16(vec v)
{
#ifdef ROUND_BF16
    return ROUND_BF16(v);
#else
    const uvec u = AS_UVEC(v);
    return select(AS_VEC((u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u), v, isnan(v));
#endif
}

/* Uses arithmetic unless the including file has an instruction (ROUND_HALVES). A conversion through memory would
 * keep compilers from unrolling the surrounding loops. Below 2^-14 halves are multiples of 2^-24, as are floats
 * near 0.75. */
static vec tx_stored_f16(vec v)
{
#ifdef ROUND_HALVES
    return ROUND_HALVES(v);
#else
    const uvec u = AS_UVEC(v), size = u & 0x7FFFFFFFu;
    const vec whole = AS_VEC((u + 0xFFFu + ((u >> 13) & 1u)) & 0xFFFFE000u);
    const vec small = copysign((fabs(v) + 0.75f) - 0.75f, v);
    const vec finite = select(whole, small, size < 0x38800000u);
    return select(select(finite, copysign((vec)INFINITY, v), size >= 0x477FF000u), v, isnan(v));
#endif
}
