/* SPDX-License-Identifier: Apache-2.0
 * Attention: the choice of tiles that fit the device's local memory, forward, gradient and cached. */
#include "backends/opencl/ops.h"

#include <stdio.h>

typedef struct tiles {
    int rows, cols, micro_rows; /* ROWS, COLS, MR */
} tiles;

typedef struct attention {
    int64_t B, T, S, last;
    int32_t heads, kv_heads, d;
    char options[160];
    tiles tile;
    size_t group, local_bytes;
} attention;

/* Local memory of the hungriest kernel (kernels/attention.cl): gradients hold two tiles of rows and two of columns. */
static int64_t local_bytes(const tiles *t, int64_t d, bool cpu, bool grad)
{
    int64_t padded = cpu ? (d + 15) / 16 * 16 : (d + 3) / 4 * 4 + 4, line = t->cols + (cpu ? 0 : 4);
    int64_t column_tiles = cpu ? (grad ? 4 : 3) : 2; /* with their transposes */
    int64_t floats =
        (grad ? 2 : 1) * t->rows * padded + column_tiles * t->cols * padded + (grad ? 2 : 1) * t->rows * line;
    int64_t width = cpu ? 16 : t->cols / 4;
    return 4 * (floats + t->rows * width + 2 * t->cols);
}

static size_t group_of(const tiles *t, bool cpu)
{
    return cpu ? 1 : (size_t)(t->rows / t->micro_rows) * (size_t)(t->cols / 4);
}

/* The first in the list of the device's kind that fits, largest first; `why`: what the largest wants for. */
static bool choose_tiles(const tx_context *context, int64_t d, bool grad, int64_t T, tiles *out, char *why, size_t size)
{
    static const tiles cpu_tiles[] = {{64, 64, 8}, {32, 32, 8}, {16, 16, 8}, {8, 16, 8}};
    static const tiles gpu_tiles[] = {{64, 32, 4}, {32, 32, 4}, {32, 16, 4}, {16, 16, 2},
                                      {8, 16, 1},  {8, 8, 1},   {4, 4, 1}};
    bool cpu = context->limits.cpu;
    const tiles *list = cpu ? cpu_tiles : gpu_tiles;
    size_t count = cpu ? sizeof cpu_tiles / sizeof *cpu_tiles : sizeof gpu_tiles / sizeof *gpu_tiles;
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof name, "%dx%d", list[i].rows, list[i].cols);
        /* Reported local memory is not all ours: some drivers keep a little for arguments. */
        bool fits = tx_cl_fits(&context->limits, name, local_bytes(&list[i], d, cpu, grad) + 512,
                               group_of(&list[i], cpu), why, size);
        bool wasteful = i + 1 < count && list[i].rows >= 2 * T && list[i + 1].rows < list[i].rows;
        if (!fits || (wasteful && local_bytes(&list[i + 1], d, cpu, grad) + 512 <= context->limits.local_bytes))
            continue;
        *out = list[i];
        return true;
    }
    return false;
}

/* Says which tiles were taken, and why larger ones were not. */
static void report_tiles(tx_cl_builder *b, const tiles *t, const char *why)
{
    char text[192];
    snprintf(text, sizeof text, "tiles %dx%d%s%s", t->rows, t->cols, why[0] ? ": " : "", why);
    tx_cl_variant(b, text);
}

static tx_status plan_attention(tx_cl_builder *b, const tx_command *c, const tx_operand *qkv, bool grad, attention *a)
{
    const tx_shape *shape = &qkv->shape;
    bool cpu = b->context->limits.cpu, cached = c->op == TX_OP_ATTENTION_CACHED;
    a->heads = c->attrs.heads;
    a->kv_heads = c->attrs.kv_heads;
    a->last = tx_shape_last(shape);
    a->T = shape->dim[shape->rank - 2];
    a->B = tx_shape_rows(shape) / a->T;
    a->S = cached ? c->in[1].shape.dim[c->in[1].shape.rank - 2] : a->T;
    a->d = (int32_t)(a->last / (a->heads + 2 * a->kv_heads));
    char why[128] = "";
    if (!choose_tiles(b->context, a->d, grad, a->T, &a->tile, why, sizeof why))
        return tx_fail(TX_UNSUPPORTED, "heads of %d do not fit the %lld bytes of local memory of %s", a->d,
                       (long long)b->context->limits.local_bytes, b->context->info.name);
    report_tiles(b, &a->tile, why);
    a->group = group_of(&a->tile, cpu);
    a->local_bytes = (size_t)local_bytes(&a->tile, a->d, cpu, grad);
    const tx_operand *lengths = grad ? &c->in[4] : &c->in[1];
    snprintf(a->options, sizeof a->options,
             "-DWG=%zu -DVW=%d -DROWS=%d -DCOLS=%d -DMR=%d -DD=%d -DCAUSAL=%d -DLENGTHS=%d -DDROPOUT=%d -DCACHED=%d",
             a->group, cpu ? 16 : 4, a->tile.rows, a->tile.cols, a->tile.micro_rows, a->d, c->attrs.causal || cached,
             !cached && tx_present(lengths), c->attrs.p > 0.0f && !cached, cached);
    return TX_OK;
}

/* Kernels of kernels/attention.cl by their PART. */
static const char *const parts[] = {"attention", "attention_delta", "attention_grad_q", "attention_grad_kv"};

static void launch_part(tx_cl_builder *b, const attention *a, int part, cl_uint dims, const size_t *global,
                        const size_t *local)
{
    char options[192];
    snprintf(options, sizeof options, "%s -DPART=%d", a->options, part);
    tx_cl_launch(b, "attention", options, parts[part], dims, global, local);
}

/* Launches a part that works on tiles of rows of `heads` heads. */
static void launch(tx_cl_builder *b, const attention *a, int part, int32_t heads)
{
    int64_t tile_count = (a->T + a->tile.rows - 1) / a->tile.rows;
    const size_t global[] = {(size_t)tile_count * a->group, (size_t)heads, (size_t)a->B}, local[] = {a->group, 1, 1};
    launch_part(b, a, part, 3, global, local);
}

/* The arguments that all tiled kernels end with. */
static void finish_arguments(tx_cl_builder *b, const tx_command *c, const attention *a)
{
    tx_cl_arg_i32(b, a->heads);
    tx_cl_arg_i32(b, a->kv_heads);
    tx_cl_arg_f32(b, c->attrs.scale);
    tx_cl_arg_f32(b, c->attrs.p);
    tx_cl_arg_i32(b, c->attrs.site);
    tx_cl_arg_control(b);
    tx_cl_arg_local(b, a->local_bytes);
}

static tx_status forward(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    bool cached = c->op == TX_OP_ATTENTION_CACHED;
    attention a;
    tx_status status = plan_attention(b, c, &c->in[0], false, &a);
    if (status != TX_OK)
        return status;
    launch(b, &a, 0, a.heads);
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, cached ? &c->in[3] : &c->in[1]);
    tx_cl_arg_operand(b, cached ? &c->in[1] : &none);
    tx_cl_arg_operand(b, cached ? &c->in[2] : &none);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_operand(b, cached ? &none : &c->out[1]);
    tx_cl_arg_i32(b, (int32_t)a.T);
    tx_cl_arg_i32(b, (int32_t)a.S);
    finish_arguments(b, c, &a);
    return b->status;
}

tx_status tx_cl_attention(tx_cl_builder *b, const tx_command *c)
{
    return forward(b, c);
}

tx_status tx_cl_attention_cached(tx_cl_builder *b, const tx_command *c)
{
    return forward(b, c);
}

/* in: do, qkv, o, lse, lengths. Row sums first, then queries, then keys and values. */
tx_status tx_cl_attention_grad(tx_cl_builder *b, const tx_command *c)
{
    attention a;
    tx_status status = plan_attention(b, c, &c->in[1], true, &a);
    if (status != TX_OK)
        return status;
    const size_t count = (size_t)(a.B * a.T * a.heads), group = tx_cl_group(b->context, 64);
    launch_part(b, &a, 1, 1, &count, &group);
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->in[2]);
    tx_cl_arg_operand(b, &c->out[1]);
    tx_cl_arg_i64(b, (int64_t)count);
    tx_cl_arg_i32(b, (int32_t)a.T);
    tx_cl_arg_i32(b, a.heads);
    for (int part = 2; part <= 3; part++) {
        launch(b, &a, part, part == 2 ? a.heads : a.kv_heads);
        tx_cl_arg_operand(b, &c->in[0]);
        tx_cl_arg_operand(b, &c->in[1]);
        tx_cl_arg_operand(b, &c->in[3]);
        tx_cl_arg_operand(b, &c->out[1]);
        tx_cl_arg_operand(b, &c->in[4]);
        tx_cl_arg_operand(b, &c->out[0]);
        tx_cl_arg_i32(b, (int32_t)a.T);
        finish_arguments(b, c, &a);
    }
    return b->status;
}
