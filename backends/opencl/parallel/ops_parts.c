/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches for tensors that are divided among ranks: rows of tables, columns of tensors, keys of attention.
 */
#include "backends/opencl/ops/ops.h"

tx_status tx_cl_tp_indices(tx_cl_builder *b, const tx_command *c)
{
    const size_t count = (size_t)tx_operand_count(&c->in[0]);
    tx_cl_launch(b, "parts", "", "tp_indices", 1, &count, NULL);
    tx_cl_arg_all(b, c);
    return TX_CL_I64(b, (int64_t)count, c->attrs.first, c->attrs.rows, c->attrs.vocab);
}

/* Copies `count` columns of x from column `from` to column `to` of y. */
static tx_status move_columns(tx_cl_builder *b, const tx_command *c, const tx_operand *x, int64_t from, int64_t to,
                              int64_t count)
{
    const tx_operand *y = &c->out[0];
    const int64_t of_x = tx_shape_last(&x->shape), of_y = tx_shape_last(&y->shape);
    const bool even = of_x % 4 == 0 && of_y % 4 == 0 && from % 4 == 0 && to % 4 == 0 && count % 4 == 0;
    /* Vectors are aligned if all of these are even multiples; otherwise use the form for an odd number of columns. */
    tx_cl_form form = tx_cl_form_of(b, c, even ? count : count | 1, false, "-DIN=%s -DOUT=%s", tx_cl_storage(x->dtype),
                                    tx_cl_storage(y->dtype));
    tx_cl_launch_columns(b, &form, "parts", "columns", count, tx_shape_rows(&y->shape));
    TX_CL_OPERANDS(b, x, y);
    TX_CL_I64(b, count, of_x, from, of_y, to);
    return tx_cl_arg_accumulate(b, c);
}

TX_CL_OP(take_columns, move_columns, &c->in[0], c->attrs.first, 0, c->attrs.rows)

tx_status tx_cl_join_columns(tx_cl_builder *b, const tx_command *c)
{
    move_columns(b, c, &c->in[0], 0, 0, c->attrs.rows);
    return move_columns(b, c, &c->in[1], 0, c->attrs.rows, tx_shape_last(&c->in[1].shape));
}

/* A row of the kernel is one head of a row. */
tx_status tx_cl_attention_merge(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *o = &c->out[0].shape;
    const int64_t size = tx_shape_last(o) / c->attrs.attention.heads;
    tx_cl_form form = tx_cl_form_of(b, c, size, false, "-DA=%s -DB=%s -DO=%s", tx_cl_storage(c->in[0].dtype),
                                    tx_cl_storage(c->in[2].dtype), tx_cl_storage(c->out[0].dtype));
    tx_cl_launch_columns(b, &form, "attention_merge", "attention_merge", size,
                         tx_shape_rows(o) * c->attrs.attention.heads);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, size, o->dim[1]);
    return TX_CL_I32(b, c->attrs.attention.heads);
}
