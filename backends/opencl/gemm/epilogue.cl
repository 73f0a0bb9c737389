/* SPDX-License-Identifier: Apache-2.0
 *
 * The epilogue of a matrix product, see op MATMUL. EPILOGUE, if defined, is a tx_epilogue. EXACT selects the form of
 * its GELU. Y is the storage type of y and of the operands with the same layout.
 */

#ifdef EPILOGUE
#include "backends/opencl/ops/gelu.cl"

/* Rounds like a store, so that the result equals that of separate ops. */
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

/* True if the product is stored before its epilogue, if there is an operand `kept`. */
#define KEEPS (EPILOGUE == TX_EPILOGUE_GELU)

/* Returns elements at.. of operand z of op MATMUL, which ends at `end`, if the epilogue reads it. */
static vec tx_other(const __global TX_CAT(Y, _t) *with, long at, long end)
{
    return KEEPS ? (vec)0.0f : TX_CAT(tx_load_, Y)(with, at, end);
}

/* Applies the epilogue to a product, which is rounded like a store. `other` is tx_other's. */
static vec tx_apply(vec v, vec other)
{
    return KEEPS ? gelu_of(v, EXACT) : EPILOGUE == TX_EPILOGUE_ADD ? v + other : v * gelu_slope(other, EXACT);
}
#define tx_product TX_CAT(tx_stored_, Y)
#else
#define KEEPS 0
#define tx_other(with, at, end) ((vec)0.0f)
#define tx_product(v) (v)
#define tx_apply(v, other) (v)
#endif

/* Applies the epilogue to elements at.. of y, which ends at `end`, and stores the product in `kept` if that is not
 * NULL. */
static vec tx_finish(vec v, const __global TX_CAT(Y, _t) *with, __global TX_CAT(Y, _t) *kept, long at, long end)
{
    v = tx_product(v);
    if (KEEPS && kept)
        TX_CAT(tx_store_, Y)(v, kept, at, end);
    return tx_apply(v, tx_other(with, at, end));
}
