/* SPDX-License-Identifier: Apache-2.0
 *
 * The epilogue of a matrix product, see op MATMUL. EPILOGUE, if defined, is a tx_epilogue. EXACT selects the form of
 * its GELU. Y is the storage type of y and of the operands with the same layout.
 */

#ifdef EPILOGUE
#include "backends/opencl/ops/gelu.cl"
#include "backends/opencl/ops/stored.cl"

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
