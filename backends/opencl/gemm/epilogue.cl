/* SPDX-License-Identifier: Apache-2.0
 *
 * The epilogue of a matrix product, see op MATMUL. EPILOGUE, if defined, is TX_EPILOGUE_GELU or TX_EPILOGUE_GELU_GRAD,
 * and EXACT selects the form of its GELU. Without EPILOGUE one program computes TX_EPILOGUE_NONE and TX_EPILOGUE_ADD:
 * it adds the operand `with` if that is not NULL. Y is the storage type of y and of the operands with the same layout.
 */
#include "backends/opencl/ops/stored.cl"

#define tx_product TX_CAT(tx_stored_, Y) /* a product is rounded like a store before its epilogue */

#ifdef EPILOGUE
#include "backends/opencl/ops/gelu.cl"

/* True if the product is stored before its epilogue, if there is an operand `kept`. */
#define KEEPS (EPILOGUE == TX_EPILOGUE_GELU)
#define READS(with) (!KEEPS)

/* Applies the epilogue to a rounded product. `other` is an element of `with`. */
static vec tx_apply(vec v, vec other)
{
    return KEEPS ? gelu_of(v, EXACT) : v * gelu_slope(other, EXACT);
}
#else
#define KEEPS 0
#define READS(with) ((with) != 0)
#define tx_apply(v, other) ((v) + (other))
#endif

/* Applies the epilogue to elements at.. of y, which ends at `end`, and stores the product in `kept` if that is not
 * NULL. */
static vec tx_finish(vec v, const __global TX_CAT(Y, _t) *with, __global TX_CAT(Y, _t) *kept, long at, long end)
{
    if (!KEEPS && !READS(with))
        return v;
    v = tx_product(v);
    if (KEEPS && kept)
        TX_CAT(tx_store_, Y)(v, kept, at, end);
    return tx_apply(v, READS(with) ? TX_CAT(tx_load_, Y)(with, at, end) : (vec)0.0f);
}
