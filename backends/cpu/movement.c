/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that move data: embedding tables and their gradients, broadcasts, casts, copies.
 */
#include "backends/cpu/move.h"

#include "api/base/blocks.h"

/* ---- Tables ------------------------------------------------------------------------------------------ */

/* Elements first .. first + count - 1 of a row of the table. */
static void load_table(const tx_cpu_call *call, tx_dtype type, int64_t row, int64_t first, int64_t count, float *to)
{
    const tx_shape *shape = &call->command->in[1].shape;
    if (tx_block_values(type) == 0) {
        tx_widen(to, call->in[1], type, row * shape->dim[1] + first, count);
        return;
    }
    const tx_block_matrix b = tx_block_matrix_of(call->in[1], type, shape->dim[0], shape->dim[1]);
    const uint8_t *from = tx_block_row(&b, row, &type, NULL);
    tx_block_read(type, from + tx_block_run(type, first), count, to);
}

/* Row `tokens[row]` of the table, plus a row of the position table if there is one. */
TX_ROWS(embedding, out[0])
{
    const int64_t length = tx_shape_last(&call->command->in[0].shape), token = ((const int32_t *)call->in[0])[row];
    const int64_t places = call->in[2] ? call->command->in[2].shape.dim[0] : length;
    const int64_t position = tx_cpu_place(call, 3, row / length, row % length, length, places);
    const tx_dtype type = call->command->in[1].dtype;
    float sum[TX_PIECE], other[TX_PIECE];
    for (int64_t start = 0; start < width; start += TX_PIECE) {
        const int64_t count = tx_min(width - start, TX_PIECE);
        if (token < 0)
            memset(sum, 0, (size_t)count * sizeof *sum);
        else
            load_table(call, type, token, start, count, sum);
        if (call->in[2]) {
            tx_widen(other, call->in[2], call->command->in[2].dtype, position * width + start, count);
            TX_SIMD for (int64_t i = 0; i < count; i++) sum[i] += other[i];
        }
        tx_narrow(call->out[0], sum, call->command->out[0].dtype, row * width + start, count);
    }
}

TX_ROWS(token_positions, out[0])
{
    const int32_t padding = (int32_t)call->command->attrs.first, *tokens = call->in[0];
    int32_t *y = call->out[0], position = padding;
    for (int64_t i = row * width; i < (row + 1) * width; i++)
        y[i] = tokens[i] == padding ? padding : ++position;
}

TX_ROWS(position_grad, out[0])
{
    const tx_operand *dy = &call->command->in[0];
    const int64_t batch = row < dy->shape.dim[1] ? dy->shape.dim[0] : 0;
    const bool adds = tx_cpu_adds(call);
    float *y = (float *)call->out[0] + row * width, wide[TX_PIECE];
    for (int64_t at = 0, count; at < width; at += count) {
        count = tx_min(width - at, TX_PIECE);
        float sum[TX_PIECE] = {0};
        for (int64_t b = 0; b < batch; b++) {
            const int64_t first = (b * dy->shape.dim[1] + row) * width + at;
            const float *x = tx_run_of(call->in[0], dy->dtype, first, count, wide);
            TX_SIMD for (int64_t i = 0; i < count; i++) sum[i] += x[i];
        }
        for (int64_t i = 0; i < count; i++)
            y[at + i] = adds ? y[at + i] + sum[i] : sum[i];
    }
}

TX_ROWS(transpose, out[0])
{
    const tx_shape *y = &call->command->out[0].shape;
    const int64_t a = y->dim[y->rank - 2], b = y->dim[y->rank - 3], first = row / (a * b) * (a * b), at = row - first;
    const size_t bytes = (size_t)width * tx_dtype_size(call->command->out[0].dtype);
    const int64_t from = first + at % a * b + at / a;
    memcpy((char *)call->out[0] + (size_t)row * bytes, (const char *)call->in[0] + (size_t)from * bytes, bytes);
}

TX_ROWS(shift_rows, out[0])
{
    const tx_shape *x = &call->command->in[0].shape;
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t columns = tx_shape_last(x), size = (int64_t)tx_dtype_size(call->command->out[0].dtype);
    const int64_t offset = attrs->first + row % x->dim[x->rank - 2] * attrs->step;
    const int64_t begin = tx_min(offset < 0 ? -offset : 0, width), rest = columns - offset;
    const int64_t end = tx_min(rest > begin ? rest : begin, width);
    char *y = (char *)call->out[0] + row * width * size;
    memset(y, 0, (size_t)(begin * size));
    if (begin < end)
        memcpy(y + begin * size, (const char *)call->in[0] + (row * columns + begin + offset) * size,
               (size_t)((end - begin) * size));
    memset(y + end * size, 0, (size_t)((width - end) * size));
}

/* ---- Operands of latent attention ---------------------------------------------------------------------- */

/* The elements of a head that rotate, in MLA_QKV. */
typedef struct rotated {
    int64_t count;
    bool pairs;
    size_t bytes; /* of an element */
} rotated;

/* The place of element i of them. */
static int64_t place_of(const rotated *r, int64_t i)
{
    return r->pairs ? i % 2 * (r->count / 2) + i / 2 : i;
}

/* Copies them to their places, or back. */
static void copy_rotated(const rotated *r, char *to, const char *from, bool back)
{
    for (int64_t i = 0; i < r->count; i++) {
        const int64_t place = place_of(r, i);
        memcpy(to + (size_t)(back ? i : place) * r->bytes, from + (size_t)(back ? place : i) * r->bytes, r->bytes);
    }
}

TX_ROWS(mla_qkv, out[0])
{
    const tx_operand *in = call->command->in;
    const int64_t heads = call->command->attrs.attention.heads, size = width / 3 / heads,
                  per_kv = tx_shape_last(&in[1].shape) / heads;
    const rotated r = {tx_shape_last(&in[2].shape), call->command->attrs.step == 2, tx_dtype_size(in[0].dtype)};
    const char *q = (const char *)call->in[0] + (size_t)(row * heads * size) * r.bytes,
               *kv = (const char *)call->in[1] + (size_t)(row * heads * per_kv) * r.bytes,
               *rope = (const char *)call->in[2] + (size_t)(row * r.count) * r.bytes;
    const size_t head = (size_t)size * r.bytes, plain = (size_t)(size - r.count) * r.bytes,
                 value = (size_t)per_kv * r.bytes - plain;
    char *y = (char *)call->out[0] + (size_t)(row * width) * r.bytes;
    for (int64_t h = 0; h < heads; h++, q += head, kv += plain + value, y += head) {
        char *k = y + (size_t)heads * head, *v = k + (size_t)heads * head;
        copy_rotated(&r, y, q + plain, false);
        memcpy(y + (head - plain), q, plain);
        copy_rotated(&r, k, rope, false);
        memcpy(k + (head - plain), kv, plain);
        memcpy(v, kv + plain, value);
        memset(v + value, 0, head - value);
    }
}

TX_ROWS(mla_qkv_grad, in[0])
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_dtype type = call->command->in[0].dtype;
    const int64_t heads = attrs->attention.heads, size = width / 3 / heads;
    const rotated r = {size - attrs->rows, attrs->step == 2, tx_dtype_size(type)};
    const size_t head = (size_t)size * r.bytes, plain = (size_t)attrs->rows * r.bytes,
                 value = (size_t)attrs->vocab * r.bytes;
    const char *d = (const char *)call->in[0] + (size_t)(row * width) * r.bytes;
    char *dq = (char *)call->out[0] + (size_t)(row * heads) * head,
         *dkv = (char *)call->out[1] + (size_t)(row * heads) * (plain + value);
    float *drope = (float *)call->out[2] + row * r.count, element;
    memset(drope, 0, (size_t)r.count * sizeof *drope);
    for (int64_t h = 0; h < heads; h++, dq += head, dkv += plain + value, d += head) {
        const char *k = d + (size_t)heads * head, *v = k + (size_t)heads * head;
        memcpy(dq, d + (head - plain), plain);
        copy_rotated(&r, dq + plain, d, true);
        memcpy(dkv, k + (head - plain), plain);
        memcpy(dkv + plain, v, value);
        for (int64_t i = 0; i < r.count; i++) {
            tx_widen(&element, k, type, place_of(&r, i), 1);
            drope[i] += element;
        }
    }
}

/* ---- Rows of tables -------------------------------------------------------------------------------------- */

/* The part that has row `row`, or -1. */
static int part_at(const tx_attrs *attrs, int64_t row)
{
    for (int i = 0; i < TX_PLACES; i++)
        if (row >= attrs->place[i] && row < attrs->place[i] + (int64_t)attrs->placed[i])
            return i;
    return -1;
}

TX_ROWS(place_rows, out[0])
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t columns = call->command->in[0].shape.dim[1];
    const int part = part_at(attrs, row);
    float *y = (float *)call->out[0] + row * width;
    memset(y, 0, (size_t)width * sizeof *y);
    if (part < 0)
        return;
    const float *x = (const float *)call->in[part] + (row - attrs->place[part]) * columns;
    for (int64_t i = 0; i < columns; i++)
        y[part * attrs->step + i] = attrs->alpha * x[i];
}

TX_ROWS(place_rows_grad, in[0])
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t columns = call->command->out[0].shape.dim[1];
    const int part = part_at(attrs, row);
    const bool adds = tx_cpu_adds(call);
    if (part < 0)
        return;
    const float *dy = (const float *)call->in[0] + row * width + part * attrs->step;
    float *x = (float *)call->out[part] + (row - attrs->place[part]) * columns;
    for (int64_t i = 0; i < columns; i++)
        x[i] = (adds ? x[i] : 0.0f) + attrs->alpha * dy[i];
}

TX_ROWS(gather, out[0])
{
    const size_t bytes = (size_t)width * tx_dtype_size(call->command->out[0].dtype);
    const int32_t *indices = call->in[1];
    char *y = (char *)call->out[0] + (size_t)row * bytes;
    if (indices[row] < 0)
        memset(y, 0, bytes);
    else
        memcpy(y, (const char *)call->in[0] + (size_t)indices[row] * bytes, bytes);
}

static void zero_slice(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const size_t size = tx_dtype_size(call->command->out[0].dtype);
    memset((char *)call->out[0] + (size_t)first * size, 0, (size_t)(last - first) * size);
}

/* Adds columns first..last-1 of all rows, sources in ascending order. */
static void scatter_columns(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const int64_t count = tx_operand_count(&call->command->in[0]);
    const int64_t width = tx_shape_last(&call->command->out[0].shape), rows = call->command->out[0].shape.dim[0];
    const int64_t padding = call->command->attrs.padding - 1;
    const tx_dtype type = call->command->in[1].dtype;
    const int32_t *indices = call->in[0];
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] < 0 || indices[i] >= rows || indices[i] == padding)
            continue;
        float *y = (float *)call->out[0] + indices[i] * width, wide[TX_PIECE];
        for (int64_t at = first, n; at < last; at += n) {
            n = tx_run_length(type, last - at);
            const float *x = tx_run_of(call->in[1], type, i * width + at, n, wide);
            TX_SIMD for (int64_t c = 0; c < n; c++) y[at + c] += x[c];
        }
    }
}

void TX_CPU_NAME(scatter_add)(const tx_cpu_call *call)
{
    const int64_t count = tx_operand_count(&call->command->in[0]);
    const int64_t width = tx_shape_last(&call->command->out[0].shape);
    if (!tx_cpu_adds(call))
        tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, zero_slice);
    tx_cpu_slices(call, width, tx_cpu_columns_grain(count), scatter_columns);
}

/* ---- Broadcast, cast, copy, fill, range ----------------------------------------------------------------------- */

TX_ROWS(broadcast, out[0])
{
    const tx_axis axis = call->command->attrs.axis;
    const float *x = call->in[0], factor = tx_cpu_factor(call);
    float *y = (float *)call->out[0] + row * width;
    if (axis == TX_AXIS_ROWS) {
        TX_SIMD for (int64_t i = 0; i < width; i++) y[i] = x[i] * factor;
    } else {
        const float value = (axis == TX_AXIS_LAST ? x[row] : x[0]) * factor;
        TX_SIMD for (int64_t i = 0; i < width; i++) y[i] = value;
    }
}

TX_ELEMENTS(cast)
{
    tx_cpu_move(call, 0, first, first, last - first, tx_cpu_adds(call));
}

static void copy_bytes(const tx_cpu_call *call, int64_t first, int64_t last)
{
    memcpy((char *)call->out[0] + first, (const char *)call->in[0] + first, (size_t)(last - first));
}

void TX_CPU_NAME(copy)(const tx_cpu_call *call)
{
    if (tx_cpu_adds(call))
        TX_CPU_NAME(cast)(call);
    else
        tx_cpu_slices(call, tx_operand_bytes(&call->command->out[0]), TX_CPU_GRAIN * 4, copy_bytes);
}

static void fill_slice(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const float value = call->command->attrs.alpha;
    const tx_dtype dtype = call->command->out[0].dtype;
    float piece[TX_PIECE];
    for (int64_t start = first, count; start < last; start += count) {
        count = tx_run_length(dtype, last - start);
        float *y = tx_run_to(call->out[0], dtype, start, piece);
        TX_SIMD for (int64_t i = 0; i < count; i++) y[i] = value;
        tx_run_put(call->out[0], piece, dtype, start, count);
    }
}

void TX_CPU_NAME(fill)(const tx_cpu_call *call)
{
    const bool zero = tx_bits_of(call->command->attrs.alpha) == 0; /* memset does not read the old values */
    tx_cpu_slices(call, tx_operand_count(&call->command->out[0]), TX_CPU_GRAIN, zero ? zero_slice : fill_slice);
}

TX_ELEMENTS(range)
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t period = tx_range_period(attrs, tx_operand_count(&call->command->out[0]));
    int32_t *y = call->out[0];
    for (int64_t i = first; i < last; i++) {
        const int64_t place = i % period;
        y[i] = (int32_t)(attrs->first + place * attrs->step + (place < period / 2 ? 0 : attrs->gap));
    }
}
