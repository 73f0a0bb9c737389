/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the optimizers other than SGD and AdamW.
 */
#include "backends/adafactor.h"
#include "backends/opencl/ops/update.h"

#include <math.h>

tx_status tx_cl_adamw_anyprecision(tx_cl_builder *b, const tx_command *c)
{
    const int64_t n = tx_operand_count(&c->in[0]);
    tx_cl_form form =
        tx_cl_form_of(b, c, n, false, "-DPARAM_BLOCK=%d -DP=%s -DM=%s -DV=%s -DC=%s%s", TX_PARAM_BLOCK,
                      tx_cl_storage(c->in[0].dtype), tx_cl_storage(c->in[3].dtype), tx_cl_storage(c->in[4].dtype),
                      tx_cl_storage(c->in[5].dtype), c->in[0].dtype == TX_BF16 ? " -DBY_CHANCE" : "");
    tx_cl_launch_columns(b, &form, "optimizers", "adamw_anyprecision", n, 1);
    tx_cl_arg_update(b, c);
    tx_cl_arg_adam(b, &c->attrs);
    TX_CL_I32(b, tx_present(&c->in[5]));
    TX_CL_I64(b, c->attrs.first);
    return tx_cl_arg_update_end(b);
}

/* Begins a kernel of which each work-group updates a block. */
static void launch_blocks(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    const int64_t n = tx_operand_count(&c->in[0]);
    tx_cl_form form = tx_cl_form_of(b, c, TX_PARAM_BLOCK, true, "-DPARAM_BLOCK=%d", TX_PARAM_BLOCK);
    tx_cl_launch_rows(b, &form, "optimizer_8bit", kernel, (n + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK);
    tx_cl_arg_update(b, c);
}

tx_status tx_cl_adamw_8bit(tx_cl_builder *b, const tx_command *c)
{
    launch_blocks(b, c, "adamw_8bit");
    tx_cl_arg_adam(b, &c->attrs);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_lion(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "optimizers", "lion");
    TX_CL_F32(b, c->attrs.update.beta1, c->attrs.update.beta2, c->attrs.update.weight_decay);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_lion_8bit(tx_cl_builder *b, const tx_command *c)
{
    launch_blocks(b, c, "lion_8bit");
    TX_CL_F32(b, c->attrs.update.beta1, c->attrs.update.beta2, c->attrs.update.weight_decay);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_ademamix(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "optimizers", "ademamix");
    tx_cl_arg_adam(b, &c->attrs);
    TX_CL_F32(b, (float)log((double)c->attrs.update.beta3), c->attrs.update.slow_weight, c->attrs.update.beta3_steps,
              c->attrs.update.slow_weight_steps);
    return tx_cl_arg_update_end(b);
}

/* ---- Schedule-free ------------------------------------------------------------------------------------------ */

tx_status tx_cl_schedule_free_adamw(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "schedule_free", "schedule_free_adamw");
    tx_cl_arg_adam(b, &c->attrs);
    TX_CL_F32(b, c->attrs.update.warmup_steps);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_schedule_free_sgd(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "schedule_free", "schedule_free_sgd");
    TX_CL_F32(b, c->attrs.update.momentum, c->attrs.update.weight_decay, c->attrs.update.warmup_steps);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_exchange(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "schedule_free", "exchange");
    return tx_cl_arg_result(b);
}

/* ---- StableAdamW -------------------------------------------------------------------------------------------- */

tx_status tx_cl_stable_adamw(tx_cl_builder *b, const tx_command *c)
{
    const int64_t n = tx_operand_count(&c->in[0]), lines = tx_blocks(n, TX_REDUCE_BLOCK);
    const int64_t block = tx_block_size(n, TX_REDUCE_BLOCK);
    const tx_operand *m = &c->in[3], *v = &c->in[4], *work = &c->out[3];
    const tx_cl_form by_line = tx_cl_form_of(b, c, block, true, ""), all = tx_cl_form_of(b, c, lines, true, "");
    tx_cl_launch_rows(b, &by_line, "stable", "stable_measure", lines);
    TX_CL_OPERANDS(b, &c->in[1], m, v, work);
    TX_CL_I64(b, n, block);
    TX_CL_F32(b, c->attrs.update.beta1, c->attrs.update.beta2, (float)log((double)c->attrs.update.beta1),
              (float)log((double)c->attrs.update.beta2), c->attrs.eps);
    tx_cl_arg_result(b);
    tx_cl_launch_rows(b, &all, "stable", "stable_sum", 1);
    TX_CL_OPERANDS(b, work);
    TX_CL_I64(b, lines);
    const tx_cl_form by_column = tx_cl_form_of(b, c, n, false, "");
    tx_cl_launch_columns(b, &by_column, "stable", "stable_update", n, 1);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[2], m, v, work);
    TX_CL_I64(b, n, lines);
    TX_CL_F32(b, c->attrs.eps, c->attrs.update.weight_decay);
    return tx_cl_arg_update_end(b);
}

/* ---- Adafactor ------------------------------------------------------------------------------------------ */

/* Computes the rate from sums of squares of u and p, `squares` elements into `work`. */
static void choose_rate(tx_cl_builder *b, const tx_command *c, const tx_operand *work, int64_t squares)
{
    const int64_t lines = tx_adafactor_lines(&c->in[0].shape);
    tx_cl_form form = tx_cl_form_of(b, c, lines, true, "");
    tx_cl_launch_rows(b, &form, "adafactor", "adafactor_rate", 1);
    TX_CL_OPERANDS(b, &c->in[2], work);
    TX_CL_I64(b, squares, lines, tx_operand_count(&c->in[0]));
    TX_CL_F32(b, c->attrs.update.weight_decay);
    TX_CL_I32(b, c->attrs.update.relative_step, c->attrs.update.warmup_init, c->attrs.update.scale_parameter);
    tx_cl_arg_update_end(b);
}

/* Computes r and c of a matrix, and the mean of r. */
static void factor(tx_cl_builder *b, const tx_command *c, const tx_operand *number)
{
    const int64_t rows = c->in[0].shape.dim[0], columns = c->in[0].shape.dim[1];
    const tx_cl_form by_row = tx_cl_form_of(b, c, columns, true, "");
    const tx_cl_form by_column = tx_cl_form_of(b, c, columns, false, "");
    const tx_operand *g = &c->in[1], *r = &c->in[3], *work = &c->out[3];
    tx_cl_launch_rows(b, &by_row, "adafactor", "adafactor_rows", rows);
    TX_CL_OPERANDS(b, g, r);
    TX_CL_I64(b, columns);
    tx_cl_arg_result(b);
    tx_cl_launch_columns(b, &by_column, "adafactor", "adafactor_blocks", columns, tx_row_blocks(rows));
    TX_CL_OPERANDS(b, g, work);
    TX_CL_I64(b, rows, columns, tx_block_size(rows, TX_ROW_BLOCK));
    tx_cl_arg_result(b);
    tx_cl_launch_columns(b, &by_column, "adafactor", "adafactor_columns", columns, 1);
    TX_CL_OPERANDS(b, work, &c->in[4]);
    TX_CL_I64(b, rows, columns, tx_row_blocks(rows));
    tx_cl_arg_result(b);
    const tx_cl_form all = tx_cl_form_of(b, c, rows, true, "");
    tx_cl_launch_rows(b, &all, "adafactor", "adafactor_mean", 1);
    TX_CL_OPERANDS(b, r, number);
    TX_CL_I64(b, rows);
}

tx_status tx_cl_adafactor(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand *p = &c->in[0], *g = &c->in[1], *r = &c->in[3], *work = &c->out[3];
    const int64_t rows = p->shape.dim[0], columns = p->shape.dim[1];
    const int64_t squares = tx_adafactor_work(&p->shape) - 2 * rows - TX_ADAFACTOR_NUMBERS;
    const tx_cl_form by_row = tx_cl_form_of(b, c, columns, true, "");
    const tx_cl_form by_column = tx_cl_form_of(b, c, columns, false, "");
    tx_operand number = *work;
    number.offset += (squares + 2 * rows) * (int64_t)sizeof(float);
    factor(b, c, &number);
    tx_cl_launch_rows(b, &by_row, "adafactor", "adafactor_measure", rows);
    TX_CL_OPERANDS(b, p, g, r, work);
    TX_CL_I64(b, squares, rows, columns);
    tx_cl_arg_result(b);
    choose_rate(b, c, work, squares);
    tx_cl_launch_columns(b, &by_column, "adafactor", "adafactor_update", columns, rows);
    TX_CL_OPERANDS(b, p, g, r, work);
    TX_CL_I64(b, squares, rows, columns);
    return tx_cl_arg_result(b);
}

tx_status tx_cl_adafactor_vector(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand *p = &c->in[0], *g = &c->in[1], *v = &c->in[3], *work = &c->out[2];
    const int64_t n = tx_operand_count(p), lines = tx_adafactor_lines(&p->shape);
    const int64_t block = tx_block_size(n, TX_REDUCE_BLOCK);
    const tx_cl_form by_line = tx_cl_form_of(b, c, block, true, ""), by_column = tx_cl_form_of(b, c, n, false, "");
    tx_cl_launch_rows(b, &by_line, "adafactor", "adafactor_vector_measure", lines);
    TX_CL_OPERANDS(b, p, g, v, work);
    TX_CL_I64(b, lines, n, block);
    tx_cl_arg_result(b);
    choose_rate(b, c, work, 0);
    tx_cl_launch_columns(b, &by_column, "adafactor", "adafactor_vector_update", n, 1);
    TX_CL_OPERANDS(b, p, g, v, work);
    TX_CL_I64(b, lines, n);
    return tx_cl_arg_result(b);
}

/* ---- Muon --------------------------------------------------------------------------------------------------- */

static void muon_kernel(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    const tx_cl_form form = tx_cl_form_of(b, c, tx_operand_count(&c->in[0]), false, "");
    tx_cl_launch_columns(b, &form, "muon", kernel, tx_operand_count(&c->in[0]), 1);
}

tx_status tx_cl_muon_momentum(tx_cl_builder *b, const tx_command *c)
{
    muon_kernel(b, c, "muon_momentum");
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->out[1]);
    TX_CL_I64(b, tx_operand_count(&c->in[0]));
    TX_CL_F32(b, c->attrs.update.momentum);
    TX_CL_I32(b, c->attrs.update.nesterov);
    return tx_cl_arg_result(b);
}

tx_status tx_cl_muon(tx_cl_builder *b, const tx_command *c)
{
    muon_kernel(b, c, "muon");
    tx_cl_arg_update(b, c);
    TX_CL_F32(b, c->attrs.update.weight_decay, c->attrs.scale);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_normalize(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_by_columns(b, c, "muon", "normalize_by", "", tx_operand_count(&c->in[0]), 1);
    return TX_CL_F32(b, c->attrs.eps);
}

tx_status tx_cl_blend(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_by_columns(b, c, "muon", "blend", "", tx_operand_count(&c->in[0]), 1);
    return TX_CL_F32(b, c->attrs.alpha, c->attrs.scale);
}

/* ---- APOLLO ------------------------------------------------------------------------------------------------- */

tx_status tx_cl_projection(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand *y = &c->out[0];
    const int64_t rows = y->shape.dim[0], columns = y->shape.dim[1];
    const tx_cl_form form = tx_cl_form_of(b, c, columns, false, "");
    tx_cl_launch_columns(b, &form, "apollo", "projection", columns, rows);
    TX_CL_OPERANDS(b, y);
    TX_CL_I64(b, columns);
    TX_CL_F32(b, (float)(1.0 / sqrt((double)columns)));
    TX_CL_I32(b, c->attrs.update.projection_steps, c->attrs.draw.site);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_apollo_scale(tx_cl_builder *b, const tx_command *c)
{
    const int64_t rows = c->in[0].shape.dim[0], columns = c->in[0].shape.dim[1];
    const tx_cl_form by_row = tx_cl_form_of(b, c, columns, true, ""), all = tx_cl_form_of(b, c, rows, true, "");
    tx_cl_launch_rows(b, &by_row, "apollo", "apollo_moments", rows);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->in[2], &c->out[2], &c->out[3]);
    TX_CL_I64(b, columns);
    TX_CL_F32(b, c->attrs.update.beta1, c->attrs.update.beta2, c->attrs.eps);
    TX_CL_I32(b, c->attrs.update.by_tensor);
    if (!c->attrs.update.by_tensor)
        return tx_cl_arg_result(b);
    tx_cl_arg_result(b);
    tx_cl_launch_rows(b, &all, "apollo", "apollo_tensor", 1);
    TX_CL_OPERANDS(b, &c->out[2], &c->out[3]);
    TX_CL_I64(b, rows);
    return tx_cl_arg_result(b);
}

tx_status tx_cl_apollo(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand *p = &c->in[0], *g = &c->in[1], *s = &c->in[3], *work = &c->out[2];
    const int64_t rows = p->shape.dim[0], columns = p->shape.dim[1];
    const bool by_column = !c->attrs.update.by_tensor && rows < columns;
    const bool by_row = !c->attrs.update.by_tensor && !by_column;
    const tx_cl_form line = tx_cl_form_of(b, c, columns, true, ""), all = tx_cl_form_of(b, c, rows, true, "");
    const tx_cl_form by_columns = tx_cl_form_of(b, c, columns, false, "");
    tx_cl_launch_rows(b, &line, "apollo", "apollo_measure", rows);
    TX_CL_OPERANDS(b, g, s, work);
    TX_CL_I64(b, columns);
    TX_CL_I32(b, by_row, by_column);
    tx_cl_arg_result(b);
    tx_cl_launch_rows(b, &all, "apollo", "apollo_limit", 1);
    TX_CL_OPERANDS(b, &c->in[4], work);
    TX_CL_I64(b, rows);
    TX_CL_F32(b, c->attrs.scale);
    TX_CL_I32(b, c->attrs.update.scale_front, c->attrs.update.unlimited);
    TX_CL_F32(b, (float)log((double)c->attrs.update.beta1), (float)log((double)c->attrs.update.beta2));
    tx_cl_arg_update_end(b);
    tx_cl_launch_columns(b, &by_columns, "apollo", "apollo_update", columns, rows);
    TX_CL_OPERANDS(b, p, g, &c->in[2], s, work);
    TX_CL_I64(b, columns, rows);
    TX_CL_I32(b, by_row, by_column);
    TX_CL_F32(b, c->attrs.update.weight_decay);
    return tx_cl_arg_update_end(b);
}
