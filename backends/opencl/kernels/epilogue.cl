/* SPDX-License-Identifier: Apache-2.0
 * What becomes of a product's sums before they are stored, see op MATMUL. EPILOGUE, where there is one: a tx_epilogue; EXACT: of
 * its GELU; Y: storage of y, and of what else lies like it. */

#ifdef EPILOGUE
#include "gelu.cl"

/* Rounded as when it is stored: the result is that of the ops one after another. */
static vec tx_stored_f32(vec v)
{
    return v;
}

static vec tx_stored_bf16(vec v)
{
    const uvec u = AS_UVEC(v);
    return select(AS_VEC((u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u), v, isnan(v));
}

static vec tx_stored_f16(vec v)
{
    ushort half_v[VW];
#if VW == 1
    vstore_half_rte(v, 0, (__private half *)half_v);
    return vload_half(0, (const __private half *)half_v);
#else
    TX_CAT(TX_CAT(vstore_half, VW), _rte)(v, 0, (__private half *)half_v);
    return TX_CAT(vload_half, VW)(0, (const __private half *)half_v);
#endif
}

/* Of elements at.. of y, of `end`: z of op MATMUL, here `with`, is read, the product goes to `kept` where that is there. */
static vec tx_finish(vec v, const __global TX_CAT(Y, _t) *with, __global TX_CAT(Y, _t) *kept, long at, long end)
{
    v = TX_CAT(tx_stored_, Y)(v);
    if (EPILOGUE == TX_EPILOGUE_GELU) {
        if (kept)
            TX_CAT(tx_store_, Y)(v, kept, at, end);
        return gelu_of(v, EXACT);
    }
    const vec other = TX_CAT(tx_load_, Y)(with, at, end);
    return EPILOGUE == TX_EPILOGUE_ADD ? v + other : v * gelu_slope(other, EXACT);
}
#else
static vec tx_finish(vec v, const __global TX_CAT(Y, _t) *with, __global TX_CAT(Y, _t) *kept, long at, long end)
{
    return v;
}
#endif
