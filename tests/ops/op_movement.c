/* SPDX-License-Identifier: Apache-2.0
 * Table look-ups, caches, casts and copies: references and cases. */
#include "tests/ops/case.h"

#include <math.h>

static const tx_dtype floats[] = {TX_F32, TX_BF16, TX_F16};

/* ---- Embedding and its gradients --------------------------------------------------------------- */

static void embedding_reference(tx_call *call)
{
    const tx_array *tokens = &call->in[0], *table = &call->in[1], *positions = &call->in[2];
    int64_t c = tx_array_last(table), time = tx_shape_last(&tokens->shape);
    int64_t rows = tx_array_present(positions) ? positions->shape.dim[0] : time;
    for (int64_t i = 0; i < call->out[0].count; i++) {
        int64_t place = tx_place_of(&call->in[3], i / c, rows, time);
        const int64_t token = (int64_t)tokens->value[i / c];
        double x = token < 0 ? 0.0 : table->value[token * c + i % c];
        double y = tx_array_present(positions) ? positions->value[place * c + i % c] : 0.0;
        bool exact = !tx_array_present(positions);
        tx_array_put(&call->out[0], i, x + y, exact ? 0.0 : fabs(x + y));
    }
}

static void embedding_outputs(tx_call *call)
{
    tx_array *y = &call->out[0];
    if (y->dtype == TX_DTYPE_COUNT)
        y->dtype = TX_F32;
    y->shape = call->in[0].shape;
    y->shape.dim[y->shape.rank++] = tx_array_last(&call->in[1]);
}

static void embedding_cases(tx_cases *list)
{
    static const int64_t sizes[][5] = {/* B, T, V, C, P */
                                       {1, 1, 1, 1, 1},    {2, 7, 11, 5, 9},      {3, 17, 50, 33, 20},
                                       {2, 16, 9, 64, 16}, {1, 65, 300, 128, 90}, {8, 1024, 16384, 768, 1024}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int i = 0; i < 12; i++) {
            const int64_t *n = sizes[s];
            tx_dtype table = floats[i % 3], out = i % 2 == 0 ? TX_F32 : table == TX_F32 ? TX_BF16 : table;
            bool positions = i < 8, at = positions && i >= 4 && n[4] > n[1];
            if (n[3] == 768 && i != 0 && i != 4)
                continue;
            tx_case *c = tx_case_add(list, "%s->%s [%lld, %lld] of [%lld, %lld]%s%s", tx_dtype_name(table),
                                     tx_dtype_name(out), (long long)n[0], (long long)n[1], (long long)n[2],
                                     (long long)n[3], positions ? " places" : "", at ? " at positions" : "");
            c->in[0] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), i % 4 == 2 ? TX_FILL_SPARSE : TX_FILL_INDEX, 0.0,
                                  (double)n[2]);
            c->in[1] = tx_spec_real(TX_SHAPE(n[2], n[3]));
            c->in[1].dtype = table;
            c->in[1].arena = TX_ARENA_WEIGHTS;
            if (positions) {
                c->in[2] = c->in[1];
                c->in[2].shape = TX_SHAPE(n[4], n[3]);
            }
            if (at) /* up to the last that fits, or one beyond on both sides */
                c->in[3] = tx_spec_positions(n[0], i % 3 - 1, n[4] - n[1] + (i % 3 == 0));
            if (i >= 6 && positions) /* of each token */
                c->in[3] = tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), TX_FILL_INDEX, -1.0, (double)(n[4] + 1));
            c->out_dtype = out;
            c->flags = n[3] == 768 ? TX_CASE_BENCH : 0u;
        }
}

static void token_positions_reference(tx_call *call)
{
    const int64_t time = tx_array_last(&call->in[0]);
    double position = 0.0;
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const bool counts = call->in[0].value[i] != (double)call->attrs.first;
        position = (i % time == 0 ? (double)call->attrs.first : position) + counts;
        tx_array_put(&call->out[0], i, counts ? position : (double)call->attrs.first, 0.0);
    }
}

TX_OUTPUT(token_positions_outputs, TX_I32, call->in[0].shape)

static void token_positions_cases(tx_cases *list)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 9}, {5, 17}, {9, 64}, {70, 3}, {3, 257}, {512, 512}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        tx_case *c = tx_case_add(list, "[%lld, %lld]", (long long)sizes[s][0], (long long)sizes[s][1]);
        c->in[0] = tx_spec_of(TX_I32, TX_SHAPE(sizes[s][0], sizes[s][1]), TX_FILL_INDEX, 0.0, s & 1 ? 3.0 : 50.0);
        c->attrs.first = (int64_t)s % 3;
        c->flags = TX_CASE_ZEROS | (sizes[s][1] == 512 ? TX_CASE_BENCH : 0u);
    }
}

static void tp_indices_reference(tx_call *call)
{
    const double first = (double)call->attrs.first, end = first + (double)call->attrs.rows;
    for (int64_t i = 0; i < call->in[0].count; i++) {
        const double index = call->in[0].value[i];
        const bool exists = index >= 0.0 && index < (double)call->attrs.vocab;
        tx_array_put(&call->out[0], i, !exists ? index : index >= first && index < end ? index - first : -1.0, 0.0);
    }
}

static void tp_indices_cases(tx_cases *list)
{
    static const int64_t sizes[][5] = {/* B, T, first, rows, all */ {1, 1, 0, 1, 1},
                                       {2, 9, 0, 5, 11},
                                       {5, 17, 5, 5, 11},
                                       {3, 257, 10, 1, 11},
                                       {64, 1024, 25129, 25128, 50257}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int i = 0; i < 2; i++) { /* tokens; labels, some of which are ignored, or do not exist */
            const int64_t *n = sizes[s];
            tx_case *c = tx_case_add(list, "%s [%lld, %lld] of %lld", i ? "labels" : "tokens", (long long)n[0],
                                     (long long)n[1], (long long)n[4]);
            c->in[0] =
                tx_spec_of(TX_I32, TX_SHAPE(n[0], n[1]), i ? TX_FILL_LABELS : TX_FILL_INDEX, 0.0, (double)(n[4] + i));
            c->attrs.first = n[2];
            c->attrs.rows = n[3];
            c->attrs.vocab = n[4];
            c->flags = TX_CASE_ZEROS | (n[1] == 1024 && i == 0 ? TX_CASE_BENCH : 0u);
        }
}

static void position_grad_reference(tx_call *call)
{
    const tx_array *dy = &call->in[0];
    int64_t c = tx_array_last(dy), time = dy->shape.dim[1];
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t i = 0; i < dy->count; i++) {
        int64_t at = i / c % time * c + i % c;
        tx_array_add(&call->out[0], at, dy->value[i], fabs(dy->value[i]));
    }
}

TX_OUTPUT(position_grad_outputs, TX_F32, TX_SHAPE(call->attrs.rows, tx_array_last(&call->in[0])))
TX_LENGTH(position_grad_length, call->in[0].shape.dim[0])

static void position_grad_cases(tx_cases *list)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},    {2, 7, 5, 9},    {5, 17, 33, 17},
                                       {9, 16, 64, 20}, {3, 65, 7, 100}, {8, 1024, 768, 1024}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t *n = sizes[s];
        tx_case *c = tx_case_add(list, "[%lld, %lld, %lld] rows %lld", (long long)n[0], (long long)n[1],
                                 (long long)n[2], (long long)n[3]);
        c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1], n[2]));
        c->attrs.rows = n[3];
        c->flags = n[2] == 768 ? TX_CASE_BENCH : 0u;
        if (n[2] != 768)
            tx_case_accumulate(list);
    }
    tx_case_half(list, 1, false);
}

/* ---- Gather and scatter ------------------------------------------------------------------------ */

static void gather_reference(tx_call *call)
{
    int64_t c = tx_array_last(&call->in[0]);
    for (int64_t i = 0; i < call->out[0].count; i++) {
        int64_t row = (int64_t)call->in[1].value[i / c];
        tx_array_put(&call->out[0], i, row < 0 ? 0.0 : call->in[0].value[row * c + i % c], 0.0);
    }
}

static void gather_outputs(tx_call *call)
{
    call->out[0] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[1].shape};
    call->out[0].shape.dim[call->out[0].shape.rank++] = tx_array_last(&call->in[0]);
}

static const struct {
    tx_shape indices;
    int64_t rows, columns;
} tables[] = {{{1, {1}}, 1, 1},         {{1, {7}}, 5, 3},     {{2, {3, 5}}, 11, 33},       {{2, {4, 16}}, 9, 64},
              {{3, {2, 3, 11}}, 40, 7}, {{1, {300}}, 17, 65}, {{2, {8, 1024}}, 16384, 768}};
#define TABLES (sizeof tables / sizeof tables[0])

static tx_case *add_table(tx_cases *list, size_t s, tx_dtype dtype)
{
    char text[64];
    tx_case *c = tx_case_add(list, "%s %s of [%lld, %lld]", tx_dtype_name(dtype),
                             tx_shape_text(&tables[s].indices, text, sizeof text), (long long)tables[s].rows,
                             (long long)tables[s].columns);
    c->flags = s + 1 == TABLES ? TX_CASE_BENCH : 0u;
    return c;
}

static void gather_cases(tx_cases *list)
{
    for (size_t s = 0; s < TABLES; s++)
        for (int t = 0; t < (s + 1 == TABLES ? 1 : 3); t++) {
            tx_case *c = add_table(list, s, floats[t]);
            c->in[0] = tx_spec_real(TX_SHAPE(tables[s].rows, tables[s].columns));
            c->in[0].dtype = floats[t];
            c->in[1] = tx_spec_of(TX_I32, tables[s].indices, s & 1 ? TX_FILL_SPARSE : TX_FILL_INDEX, 0.0,
                                  (double)tables[s].rows);
        }
    tx_case *c = add_table(list, 1, TX_F32);
    c->in[0] = tx_spec_of(TX_F32, TX_SHAPE(tables[1].rows, tables[1].columns), TX_FILL_NAN, -1.0, 1.0);
    c->in[1] = tx_spec_of(TX_I32, tables[1].indices, TX_FILL_SPARSE, 0.0, 3.0);
    tx_case_chunks(list);
}

static void scatter_add_reference(tx_call *call)
{
    const tx_array *src = &call->in[1];
    int64_t c = tx_array_last(src);
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, 0.0, 0.0);
    for (int64_t i = 0; i < src->count; i++) {
        int64_t row = (int64_t)call->in[0].value[i / c];
        if (row < 0 || row == call->attrs.padding - 1)
            continue;
        tx_array_add(&call->out[0], row * c + i % c, src->value[i], fabs(src->value[i]));
    }
}

TX_OUTPUT(scatter_add_outputs, TX_F32, TX_SHAPE(call->attrs.rows, tx_array_last(&call->in[1])))
TX_LENGTH(scatter_add_length, call->in[0].count)

static void scatter_add_cases(tx_cases *list)
{
    for (size_t s = 0; s < TABLES; s++) {
        tx_case *c = add_table(list, s, TX_F32);
        c->attrs.rows = tables[s].rows;
        c->attrs.padding = s > 1 ? (int64_t)s - 1 : 0;
        c->in[0] =
            tx_spec_of(TX_I32, tables[s].indices, s & 1 ? TX_FILL_SPARSE : TX_FILL_INDEX, 0.0, (double)tables[s].rows);
        c->in[1] = tx_spec_real(tables[s].indices);
        c->in[1].shape.dim[c->in[1].shape.rank++] = tables[s].columns;
        if (s + 1 < TABLES)
            tx_case_accumulate(list);
    }
    /* The longest sums, and some that are longer than a partial sum. */
    static const struct {
        int64_t sources, rows, first, end;
    } few[] = {{300, 4, 2, 3}, {300, 3, 0, 3}, {64, 2, 1, 2}, {65, 2, 0, 1}, {640, 9, 1, 8}};
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        tx_case *c = tx_case_add(list, "%d on %d rows of %d", (int)few[i].sources, (int)(few[i].end - few[i].first),
                                 (int)few[i].rows);
        c->in[0] =
            tx_spec_of(TX_I32, TX_SHAPE(few[i].sources), TX_FILL_INDEX, (double)few[i].first, (double)few[i].end);
        c->in[1] = tx_spec_real(TX_SHAPE(few[i].sources, 5));
        c->attrs.rows = few[i].rows;
        c->flags = few[i].end - few[i].first < few[i].rows ? TX_CASE_ZEROS : 0u;
        tx_case_accumulate(list);
    }
    tx_case_half(list, 2, false);
}

/* ---- Key-value cache --------------------------------------------------------------------------- */

/* Byte `i` of a block of Q8_0 that holds 32 values, computed in fp32 as llama.cpp does. */
static double block_byte(const double *x, int64_t i)
{
    float most = 0.0f;
    uint16_t half;
    for (int k = 0; k < 32; k++)
        most = fmaxf(most, fabsf((float)x[k]));
    const float scale = most / 127.0f;
    tx_number_encode(TX_F16, &(double){(double)scale}, 1, &half);
    if (i < 2)
        return i ? half >> 8 : half & 255;
    const float value = roundf((float)x[i - 2] * (scale > 0.0f ? 1.0f / scale : 0.0f));
    return (double)(value < 0.0f ? value + 256.0f : value);
}

static void kv_append_reference(tx_call *call)
{
    const tx_array *qkv = &call->in[0];
    const bool blocks = call->in[1].dtype == TX_U8;
    int64_t time = qkv->shape.dim[1], row = qkv->shape.dim[2], n = tx_array_last(&call->in[1]);
    int64_t capacity = call->in[1].shape.dim[1], width = blocks ? n / 34 * 32 : n;
    for (int32_t kv = 0; kv < 2; kv++)
        for (int64_t i = 0; i < call->out[kv].count; i++) {
            int64_t rows = call->in[1].shape.dim[0], b = 0;
            while (b < qkv->shape.dim[0] && tx_slot_of(&call->in[4], b, rows) != i / n / capacity)
                b++;
            const bool used = b < qkv->shape.dim[0];
            int64_t t = used ? i / n % capacity - tx_position_of(&call->in[3], b, capacity, time) : -1;
            int64_t from = (b * time + t) * row + (row - 2 * width) + kv * width, at = i % n;
            bool is_new = t >= 0 && t < time;
            const double value = !is_new  ? call->in[1 + kv].value[i]
                                 : blocks ? block_byte(qkv->value + from + at / 34 * 32, at % 34)
                                          : qkv->value[from + at];
            tx_array_put(&call->out[kv], i, value, 0.0);
        }
}

static void kv_append_outputs(tx_call *call)
{
    call->out[0] = call->out[1] = (tx_array){.dtype = call->in[1].dtype, .shape = call->in[1].shape};
}

static void kv_append_cases(tx_cases *list)
{
    /* B, T, S, heads, kv_heads, size, last position (33, 15: none fits), and 1 + slot of the only sample or 0 */
    static const int64_t sizes[][8] = {
        {1, 1, 1, 1, 1, 8, 0},     {2, 1, 33, 4, 2, 16, 32},  {3, 7, 20, 3, 3, 5, 4},
        {1, 17, 64, 2, 1, 64, 0},  {4, 1, 33, 4, 2, 16, 33},  {2, 7, 20, 1, 1, 8, 15},
        {1, 3, 20, 2, 1, 8, 4, 3}, {1, 1, 9, 4, 4, 16, 8, 6}, {1, 1024, 1024, 12, 12, 64, 0},
        {3, 7, 20, 3, 1, 96, 4},   {2, 1, 33, 4, 2, 64, 32},  {1, 3, 20, 2, 2, 32, 4, 3}}; /* blocks of Q8_0 */
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t *n = sizes[s];
        tx_case *c = tx_case_add(list, "b%lld t%lld s%lld h%lld/%lld d%lld at %lld", (long long)n[0], (long long)n[1],
                                 (long long)n[2], (long long)n[3], (long long)n[4], (long long)n[5], (long long)n[6]);
        c->attrs.attention.heads = (int32_t)n[3];
        c->attrs.attention.kv_heads = (int32_t)n[4];
        c->in[0] = tx_spec_real(TX_SHAPE(n[0], n[1], (n[3] + 2 * n[4]) * n[5]));
        c->in[3] = tx_spec_positions(n[0], n[6] % 2 ? -1 : 0, n[6]);
        if (n[7]) /* one of 4 rows, or a row outside, which is clamped */
            c->in[4] = tx_spec_of(TX_I32, TX_SHAPE(1), TX_FILL_INDEX, (double)n[7] - 1.0, (double)n[7]);
        c->in[1] = c->in[2] = tx_spec_real(TX_SHAPE(n[7] ? 4 : n[0], n[2], n[4] * n[5]));
        c->in[0].dtype = c->in[1].dtype = c->in[2].dtype = floats[s % 3];
        c->in[1].arena = c->in[2].arena = TX_ARENA_STATE;
        if (s > 8)
            c->in[1] = c->in[2] = tx_spec_blocks(&c->in[1].shape);
        c->flags = n[1] == 1024 ? TX_CASE_BENCH : 0u;
    }
}

static void kv_reorder_reference(tx_call *call)
{
    const tx_array *sources = &call->in[2];
    int64_t batch = sources->count, capacity = call->in[0].shape.dim[1], n = tx_array_last(&call->in[0]);
    for (int32_t kv = 0; kv < 2; kv++)
        for (int64_t i = 0; i < call->out[kv].count; i++) {
            int64_t b = i / n / capacity, from = (int64_t)sources->value[b];
            bool kept = i / n % capacity >= tx_position_of(&call->in[3], b, capacity, 0);
            if (kept || from < 0 || from >= batch)
                from = b;
            tx_array_put(&call->out[kv], i, call->in[kv].value[(from - b) * capacity * n + i], 0.0);
        }
}

static void kv_reorder_outputs(tx_call *call)
{
    call->out[0] = call->out[1] = (tx_array){.dtype = call->in[0].dtype, .shape = call->in[0].shape};
}

static void kv_reorder_cases(tx_cases *list)
{
    static const int64_t sizes[][4] = {/* B, S, n, last position */
                                       {1, 1, 3, 1},    {2, 33, 16, 20},      {3, 20, 5, 20}, {5, 7, 64, 8},
                                       {9, 17, 33, 16}, {4, 1024, 768, 1024}, {4, 9, 96, 7}}; /* blocks of Q8_0 */
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t *n = sizes[s];
        tx_case *c = tx_case_add(list, "b%lld s%lld n%lld up to %lld", (long long)n[0], (long long)n[1],
                                 (long long)n[2], (long long)n[3]);
        c->in[0] = c->in[1] = tx_spec_real(TX_SHAPE(n[0], n[1], n[2]));
        c->in[0].dtype = c->in[1].dtype = floats[s % 3];
        c->in[0].arena = c->in[1].arena = TX_ARENA_STATE;
        if (s == 6)
            c->in[0] = c->in[1] = tx_spec_blocks(&c->in[0].shape);
        c->in[2] = tx_spec_of(TX_I32, TX_SHAPE(n[0]), n[0] > 4 ? TX_FILL_SPARSE : TX_FILL_INDEX, 0.0, (double)n[0]);
        c->in[3] = tx_spec_positions(n[0], s & 1 ? n[3] / 2 : -1, n[3]);
        c->flags = n[2] == 768 ? TX_CASE_BENCH : 0u;
    }
}

/* ---- Cast, copy, fill, range --------------------------------------------------------------------------- */

static void copy_reference(tx_call *call)
{
    for (int64_t i = 0; i < call->out[0].count && tx_call_beta(call, 0) != 0.0; i++) /* the sum is rounded, once */
        tx_array_put(&call->out[0], i, call->in[0].value[i], fabs(call->in[0].value[i]));
    for (int64_t i = 0; i < call->out[0].count && tx_call_beta(call, 0) == 0.0; i++)
        tx_array_put(&call->out[0], i, tx_number_round(call->out[0].dtype, call->in[0].value[i]), 0.0);
}

static void cast_outputs(tx_call *call)
{
    call->out[0].shape = call->in[0].shape;
}

static void cast_cases(tx_cases *list)
{
    static const tx_shape shapes[] = {{1, {1}}, {1, {127}}, {2, {3, 5}}, {3, {2, 17, 33}}, {2, {5, 1027}}};
    size_t count = sizeof shapes / sizeof shapes[0];
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (size_t s = 0; s <= count; s++) {
                tx_shape shape = s < count ? shapes[s] : TX_SHAPE(4096, 3072);
                tx_fill_kind fill = tx_shape_count(&shape) >= 100 ? TX_FILL_SPECIAL : TX_FILL_UNIFORM;
                tx_case *c = tx_case_add(list, "%s->%s %lld elements", tx_dtype_name(floats[from]),
                                         tx_dtype_name(floats[to]), (long long)tx_shape_count(&shape));
                c->in[0] = tx_spec_of(floats[from], shape, fill, -3.0, 3.0);
                c->out_dtype = floats[to];
                c->flags = s == count ? TX_CASE_BENCH : 0u;
                if (s == 3) {
                    tx_case_chunks(list);
                    tx_case_accumulate(list);
                }
            }
}

static void copy_cases(tx_cases *list)
{
    static const tx_dtype types[] = {TX_F32, TX_BF16, TX_F16, TX_I32, TX_U8};
    const tx_shape *shapes;
    int32_t count = tx_shapes_plain(&shapes);
    for (int t = 0; t < 5; t++)
        for (int32_t s = 0; s < count; s++) {
            bool real = t < 3;
            tx_case *c =
                tx_case_add(list, "%s %lld elements", tx_dtype_name(types[t]), (long long)tx_shape_count(&shapes[s]));
            c->in[0] = tx_spec_of(types[t], shapes[s], real ? TX_FILL_UNIFORM : TX_FILL_INDEX, real ? -3.0 : 1.0,
                                  real ? 3.0 : 200.0);
            if (real && s == 6)
                tx_case_accumulate(list);
        }
    tx_case_chunks(list);
    tx_case *c = tx_case_add(list, "big");
    c->in[0] = tx_spec_real(TX_SHAPE(4096, 3072));
    c->flags = TX_CASE_BENCH;
}

static void fill_reference(tx_call *call)
{
    for (int64_t i = 0; i < call->out[0].count; i++)
        tx_array_put(&call->out[0], i, call->attrs.alpha, 0.0);
}

static void fill_outputs(tx_call *call)
{
    call->out[0].dtype = call->out[0].dtype == TX_DTYPE_COUNT ? TX_F32 : call->out[0].dtype;
}

static void fill_cases(tx_cases *list)
{
    const tx_shape *shapes;
    int32_t count = tx_shapes_plain(&shapes);
    for (int32_t s = 0; s <= count; s++) {
        tx_case *c = tx_case_add(list, "case %d", s);
        c->out_shape = s < count ? shapes[s] : TX_SHAPE(4096, 3072);
        c->attrs.alpha = s == 3 ? 0.0f : -1.5f + (float)s;
        c->out_dtype = floats[s % 3];
        c->flags = TX_CASE_ZEROS | (s == count ? TX_CASE_BENCH : 0u);
    }
}

static void range_reference(tx_call *call)
{
    const tx_attrs *attrs = &call->attrs;
    const int64_t count = call->out[0].count, period = attrs->rows > 0 ? attrs->rows : count;
    for (int64_t i = 0; i < count; i++) {
        const double later = i % period >= period / 2 ? (double)attrs->gap : 0.0;
        tx_array_put(&call->out[0], i, (double)attrs->first + (double)(i % period * attrs->step) + later, 0.0);
    }
}

static void range_outputs(tx_call *call)
{
    call->out[0].dtype = TX_I32;
}

static void range_cases(tx_cases *list)
{
    const tx_shape *shapes;
    int32_t count = tx_shapes_plain(&shapes);
    for (int32_t s = 0; s <= count; s++) {
        tx_case *c = tx_case_add(list, "case %d", s);
        c->out_shape = s < count ? shapes[s] : TX_SHAPE(4096, 3072);
        c->attrs.first = s - 3;
        c->attrs.step = s % 4 == 3 ? 0 : 2 - 7 * (s % 2);
        c->flags = TX_CASE_ZEROS | (s == count ? TX_CASE_BENCH : 0u);
        c = tx_case_copy(list, ", again and again");
        c->flags = TX_CASE_ZEROS;
        c->attrs.rows = 6;
        c->attrs.gap = 100;
    }
}

const tx_descriptor tx_descriptor_range = {
    .cases = range_cases, .outputs = range_outputs, .reference = range_reference};
const tx_descriptor tx_descriptor_embedding = {
    .cases = embedding_cases, .outputs = embedding_outputs, .reference = embedding_reference};
const tx_descriptor tx_descriptor_token_positions = {
    .cases = token_positions_cases, .outputs = token_positions_outputs, .reference = token_positions_reference};
const tx_descriptor tx_descriptor_tp_indices = {
    .cases = tp_indices_cases, .outputs = token_positions_outputs, .reference = tp_indices_reference};
const tx_descriptor tx_descriptor_position_grad = {.cases = position_grad_cases,
                                                   .outputs = position_grad_outputs,
                                                   .reference = position_grad_reference,
                                                   .length = position_grad_length};
const tx_descriptor tx_descriptor_gather = {
    .cases = gather_cases, .outputs = gather_outputs, .reference = gather_reference};
const tx_descriptor tx_descriptor_scatter_add = {.cases = scatter_add_cases,
                                                 .outputs = scatter_add_outputs,
                                                 .reference = scatter_add_reference,
                                                 .length = scatter_add_length,
                                                 .work = 2};
const tx_descriptor tx_descriptor_kv_append = {
    .cases = kv_append_cases, .outputs = kv_append_outputs, .reference = kv_append_reference, .lies_on = {2, 3}};
const tx_descriptor tx_descriptor_kv_reorder = {
    .cases = kv_reorder_cases, .outputs = kv_reorder_outputs, .reference = kv_reorder_reference, .lies_on = {1, 2}};
const tx_descriptor tx_descriptor_cast = {.cases = cast_cases, .outputs = cast_outputs, .reference = copy_reference};
const tx_descriptor tx_descriptor_copy = {.cases = copy_cases, .reference = copy_reference};
const tx_descriptor tx_descriptor_fill = {.cases = fill_cases, .outputs = fill_outputs, .reference = fill_reference};
