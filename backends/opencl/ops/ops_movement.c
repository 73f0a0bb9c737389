/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the data movement ops: embedding, gather, scatter, broadcasts, casts, copies.
 */
#include "backends/opencl/ops/ops.h"

#include "api/base/half.h"

#include <inttypes.h>
#include <string.h>

/* Begins a kernel of movement.cl. Dimension 0 is columns, dimension 1 rows. */
static void move(tx_cl_builder *b, const tx_command *c, const char *kernel, tx_dtype in, tx_dtype out, int64_t columns,
                 int64_t rows)
{
    tx_cl_form form = tx_cl_form_of(b, c, columns, false, "-DIN=%s -DOUT=%s", tx_cl_storage(in), tx_cl_storage(out));
    tx_cl_launch_columns(b, &form, "movement", kernel, columns, rows);
}

/* Like move, with arguments in.., out.., columns. `in` is the type of the source. */
static tx_status move_all(tx_cl_builder *b, const tx_command *c, const char *kernel, tx_dtype in, int64_t columns,
                          int64_t rows)
{
    move(b, c, kernel, in, c->out[0].dtype, columns, rows);
    tx_cl_arg_all(b, c);
    return TX_CL_I64(b, columns);
}

tx_status tx_cl_embedding(tx_cl_builder *b, const tx_command *c)
{
    int64_t columns = tx_shape_last(&c->in[1].shape);
    move_all(b, c, "embedding", c->in[1].dtype, columns, tx_operand_count(&c->in[0]));
    TX_CL_I64(b, tx_shape_last(&c->in[0].shape), tx_present(&c->in[2]) ? c->in[2].shape.dim[0] : 0);
    return TX_CL_I32(b, tx_present(&c->in[2]) && tx_present(&c->in[3]) ? c->in[3].shape.rank : 0);
}

tx_status tx_cl_token_positions(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *tokens = &c->in[0].shape;
    const size_t rows = (size_t)tokens->dim[0];
    tx_cl_launch(b, "movement", "", "token_positions", 1, &rows, NULL);
    tx_cl_arg_all(b, c);
    return TX_CL_I32(b, (int32_t)tokens->dim[0], (int32_t)tokens->dim[1], (int32_t)c->attrs.first);
}

tx_status tx_cl_position_grad(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *dy = &c->in[0].shape;
    int64_t columns = tx_shape_last(dy), T = dy->dim[dy->rank - 2];
    move_all(b, c, "position_grad", c->in[0].dtype, columns, tx_shape_rows(&c->out[0].shape));
    TX_CL_I64(b, tx_shape_rows(dy) / T, T);
    return tx_cl_arg_accumulate(b, c);
}

tx_status tx_cl_gather(tx_cl_builder *b, const tx_command *c)
{
    return move_all(b, c, "gather", c->in[0].dtype, tx_shape_last(&c->in[0].shape), tx_operand_count(&c->in[1]));
}

tx_status tx_cl_transpose(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *y = &c->out[0].shape;
    move_all(b, c, "transpose", c->in[0].dtype, tx_shape_last(y), tx_shape_rows(y));
    return TX_CL_I32(b, (int32_t)y->dim[y->rank - 2], (int32_t)y->dim[y->rank - 3]);
}

tx_status tx_cl_shift_rows(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[0].shape;
    move_all(b, c, "shift_rows", c->in[0].dtype, tx_shape_last(&c->out[0].shape), tx_shape_rows(x));
    return TX_CL_I64(b, tx_shape_last(x), x->dim[x->rank - 2], c->attrs.first, (int64_t)c->attrs.step);
}

/* Kernel(in.., out.., columns, heads, N, R, V, step): the sizes of MLA_QKV. */
static tx_status latent(tx_cl_builder *b, const tx_command *c, const char *kernel, int64_t columns, int64_t plain,
                        int64_t rotated, int64_t value)
{
    move_all(b, c, kernel, c->in[0].dtype, columns, tx_shape_rows(&c->in[0].shape));
    TX_CL_I64(b, c->attrs.attention.heads, plain, rotated, value);
    return TX_CL_I32(b, c->attrs.step);
}

tx_status tx_cl_mla_qkv(tx_cl_builder *b, const tx_command *c)
{
    const int64_t heads = c->attrs.attention.heads, rotated = tx_shape_last(&c->in[2].shape),
                  plain = tx_shape_last(&c->in[0].shape) / heads - rotated;
    return latent(b, c, "mla_qkv", tx_shape_last(&c->out[0].shape), plain, rotated,
                  tx_shape_last(&c->in[1].shape) / heads - plain);
}

tx_status tx_cl_mla_qkv_grad(tx_cl_builder *b, const tx_command *c)
{
    const int64_t rotated = tx_shape_last(&c->out[2].shape),
                  columns = tx_shape_last(&c->out[0].shape) + tx_shape_last(&c->out[1].shape) + rotated;
    return latent(b, c, "mla_qkv_grad", columns, c->attrs.rows, rotated, c->attrs.vocab);
}

tx_status tx_cl_arg_places(tx_cl_builder *b, const tx_attrs *attrs)
{
    for (int i = 0; i < TX_PLACES; i++)
        TX_CL_I64(b, (int64_t)attrs->place[i]);
    for (int i = 0; i < TX_PLACES; i++)
        TX_CL_I64(b, (int64_t)attrs->placed[i]);
    return TX_CL_F32(b, attrs->alpha);
}

tx_status tx_cl_place_rows(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *y = &c->out[0].shape;
    move_all(b, c, "place_rows", TX_F32, tx_shape_last(y), tx_shape_rows(y));
    TX_CL_I64(b, tx_shape_last(&c->in[0].shape), (int64_t)c->attrs.step);
    return tx_cl_arg_places(b, &c->attrs);
}

tx_status tx_cl_place_rows_grad(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *dy = &c->in[0].shape;
    move_all(b, c, "place_rows_grad", TX_F32, tx_shape_last(&c->out[0].shape), tx_shape_rows(dy));
    TX_CL_I64(b, tx_shape_last(dy), (int64_t)c->attrs.step);
    tx_cl_arg_places(b, &c->attrs);
    return tx_cl_arg_accumulate(b, c);
}

enum {
    PIECE = 64,       /* sources that are summed at a time */
    SORT_BLOCK = 256, /* sources that are sorted by counting */
    SORT_ITEMS = 64,  /* sources of a work-item on a CPU, in the kernels that sort */
    MERGE_ITEMS = 8   /* sources of a work-item on a GPU that merges */
};

/* scatter_add's launches, whose kernels are one program. */
typedef struct scatter {
    tx_cl_form form; /* of rows of `columns` */
    int64_t columns;
    int sort_run, merge_run;
} scatter;

static scatter scatter_of(const tx_cl_builder *b, const tx_command *c)
{
    const int64_t columns = tx_shape_last(&c->in[1].shape);
    scatter s = {.columns = columns,
                 .sort_run = b->limits->cpu ? SORT_ITEMS : 1,
                 .merge_run = b->limits->cpu ? SORT_ITEMS : MERGE_ITEMS};
    s.form = tx_cl_form_of(b, c, columns, false, "-DIN=%s -DPIECE=%d -DSORT=%d -DSORT_RUN=%d -DMERGE_RUN=%d",
                           tx_cl_storage(c->in[1].dtype), PIECE, SORT_BLOCK, s.sort_run, s.merge_run);
    return s;
}

/* Begins a kernel over the places of the sorted sources. */
static void sum_sources(tx_cl_builder *b, const tx_command *c, const scatter *s, const char *kernel)
{
    tx_cl_launch_columns(b, &s->form, "scatter", kernel, s->columns, tx_operand_count(&c->in[0]));
    TX_CL_OPERANDS(b, &c->in[0]);
}

/* Begins a kernel over sources, with `run` of them for each work-item. */
static void sort_sources(tx_cl_builder *b, const tx_command *c, const scatter *s, const char *kernel, int run)
{
    const size_t local = tx_cl_group(b, 64), global = (size_t)tx_cl_blocks(tx_operand_count(&c->in[0]), run);
    tx_cl_launch(b, "scatter", s->form.options, kernel, 1, &global, &local);
    TX_CL_OPERANDS(b, &c->in[0]);
}

/* Sorts the sources by row as scatter.cl describes: first blocks, then runs that double in length. */
static tx_operand sort(tx_cl_builder *b, const tx_command *c, const scatter *s)
{
    const int32_t count = (int32_t)tx_operand_count(&c->in[0]);
    const tx_operand order[2] = {tx_cl_scratch(b, TX_I32, TX_SHAPE(count)), tx_cl_scratch(b, TX_I32, TX_SHAPE(count))},
                     sorted = tx_cl_scratch(b, TX_I32, TX_SHAPE(count, 3));
    int now = 0;
    sort_sources(b, c, s, "scatter_sort", s->sort_run);
    TX_CL_OPERANDS(b, &order[now]);
    TX_CL_I32(b, count);
    for (int64_t run = SORT_BLOCK; run < count; run *= 2) {
        sort_sources(b, c, s, "scatter_merge", s->merge_run);
        TX_CL_OPERANDS(b, &order[now], &order[1 - now]);
        TX_CL_I32(b, count, (int32_t)run);
        now = 1 - now;
    }
    sort_sources(b, c, s, "scatter_rows", s->sort_run);
    TX_CL_OPERANDS(b, &order[now], &sorted);
    TX_CL_I32(b, count, (int32_t)c->attrs.rows, (int32_t)c->attrs.padding - 1);
    return sorted;
}

/* Zeroes the output, sorts the sources by row, sums pieces of rows, then adds the sums of pieces. */
tx_status tx_cl_scatter_add(tx_cl_builder *b, const tx_command *c)
{
    const int64_t count = tx_operand_count(&c->in[0]), parts = 2 * tx_cl_blocks(count, PIECE);
    const int64_t n = tx_operand_count(&c->out[0]);
    const scatter s = scatter_of(b, c);
    if (count > INT32_MAX / 3)
        return tx_fail(TX_UNSUPPORTED, "scatter_add: %" PRId64 " sources are too many", count);
    const tx_operand sums = tx_cl_scratch(b, TX_F32, TX_SHAPE(parts, s.columns));
    tx_cl_launch_columns(b, &s.form, "scatter", "scatter_begin", n, 1);
    TX_CL_OPERANDS(b, &c->out[0]);
    TX_CL_I64(b, n);
    tx_cl_arg_accumulate(b, c);

    const tx_operand sorted = sort(b, c, &s);
    sum_sources(b, c, &s, "scatter_pieces");
    TX_CL_OPERANDS(b, &c->in[1], &c->out[0], &sorted, &sums);
    TX_CL_I64(b, s.columns);

    sum_sources(b, c, &s, "scatter_join");
    TX_CL_OPERANDS(b, &c->out[0], &sorted, &sums);
    return TX_CL_I64(b, s.columns);
}

tx_status tx_cl_broadcast(tx_cl_builder *b, const tx_command *c)
{
    int64_t columns = tx_shape_last(&c->out[0].shape), rows = tx_shape_rows(&c->out[0].shape);
    if (c->attrs.axis == TX_AXIS_ALL) {
        columns *= rows;
        rows = 1;
    }
    move_all(b, c, "broadcast", TX_F32, columns, rows);
    TX_CL_I32(b, c->attrs.axis == TX_AXIS_ROWS ? 2 : c->attrs.axis == TX_AXIS_LAST ? 1 : 0);
    TX_CL_F32(b, c->attrs.alpha);
    TX_CL_I32(b, c->attrs.control);
    return tx_cl_arg_control(b);
}

tx_status tx_cl_cast(tx_cl_builder *b, const tx_command *c)
{
    tx_cl_by_columns(b, c, "movement", "cast", "", tx_operand_count(&c->out[0]), 1);
    tx_cl_arg_types(b, &c->in[0], &c->out[0]);
    return tx_cl_arg_accumulate(b, c);
}

/* Returns the operand viewed as an array of another type with the same total size. */
static tx_operand viewed_as(const tx_operand *o, tx_dtype dtype)
{
    tx_operand other = *o;
    other.dtype = dtype;
    other.shape = TX_SHAPE(tx_operand_bytes(o) / (int64_t)tx_dtype_size(dtype));
    return other;
}

tx_status tx_cl_copy(tx_cl_builder *b, const tx_command *c)
{
    if (c->attrs.accumulate != TX_STORE && c->out[0].dtype != TX_F32)
        return tx_cl_cast(b, c);
    const bool words = tx_operand_bytes(&c->in[0]) % 4 == 0 && c->in[0].offset % 4 == 0 && c->out[0].offset % 4 == 0;
    const tx_operand x = viewed_as(&c->in[0], words ? TX_F32 : TX_U8),
                     y = viewed_as(&c->out[0], words ? TX_F32 : TX_U8);
    const int64_t n = tx_operand_count(&x);
    const tx_cl_form form = tx_cl_form_of(b, c, n, false, "");
    tx_cl_launch_columns(b, &form, "movement", words ? "cast" : "copy_bytes", n, 1);
    TX_CL_OPERANDS(b, &x, &y);
    TX_CL_I64(b, n);
    if (!words)
        return b->status;
    tx_cl_arg_types(b, &x, &y);
    return tx_cl_arg_accumulate(b, c);
}

tx_status tx_cl_fill(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand *y = &c->out[0];
    const int64_t unit = (int64_t)tx_dtype_size(y->dtype), bytes = tx_operand_count(y) * unit;
    const size_t local = tx_cl_group(b, 256), global = tx_cl_fill_items(bytes);
    uint32_t word;
    memcpy(&word, &c->attrs.alpha, sizeof word);
    if (y->dtype != TX_F32)
        word = 0x10001u * (y->dtype == TX_BF16 ? tx_f32_to_bf16(c->attrs.alpha) : tx_f32_to_f16(c->attrs.alpha));
    tx_cl_launch(b, "fill", "", "fill", 1, &global, &local);
    TX_CL_OPERANDS(b, y);
    TX_CL_I64(b, bytes);
    return TX_CL_I32(b, (int32_t)word, (int32_t)unit);
}

tx_status tx_cl_range(tx_cl_builder *b, const tx_command *c)
{
    int64_t n = tx_operand_count(&c->out[0]);
    move(b, c, "range", TX_F32, TX_F32, n, 1);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, n, tx_range_period(&c->attrs, n));
    return TX_CL_I32(b, (int32_t)c->attrs.first, c->attrs.step, (int32_t)c->attrs.gap);
}
