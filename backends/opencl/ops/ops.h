/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers that the ops_*.c files share. They choose the vector width, run length and work-group size of a kernel;
 * see VW, RUN and WG in common.cl.
 */
#ifndef TX_OPENCL_OPS_H
#define TX_OPENCL_OPS_H

#include "backends/opencl/runtime/cl.h"

typedef struct tx_cl_form {
    int vector;   /* VW */
    int run;      /* RUN */
    size_t group; /* WG; also the maximum work-group size of kernels along columns */
    char options[128];
} tx_cl_form;

/* Chooses the form of a kernel for rows of `columns` elements of the command's operands. With `reduces` a
 * work-group computes a row. Otherwise RUN is above 1 if a work-item should compute several vectors.
 * `more` is a printf format with further build options; pass "" for none. */
tx_cl_form tx_cl_form_of(const tx_cl_builder *b, const tx_command *c, int64_t columns, bool reduces, const char *more,
                         ...);

/* Launches a kernel over `rows` rows of `columns` elements; see TX_ROW and TX_COLUMN in common.cl. */
void tx_cl_launch_columns(tx_cl_builder *b, const tx_cl_form *form, const char *source, const char *kernel,
                          int64_t columns, int64_t rows);
/* Launches a kernel with a work-group for each row (or block). */
void tx_cl_launch_rows(tx_cl_builder *b, const tx_cl_form *form, const char *source, const char *kernel, int64_t rows);

/* Defines the function of op `name` as emit(b, c, ...). */
#define TX_CL_OP(name, emit, ...)                                 \
    tx_status tx_cl_##name(tx_cl_builder *b, const tx_command *c) \
    {                                                             \
        return emit(b, c, __VA_ARGS__);                           \
    }

/* Passes all operands of a command as arguments: inputs, then outputs. */
void tx_cl_arg_all(tx_cl_builder *b, const tx_command *c);
/* Begins kernel(in.., out.., columns, ...), built with `options`, over `rows` rows of `columns` elements. In
 * by_columns a work-item computes vectors of a row; in by_rows a work-group computes a row. */
tx_status tx_cl_by_columns(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel,
                           const char *options, int64_t columns, int64_t rows);
tx_status tx_cl_by_rows(tx_cl_builder *b, const tx_command *c, const char *source, const char *kernel,
                        const char *options, int64_t columns, int64_t rows);
/* Emits b->after, a sum of the last command's result over rows. Operand i of `sums`, fp32 [blocks, columns], has the
 * sums of the next columns over blocks of rows. If one is absent, the result is read again. */
tx_status tx_cl_sum_after(tx_cl_builder *b, const tx_operand *sums, int count);
/* Passes the storage types of two operands (typed.cl): int from, int to. 32-bit words of any type count as fp32. */
tx_status tx_cl_arg_types(tx_cl_builder *b, const tx_operand *from, const tx_operand *to);
/* Passes the arguments for attrs.accumulate: int accumulate, __global const uint *control. */
tx_status tx_cl_arg_accumulate(tx_cl_builder *b, const tx_command *c);
/* Passes the arguments of a draw for x [sample, .., columns]: long rows of a sample, float number, int site, int
 * first row, int gap, __global const uint *control. */
tx_status tx_cl_arg_draw(tx_cl_builder *b, const tx_command *c, int64_t sample_rows, float number);
/* Passes the arguments of a rotary embedding after x, y and the columns, without rates. */
tx_status tx_cl_rotary_arguments(tx_cl_builder *b, const tx_command *c);
/* Passes attrs.place, attrs.placed and attrs.alpha: 8 longs and a float. */
tx_status tx_cl_arg_places(tx_cl_builder *b, const tx_attrs *attrs);
/* Returns the build option for the storage type of operands of type H (ops.def), given one of them. */
const char *tx_cl_type(const tx_operand *o);

#endif
