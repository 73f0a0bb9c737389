/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of the experts' ops, and the operations of grouped products. */
#include "api/graph/infer.h"

#include "api/base/blocks.h"
#include "api/graph/work.h"
#include "backends/experts.h"

#include <inttypes.h>
#include <math.h>

/* Choices are counted in fp32, which is exact only up to this number. */
#define MOST_CHOICES (1 << 24)

/* ---- The greatest elements ------------------------------------------------------------------------------- */

tx_status tx_infer_top_k(const tx_infer *c)
{
    const tx_shape *x = &c->in[0].shape;
    const int64_t last = tx_shape_last(x), groups = c->attrs->choice.groups, kept = c->attrs->choice.kept,
                  best = c->attrs->choice.best;
    TX_TRY(tx_require(c, "FF1"));
    TX_TRY(tx_require_shape(c, 1, &TX_SHAPE(last)));
    if (groups != 0 && (groups < 0 || groups > TX_CHOICE_GROUPS || last % groups != 0 || kept < 1 || kept > groups ||
                        best < 1 || best > last / groups))
        return tx_refuse(c,
                         "cannot keep %" PRId64 " of %" PRId64 " groups of rows of %s by their %" PRId64
                         " best: there may be %d groups of equal size",
                         kept, groups, TX_TEXT(*x), best, TX_CHOICE_GROUPS);
    if (c->attrs->rows < 1 || c->attrs->rows > (groups ? last / groups * kept : last))
        return tx_refuse(c, "cannot select %" PRId64 " elements of rows of %s", c->attrs->rows, TX_TEXT(*x));
    if (!isfinite(c->attrs->alpha) || (c->attrs->choice.normalized && !(c->attrs->eps > 0.0f)))
        return tx_refuse(c, "scale %g must be finite and eps %g above 0", (double)c->attrs->alpha,
                         (double)c->attrs->eps);
    tx_set_output(c, 0, TX_F32, tx_with_last(x, c->attrs->rows));
    return tx_set_output(c, 1, TX_I32, tx_with_last(x, c->attrs->rows));
}

tx_status tx_infer_top_k_grad(const tx_infer *c)
{
    const tx_shape whole = tx_with_last(&c->in[0].shape, c->attrs->rows);
    TX_TRY(tx_require(c, "FIF"));
    TX_TRY(tx_require_shape(c, 1, &c->in[0].shape));
    TX_TRY(tx_require_shape(c, 2, &whole));
    if (c->attrs->choice.normalized != tx_present(&c->in[2]))
        return tx_refuse(c, "x must be present exactly if the choice is normalized");
    if (c->attrs->rows < tx_shape_last(&c->in[0].shape))
        return tx_require_other_shape(c, 0, "rows no longer than the result's");
    return tx_set_output(c, 0, TX_F32, whole);
}

/* ---- Routes ------------------------------------------------------------------------------------------------ */

tx_status tx_infer_route(const tx_infer *c)
{
    const tx_shape *choices = &c->in[0].shape;
    const int64_t count = tx_shape_count(choices), experts = c->attrs->rows;
    TX_TRY(tx_require(c, "I2I"));
    if (experts < 1 || experts > MOST_CHOICES || !(c->attrs->scale >= 0.0f && isfinite(c->attrs->scale)))
        return tx_refuse(c, "%" PRId64 " experts and capacity factor %g are out of range", experts,
                         (double)c->attrs->scale);
    TX_TRY(tx_require_shape(c, 1, &TX_SHAPE(choices->dim[0])));
    if (count > MOST_CHOICES)
        return tx_fail(TX_UNSUPPORTED, "%s: %s are more than %d choices: take a smaller batch", tx_require_name(c),
                       TX_TEXT(*choices), MOST_CHOICES);
    tx_set_output(c, 0, TX_I32, TX_SHAPE(count));
    tx_set_output(c, 1, TX_I32, *choices);
    tx_set_output(c, 2, TX_I32, TX_SHAPE(experts + 1));
    return tx_set_output(c, 3, TX_F32, TX_SHAPE(experts));
}

/* Checks inputs x [N k, C], weights [N, k], places and tokens, from index `x` on. */
static tx_status check_combined(const tx_infer *c, int x)
{
    const tx_shape *weights = &c->in[x + 1].shape;
    TX_TRY(tx_require_shape(c, x + 2, weights));
    if (c->in[x].shape.dim[0] != tx_shape_count(weights))
        return tx_require_other_shape(c, x, "one row for each weight");
    return tx_require_shape(c, x + 3, &TX_SHAPE(c->in[x].shape.dim[0]));
}

tx_status tx_infer_combine(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H2F2II"));
    TX_TRY(check_combined(c, 0));
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(c->in[1].shape.dim[0], tx_shape_last(&c->in[0].shape)));
}

tx_status tx_infer_combine_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "FH2F2II"));
    TX_TRY(check_combined(c, 1));
    TX_TRY(tx_require_shape(c, 0, &TX_SHAPE(c->in[2].shape.dim[0], tx_shape_last(&c->in[1].shape))));
    tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
    return tx_set_output(c, 1, TX_F32, c->in[2].shape);
}

/* ---- Experts of other ranks -------------------------------------------------------------------------------- */

tx_status tx_infer_share_routes(const tx_infer *c)
{
    TX_TRY(tx_require(c, "I1"));
    if (c->attrs->rows < 1 || (c->in[0].shape.dim[0] - 1) % c->attrs->rows != 0)
        return tx_refuse(c, "%" PRId64 " experts a rank do not divide %" PRId64, c->attrs->rows,
                         c->in[0].shape.dim[0] - 1);
    return tx_set_output(c, 0, TX_I32, TX_SHAPE(c->attrs->rows + 1));
}

/* If w exists, it has the type of x. */
tx_status tx_infer_move_rows(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H2I2"));
    if (tx_present(&c->out[1]))
        c->out[1].dtype = c->in[0].dtype;
    return tx_set_output(c, 0, c->in[0].dtype, TX_SHAPE(c->attrs->rows, c->in[0].shape.dim[1]));
}

/* ---- Grouped products ---------------------------------------------------------------------------------------- */

tx_status tx_infer_grouped_matmul(const tx_infer *c)
{
    const tx_shape *x = &c->in[0].shape, *w = &c->in[1].shape;
    const bool packed = tx_dtype_packed(c->in[1].dtype);
    TX_TRY(tx_require(c, packed ? "H2-3I" : "H2=3I"));
    if (packed && tx_shape_last(w) % tx_packed_unit(c->in[1].dtype) != 0)
        return tx_require_other_shape(c, 1, "rows of whole blocks");
    TX_TRY(tx_require_shape(c, 2, &TX_SHAPE(w->dim[0] + 1)));
    if (w->dim[c->attrs->trans_b ? 2 : 1] != x->dim[1])
        return tx_refuse(c, "inner dimensions of %s and %s%s differ", TX_TEXT(*x), TX_TEXT(*w),
                         c->attrs->trans_b ? " transposed" : "");
    return tx_give_stored(c, c->in[0].dtype, c->in[0].dtype, TX_SHAPE(x->dim[0], w->dim[c->attrs->trans_b ? 1 : 2]));
}

tx_status tx_infer_grouped_matmul_grad(const tx_infer *c)
{
    const tx_shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    TX_TRY(tx_require(c, "H2=2I1"));
    if (a->dim[0] != b->dim[0] || c->in[2].shape.dim[0] < 2)
        return tx_refuse(c, "%s, %s and offsets %s do not fit", TX_TEXT(*a), TX_TEXT(*b), TX_TEXT(c->in[2].shape));
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(c->in[2].shape.dim[0] - 1, a->dim[1], b->dim[1]));
}

/* Counts every row as if it had a group. */
double tx_flops_grouped_matmul(const tx_command *c)
{
    return 2.0 * (double)tx_operand_count(&c->in[0]) * (double)tx_shape_last(&c->out[0].shape);
}

double tx_flops_grouped_matmul_grad(const tx_command *c)
{
    return 2.0 * (double)tx_operand_count(&c->in[0]) * (double)tx_shape_last(&c->in[1].shape);
}
