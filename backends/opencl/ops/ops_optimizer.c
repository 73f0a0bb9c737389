/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the optimizer updates and of the evaluation of the gradient norm.
 */
#include "backends/opencl/ops/update.h"

#include "api/graph/op.h"

#include <math.h>

tx_status tx_cl_arg_update(tx_cl_builder *b, const tx_command *c)
{
    for (int i = 0; i < tx_op_info_of(c->op)->inputs; i++)
        TX_CL_OPERANDS(b, &c->in[i]);
    return TX_CL_I64(b, tx_operand_count(&c->in[0]));
}

void tx_cl_update(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel)
{
    const int64_t n = tx_operand_count(&c->in[0]);
    const tx_dtype copy = c->in[tx_op_info_of(c->op)->inputs - 1].dtype;
    tx_cl_form form = tx_cl_form_of(b, c, n, false, "-DPARAM_BLOCK=%d%s", TX_PARAM_BLOCK,
                                    copy == TX_BF16  ? " -DCOPY=bf16"
                                    : copy == TX_F16 ? " -DCOPY=f16"
                                                     : "");
    tx_cl_launch_columns(b, &form, source, kernel, n, 1);
    tx_cl_arg_update(b, c);
}

tx_status tx_cl_arg_update_end(tx_cl_builder *b)
{
    tx_cl_arg_control(b);
    return tx_cl_arg_result(b);
}

tx_status tx_cl_sgd(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "optimizer", "sgd");
    TX_CL_F32(b, c->attrs.update.momentum, c->attrs.update.weight_decay);
    TX_CL_I32(b, tx_present(&c->in[3]), c->attrs.update.nesterov);
    return tx_cl_arg_update_end(b);
}

void tx_cl_arg_adam(tx_cl_builder *b, const tx_attrs *a)
{
    TX_CL_F32(b, a->update.beta1, a->update.beta2, (float)log((double)a->update.beta1),
              (float)log((double)a->update.beta2), a->eps, a->update.weight_decay);
}

tx_status tx_cl_adamw(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_update(b, c, "optimizer", "adamw");
    tx_cl_arg_adam(b, &c->attrs);
    return tx_cl_arg_update_end(b);
}

tx_status tx_cl_mask_gradient(tx_cl_builder *b, const tx_command *c)
{
    const int64_t n = tx_operand_count(&c->in[0]);
    tx_cl_form form =
        tx_cl_form_of(b, c, n, false, "-DPARAM_BLOCK=%d -DP=%s", TX_PARAM_BLOCK, tx_cl_storage(c->in[0].dtype));
    tx_cl_launch_columns(b, &form, "optimizer", "mask_gradient", n, 1);
    return tx_cl_arg_update(b, c);
}

tx_status tx_cl_clip_norm(tx_cl_builder *b, const tx_command *c)
{
    (void)c;
    const size_t one = 1;
    tx_cl_launch(b, "optimizer", "", "clip_norm", 1, &one, &one);
    return tx_cl_arg_update_end(b);
}
