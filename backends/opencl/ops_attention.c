/* SPDX-License-Identifier: Apache-2.0
 * Attention: the choice of tiles that suit the device and fit its local memory, forward, gradient and cached. */
#include "backends/opencl/ops.h"

#include <stdio.h>
#include <string.h>

/* The kernels that work on tiles. */
typedef enum kernel_id { FORWARD, GRAD_Q, GRAD_KV } kernel_id;

typedef struct tile {
    int rows, cols, group, micro; /* ROWS, COLS, WG, MR */
} tile;

/* In the order of preference; the last fits every device. Score micro-tiles are 4x4, 8x4, 8x8 and 4x8
 * (kernels/attention_gpu_tile.cl). NVIDIA's work-items have the registers for 8x8, and its list begins there; others do
 * better with more items in flight. */
static const tile cpu_tiles[] = {{64, 64, 1, 8}, {32, 32, 1, 8}, {16, 16, 1, 8}, {8, 16, 1, 8}};
static const tile gpu_tiles[] = {{64, 64, 256, 4}, {64, 64, 128, 8}, {64, 64, 64, 8},  {32, 64, 64, 4},
                                 {64, 64, 128, 8}, {64, 64, 256, 4}, {32, 64, 128, 4}, {32, 32, 64, 4},
                                 {16, 32, 32, 4},  {8, 128, 64, 4},  {8, 64, 32, 4},   {8, 16, 8, 4}};
#define NVIDIA_FIRST 2

/* More floats than this in the registers of one item are likely to spill. */
#define MOST_FLOATS 160

typedef struct attention {
    int64_t B, T, S, last;
    int32_t heads, kv_heads, d;
    bool cpu;
    char facts[96]; /* options that do not depend on tiles */
} attention;

/* How one kernel runs. */
typedef struct form {
    tile t;
    bool cpu;
    int out_rows; /* AR */
    int64_t local_bytes, floats;
} form;

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tiles of kernels/attention_cpu_*.cl. */
static int64_t cpu_floats(const tile *t, kernel_id kernel, int64_t d)
{
    const int64_t padded = tx_cl_blocks(d, 16) * 16, row_tiles = kernel == FORWARD ? 1 : 2;
    const int64_t column_tiles = kernel == FORWARD ? 3 : 4; /* with their transposes */
    return (row_tiles * t->rows + column_tiles * t->cols) * padded + row_tiles * t->rows * t->cols + 2 * t->cols;
}

/* Stage, scores and two floats a row of kernels/attention_gpu_tile.cl. */
static int64_t gpu_floats(const tile *t, kernel_id kernel, int64_t d)
{
    const int64_t padded = tx_cl_blocks(d, 4) * 4;
    const int64_t wanted = padded <= 64 && kernel != GRAD_KV ? 16 : padded > 128 && t->rows == 8 ? 4 : 8;
    const int64_t terms = wanted < t->rows ? wanted : t->rows;
    const int64_t across = t->group / (t->rows / t->micro);
    const int64_t stage = most(2 * terms * padded + t->rows * across, 2 * 8 * (t->rows + t->cols + 8));
    return stage + t->rows * (t->cols + 4) + 2 * t->rows;
}

/* Rows of an item's micro-tile of the output: those that cost least multiply-adds and reads of local memory, a read
 * counted as four. */
static void choose_out_rows(form *f, kernel_id kernel, int64_t d)
{
    const int out = kernel == GRAD_KV ? f->t.cols : f->t.rows;
    int64_t least = INT64_MAX;
    for (int rows = 8; rows >= (kernel == GRAD_KV ? 4 : 1); rows /= 2) {
        const int high = out / rows;
        if (high < 2 || high > f->t.group)
            continue;
        const int64_t quads = tx_cl_blocks(tx_cl_blocks(d, 4), f->t.group / high),
                      cost = 16 * rows * quads + 4 * (rows + 4 * quads);
        if (cost >= least)
            continue;
        least = cost;
        f->out_rows = rows;
        f->floats = f->t.rows * f->t.cols / f->t.group + (kernel == GRAD_KV ? 2 : 1) * 4 * rows * quads;
    }
}

typedef enum verdict { SUITS, WASTES, CANNOT } verdict;

/* Whether a kernel should run in a form; if not, why. */
static verdict judge(const tx_context *context, const attention *a, kernel_id kernel, const form *f, int least_rows,
                     char reason[96])
{
    const tile *t = &f->t;
    const tx_cl_limits *limits = &context->limits;
    const int lines = kernel == GRAD_KV && !f->cpu ? t->cols : t->rows;
    const int64_t groups = tx_cl_blocks(a->T, lines) * a->B * (kernel == GRAD_KV ? a->kv_heads : a->heads);
    /* Reported local memory is not all ours: some drivers keep a little for arguments. */
    const int64_t wanted = f->local_bytes + 512;
    char name[24];
    snprintf(name, sizeof name, "%dx%d", t->rows, t->cols);
    reason[0] = '\0';
    if (!tx_cl_fits(limits, name, wanted, (size_t)t->group, reason, 96))
        return CANNOT;
    if (t->rows >= 2 * a->T && t->rows > least_rows)
        snprintf(reason, 96, "%s is too high for %lld rows", name, (long long)a->T);
    else if (f->floats > MOST_FLOATS)
        snprintf(reason, 96, "%s needs too many registers", name);
    else if (!f->cpu && lines > 32 && a->T > 32 && groups < limits->compute_units)
        snprintf(reason, 96, "%s is too few for %d compute units", name, (int)limits->compute_units);
    return reason[0] ? WASTES : SUITS;
}

/* The first form in the list of a kind of device that suits; else, of those that can run, the one with fewest
 * registers. `note` says which, and why the first stood aside. */
static bool choose_form(const tx_context *context, const attention *a, kernel_id kernel, bool cpu, form *out,
                        char note[160])
{
    const tile *list = cpu ? cpu_tiles : gpu_tiles;
    size_t count = cpu ? sizeof cpu_tiles / sizeof *cpu_tiles : sizeof gpu_tiles / sizeof *gpu_tiles;
    if (!cpu && strstr(context->info.vendor, "NVIDIA")) {
        list += NVIDIA_FIRST;
        count -= NVIDIA_FIRST;
    }
    char first[96] = "", reason[96];
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        form f = {.t = list[i], .cpu = cpu};
        if (!cpu)
            choose_out_rows(&f, kernel, a->d);
        f.local_bytes = 4 * (cpu ? cpu_floats(&f.t, kernel, a->d) : gpu_floats(&f.t, kernel, a->d));
        const verdict says = judge(context, a, kernel, &f, list[count - 1].rows, reason);
        if (i == 0)
            memcpy(first, reason, sizeof first);
        if (says == SUITS || (says == WASTES && (!found || f.floats < out->floats))) {
            *out = f;
            found = true;
        }
        if (says == SUITS)
            break;
    }
    if (!found)
        return false;
    int length = snprintf(note, 160, "%dx%d%s", out->t.rows, out->t.cols, a->cpu && !cpu ? " as on GPUs" : "");
    if (first[0])
        snprintf(note + length, 160 - (size_t)length, " (%s)", first);
    return true;
}

static attention describe(const tx_cl_builder *b, const tx_command *c, const tx_operand *qkv, const tx_operand *lengths)
{
    const tx_shape *shape = &qkv->shape;
    const bool cached = c->op == TX_OP_ATTENTION_CACHED;
    attention a = {.heads = c->attrs.heads, .kv_heads = c->attrs.kv_heads, .last = tx_shape_last(shape)};
    a.cpu = b->context->limits.cpu;
    a.T = shape->dim[shape->rank - 2];
    a.B = tx_shape_rows(shape) / a.T;
    a.S = cached ? c->in[1].shape.dim[c->in[1].shape.rank - 2] : a.T;
    a.d = (int32_t)(a.last / (a.heads + 2 * a.kv_heads));
    snprintf(a.facts, sizeof a.facts, "-DD=%d -DCAUSAL=%d -DLENGTHS=%d -DDROPOUT=%d -DCACHED=%d", a.d,
             c->attrs.causal || cached, !cached && tx_present(lengths), c->attrs.p > 0.0f && !cached, cached);
    return a;
}

/* Launches a kernel that works on tiles of the rows (or keys) of `heads` heads; `note` as in choose_form. */
static tx_status launch(tx_cl_builder *b, const attention *a, kernel_id kernel, form *f, char note[160])
{
    static const char *const names[] = {"attention", "attention_grad_q", "attention_grad_kv"};
    static const char *const sources[][2] = {{"attention_gpu", "attention_cpu"},
                                             {"attention_gpu_grad_q", "attention_cpu_grad_q"},
                                             {"attention_gpu_grad_kv", "attention_cpu_grad_kv"}};
    if (a->S * a->last > (int64_t)UINT32_MAX)
        return tx_fail(TX_UNSUPPORTED, "attention over %lld rows of %lld: a sequence may have 2^32 elements",
                       (long long)a->S, (long long)a->last);
    /* Where local memory is too small for the copies that CPU devices like, they run what GPUs do. */
    if (!(a->cpu && choose_form(b->context, a, kernel, true, f, note)) &&
        !choose_form(b->context, a, kernel, false, f, note))
        return tx_fail(TX_UNSUPPORTED, "heads of %d do not fit the %lld bytes of local memory of %s", a->d,
                       (long long)b->context->limits.local_bytes, b->context->info.name);
    char options[192];
    snprintf(options, sizeof options, "%s -DVW=%d -DWG=%d -DROWS=%d -DCOLS=%d -DMR=%d -DAR=%d", a->facts,
             f->cpu ? 16 : 4, f->t.group, f->t.rows, f->t.cols, f->t.micro, f->out_rows);
    const int64_t lines = kernel == GRAD_KV && !f->cpu ? f->t.cols : f->t.rows;
    const int64_t heads = kernel == GRAD_KV ? a->kv_heads : a->heads;
    const size_t local[] = {(size_t)f->t.group, 1, 1};
    const size_t global[] = {(size_t)tx_cl_blocks(a->T, lines) * local[0], (size_t)heads, (size_t)a->B};
    tx_cl_launch(b, sources[kernel][f->cpu], options, names[kernel], 3, global, local);
    return b->status;
}

/* The arguments that all tiled kernels end with. */
static void finish_arguments(tx_cl_builder *b, const tx_command *c, const attention *a, const form *f)
{
    tx_cl_arg_i32(b, a->heads);
    tx_cl_arg_i32(b, a->kv_heads);
    tx_cl_arg_f32(b, c->attrs.scale);
    tx_cl_arg_f32(b, c->attrs.p);
    tx_cl_arg_i32(b, c->attrs.site);
    tx_cl_arg_control(b);
    tx_cl_arg_local(b, (size_t)f->local_bytes);
}

static tx_status forward(tx_cl_builder *b, const tx_command *c)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    const bool cached = c->op == TX_OP_ATTENTION_CACHED;
    const attention a = describe(b, c, &c->in[0], &c->in[1]);
    form f;
    char note[160], variant[192];
    tx_status status = launch(b, &a, FORWARD, &f, note);
    if (status != TX_OK)
        return status;
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, cached ? &c->in[3] : &c->in[1]);
    tx_cl_arg_operand(b, cached ? &c->in[1] : &none);
    tx_cl_arg_operand(b, cached ? &c->in[2] : &none);
    tx_cl_arg_operand(b, &c->out[0]);
    tx_cl_arg_operand(b, cached ? &none : &c->out[1]);
    tx_cl_arg_i32(b, (int32_t)a.T);
    tx_cl_arg_i32(b, (int32_t)a.S);
    finish_arguments(b, c, &a, &f);
    snprintf(variant, sizeof variant, "tiles %s", note);
    tx_cl_variant(b, variant);
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

/* Row sums of do * o: a few items a row, so that neighbours read neighbouring quads. */
static void launch_delta(tx_cl_builder *b, const tx_command *c, const attention *a)
{
    const int64_t count = a->B * a->T * a->heads;
    const size_t group = tx_cl_group(b->context, 128);
    size_t lanes = 1;
    while (!a->cpu && lanes < group && 4 * (int64_t)lanes < a->d && lanes < 16)
        lanes *= 2;
    char options[192];
    snprintf(options, sizeof options, "%s -DVW=%d -DWG=%zu -DLANES=%zu", a->facts, a->cpu ? 16 : 4, group, lanes);
    const size_t global = (size_t)count * lanes;
    tx_cl_launch(b, "attention_delta", options, "attention_delta", 1, &global, &group);
    tx_cl_arg_operand(b, &c->in[0]);
    tx_cl_arg_operand(b, &c->in[2]);
    tx_cl_arg_operand(b, &c->out[1]);
    tx_cl_arg_i64(b, count);
    tx_cl_arg_i32(b, (int32_t)a->T);
    tx_cl_arg_i32(b, a->heads);
}

/* in: do, qkv, o, lse, lengths. Row sums first, then queries, then keys and values. */
tx_status tx_cl_attention_grad(tx_cl_builder *b, const tx_command *c)
{
    const attention a = describe(b, c, &c->in[1], &c->in[4]);
    char note[2][160], variant[352];
    launch_delta(b, c, &a);
    for (int i = 0; i < 2; i++) {
        form f;
        tx_status status = launch(b, &a, i == 0 ? GRAD_Q : GRAD_KV, &f, note[i]);
        if (status != TX_OK)
            return status;
        tx_cl_arg_operand(b, &c->in[0]);
        tx_cl_arg_operand(b, &c->in[1]);
        tx_cl_arg_operand(b, &c->in[3]);
        tx_cl_arg_operand(b, &c->out[1]);
        tx_cl_arg_operand(b, &c->in[4]);
        tx_cl_arg_operand(b, &c->out[0]);
        tx_cl_arg_i32(b, (int32_t)a.T);
        finish_arguments(b, c, &a, &f);
    }
    snprintf(variant, sizeof variant, "tiles %s and %s", note[0], note[1]);
    tx_cl_variant(b, variant);
    return b->status;
}
