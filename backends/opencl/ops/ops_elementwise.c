/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the element-wise ops, and the choice of kernel forms for a device.
 */
#include "backends/opencl/ops/ops.h"

#include "api/base/number.h"
#include "api/graph/op.h"
#include "backends/rope.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Kernel forms --------------------------------------------------------------------------------------- */

/* Returns true if vectors of 16 bytes are aligned in an operand, in every row of `columns` elements. Its only row may
 * have any length, as vectors that cross the end are loaded by elements. */
static bool aligned_in(const tx_operand *x, int64_t columns)
{
    const int64_t count = tx_present(x) ? tx_operand_count(x) : 0;
    return count < 4 || (x->offset % 16 == 0 && (columns % 4 == 0 || count <= columns));
}

/* The same for all operands. Kernels that reduce rows may keep them in registers as whole vectors. */
static bool aligned(const tx_command *c, int64_t columns, bool reduces)
{
    const tx_op_info *info = tx_op_info_of(c->op);
    bool good = !reduces || columns % 4 == 0;
    for (int i = 0; i < info->inputs; i++)
        good = good && aligned_in(&c->in[i], columns);
    for (int i = 0; i < info->outputs; i++)
        good = good && aligned_in(&c->out[i], columns);
    return good;
}

tx_cl_form tx_cl_form_of(const tx_cl_builder *b, const tx_command *c, int64_t columns, bool reduces, const char *more,
                         ...)
{
    tx_cl_form form = {.vector = 16, .run = 1, .group = 1};
    if (!b->limits->cpu) {
        form.vector = aligned(c, columns, reduces) ? 4 : 1;
        const size_t most = form.group = tx_cl_group(b, 256);
        if (reduces && most > 32) { /* the fewest lanes that need the fewest rounds: 192, not 256, for 768 columns */
            const int64_t vectors = tx_cl_blocks(columns, form.vector), rounds = tx_cl_blocks(vectors, (int64_t)most);
            form.group = (size_t)tx_round_up(tx_cl_blocks(vectors, rounds), 32);
        }
    } else if (!reduces) {
        form.run = 64; /* 1024 elements: a launch on two cores costs less than their work */
    }
    int used = snprintf(form.options, sizeof form.options, "-DWG=%zu -DVW=%d -DRUN=%d%s", form.group, form.vector,
                        form.run, *more ? " " : "");
    if (c->attrs.update.rate != 0.0f && used < (int)sizeof form.options) {
        tx_format(form.options + used, sizeof form.options - (size_t)used, "%s-DRATE=%#.9gf%s", *more ? "" : " ",
                  (double)c->attrs.update.rate, *more ? " " : "");
        used = (int)strlen(form.options);
    }
    va_list list;
    va_start(list, more);
    tx_format_list(form.options + used, sizeof form.options - (size_t)used, more, list);
    va_end(list);
    used = (int)strlen(form.options);
    if (form.options[used - 1] == ' ') /* so that equal options are one program */
        form.options[used - 1] = '\0';
    return form;
}

const char *tx_cl_type(const tx_operand *o)
{
    return o->dtype == TX_BF16 ? "-DH=bf16" : o->dtype == TX_F16 ? "-DH=f16" : "";
}

void tx_cl_launch_columns(tx_cl_builder *b, const tx_cl_form *form, const char *source, const char *kernel,
                          int64_t columns, int64_t rows)
{
    int64_t items = tx_cl_blocks(columns, (int64_t)form->vector * form->run);
    size_t group = form->group;
    while (group > 1 && (int64_t)group / 2 >= items)
        group /= 2;
    const int columns_in = rows > TX_CL_MOST_GROUPS ? 1 : 0;
    size_t global[2] = {(size_t)rows, (size_t)rows}, local[2] = {1, 1};
    char options[sizeof form->options + 16];
    global[columns_in] = (size_t)items;
    local[columns_in] = group;
    snprintf(options, sizeof options, columns_in ? "%s -DROW_DIM=0" : "%s", form->options);
    tx_cl_launch(b, source, options, kernel, 2, global, local);
}

void tx_cl_launch_rows(tx_cl_builder *b, const tx_cl_form *form, const char *source, const char *kernel, int64_t rows)
{
    const size_t global[] = {(size_t)rows * form->group}, local[] = {form->group};
    tx_cl_launch(b, source, form->options, kernel, 1, global, local);
}

void tx_cl_arg_all(tx_cl_builder *b, const tx_command *c)
{
    const tx_op_info *info = tx_op_info_of(c->op);
    for (int i = 0; i < info->inputs; i++)
        TX_CL_OPERANDS(b, &c->in[i]);
    for (int i = 0; i < info->outputs; i++)
        TX_CL_OPERANDS(b, &c->out[i]);
}

tx_status tx_cl_by_columns(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel,
                           const char *options, int64_t columns, int64_t rows)
{
    const tx_cl_form form = tx_cl_form_of(b, c, columns, false, "%s", options);
    tx_cl_launch_columns(b, &form, source, kernel, columns, rows);
    tx_cl_arg_all(b, c);
    return TX_CL_I64(b, columns);
}

tx_status tx_cl_by_rows(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel,
                        const char *options, int64_t columns, int64_t rows)
{
    const tx_cl_form form = tx_cl_form_of(b, c, columns, true, "%s", options);
    tx_cl_launch_rows(b, &form, source, kernel, rows);
    tx_cl_arg_all(b, c);
    return TX_CL_I64(b, columns);
}

static int32_t type_index(const tx_operand *o)
{
    return o->dtype == TX_BF16 ? 1 : o->dtype == TX_F16 ? 2 : 0;
}

tx_status tx_cl_arg_types(tx_cl_builder *b, const tx_operand *from, const tx_operand *to)
{
    return TX_CL_I32(b, type_index(from), type_index(to));
}

tx_status tx_cl_arg_accumulate(tx_cl_builder *b, const tx_command *c)
{
    TX_CL_I32(b, (int32_t)c->attrs.accumulate);
    return tx_cl_arg_control(b);
}

tx_status tx_cl_arg_draw(tx_cl_builder *b, const tx_command *c, int64_t sample_rows, float number)
{
    TX_CL_I64(b, sample_rows);
    TX_CL_F32(b, number);
    TX_CL_I32(b, c->attrs.draw.site, (int32_t)c->attrs.draw.row, (int32_t)c->attrs.gap);
    return tx_cl_arg_control(b);
}

/* ---- The ops ------------------------------------------------------------------------------------------------ */

static tx_status by_rows(tx_cl_builder *b, const tx_command *c, const char *kernel, int64_t columns, int64_t rows)
{
    return tx_cl_by_columns(b, c, "elementwise", kernel, tx_cl_type(&c->in[0]), columns, rows);
}

/* Treats all elements as one row. */
static tx_status elementwise(tx_cl_builder *b, const tx_command *c, const char *kernel)
{
    return by_rows(b, c, kernel, tx_operand_count(&c->out[0]), 1);
}

#define TX_MAP(NAME, name, ...) TX_CL_OP(name, elementwise, "map_" #name)
#include "api/ops.def"

TX_CL_OP(gelu, elementwise, c->attrs.exact ? "map_gelu_exact" : "map_gelu_tanh")
TX_CL_OP(gelu_grad, elementwise, c->attrs.exact ? "map_gelu_grad_exact" : "map_gelu_grad_tanh")

tx_status tx_cl_scale(tx_cl_builder *b, const tx_command *c)
{
    elementwise(b, c, "scale");
    TX_CL_F32(b, c->attrs.alpha);
    TX_CL_I32(b, c->attrs.control);
    return tx_cl_arg_control(b);
}

/* `half` has the shape of the gates. */
static tx_status gated(tx_cl_builder *b, const tx_command *c, const tx_shape *half, bool slopes)
{
    const char *names[] = {"swiglu", "swiglu_grad", "geglu", "geglu_grad", "swiglu_clamped", "swiglu_clamped_grad"};
    const bool clamped = c->attrs.gate == TX_GATE_CLAMPED;
    const int first = 2 * (int)c->attrs.gate;
    char options[128];
    snprintf(options, sizeof options, "%s", tx_cl_type(&c->in[0]));
    if (clamped)
        tx_format(options, sizeof options, "%s -DLIMIT=%af -DALPHA=%af", tx_cl_type(&c->in[0]), (double)c->attrs.scale,
                  (double)c->attrs.alpha);
    return tx_cl_by_columns(b, c, "elementwise", names[first + slopes], options, tx_shape_last(half),
                            tx_shape_rows(half));
}

tx_status tx_cl_swiglu(tx_cl_builder *b, const tx_command *c)
{
    return gated(b, c, &c->out[0].shape, false);
}

tx_status tx_cl_swiglu_grad(tx_cl_builder *b, const tx_command *c)
{
    return gated(b, c, &c->in[0].shape, true);
}

/* Launches a kernel that draws random numbers; `typed` if it takes the types of x and y. */
static tx_status drawn(tx_cl_builder *b, const tx_command *c, const char *kernel, bool typed, float number)
{
    const tx_shape *x = &c->in[0].shape;
    int64_t rows = tx_shape_rows(x);
    tx_cl_by_columns(b, c, "elementwise", kernel, "", tx_shape_last(x), rows);
    if (typed)
        tx_cl_arg_types(b, &c->in[0], &c->out[0]);
    return tx_cl_arg_draw(b, c, x->rank > 1 ? rows / x->dim[0] : rows, number);
}

TX_CL_OP(dropout, drawn, "dropout", true, c->attrs.draw.p)
TX_CL_OP(noise, drawn, "noise", false, c->attrs.scale)

tx_status tx_cl_rotary_arguments(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[0].shape;
    const int32_t half = tx_rope_rotated(&c->attrs) / 2;
    float frequency[TX_MAX_ROTARY / 2] = {0};
    for (int32_t i = 0; i < half; i++)
        frequency[i] = tx_rope_frequency(&c->attrs, i);
    TX_CL_I32(b, (int32_t)x->dim[x->rank - 2], c->attrs.attention.heads, c->attrs.attention.head_size, half);
    tx_cl_arg_values(b, "rope_table", sizeof frequency, 1, frequency);
    TX_CL_F32(b, c->attrs.rope->magnitude);
    TX_CL_I32(b, c->attrs.inverse, tx_present(&c->in[1]) ? c->in[1].shape.rank : 0);
    return TX_CL_OPERANDS(b, &c->in[1]);
}

tx_status tx_cl_rotary(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[0].shape;
    const int32_t half = tx_rope_rotated(&c->attrs) / 2;
    tx_cl_form form = {.vector = 1, .run = b->limits->cpu ? half : 1, .group = tx_cl_group(b, 32)};
    snprintf(form.options, sizeof form.options, "-DVW=1 -DRUN=%d%s %s", form.run,
             tx_present(&c->in[2]) ? " -DRATES" : "", tx_cl_type(&c->in[0]));
    tx_cl_launch_columns(b, &form, "elementwise", "rotary", half, tx_shape_rows(x));
    TX_CL_OPERANDS(b, &c->in[0], &c->out[0]);
    TX_CL_I64(b, tx_shape_last(x));
    tx_cl_rotary_arguments(b, c);
    return tx_present(&c->in[2]) ? TX_CL_OPERANDS(b, &c->in[2]) : b->status;
}
