/* SPDX-License-Identifier: Apache-2.0
 * Checks of rounded parameters (tx_rounding). */
#include "api/packed/packed.h"

#include "api/base/blocks.h"

const char *tx_rounding_problem(const tx_rounding *r, const tx_shape *x)
{
    if (r->parts < 1 || r->parts > (r->columns ? 1 : TX_MAX_SECTIONS) || x->rank < 2)
        return "only matrices are rounded, in parts of rows";
    for (int32_t i = 0; i < r->parts; i++) {
        const int64_t unit = tx_block_unit(r->part[i].type);
        if (!unit || x->dim[x->rank - (r->columns ? 2 : 1)] % unit)
            return "rows are not whole blocks of the type";
    }
    return NULL;
}

tx_status tx_rounding_check(const char *name, const tx_param_spec *spec)
{
    const char *problem = tx_rounding_problem(&spec->rounding, &spec->shape);
    problem = tx_dtype_packed(spec->dtype) ? "weights in blocks are already rounded" : problem;
    return problem ? tx_fail(TX_INVALID, "parameter %s: %s", name, problem) : TX_OK;
}
