/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of mixture-of-experts ops: top-k, routing, weighted sums, grouped matrix products.
 */
#include "backends/experts.h"
#include "backends/opencl/gemm/gemm.h"
#include "backends/opencl/ops/ops.h"

#include <stdio.h>

#define SOURCE "experts"

/* Launches kernel(in.., out.., rows, n, k, normalized, alpha, eps, ..) with a work-item for each row. */
static void by_items(tx_cl_builder *b, const tx_command *c, const char *kernel, const tx_shape *n, const tx_shape *k)
{
    const int64_t rows = tx_shape_rows(n);
    const size_t local = tx_cl_group(b, 64), global = (size_t)rows;
    tx_cl_launch(b, SOURCE, "", kernel, 1, &global, &local);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, rows);
    TX_CL_I32(b, (int32_t)tx_shape_last(n), (int32_t)tx_shape_last(k), c->attrs.choice.normalized);
    TX_CL_F32(b, c->attrs.alpha, c->attrs.eps);
}

tx_status tx_cl_top_k(tx_cl_builder *b, const tx_command *c)
{
    by_items(b, c, "top_k", &c->in[0].shape, &c->out[0].shape);
    return TX_CL_I32(b, tx_present(&c->in[1]), c->attrs.choice.groups, c->attrs.choice.kept, c->attrs.choice.best);
}

tx_status tx_cl_top_k_grad(tx_cl_builder *b, const tx_command *c)
{
    by_items(b, c, "top_k_grad", &c->out[0].shape, &c->in[0].shape);
    return b->status;
}

/* Counts first, because the first slot of an expert depends on the counts of all earlier experts. */
tx_status tx_cl_route(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *choices = &c->in[0].shape;
    const int32_t n = (int32_t)choices->dim[0], k = (int32_t)choices->dim[1], experts = (int32_t)c->attrs.rows;
    const tx_cl_form form = tx_cl_form_of(b, c, tx_shape_count(choices), true, "");
    const int32_t with_ids = tx_present(&c->in[1]);
    int32_t shift;
    const int32_t mantissa = (int32_t)tx_factor_mantissa(c->attrs.scale, &shift);
    tx_cl_launch_rows(b, &form, SOURCE, "route_count", experts);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->out[3]);
    TX_CL_I32(b, n, k, with_ids);
    tx_cl_launch_rows(b, &form, SOURCE, "route", experts);
    tx_cl_arg_all(b, c);
    return TX_CL_I32(b, n, k, with_ids, experts, mantissa, shift);
}

tx_status tx_cl_combine(tx_cl_builder *b, const tx_command *c)
{
    const int64_t columns = tx_shape_last(&c->out[0].shape);
    const tx_cl_form form = tx_cl_form_of(b, c, columns, false, "%s", tx_cl_type(&c->in[0]));
    tx_cl_launch_columns(b, &form, SOURCE, "combine", columns, c->out[0].shape.dim[0]);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->in[2], &c->out[0]);
    TX_CL_I64(b, columns);
    return TX_CL_I32(b, (int32_t)c->in[1].shape.dim[1]);
}

tx_status tx_cl_combine_grad(tx_cl_builder *b, const tx_command *c)
{
    const int64_t columns = tx_shape_last(&c->in[1].shape);
    tx_cl_by_rows(b, c, SOURCE, "combine_grad", tx_cl_type(&c->in[1]), columns, c->in[1].shape.dim[0]);
    return TX_CL_I32(b, (int32_t)c->in[2].shape.dim[1]);
}

/* ---- Grouped matrix products ----------------------------------------------------------------- */

static tx_status grouped(tx_cl_builder *b, const tx_command *c, tx_cl_product *p)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    p->op = c->op;
    p->from = c->in[0].dtype;
    p->to = c->out[0].dtype;
    p->packed = tx_dtype_packed(c->in[1].dtype) ? c->in[1].dtype : TX_F32;
    p->accumulate = c->attrs.accumulate;
    p->a = &c->in[0];
    p->b = &c->in[1];
    p->y = &c->out[0];
    p->offsets = &c->in[2];
    p->bias = p->z = p->kept = &none;
    return tx_cl_gemm(b, p, c);
}

/* m is the number of rows of all groups, and the batch the number of groups. */
tx_status tx_cl_grouped_matmul(tx_cl_builder *b, const tx_command *c)
{
    const int64_t k = tx_shape_last(&c->in[0].shape), n = tx_shape_last(&c->out[0].shape);
    tx_cl_product p = {.g = {.batch = c->in[1].shape.dim[0], .m = c->in[0].shape.dim[0], .n = n, .k = k},
                       .trans_b = c->attrs.trans_b};
    p.g.lda = k;
    p.g.ldb = p.trans_b ? k : n;
    p.g.ldc = n;
    p.g.stride_b = k * n;
    return grouped(b, c, &p);
}

/* k is the number of terms of all groups. */
tx_status tx_cl_grouped_matmul_grad(tx_cl_builder *b, const tx_command *c)
{
    const int64_t m = tx_shape_last(&c->in[0].shape), n = tx_shape_last(&c->in[1].shape);
    tx_cl_product p = {.g = {.batch = c->out[0].shape.dim[0], .m = m, .n = n, .k = c->in[0].shape.dim[0]},
                       .trans_a = true};
    p.g.lda = m;
    p.g.ldb = p.g.ldc = n;
    p.g.stride_c = m * n;
    return grouped(b, c, &p);
}
