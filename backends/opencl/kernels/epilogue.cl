/* SPDX-License-Identifier: Apache-2.0
 * What becomes of a product's sums before they are stored, see op MATMUL. EPILOGUE, where there is one: a tx_epilogue; EXACT: of
 * its GELU. */

#ifdef EPILOGUE
#include "gelu.cl"

/* Of elements at.. of y, of `end`: z of op MATMUL, here `with`, is read, the product goes to `kept` where that is there. */
static vec tx_finish(vec v, const __global float *with, __global float *kept, long at, long end)
{
    if (EPILOGUE == TX_EPILOGUE_GELU) {
        if (kept)
            tx_store(v, kept, at, end);
        return gelu_of(v, EXACT);
    }
    const vec other = tx_load(with, at, end, 0.0f);
    return EPILOGUE == TX_EPILOGUE_ADD ? v + other : v * gelu_slope(other, EXACT);
}
#else
static vec tx_finish(vec v, const __global float *with, __global float *kept, long at, long end)
{
    return v;
}
#endif
