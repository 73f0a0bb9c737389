/* SPDX-License-Identifier: Apache-2.0
 * Movement: embedding, gather, scatter, caches, broadcasts, casts, copies. */
#include "backends/opencl/ops.h"

#include <inttypes.h>
#include <stdio.h>

/* Begins a kernel of kernels/movement.cl with dimension 0 along columns and dimension 1 along rows. */
static void move(tx_cl_builder *b, const tx_command *c, const char *kernel, tx_dtype in, tx_dtype out, int64_t columns,
                 int64_t rows)
{
    tx_cl_form form = tx_cl_form_of(b, c, columns, false);
    char options[128];
    snprintf(options, sizeof options, "%s -DIN=%s -DOUT=%s", form.options, tx_cl_storage(in), tx_cl_storage(out));
    tx_cl_launch_columns(b, &form, "movement", options, kernel, columns, rows);
}

tx_status tx_cl_embedding(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *tokens = &c->in[0].shape;
    int64_t columns = tx_shape_last(&c->in[1].shape);
    move(b, c, "embedding", c->in[1].dtype, c->out[0].dtype, columns, tx_operand_count(&c->in[0]));
    for (int i = 0; i < 4; i++)
        tx_cl_arg_operand(b, &c->in[i]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, columns);
    tx_cl_arg_i64(b, tx_shape_last(tokens));
    tx_cl_arg_i64(b, tx_present(&c->in[2]) ? c->in[2].shape.dim[0] : 0);
    tx_cl_arg_i32(b, tx_present(&c->in[2]) && tx_present(&c->in[3]));
    return b->status;
}

tx_status tx_cl_position_grad(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *dy = &c->in[0].shape;
    int64_t columns = tx_shape_last(dy), T = dy->dim[dy->rank - 2];
    move(b, c, "position_grad", TX_F32, TX_F32, columns, tx_shape_rows(&c->out[0].shape));
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, columns);
    tx_cl_arg_i64(b, tx_shape_rows(dy) / T);
    tx_cl_arg_i64(b, T);
    tx_cl_arg_i32(b, (int32_t)c->attrs.accumulate);
    tx_cl_arg_control(b);
    return b->status;
}

tx_status tx_cl_gather(tx_cl_builder *b, const tx_command *c)
{
    int64_t columns = tx_shape_last(&c->in[0].shape);
    move(b, c, "gather", c->in[0].dtype, c->out[0].dtype, columns, tx_operand_count(&c->in[1]));
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->in[1]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, columns);
    return b->status;
}

#define PIECE 64 /* sources that are added up at a time */

/* Begins a kernel over places of the sorted sources. */
static void move_sources(tx_cl_builder *b, const tx_command *c, const char *kernel, int64_t columns, int64_t count)
{
    tx_cl_form form = tx_cl_form_of(b, c, columns, false);
    char options[128];
    snprintf(options, sizeof options, "%s -DPIECE=%d", form.options, PIECE);
    tx_cl_launch_columns(b, &form, "movement", options, kernel, columns, count);
    tx_cl_arg_operand(b, &c->in[0]);
}

/* Four launches: zero, sort the sources by row, add up pieces of rows, add those up. */
tx_status tx_cl_scatter_add(tx_cl_builder *b, const tx_command *c)
{
    const int64_t count = tx_operand_count(&c->in[0]), columns = tx_shape_last(&c->in[1].shape);
    const int64_t n = tx_operand_count(&c->out[0]), parts = 2 * tx_cl_blocks(count, PIECE);
    if (count > INT32_MAX / 3)
        return tx_fail(TX_UNSUPPORTED, "scatter_add: %" PRId64 " sources", count);
    tx_operand sorted = {.dtype = TX_I32, .shape = TX_SHAPE(count, 3), .arena = TX_ARENA_SCRATCH};
    tx_operand sums = {.dtype = TX_F32, .shape = TX_SHAPE(parts, columns), .arena = TX_ARENA_SCRATCH};
    sorted.offset = tx_cl_scratch(b, tx_operand_bytes(&sorted));
    sums.offset = tx_cl_scratch(b, tx_operand_bytes(&sums));
    move(b, c, "scatter_begin", TX_F32, TX_F32, n, 1);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, n);
    tx_cl_arg_i32(b, (int32_t)c->attrs.accumulate);
    tx_cl_arg_control(b);

    const size_t global = (size_t)count, local = tx_cl_group(b->context, 64);
    tx_cl_launch(b, "movement", "", "scatter_sort", 1, &global, &local);
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &sorted);
    tx_cl_arg_i64(b, count);
    tx_cl_arg_i32(b, (int32_t)c->attrs.rows);

    move_sources(b, c, "scatter_pieces", columns, count);
    tx_cl_arg_operand(b, &c->in[1]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_operand(b, &sorted);
    tx_cl_arg_operand(b, &sums);
    tx_cl_arg_i64(b, columns);

    move_sources(b, c, "scatter_join", columns, count);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_operand(b, &sorted);
    tx_cl_arg_operand(b, &sums);
    tx_cl_arg_i64(b, columns);
    return b->status;
}

tx_status tx_cl_kv_append(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *qkv = &c->in[0].shape, *cache = &c->in[1].shape;
    int64_t columns = tx_shape_last(cache), last = tx_shape_last(qkv);
    move(b, c, "kv_append", TX_F32, TX_F32, columns, tx_shape_rows(qkv));
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_operand(b, &c->out[1]);
    tx_cl_arg_operand(b, &c->in[3]);
    tx_cl_arg_i64(b, columns);
    tx_cl_arg_i64(b, last - 2 * columns);
    tx_cl_arg_i64(b, last);
    tx_cl_arg_i64(b, qkv->dim[qkv->rank - 2]);
    tx_cl_arg_i64(b, cache->dim[cache->rank - 2]);
    return b->status;
}

tx_status tx_cl_kv_reorder(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *cache = &c->in[0].shape;
    int64_t columns = tx_shape_last(cache);
    tx_cl_form form = tx_cl_form_of(b, c, columns, false);
    char options[128];
    snprintf(options, sizeof options, "%s -DBATCH=%lld", form.options, (long long)cache->dim[0]);
    tx_cl_launch_columns(b, &form, "movement", options, "kv_reorder", columns, cache->dim[1]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_operand(b, &c->out[1]);
    tx_cl_arg_operand(b, &c->in[2]);
    tx_cl_arg_operand(b, &c->in[3]);
    tx_cl_arg_i64(b, columns);
    tx_cl_arg_i64(b, cache->dim[1]);
    return b->status;
}

tx_status tx_cl_broadcast(tx_cl_builder *b, const tx_command *c)
{
    int64_t columns = tx_shape_last(&c->out[0].shape), rows = tx_shape_rows(&c->out[0].shape);
    if (c->attrs.axis == TX_AXIS_ALL) {
        columns *= rows;
        rows = 1;
    }
    move(b, c, "broadcast", TX_F32, TX_F32, columns, rows);
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, columns);
    tx_cl_arg_i32(b, c->attrs.axis == TX_AXIS_ROWS ? 2 : c->attrs.axis == TX_AXIS_LAST ? 1 : 0);
    tx_cl_arg_f32(b, c->attrs.alpha);
    tx_cl_arg_i32(b, c->attrs.control);
    tx_cl_arg_control(b);
    return b->status;
}

tx_status tx_cl_cast(tx_cl_builder *b, const tx_command *c)
{
    int64_t n = tx_operand_count(&c->out[0]);
    move(b, c, "cast", c->in[0].dtype, c->out[0].dtype, n, 1);
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, n);
    return b->status;
}

/* An operand seen as an array of another type of the same total size. */
static tx_operand seen_as(const tx_operand *o, tx_dtype dtype)
{
    tx_operand other = *o;
    other.dtype = dtype;
    other.shape = TX_SHAPE(tx_operand_bytes(o) / (int64_t)tx_dtype_size(dtype));
    return other;
}

tx_status tx_cl_copy(tx_cl_builder *b, const tx_command *c)
{
    bool words = tx_operand_bytes(&c->in[0]) % 4 == 0 && c->in[0].offset % 4 == 0 && c->out[0].offset % 4 == 0;
    tx_operand x = seen_as(&c->in[0], words ? TX_F32 : TX_U8), y = seen_as(&c->out[0], words ? TX_F32 : TX_U8);
    int64_t n = tx_operand_count(&x);
    move(b, c, words ? "copy" : "copy_bytes", TX_F32, TX_F32, n, 1);
    tx_cl_arg_operand(b, &x);
    tx_cl_arg_operand(b, &y);
    tx_cl_arg_i64(b, n);
    if (words) {
        tx_cl_arg_i32(b, (int32_t)c->attrs.accumulate);
        tx_cl_arg_control(b);
    }
    return b->status;
}

tx_status tx_cl_fill(tx_cl_builder *b, const tx_command *c)
{
    int64_t n = tx_operand_count(&c->out[0]);
    move(b, c, "fill", TX_F32, TX_F32, n, 1);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_i64(b, n);
    tx_cl_arg_f32(b, c->attrs.alpha);
    return b->status;
}
