/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of norms, softmax, cross-entropy and reductions. */
#include "api/graph/infer.h"

#include <float.h>
#include <inttypes.h>

/* Checks the operands of a norm before its summand. Input `x` is [.., C]; the gradient dy comes before it if it is not
 * the first. Both have any floating type. Inputs `first` to `last` are vectors [C], or [2 C] for heads of q and of k.
 */
static tx_status check_norm(const tx_infer *c, int x, int first, int last)
{
    for (int i = 0; i < tx_op_info_of(c->op)->inputs_min; i++)
        TX_TRY(i <= x ? tx_require_float_type(c, i) : tx_require_dtype(c, i, TX_F32));
    const tx_shape *rows = &c->in[x].shape;
    const tx_shape channels = TX_SHAPE(tx_shape_last(rows) * (c->attrs->attention.heads ? 2 : 1));
    const int64_t heads = (int64_t)c->attrs->attention.heads + 2 * (int64_t)c->attrs->attention.kv_heads;
    if (c->attrs->attention.heads && (rows->rank < 2 || rows->dim[rows->rank - 2] != heads))
        return tx_refuse(c, "%s does not have %" PRId64 " heads", TX_TEXT(*rows), heads);
    for (int i = first; i <= last; i++)
        TX_TRY(tx_require_shape(c, i, &channels));
    return TX_OK;
}

/* Checks operand i, the summand, to which dropout may apply. The sum is output i, like x. */
static tx_status infer_summand(const tx_infer *c, int i)
{
    TX_TRY(c->attrs->draw.p > 0.0f ? tx_require_float_type(c, i) : tx_require_dtype(c, i, c->in[0].dtype));
    TX_TRY(tx_require_draw(c));
    TX_TRY(tx_require_shape(c, i, &c->in[0].shape));
    return tx_present(&c->in[i]) ? tx_set_output(c, i, c->in[0].dtype, c->in[0].shape) : TX_OK;
}

/* The number of learned vectors (gamma and beta) is also the number of statistics a row. Operands are x, the vectors
 * and z. */
tx_status tx_infer_norm(const tx_infer *c)
{
    const int vectors = tx_op_info_of(c->op)->inputs - 2;
    TX_TRY(check_norm(c, 0, 1, vectors));
    TX_TRY(infer_summand(c, 1 + vectors));
    for (int i = 1; i <= vectors; i++)
        tx_set_output(c, i, TX_F32, TX_SHAPE(tx_shape_rows(&c->in[0].shape)));
    return tx_set_output_as(c, TX_F32, c->in[0].shape);
}

/* Operands are dy, x, gamma, the statistics and z. The sums are of gamma, for a layer norm of beta, and of a bias. */
tx_status tx_infer_norm_grad(const tx_infer *c)
{
    const int statistics = tx_op_info_of(c->op)->inputs_min - 3, bias = statistics;
    const tx_shape *x = &c->in[1].shape, *gamma = &c->in[2].shape;
    const int64_t rows = tx_shape_rows(x);
    int64_t sums = 0;
    TX_TRY(check_norm(c, 1, 2, 2));
    TX_TRY(tx_require_shape(c, 0, x));
    for (int i = 0; i < statistics; i++)
        TX_TRY(tx_require_shape(c, 3 + i, &TX_SHAPE(rows)));
    TX_TRY(tx_set_output_as(c, TX_F32, *x));
    TX_TRY(tx_require_dtype(c, 3 + statistics, c->out[0].dtype));
    TX_TRY(tx_require_shape(c, 3 + statistics, x));
    for (int i = 0; i <= bias; i++)
        if (c->attrs->sums >> i & 1u) {
            tx_set_output(c, 1 + i, TX_F32, *gamma);
            sums++;
        }
    if (c->attrs->attention.heads && c->attrs->sums >> bias & 1u)
        return tx_refuse(c, "heads have no sum of dx");
    if (sums == 0)
        return TX_OK;
    return tx_set_output(c, 2 + bias, TX_F32, TX_SHAPE(tx_row_blocks(rows), sums, gamma->dim[0]));
}

/* Checks the logits, input 0, and inputs `first` to `last`, which have one number for each row of logits. */
static tx_status check_logits(const tx_infer *c, int first, int last)
{
    const tx_shape rows = tx_without_last(&c->in[0].shape);
    const int64_t columns = tx_shape_last(&c->in[0].shape);
    for (int i = first; i <= last; i++)
        TX_TRY(tx_require_shape(c, i, &rows));
    if (!(c->attrs->smoothing >= 0.0f && c->attrs->smoothing <= 1.0f))
        return tx_refuse(c, "smoothing %g must be from 0 to 1", (double)c->attrs->smoothing);
    if (c->attrs->rows && c->attrs->rows < c->attrs->vocab)
        return tx_refuse(c, "a shard of %" PRId64 " columns is larger than the whole, %" PRId64, c->attrs->vocab,
                         c->attrs->rows);
    if (c->attrs->vocab >= 1 && c->attrs->vocab <= columns)
        return TX_OK;
    return tx_refuse(c, "a vocabulary of %" PRId64 " does not fit logits %s", c->attrs->vocab, TX_TEXT(c->in[0].shape));
}

tx_status tx_infer_cross_entropy(const tx_infer *c)
{
    const tx_shape rows = tx_without_last(&c->in[0].shape);
    TX_TRY(tx_require(c, "HIFF"));
    TX_TRY(check_logits(c, 1, 3));
    tx_set_output(c, 0, TX_F32, rows);
    return tx_set_output(c, 1, TX_F32, rows);
}

tx_status tx_infer_cross_entropy_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HFIF"));
    TX_TRY(check_logits(c, 1, 3));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

tx_status tx_infer_token_statistics(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HIF"));
    TX_TRY(check_logits(c, 1, 2));
    for (int i = 0; i < 4; i++)
        tx_set_output(c, i, TX_F32, c->in[1].shape);
    return TX_OK;
}

tx_status tx_infer_token_entropy_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HFIFF"));
    TX_TRY(check_logits(c, 1, 4));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

tx_status tx_infer_fused_classifier(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HFI"));
    TX_TRY(check_logits(c, 1, 2));
    tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
    return tx_set_output(c, 1, TX_F32, c->in[1].shape);
}

/* The teacher has the shape and type of the logits. */
static tx_status check_distillation(const tx_infer *c, int teacher)
{
    TX_TRY(tx_require_shape(c, teacher, &c->in[0].shape));
    if (!(c->attrs->scale > 0.0f && c->attrs->scale <= FLT_MAX && c->attrs->alpha >= 0.0f && c->attrs->alpha <= 1.0f))
        return tx_refuse(c, "temperature %g must be above 0, alpha %g from 0 to 1", (double)c->attrs->scale,
                         (double)c->attrs->alpha);
    return TX_OK;
}

tx_status tx_infer_distillation(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H=I"));
    TX_TRY(check_distillation(c, 1));
    TX_TRY(check_logits(c, 2, 2));
    return tx_set_output(c, 0, TX_F32, c->in[2].shape);
}

tx_status tx_infer_distillation_grad(const tx_infer *c)
{
    TX_TRY(tx_require(c, "HF=I"));
    TX_TRY(check_distillation(c, 2));
    TX_TRY(check_logits(c, 1, 1));
    TX_TRY(check_logits(c, 3, 3));
    return tx_set_output(c, 0, c->in[0].dtype, c->in[0].shape);
}

static tx_shape reduced(const tx_shape *x, tx_axis axis)
{
    if (axis == TX_AXIS_LAST)
        return tx_without_last(x);
    return axis == TX_AXIS_ROWS ? TX_SHAPE(tx_shape_last(x)) : TX_SHAPE(1);
}

tx_status tx_infer_reduce(const tx_infer *c)
{
    TX_TRY(tx_require(c, "H"));
    const tx_shape *x = &c->in[0].shape;
    tx_set_output(c, 0, TX_F32, reduced(x, c->attrs->axis));
    return tx_set_output(c, 1, TX_F32, TX_SHAPE(tx_reduce_work(c->attrs->axis, x)));
}

tx_status tx_infer_quantile(const tx_infer *c)
{
    const int64_t most = 1 << 24; /* counts are exact in fp32 */
    TX_TRY(tx_require(c, "FF"));
    TX_TRY(tx_require_shape(c, 1, &c->in[0].shape));
    if (!(c->attrs->alpha >= 0.0f && c->attrs->alpha <= 1.0f))
        return tx_refuse(c, "quantile %g must be from 0 to 1", (double)c->attrs->alpha);
    if (tx_shape_count(&c->in[0].shape) > most)
        return tx_refuse(c, "%" PRId64 " elements are too many", tx_shape_count(&c->in[0].shape));
    return tx_set_output(c, 0, TX_F32, TX_SHAPE(1));
}

tx_status tx_infer_broadcast(const tx_infer *c)
{
    TX_TRY(tx_require(c, "F"));
    tx_shape small = reduced(&c->out[0].shape, c->attrs->axis);
    TX_TRY(tx_require_shape(c, 0, &small));
    c->out[0].dtype = TX_F32;
    return TX_OK;
}
