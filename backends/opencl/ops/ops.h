/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ops_*.c files share: how a kernel is fitted to the device and the operands (common.cl says
 * what the macros mean). */
#ifndef TX_OPENCL_OPS_H
#define TX_OPENCL_OPS_H

#include "backends/opencl/runtime/cl.h"

typedef struct tx_cl_form {
    int vector;   /* VW */
    int run;      /* RUN */
    size_t group; /* WG; also the work-group size of kernels along columns */
    char options[128];
} tx_cl_form;

/* Fits a kernel to rows of `columns` elements of the command's operands. `reduces`: one work-group a row; else RUN is
 * more than 1 where a work-item should do more than a vector. `more`: further options, as printf takes them; "": none.
 */
tx_cl_form tx_cl_form_of(const tx_cl_builder *b, const tx_command *c, int64_t columns, bool reduces, const char *more,
                         ...);

/* Launches a kernel over `rows` rows of `columns` elements: TX_ROW and TX_COLUMN of common.cl. */
void tx_cl_launch_columns(tx_cl_builder *b, const tx_cl_form *form, const char *source, const char *kernel,
                          int64_t columns, int64_t rows);
/* Launches a kernel that does a row (or block) a work-group. */
void tx_cl_launch_rows(tx_cl_builder *b, const tx_cl_form *form, const char *source, const char *kernel, int64_t rows);

/* Defines the function of op `name` as emit(b, c, ...). */
#define TX_CL_OP(name, emit, ...)                                 \
    tx_status tx_cl_##name(tx_cl_builder *b, const tx_command *c) \
    {                                                             \
        return emit(b, c, __VA_ARGS__);                           \
    }

/* All operands of a command as arguments: inputs, then outputs. */
void tx_cl_arg_all(tx_cl_builder *b, const tx_command *c);
/* Begins kernel(in.., out.., columns, ...), built with `options`, over `rows` rows of `columns` elements: a
 * work-item does vectors of a row, or (by_rows) a work-group a row. */
tx_status tx_cl_by_columns(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel,
                           const char *options, int64_t columns, int64_t rows);
tx_status tx_cl_by_rows(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel,
                        const char *options, int64_t columns, int64_t rows);
/* The arguments of what attrs.accumulate says: int accumulate, __global const uint *control. */
tx_status tx_cl_arg_accumulate(tx_cl_builder *b, const tx_command *c);
/* Those of a draw for x [sample, .., columns]: long rows of a sample, float number, int site, int first row, int gap,
 * __global const uint *control. */
tx_status tx_cl_arg_draw(tx_cl_builder *b, const tx_command *c, int64_t sample_rows, float number);
/* The option that says what a kernel's operands of type H (ops.def) hold: that of one of them. */
const char *tx_cl_type(const tx_operand *o);

#endif
