/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of layer and RMS norms, softmax, cross-entropy, distillation and reductions.
 */
#include "backends/opencl/ops/ops.h"

#include <stdio.h>
#include <string.h>

/* ---- Sums over rows ------------------------------------------------------------------------------------------- */

/* Returns KIND of reduce.cl. Passes after the first add values that are already squared. */
static int reduce_kind(tx_reduction reduction, bool first)
{
    if (reduction == TX_REDUCE_MAX)
        return 1;
    return reduction == TX_REDUCE_SUMSQ && first ? 2 : 0;
}

static tx_status finish_arguments(tx_cl_builder *b, const tx_command *c, float alpha, int32_t control)
{
    TX_CL_F32(b, alpha);
    TX_CL_I32(b, control);
    return tx_cl_arg_accumulate(b, c);
}

/* The last pass of sums over rows: y[i] = alpha * control * sum of plane i of `work` [blocks, count, columns], as in
 * REDUCE. Absent outputs have no plane. */
static void sum_columns(tx_cl_builder *b, const tx_command *c, const tx_operand *work, int64_t blocks,
                        const tx_operand *y, int outputs, tx_reduction reduction, float alpha, int32_t control)
{
    const tx_operand *present[3] = {NULL};
    size_t count = 0;
    for (int i = 0; i < outputs; i++)
        if (tx_present(&y[i]))
            present[count++] = &y[i];
    /* Few columns and many blocks: many work-items share a column, and 8 neighbouring columns, 32 bytes, form a
     * work-group. */
    const size_t group[] = {tx_cl_group(b, 8), tx_cl_group(b, 256) / tx_cl_group(b, 8), 1};
    const int64_t columns = tx_operand_count(present[0]);
    const size_t global[] = {(size_t)columns, group[1], count};
    char options[96];
    snprintf(options, sizeof options, "-DWG=%zu -DPARTS=%zu -DKIND=%d", group[0], group[1],
             reduce_kind(reduction, false));
    tx_cl_launch(b, "reduce", options, "reduce_columns", 3, global, group);
    TX_CL_OPERANDS(b, work);
    TX_CL_I64(b, blocks);
    TX_CL_OPERANDS(b, present[0], present[1], present[2]);
    TX_CL_I64(b, columns);
    finish_arguments(b, c, alpha, control);
}

/* ---- Norms ---------------------------------------------------------------------------------------------- */

/* Returns true if dropout is applied to z before it is added. */
static bool drops(const tx_command *c, const tx_operand *z)
{
    return tx_present(z) && c->attrs.draw.p > 0.0f;
}

/* Has a work-item of a GPU keep its vectors of a row in registers, if these are at most `most`. */
static void hold_row(tx_cl_form *form, int64_t columns, int64_t most)
{
    const int64_t held = tx_cl_blocks(columns, (int64_t)form->group * form->vector);
    const size_t used = strlen(form->options);
    if (form->group > 1 && held <= most)
        snprintf(form->options + used, sizeof form->options - used, " -DHELD=%d", (int)held);
}

#define MAX_HELD 4 /* vectors of a norm's row */

/* `x` is the operand of type X, `typed` that of type H. `more` are further build options. */
static tx_cl_form norm_form(const tx_cl_builder *b, const tx_command *c, bool rms, const tx_operand *x,
                            const tx_operand *z, const tx_operand *typed, const char *more)
{
    char heads[64] = "", type[16] = "";
    if (x->dtype != TX_F32)
        snprintf(type, sizeof type, " -DX=%s", tx_cl_storage(x->dtype));
    if (c->attrs.attention.heads)
        snprintf(heads, sizeof heads, " -DHEADS=%d -DKV_HEADS=%d", c->attrs.attention.heads,
                 c->attrs.attention.kv_heads);
    const int64_t columns = tx_shape_last(&x->shape);
    tx_cl_form form = tx_cl_form_of(b, c, columns, true, "-DRMS=%d%s%s%s%s %s", rms, tx_present(z) ? " -DADDS=1" : "",
                                    type, more, heads, tx_cl_type(typed));
    hold_row(&form, columns, MAX_HELD);
    return form;
}

/* Outputs of a layer norm: y, mean, rstd, sum. Outputs of an RMS norm: y, rstd, sum. */
static tx_status norm(tx_cl_builder *b, const tx_command *c, bool rms)
{
    const tx_operand *z = &c->in[rms ? 2 : 3];
    const tx_shape *x = &c->in[0].shape;
    char dropped[32] = "";
    if (drops(c, z))
        snprintf(dropped, sizeof dropped, " -DDROPS=1 -DZ=%s", tx_cl_storage(z->dtype));
    tx_cl_form form = norm_form(b, c, rms, &c->in[0], z, &c->out[0], dropped);
    tx_cl_launch_rows(b, &form, "norm", "norm", tx_shape_rows(x));
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], rms ? NULL : &c->in[2]);
    TX_CL_OPERANDS(b, &c->out[0], rms ? NULL : &c->out[1], &c->out[rms ? 1 : 2], z, &c->out[rms ? 2 : 3]);
    TX_CL_I64(b, tx_shape_last(x));
    TX_CL_F32(b, c->attrs.eps);
    if (drops(c, z))
        tx_cl_arg_draw(b, c, x->rank > 1 ? tx_shape_rows(x) / x->dim[0] : 1, c->attrs.draw.p);
    return b->status;
}

/* Inputs: dy, x, gamma, [mean], rstd, [z]. Outputs: dx, dgamma, [dbeta], dbias, work. */
static tx_status norm_grad(tx_cl_builder *b, const tx_command *c, bool rms)
{
    const tx_operand *mean = rms ? NULL : &c->in[3], *rstd = &c->in[rms ? 3 : 4], *z = &c->in[rms ? 4 : 5];
    const int outputs = rms ? 2 : 3;
    const tx_operand *work = &c->out[1 + outputs];
    const uint32_t sums = rms ? (c->attrs.sums & 1u) | (c->attrs.sums & 2u) << 1 : c->attrs.sums;
    const int64_t columns = tx_shape_last(&c->in[0].shape), rows = tx_shape_rows(&c->in[0].shape);
    char more[32];
    snprintf(more, sizeof more, " -DSUMS=%u -DD=%s", sums, tx_cl_storage(c->out[0].dtype));
    tx_cl_form form = norm_form(b, c, rms, &c->in[1], z, &c->in[0], more);

    tx_cl_launch_rows(b, &form, "norm", "norm_grad", tx_row_blocks(rows));
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->in[2], mean, rstd, z, &c->out[0], work);
    TX_CL_I64(b, rows, columns, tx_block_size(rows, TX_ROW_BLOCK));
    if (sums)
        sum_columns(b, c, work, tx_row_blocks(rows), &c->out[1], outputs, TX_REDUCE_SUM, 1.0f, -1);
    return b->status;
}

TX_CL_OP(layer_norm, norm, false)
TX_CL_OP(layer_norm_grad, norm_grad, false)
TX_CL_OP(rms_norm, norm, true)
TX_CL_OP(rms_norm_grad, norm_grad, true)

/* ---- Softmax and cross-entropy ------------------------------------------------------------------------------ */

/* Launches kernel(in..., out..., columns) with a work-group for each row. */
static tx_status by_rows(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    const tx_shape *x = &c->in[0].shape;
    return tx_cl_by_rows(b, c, "softmax", kernel, tx_cl_type(&c->in[0]), tx_shape_last(x), tx_shape_rows(x));
}

TX_CL_OP(softmax, by_rows, "softmax")
TX_CL_OP(softmax_grad, by_rows, "softmax_grad")

/* Launches a kernel over rows of logits with labels. Only the first attrs.vocab columns count. */
static void by_logits(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    by_rows(b, c, kernel);
    TX_CL_I64(b, c->attrs.vocab);
    TX_CL_I32(b, TX_IGNORE_LABEL);
}

static tx_status statistics(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    by_logits(b, c, kernel);
    return TX_OK;
}

TX_CL_OP(token_statistics, statistics, "token_statistics")
TX_CL_OP(token_entropy_grad, statistics, "token_entropy_grad")

static tx_status finish_loss(tx_cl_builder *b, const tx_command *c)
{
    TX_CL_F32(b, c->attrs.smoothing);
    TX_CL_I64(b, c->attrs.rows ? c->attrs.rows : c->attrs.vocab);
    return TX_CL_I32(b, c->attrs.rows != 0);
}

static tx_status cross_entropy(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    by_logits(b, c, kernel);
    return finish_loss(b, c);
}

TX_CL_OP(cross_entropy, cross_entropy, "cross_entropy")
TX_CL_OP(cross_entropy_grad, cross_entropy, "cross_entropy_grad")

/* Quads of logits in bf16 that a work-item of NVIDIA keeps in registers. Otherwise more rows are in flight than the
 * cache holds, and each is read from memory twice. AMD's compiler spills such rows. */
#define MAX_LOGITS 52

static tx_status fused_classifier(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    const int64_t columns = tx_shape_last(&c->in[0].shape), rows = tx_shape_rows(&c->in[0].shape);
    tx_cl_form form = tx_cl_form_of(b, c, columns, true, "%s", tx_cl_type(&c->in[0]));
    if (b->context->can.vendor == TX_CL_NVIDIA && form.vector == 4 && c->in[0].dtype == TX_BF16)
        hold_row(&form, columns, MAX_LOGITS);
    tx_cl_launch_rows(b, &form, "softmax", kernel, rows);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, columns, c->attrs.vocab);
    TX_CL_I32(b, TX_IGNORE_LABEL);
    return finish_loss(b, c);
}

TX_CL_OP(fused_classifier, fused_classifier, "fused_classifier")

static tx_status distillation(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    by_logits(b, c, kernel);
    return TX_CL_F32(b, c->attrs.scale, c->attrs.alpha);
}

TX_CL_OP(distillation, distillation, "distillation")
TX_CL_OP(distillation_grad, distillation, "distillation_grad")

/* ---- Reductions ------------------------------------------------------------------------------------------------ */

static tx_cl_form reduce_form(const tx_cl_builder *b, const tx_command *c, const tx_operand *x, int64_t columns,
                              int kind)
{
    return tx_cl_form_of(b, c, columns, true, "-DKIND=%d %s", kind, tx_cl_type(x));
}

enum { WHOLE_GROUP = 1024 }; /* columns for which every lane of a work-group has a vector */

/* Reduces `rows` rows of `columns` elements to one result each, with a work-group for each row. A single row has the
 * same form whatever its length. */
static void reduce_rows(tx_cl_builder *b, const tx_command *c, const tx_operand *x, int kind, int64_t rows,
                        int64_t columns, float alpha)
{
    tx_cl_form form = reduce_form(b, c, x, rows == 1 ? WHOLE_GROUP : columns, kind);
    tx_cl_launch_rows(b, &form, "reduce", "reduce_rows", rows);
    TX_CL_OPERANDS(b, x, &c->out[0]);
    TX_CL_I64(b, columns);
    finish_arguments(b, c, alpha, c->attrs.control);
}

static void reduce_all(tx_cl_builder *b, const tx_command *c, float alpha)
{
    int64_t count = tx_operand_count(&c->in[0]), blocks = tx_blocks(count, TX_REDUCE_BLOCK);
    if (blocks == 1) {
        reduce_rows(b, c, &c->in[0], reduce_kind(c->attrs.reduction, true), 1, count, alpha);
        return;
    }
    int64_t block = tx_block_size(count, TX_REDUCE_BLOCK);
    tx_cl_form form = reduce_form(b, c, &c->in[0], block, reduce_kind(c->attrs.reduction, true));
    tx_cl_launch_rows(b, &form, "reduce", "reduce_blocks", blocks);
    TX_CL_OPERANDS(b, &c->in[0], &c->out[1]);
    TX_CL_I64(b, count, block);
    reduce_rows(b, c, &c->out[1], reduce_kind(c->attrs.reduction, false), 1, blocks, alpha);
}

static void reduce_over_rows(tx_cl_builder *b, const tx_command *c, float alpha)
{
    int64_t columns = tx_shape_last(&c->in[0].shape), rows = tx_shape_rows(&c->in[0].shape);
    /* RUN is 1 on all devices, and WG, which this kernel does not read, is the same for all rows. */
    tx_cl_form form = tx_cl_form_of(b, c, columns, b->limits->cpu, "-DKIND=%d %s",
                                    reduce_kind(c->attrs.reduction, true), tx_cl_type(&c->in[0]));
    form.group = (size_t)tx_cl_least((int64_t)form.group, tx_round_up(tx_cl_blocks(columns, form.vector), 32));
    tx_cl_launch_columns(b, &form, "reduce", "reduce_row_blocks", columns, tx_row_blocks(rows));
    TX_CL_OPERANDS(b, &c->in[0], &c->out[1]);
    TX_CL_I64(b, rows, columns, tx_block_size(rows, TX_ROW_BLOCK));
    sum_columns(b, c, &c->out[1], tx_row_blocks(rows), &c->out[0], 1, c->attrs.reduction, alpha, c->attrs.control);
}

/* The sum's own work memory may still be used by commands before it. */
tx_status tx_cl_sum_after(tx_cl_builder *b, const tx_operand *sums, int count)
{
    tx_command c = *b->after;
    bool present = true;
    for (int i = 0; i < count; i++)
        present = present && tx_present(&sums[i]);
    if (!present) {
        c.out[1] = tx_cl_scratch(b, c.out[1].dtype, c.out[1].shape);
        return b->emit(b, &c);
    }
    for (int i = 0; i < count; i++) {
        c.out[0].shape = TX_SHAPE(tx_shape_last(&sums[i].shape));
        sum_columns(b, &c, &sums[i], tx_shape_rows(&sums[i].shape), &c.out[0], 1, c.attrs.reduction, c.attrs.alpha,
                    c.attrs.control);
        c.out[0].offset += tx_operand_bytes(&c.out[0]);
    }
    return b->status;
}

tx_status tx_cl_reduce(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[0].shape;
    int64_t last = tx_shape_last(x), rows = tx_shape_rows(x);
    int64_t joined = c->attrs.axis == TX_AXIS_ALL ? rows * last : c->attrs.axis == TX_AXIS_LAST ? last : rows;
    float alpha = c->attrs.alpha;
    if (c->attrs.reduction == TX_REDUCE_MEAN)
        alpha = (float)((double)alpha / (double)joined);
    if (c->attrs.axis == TX_AXIS_ALL)
        reduce_all(b, c, alpha);
    else if (c->attrs.axis == TX_AXIS_LAST)
        reduce_rows(b, c, &c->in[0], reduce_kind(c->attrs.reduction, true), rows, last, alpha);
    else
        reduce_over_rows(b, c, alpha);
    return b->status;
}

tx_status tx_cl_quantile(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_form form = reduce_form(b, c, &c->in[0], WHOLE_GROUP, 0);
    tx_cl_launch_rows(b, &form, "reduce", "quantile", 1);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, tx_operand_count(&c->in[0]));
    return TX_CL_F32(b, c->attrs.alpha);
}
