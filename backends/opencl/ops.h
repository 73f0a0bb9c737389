/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ops_*.c files share: how a kernel is fitted to the device and the operands (kernels/common.cl says
 * what the macros mean). */
#ifndef TX_OPENCL_OPS_H
#define TX_OPENCL_OPS_H

#include "backends/opencl/cl.h"

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

/* Launches a kernel over `rows` rows of `columns` elements: TX_ROW and TX_COLUMN of kernels/common.cl. */
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
/* The option that says what a kernel's operands of type H (ops.def) hold: that of one of them. */
const char *tx_cl_type(const tx_operand *o);

/* The last pass of sums over rows (kernels/reduce.cl): column sums of `blocks` rows, `stride` apart, of `work`,
 * beginning `skip` elements in, to y [columns]; kind, alpha and control as in REDUCE. */
typedef struct tx_cl_columns {
    const tx_operand *work, *y;
    int64_t skip, stride, blocks, columns;
    tx_reduction kind;
    float alpha;
    int32_t control;
    tx_accumulate accumulate;
} tx_cl_columns;
void tx_cl_sum_columns(tx_cl_builder *b, const tx_cl_columns *columns);

#endif
