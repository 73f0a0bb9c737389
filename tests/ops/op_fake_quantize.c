/* SPDX-License-Identifier: Apache-2.0
 * Fake quantization: cases of all types of blocks. Their bytes are those of ggml (tests/files/test_gguf.c); a backend
 * must have exactly the values of these bytes. */
#include "api/base/blocks.h"
#include "tests/ops/case.h"

static void fake_quantize_reference(tx_call *call)
{
    const tx_rounding *r = &call->attrs.rounding;
    const bool on = call->controls.word[TX_CONTROL_FAKE_QUANTIZE].f32 != 0.0f;
    const tx_shape *shape = &call->in[0].shape;
    const int64_t last = tx_shape_last(shape), rows = shape->dim[shape->rank - 2];
    const int64_t width = r->columns ? rows : last;
    float from[TX_BLOCK_MAX], to[TX_BLOCK_MAX];
    for (int64_t line = 0; line < call->in[0].count / width; line++)
        for (int64_t at = 0; at < width; at += TX_BLOCK_MAX) {
            const int64_t count = tx_min(width - at, TX_BLOCK_MAX);
            const int64_t matrix = line / last * rows * last, column = line % last;
            int32_t part = 0;
            while (part + 1 < r->parts && r->part[part].end <= line)
                part++;
            for (int64_t k = 0; k < count; k++)
                from[k] =
                    (float)call->in[0].value[r->columns ? matrix + (at + k) * last + column : line * width + at + k];
            tx_block_round(r->part[part].type, from, count, to);
            for (int64_t k = 0; k < count; k++)
                tx_array_put(&call->out[0], r->columns ? matrix + (at + k) * last + column : line * width + at + k,
                             (double)(on ? to : from)[k], 0.0);
        }
}

static void fake_quantize_outputs(tx_call *call)
{
    call->out[0].dtype = call->out[0].dtype == TX_DTYPE_COUNT ? TX_F32 : call->out[0].dtype;
    call->out[0].shape = call->in[0].shape;
}

static tx_case *add(tx_cases *list, int32_t type, const char *name, tx_shape shape, bool columns)
{
    tx_case *c = tx_case_add(list, "%s of rank %d%s", name, shape.rank, columns ? ", columns" : "");
    c->in[0] = tx_spec_real(shape);
    c->in[0].arena = TX_ARENA_WEIGHTS;
    c->attrs.rounding.parts = 1;
    c->attrs.rounding.columns = columns;
    c->attrs.rounding.part[0].end = shape.dim[0];
    c->attrs.rounding.part[0].type = type;
    return c;
}

static void fake_quantize_cases(tx_cases *list)
{
#define X(name, number, values, bytes, lower)                               \
    add(list, number, #name, TX_SHAPE(5, 3 * (values)), false)->flags = 0u; \
    add(list, number, #name, TX_SHAPE(3, (values), 7), true)->out_dtype = TX_BF16;
    TX_BLOCK_MAP(X)
    TX_BLOCK_FILE_MAP(X)
#undef X
    add(list, 1, "F16", TX_SHAPE(3, 5), false);
    add(list, 30, "BF16", TX_SHAPE(3, 5), true);
    add(list, 0, "F32", TX_SHAPE(1, 1), false)->out_dtype = TX_F16;
    tx_case *c = add(list, 14, "Q6_K, then Q4_K and F32", TX_SHAPE(9, 256), false);
    c->attrs.rounding.parts = 3;
    c->attrs.rounding.part[0].end = 2;
    c->attrs.rounding.part[1].end = 7;
    c->attrs.rounding.part[1].type = 12;
    c->attrs.rounding.part[2].end = 9;
    c->attrs.rounding.part[2].type = 0;
    tx_case_copy(list, ", off")->controls.word[TX_CONTROL_FAKE_QUANTIZE].f32 = 0.0f;
    c = add(list, 8, "Q8_0 with a number that is none", TX_SHAPE(3, 288), false);
    c->in[0].fill = TX_FILL_NAN;
    tx_case_copy(list, ", off")->controls.word[TX_CONTROL_FAKE_QUANTIZE].f32 = 0.0f;
    add(list, 1, "F16 with a number that is none", TX_SHAPE(3, 288), false)->in[0].fill = TX_FILL_NAN;
    add(list, 30, "BF16 with a number that is none", TX_SHAPE(3, 288), false)->in[0].fill = TX_FILL_NAN;
    add(list, 12, "Q4_K", TX_SHAPE(2048, 2048), false)->flags = TX_CASE_BENCH;
}

const tx_descriptor tx_descriptor_fake_quantize = {.cases = fake_quantize_cases,
                                                   .outputs = fake_quantize_outputs,
                                                   .reference = fake_quantize_reference,
                                                   .may_refuse = true};
