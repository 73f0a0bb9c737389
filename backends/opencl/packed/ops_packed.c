/* SPDX-License-Identifier: Apache-2.0
 * Launches of merged weights, and of fake quantization: one for each part of the rows. */
#include "api/base/blocks.h"
#include "backends/opencl/ops/ops.h"
#include "backends/opencl/runtime/internal.h"

#include <stdio.h>

/* The encoders need C's results of divisions and roots, and numbers below the normal ones. */
static tx_status check_device(const tx_context *context)
{
    const int64_t needed = CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT | CL_FP_DENORM;
    return (tx_cl_number(context->device, CL_DEVICE_SINGLE_FP_CONFIG, 0) & needed) == needed
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "this device does not divide as IEEE 754 requires, so its blocks would differ "
                                         "from those of the file: train on another device or on the CPU");
}

/* The build options for a type of blocks. */
static void write_options(int32_t type, const tx_operand *y, char *text, size_t size)
{
    static const char *const form = "-DVW=1 %s -cl-fp32-correctly-rounded-divide-sqrt%s";
    static const struct {
        int32_t number;
        const char *options;
    } types[] = {
#define X(name, number, values, bytes, lower) {number, " -DPLAIN=" #lower},
        TX_BLOCK_PLAIN_MAP(X)
#undef X
#define X(name, number, values, bytes, lower) \
    {number, " -DBLOCK=" #lower " -DBLOCK_VALUES=" #values " -DBLOCK_BYTES=" #bytes},
            TX_BLOCK_MAP(X) TX_BLOCK_FILE_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].number == type)
            snprintf(text, size, form, tx_cl_type(y), types[i].options);
}

tx_status tx_cl_fake_quantize(tx_cl_builder *b, const tx_command *c)
{
    const tx_rounding *r = &c->attrs.rounding;
    const tx_shape *x = &c->in[0].shape;
    const int64_t width = x->dim[x->rank - (r->columns ? 2 : 1)], groups = tx_ceil_div(width, TX_BLOCK_MAX),
                  lines = tx_shape_count(x) / width;
    TX_TRY(check_device(b->context));
    for (int32_t i = 0; i < r->parts; i++) {
        const int64_t first = i ? r->part[i - 1].end : 0, end = i + 1 < r->parts ? r->part[i].end : lines;
        const size_t local = tx_cl_group(b, 64), count = (size_t)((end - first) * groups);
        char options[192] = "";
        write_options(r->part[i].type, &c->out[0], options, sizeof options);
        tx_cl_launch(b, "fake_quantize", options, "fake_quantize", 1, &count, &local);
        TX_CL_OPERANDS(b, &c->in[0], &c->out[0]);
        TX_CL_I64(b, first, (int64_t)count, width, groups, r->columns ? tx_shape_last(x) : 1);
        tx_cl_arg_control(b);
    }
    return b->status;
}

tx_status tx_cl_add_low_rank(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *w = &c->in[0].shape;
    const size_t local = tx_cl_group(b, 64), count = (size_t)tx_shape_count(w);
    int64_t parts = 0;
    for (int i = 0; i < TX_PLACES; i++)
        parts += c->attrs.placed[i] > 0;
    tx_cl_launch(b, "add_low_rank", "", "add_low_rank", 1, &count, &local);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, (int64_t)count, w->dim[w->rank - 2], tx_shape_last(w));
    TX_CL_I32(b, c->attrs.trans_a);
    TX_CL_I64(b, parts, tx_shape_last(&c->in[2].shape));
    return tx_cl_arg_places(b, &c->attrs);
}
