/* SPDX-License-Identifier: Apache-2.0
 * Kernels that move numbers: tables and their gradients, caches, broadcasts, casts, copies. */
#include "backends/cpu/simd.h"

/* ---- Tables ------------------------------------------------------------------------------------------ */

/* One row: table row `token` plus position row `position` (where there is a position table). */
static void embed_row(const tx_cpu_call *call, int64_t token, int64_t position, int64_t row, int64_t width)
{
    const tx_operand *y = &call->command->out[0];
    const tx_dtype type = call->command->in[1].dtype;
    float sum[TX_PIECE], other[TX_PIECE];
    for (int64_t start = 0; start < width; start += TX_PIECE) {
        const int64_t count = width - start < TX_PIECE ? width - start : TX_PIECE;
        if (token < 0)
            memset(sum, 0, (size_t)count * sizeof *sum);
        else
            tx_widen(sum, call->in[1], type, token * width + start, count);
        if (call->in[2]) {
            tx_widen(other, call->in[2], type, position * width + start, count);
            TX_SIMD for (int64_t i = 0; i < count; i++) sum[i] += other[i];
        }
        tx_narrow(call->out[0], sum, y->dtype, row * width + start, count);
    }
}

static void embedding_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *shape = &call->command->out[0].shape;
    const int64_t width = tx_shape_last(shape), length = tx_shape_last(&call->command->in[0].shape);
    const int64_t places = call->in[2] ? call->command->in[2].shape.dim[0] : length;
    const int32_t *tokens = call->in[0];
    (void)thread;
    for (int64_t row = first; row < last; row++)
        embed_row(call, tokens[row], tx_cpu_place(call, 3, row / length, row % length, length, places), row, width);
}

void TX_CPU_NAME(embedding)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), embedding_rows);
}

static void token_positions_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t length = tx_shape_last(&call->command->in[0].shape);
    const int32_t padding = (int32_t)call->command->attrs.first, *tokens = call->in[0];
    int32_t *y = call->out[0];
    (void)thread;
    for (int64_t b = first; b < last; b++) {
        int32_t position = padding;
        for (int64_t i = b * length; i < (b + 1) * length; i++)
            y[i] = tokens[i] == padding ? padding : ++position;
    }
}

void TX_CPU_NAME(token_positions)(const tx_cpu_call *call)
{
    const tx_shape *tokens = &call->command->in[0].shape;
    tx_cpu_slices(call, tokens->dim[0], tx_cpu_rows_grain(tokens->dim[1]), token_positions_rows);
}

static void part_indices_range(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_attrs *a = &call->command->attrs;
    const int32_t *index = call->in[0];
    int32_t *y = call->out[0];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        const int64_t row = index[i] - a->first;
        const bool there = index[i] >= 0 && index[i] < a->vocab;
        y[i] = !there ? index[i] : row >= 0 && row < a->rows ? (int32_t)row : -1;
    }
}

void TX_CPU_NAME(part_indices)(const tx_cpu_call *call)
{
    tx_cpu_slices(call, tx_operand_count(&call->command->in[0]), tx_cpu_rows_grain(1), part_indices_range);
}

static void position_grad_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t batch = shape->dim[0], length = shape->dim[1], width = shape->dim[2];
    const float beta = tx_beta(call->command->attrs.accumulate, call->controls);
    (void)thread;
    for (int64_t t = first; t < last; t++) {
        float *y = (float *)call->out[0] + t * width;
        const float *dy = (const float *)call->in[0] + t * width;
        if (t < length)
            tx_cpu_fold_blocks(dy, batch, length * width, 0, width, 1.0f, beta, y);
        else if (beta == 0.0f)
            memset(y, 0, (size_t)width * sizeof *y);
    }
}

void TX_CPU_NAME(position_grad)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), position_grad_rows);
}

static void gather_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    const size_t bytes = (size_t)width * tx_dtype_size(call->command->out[0].dtype);
    const int32_t *indices = call->in[1];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        char *y = (char *)call->out[0] + (size_t)row * bytes;
        if (indices[row] < 0)
            memset(y, 0, bytes);
        else
            memcpy(y, (const char *)call->in[0] + (size_t)indices[row] * bytes, bytes);
    }
}

void TX_CPU_NAME(gather)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), gather_rows);
}

static void zero_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    (void)thread;
    const size_t size = tx_dtype_size(call->command->out[0].dtype);
    memset((char *)call->out[0] + (size_t)first * size, 0, (size_t)(last - first) * size);
}

/* Columns first..last-1 of all rows, sources in ascending order. */
static void scatter_columns(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t count = tx_operand_count(&call->command->in[0]);
    const int64_t width = tx_shape_last(&call->command->out[0].shape), rows = call->command->out[0].shape.dim[0];
    const int64_t padding = call->command->attrs.padding - 1;
    const int32_t *indices = call->in[0];
    (void)thread;
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] < 0 || indices[i] >= rows || indices[i] == padding)
            continue;
        const float *x = (const float *)call->in[1] + i * width;
        float *y = (float *)call->out[0] + indices[i] * width;
        TX_SIMD for (int64_t c = first; c < last; c++) y[c] += x[c];
    }
}

void TX_CPU_NAME(scatter_add)(const tx_cpu_call *call)
{
    const int64_t count = tx_operand_count(&call->command->in[0]);
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    if (tx_beta(call->command->attrs.accumulate, call->controls) == 0.0f)
        tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, zero_slice);
    tx_cpu_slices(call, width, tx_cpu_columns_grain(count), scatter_columns);
}

/* ---- Caches ------------------------------------------------------------------------------------------ */

/* Items are positions of the call. */
static void kv_append_positions(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *qkv = &call->command->in[0].shape, *cache = &call->command->out[0].shape;
    const int64_t batch = qkv->dim[0], length = qkv->dim[1], width = qkv->dim[2];
    const int64_t capacity = cache->dim[1], keys = cache->dim[2];
    const int64_t unit = (int64_t)tx_dtype_size(call->command->in[0].dtype);
    (void)thread;
    for (int64_t b = 0; b < batch; b++) {
        const int64_t start = tx_cpu_position(call, 3, b, capacity - length);
        for (int64_t t = first; t < last; t++) {
            const char *k = (const char *)call->in[0] + ((b * length + t) * width + width - 2 * keys) * unit;
            const int64_t to = (b * capacity + start + t) * keys * unit;
            memcpy((char *)call->out[0] + to, k, (size_t)(keys * unit));
            memcpy((char *)call->out[1] + to, k + keys * unit, (size_t)(keys * unit));
        }
    }
}

void TX_CPU_NAME(kv_append)(const tx_cpu_call *call)
{
    const tx_shape *qkv = &call->command->in[0].shape, *cache = &call->command->out[0].shape;
    tx_cpu_slices(call, qkv->dim[1], tx_cpu_rows_grain(qkv->dim[0] * cache->dim[2]), kv_append_positions);
}

/* Copies of the rows at one place of all samples, so that they can be given out in another order. */
static void reorder_place(const tx_cpu_call *call, char *cache, int64_t place, char *copies)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t width = shape->dim[2] * (int64_t)tx_dtype_size(call->command->in[0].dtype);
    const int64_t batch = shape->dim[0], step = shape->dim[1] * width;
    const int32_t *sources = call->in[2];
    char *row = cache + place * width;
    bool moved = false;
    for (int64_t b = 0; b < batch; b++)
        moved = moved || (sources[b] != b && place < tx_cpu_position(call, 3, b, shape->dim[1]));
    for (int64_t b = 0; moved && b < batch; b++)
        memcpy(copies + b * width, row + b * step, (size_t)width);
    for (int64_t b = 0; moved && b < batch; b++)
        if (sources[b] >= 0 && sources[b] < batch && place < tx_cpu_position(call, 3, b, shape->dim[1]))
            memcpy(row + b * step, copies + sources[b] * width, (size_t)width);
}

static void kv_reorder_places(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_shape *cache = &call->command->in[0].shape;
    char *copies = (char *)call->scratch + thread * cache->dim[0] * cache->dim[2] * (int64_t)sizeof(float);
    for (int64_t place = first; place < last; place++)
        for (int i = 0; i < 2; i++)
            reorder_place(call, call->out[i], place, copies);
}

void TX_CPU_NAME(kv_reorder)(const tx_cpu_call *call)
{
    const tx_shape *cache = &call->command->in[0].shape;
    tx_cpu_slices(call, cache->dim[1], tx_cpu_rows_grain(2 * cache->dim[0] * cache->dim[2]), kv_reorder_places);
}

/* ---- Broadcast, cast, copy, fill, range ----------------------------------------------------------------------- */

static void broadcast_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    const tx_axis axis = call->command->attrs.axis;
    const float *x = call->in[0], factor = tx_cpu_factor(call);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        float *y = (float *)call->out[0] + row * width;
        if (axis == TX_AXIS_ROWS) {
            TX_SIMD for (int64_t i = 0; i < width; i++) y[i] = x[i] * factor;
        } else {
            const float value = (axis == TX_AXIS_LAST ? x[row] : x[0]) * factor;
            TX_SIMD for (int64_t i = 0; i < width; i++) y[i] = value;
        }
    }
}

void TX_CPU_NAME(broadcast)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), broadcast_rows);
}

static void cast_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_dtype from = call->command->in[0].dtype, to = call->command->out[0].dtype;
    const bool adds = tx_beta(call->command->attrs.accumulate, call->controls) != 0.0f;
    float piece[TX_PIECE], room[TX_PIECE];
    (void)thread;
    for (int64_t start = first; start < last; start += TX_PIECE) {
        const int64_t count = last - start < TX_PIECE ? last - start : TX_PIECE;
        tx_widen(piece, call->in[0], from, start, count);
        if (adds) {
            const float *old = tx_run_of(call->out[0], to, start, count, room);
            TX_SIMD for (int64_t i = 0; i < count; i++) piece[i] += old[i];
        }
        tx_narrow(call->out[0], piece, to, start, count);
    }
}

void TX_CPU_NAME(cast)(const tx_cpu_call *call)
{
    tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, cast_slice);
}

/* `count` columns of a row: those of x from element `from` on become those of y from `to` on. */
static void move_columns(const tx_cpu_call *call, int in, int64_t from, int64_t to, int64_t count, bool adds)
{
    const tx_dtype of_x = call->command->in[in].dtype, of_y = call->command->out[0].dtype;
    float piece[TX_PIECE], room[TX_PIECE];
    for (int64_t start = 0; start < count; start += TX_PIECE) {
        const int64_t some = count - start < TX_PIECE ? count - start : TX_PIECE;
        tx_widen(piece, call->in[in], of_x, from + start, some);
        if (adds) {
            const float *old = tx_run_of(call->out[0], of_y, to + start, some, room);
            TX_SIMD for (int64_t i = 0; i < some; i++) piece[i] += old[i];
        }
        tx_narrow(call->out[0], piece, of_y, to + start, some);
    }
}

static void take_columns_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t width = tx_shape_last(&call->command->in[0].shape);
    const bool adds = tx_beta(attrs->accumulate, call->controls) != 0.0f;
    (void)thread;
    for (int64_t row = first; row < last; row++)
        move_columns(call, 0, row * width + attrs->first, row * attrs->rows, attrs->rows, adds);
}

void TX_CPU_NAME(take_columns)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), take_columns_rows);
}

static void join_columns_rows(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const int64_t of_a = tx_shape_last(&call->command->in[0].shape), of_b = tx_shape_last(&call->command->in[1].shape);
    const int64_t taken = call->command->attrs.rows, width = taken + of_b;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        move_columns(call, 0, row * of_a, row * width, taken, false);
        move_columns(call, 1, row * of_b, row * width + taken, of_b, false);
    }
}

void TX_CPU_NAME(join_columns)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, tx_shape_rows(y), tx_cpu_rows_grain(tx_shape_last(y)), join_columns_rows);
}

static void copy_bytes(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    (void)thread;
    memcpy((char *)call->out[0] + first, (const char *)call->in[0] + first, (size_t)(last - first));
}

void TX_CPU_NAME(copy)(const tx_cpu_call *call)
{
    const tx_operand *y = &call->command->out[0];
    if (tx_beta(call->command->attrs.accumulate, call->controls) != 0.0f)
        tx_cpu_slices(call, tx_operand_count(y), TX_CPU_GRAIN, cast_slice);
    else
        tx_cpu_slices(call, tx_operand_bytes(y), TX_CPU_GRAIN * 4, copy_bytes);
}

static void fill_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const float value = call->command->attrs.alpha;
    const tx_dtype dtype = call->command->out[0].dtype;
    float piece[TX_PIECE];
    (void)thread;
    for (int64_t start = first, count; start < last; start += count) {
        count = tx_run_length(dtype, last - start);
        float *y = tx_run_to(call->out[0], dtype, start, piece);
        TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = value;
        tx_run_put(call->out[0], piece, dtype, start, count);
    }
}

void TX_CPU_NAME(fill)(const tx_cpu_call *call)
{
    const bool zero = tx_bits_of(call->command->attrs.alpha) == 0; /* memset does not read what it overwrites */
    tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, zero ? zero_slice : fill_slice);
}

static void range_slice(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t period = tx_range_period(attrs, tx_operand_count(&call->command->out[0]));
    int32_t *y = call->out[0];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        const int64_t place = i % period;
        y[i] = (int32_t)(attrs->first + place * attrs->step + (place < period / 2 ? 0 : attrs->gap));
    }
}

void TX_CPU_NAME(range)(const tx_cpu_call *call)
{
    tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, range_slice);
}
