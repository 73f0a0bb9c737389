/* SPDX-License-Identifier: Apache-2.0
 * Parameter updates and the decision on the gradient's norm. */
#include "backends/opencl/ops.h"

#include "api/graph/op.h"

#include <math.h>

/* Begins kernel(in..., n): outputs lie on the inputs. */
static void update(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    const int64_t n = tx_operand_count(&c->in[0]);
    const int32_t inputs = tx_op_info_of(c->op)->inputs;
    const tx_dtype copy = c->in[inputs - 1].dtype;
    tx_cl_form form = tx_cl_form_of(b, c, n, false, "-DPARAM_BLOCK=%d%s", TX_PARAM_BLOCK,
                                    copy == TX_BF16  ? " -DCOPY=bf16"
                                    : copy == TX_F16 ? " -DCOPY=f16"
                                                     : "");
    tx_cl_launch_columns(b, &form, "optimizer", kernel, n, 1);
    for (int i = 0; i < inputs; i++)
        TX_CL_OPERANDS(b, &c->in[i]);
    TX_CL_I64(b, n);
}

/* What all kernels end with. */
static tx_status finish_arguments(tx_cl_builder *b)
{
    tx_cl_arg_control(b);
    tx_cl_arg_result(b);
    return b->status;
}

tx_status tx_cl_sgd(tx_cl_builder *b, const tx_command *c)
{
    update(b, c, "sgd");
    TX_CL_F32(b, c->attrs.momentum, c->attrs.weight_decay);
    TX_CL_I32(b, tx_present(&c->in[3]));
    return finish_arguments(b);
}

tx_status tx_cl_adamw(tx_cl_builder *b, const tx_command *c)
{
    const float beta1 = c->attrs.beta1, beta2 = c->attrs.beta2;
    update(b, c, "adamw");
    TX_CL_F32(b, beta1, beta2, (float)log((double)beta1), (float)log((double)beta2), c->attrs.eps,
              c->attrs.weight_decay);
    return finish_arguments(b);
}

tx_status tx_cl_lion(tx_cl_builder *b, const tx_command *c)
{
    update(b, c, "lion");
    TX_CL_F32(b, c->attrs.beta1, c->attrs.beta2, c->attrs.weight_decay);
    return finish_arguments(b);
}

tx_status tx_cl_clip_norm(tx_cl_builder *b, const tx_command *c)
{
    (void)c;
    const size_t one = 1;
    tx_cl_launch(b, "optimizer", "", "clip_norm", 1, &one, &one);
    return finish_arguments(b);
}
