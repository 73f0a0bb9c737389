/* SPDX-License-Identifier: Apache-2.0
 * Parameter updates and the decision on the gradient's norm. */
#include "backends/opencl/ops.h"

#include <math.h>
#include <stdio.h>

/* Begins kernel(in..., n): outputs lie on the inputs. */
static void update(tx_cl_builder *b, const tx_command *c, const char *kernel, int inputs)
{
    int64_t n = tx_operand_count(&c->in[0]);
    tx_cl_form form = tx_cl_form_of(b, c, n, false);
    char options[128];
    snprintf(options, sizeof options, "%s -DPARAM_BLOCK=%d", form.options, TX_PARAM_BLOCK);
    tx_cl_launch_columns(b, &form, "optimizer", options, kernel, n, 1);
    for (int i = 0; i < inputs; i++)
        tx_cl_arg_operand(b, &c->in[i]);
    tx_cl_arg_i64(b, n);
}

tx_status tx_cl_sgd(tx_cl_builder *b, const tx_command *c)
{
    update(b, c, "sgd", 4);
    tx_cl_arg_f32(b, c->attrs.momentum);
    tx_cl_arg_f32(b, c->attrs.weight_decay);
    tx_cl_arg_i32(b, tx_present(&c->in[3]));
    tx_cl_arg_control(b);
    tx_cl_arg_result(b);
    return b->status;
}

tx_status tx_cl_adamw(tx_cl_builder *b, const tx_command *c)
{
    update(b, c, "adamw", 5);
    tx_cl_arg_f32(b, c->attrs.beta1);
    tx_cl_arg_f32(b, c->attrs.beta2);
    tx_cl_arg_f32(b, (float)log((double)c->attrs.beta1));
    tx_cl_arg_f32(b, (float)log((double)c->attrs.beta2));
    tx_cl_arg_f32(b, c->attrs.eps);
    tx_cl_arg_f32(b, c->attrs.weight_decay);
    tx_cl_arg_control(b);
    tx_cl_arg_result(b);
    return b->status;
}

tx_status tx_cl_lion(tx_cl_builder *b, const tx_command *c)
{
    update(b, c, "lion", 4);
    tx_cl_arg_f32(b, c->attrs.beta1);
    tx_cl_arg_f32(b, c->attrs.beta2);
    tx_cl_arg_f32(b, c->attrs.weight_decay);
    tx_cl_arg_control(b);
    tx_cl_arg_result(b);
    return b->status;
}

tx_status tx_cl_clip_norm(tx_cl_builder *b, const tx_command *c)
{
    (void)c;
    const size_t one = 1;
    tx_cl_launch(b, "optimizer", "", "clip_norm", 1, &one, &one);
    tx_cl_arg_control(b);
    tx_cl_arg_result(b);
    return b->status;
}
