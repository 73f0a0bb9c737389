/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the ops of recurrent layers: short convolution, rates, linear attention.
 */
#include "backends/opencl/ops/ops.h"
#include "backends/scan.h"

#include <stdio.h>

/* Begins a launch of a kernel with a work-item for each of `count` results. */
static void by_items(tx_cl_builder *b, const char *source, const char *options, const char *kernel, int64_t count)
{
    const size_t local = tx_cl_group(b, 64), global = (size_t)count;
    tx_cl_launch(b, source, options, kernel, 1, &global, &local);
}

/* Passes an operand and whether it is present. */
static void optional(tx_cl_builder *b, const tx_operand *o)
{
    TX_CL_OPERANDS(b, tx_present(o) ? o : NULL);
    TX_CL_I32(b, tx_present(o));
}

/* Adds the sums of blocks of rows of `work`: those of output 1 come first, then those of output 2. */
static tx_status fold_sums(tx_cl_builder *b, const tx_command *c, const tx_operand *work, int64_t first, int64_t second)
{
    for (int i = 1; i <= 2; i++) {
        const int64_t n = i == 1 ? first : second;
        if (!tx_present(&c->out[i]))
            continue;
        by_items(b, "short_conv", "-DVW=1", "fold_blocks", n);
        TX_CL_OPERANDS(b, work, &c->out[i]);
        TX_CL_I64(b, work->shape.dim[0], first + second, i == 1 ? 0 : first, n);
        tx_cl_arg_accumulate(b, c);
    }
    return b->status;
}

/* ---- Short convolution --------------------------------------------------------------------------------- */

static tx_cl_form conv_form(const tx_cl_builder *b, const tx_command *c, int x)
{
    return tx_cl_form_of(b, c, tx_shape_last(&c->in[x].shape), false, "-DTAPS=%d -DSILU=%d %s",
                         (int)c->in[x + 1].shape.dim[1], c->attrs.scan.silu, tx_cl_type(&c->in[x]));
}

tx_status tx_cl_short_conv(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[0].shape;
    const tx_cl_form form = conv_form(b, c, 0);
    tx_cl_launch_columns(b, &form, "short_conv", "short_conv", tx_shape_last(x), tx_shape_rows(x));
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1]);
    optional(b, &c->in[2]);
    optional(b, &c->in[3]);
    TX_CL_OPERANDS(b, &c->out[0]);
    return TX_CL_I64(b, tx_shape_last(x), x->dim[1]);
}

tx_status tx_cl_short_conv_cached(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[0].shape;
    const tx_cl_form form = conv_form(b, c, 0);
    const int32_t rows = (int32_t)c->in[3].shape.dim[0];
    tx_cl_launch_columns(b, &form, "short_conv", "short_conv_cached", tx_shape_last(x), tx_shape_rows(x));
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1]);
    optional(b, &c->in[2]);
    TX_CL_OPERANDS(b, &c->in[3], &c->in[4], &c->out[0]);
    TX_CL_I64(b, tx_shape_last(x), x->dim[1]);
    TX_CL_I32(b, rows);
    tx_cl_launch_columns(b, &form, "short_conv", "short_conv_tail", tx_shape_last(x), x->dim[0]);
    TX_CL_OPERANDS(b, &c->in[0], &c->out[1], &c->in[4]);
    TX_CL_I64(b, tx_shape_last(x), x->dim[1]);
    return TX_CL_I32(b, rows);
}

tx_status tx_cl_short_conv_grad(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *x = &c->in[1].shape;
    const int64_t columns = tx_shape_last(x), rows = tx_shape_rows(x), blocks = tx_row_blocks(rows);
    const tx_cl_form form = conv_form(b, c, 1);
    tx_cl_launch_columns(b, &form, "short_conv", "short_conv_grad", columns, blocks);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->in[2]);
    optional(b, &c->in[3]);
    optional(b, &c->in[4]);
    TX_CL_OPERANDS(b, &c->out[0]);
    optional(b, &c->out[3]);
    TX_CL_I64(b, columns, x->dim[1], rows, tx_block_size(rows, TX_ROW_BLOCK));
    return fold_sums(b, c, &c->out[3], columns * c->in[2].shape.dim[1], columns);
}

/* ---- Rates --------------------------------------------------------------------------------------------- */

/* Begins a launch for `rows` rows, or blocks of rows, of heads. */
static int64_t by_heads(tx_cl_builder *b, const tx_command *c, int x, const char *kernel, int64_t rows)
{
    const int64_t heads = c->in[x + 1].shape.dim[0];
    char options[64];
    snprintf(options, sizeof options, "-DVW=1 -DDELTA=%d %s", c->attrs.scan.delta, tx_cl_type(&c->in[x]));
    by_items(b, "short_conv", options, kernel, rows * heads);
    return heads;
}

tx_status tx_cl_scan_rates(tx_cl_builder *b, const tx_command *c)
{
    const int64_t rows = tx_shape_rows(&c->in[0].shape), heads = by_heads(b, c, 0, "scan_rates", rows);
    tx_cl_arg_all(b, c);
    TX_CL_I64(b, heads);
    TX_CL_F32(b, c->attrs.scan.low, c->attrs.scan.high);
    return TX_CL_I64(b, rows * heads);
}

tx_status tx_cl_scan_rates_grad(tx_cl_builder *b, const tx_command *c)
{
    const int64_t rows = tx_shape_rows(&c->in[1].shape), blocks = tx_row_blocks(rows),
                  heads = by_heads(b, c, 1, "scan_rates_grad", blocks);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->in[2], &c->in[3], &c->out[0]);
    optional(b, &c->out[3]);
    TX_CL_I64(b, heads);
    TX_CL_F32(b, c->attrs.scan.low, c->attrs.scan.high);
    TX_CL_I64(b, rows, tx_block_size(rows, TX_ROW_BLOCK), blocks * heads);
    return fold_sums(b, c, &c->out[3], heads, heads);
}

/* ---- Linear attention ------------------------------------------------------------------------------------ */

#define STEP 16  /* tokens that one work-item substitutes in order */
#define INFO 448 /* numbers of a chunk (scan_shared.cl) */
#define FEW 16   /* tokens of a row that continue earlier ones without chunks */

/* The launches of a command, and what its first kernels prepare. */
typedef struct scan_launch {
    tx_scan s;
    int64_t padded;  /* elements of a head, rounded up to 4 */
    int64_t columns; /* of the state that a work-group has */
    int64_t heads;   /* value heads of all samples */
    size_t group;
    char options[192];
    tx_operand keys, info, pairs;
    const tx_operand *spans; /* of an op that continues earlier tokens, or NULL */
} scan_launch;

static int64_t local_bytes(const scan_launch *l, int64_t columns)
{
    return (l->padded + TX_SCAN_CHUNK) * columns * (int64_t)sizeof(float);
}

/* Begins a launch with a work-group for each of `groups`. */
static void by_groups(tx_cl_builder *b, const scan_launch *l, const char *source, const char *kernel, int64_t groups)
{
    const size_t global = (size_t)groups * l->group;
    tx_cl_launch(b, source, l->options, kernel, 1, &global, &l->group);
}

/* Launches the kernel that normalizes keys and queries. `x` is the index of qkv. */
static void prepare_keys(tx_cl_builder *b, const tx_command *c, int x, bool grad, scan_launch *l)
{
    const tx_attrs *a = &c->attrs;
    *l = (scan_launch){.s = tx_scan_of(a, &c->in[x].shape), .group = tx_cl_group(b, 64), .columns = 16};
    const tx_scan *s = &l->s;
    l->spans = c->op == TX_OP_LINEAR_SCAN_CACHED ? &c->in[4] : NULL;
    l->padded = tx_round_up(s->k_size, 4);
    l->heads = s->batch * s->v_heads;
    while (l->columns > 4 &&
           (l->columns / 2 >= s->v_size || local_bytes(l, l->columns) > b->limits->local_bytes - 2048))
        l->columns /= 2;
    snprintf(l->options, sizeof l->options,
             "-DVW=1 -DWG=%zu -DCHUNK=%d -DSTEP=%d -DK_HEADS=%d -DV_HEADS=%d -DKS=%d -DVS=%d -DCB=%d -DDELTA=%d "
             "-DGRAD=%d -DCACHED=%d %s",
             l->group, TX_SCAN_CHUNK, STEP, (int)s->k_heads, (int)s->v_heads, (int)s->k_size, (int)s->v_size,
             (int)l->columns, a->scan.delta, grad, l->spans != NULL, tx_cl_type(&c->in[x]));
    const int64_t keys = s->batch * s->time * s->k_heads * 2;
    l->keys = tx_cl_scratch(b, TX_F32, TX_SHAPE(keys, l->padded));
    by_items(b, "scan", l->options, "scan_keys", keys);
    TX_CL_OPERANDS(b, &c->in[x], &l->keys);
    TX_CL_I64(b, keys);
    TX_CL_F32(b, a->eps, a->scale);
}

/* Launches all preparing kernels. */
static void prepare(tx_cl_builder *b, const tx_command *c, int x, bool grad, scan_launch *l)
{
    static const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    prepare_keys(b, c, x, grad, l);
    const tx_scan *s = &l->s;
    const int64_t chunks = l->heads * s->chunks;
    l->info = tx_cl_scratch(b, TX_F32, TX_SHAPE(chunks, INFO));
    l->pairs = tx_cl_scratch(b, TX_F32, TX_SHAPE(chunks, 2, TX_SCAN_CHUNK, TX_SCAN_CHUNK));
    by_items(b, "scan", l->options, "scan_info", chunks);
    TX_CL_OPERANDS(b, &c->in[x + 1]);
    optional(b, l->spans ? &none : &c->in[x + 3]);
    TX_CL_OPERANDS(b, l->spans, &l->info);
    TX_CL_I64(b, s->time, s->chunks, chunks);
    by_groups(b, l, "scan", "scan_pairs", chunks);
    TX_CL_OPERANDS(b, &l->keys, &l->info, &l->pairs);
    TX_CL_I64(b, s->time, s->chunks);
}

static int64_t column_blocks(const scan_launch *l)
{
    return tx_cl_blocks(l->s.v_size, l->columns);
}

static void forward(tx_cl_builder *b, const tx_command *c, int x, const scan_launch *l, const tx_operand *o,
                    const tx_operand *states, const tx_operand *last)
{
    by_groups(b, l, "scan", "scan_forward", l->heads * column_blocks(l));
    TX_CL_OPERANDS(b, &c->in[x], &l->keys, &l->info, &l->pairs);
    optional(b, &c->in[x + 2]);
    TX_CL_OPERANDS(b, l->spans, o, states, last);
    TX_CL_I32(b, (int32_t)c->in[3].shape.dim[0]); /* rows of states, if there are any */
    TX_CL_I64(b, l->s.time, l->s.chunks);
    tx_cl_arg_local(b, (size_t)local_bytes(l, l->columns));
}

tx_status tx_cl_linear_scan(tx_cl_builder *b, const tx_command *c)
{
    scan_launch l;
    prepare(b, c, 0, false, &l);
    forward(b, c, 0, &l, &c->out[0], NULL, NULL);
    return b->status;
}

tx_status tx_cl_linear_scan_cached(tx_cl_builder *b, const tx_command *c)
{
    scan_launch l;
    if (c->in[0].shape.dim[1] > FEW) {
        prepare(b, c, 0, false, &l);
        forward(b, c, 0, &l, &c->out[0], NULL, &c->out[1]);
        return b->status;
    }
    prepare_keys(b, c, 0, false, &l);
    const int64_t count = l.heads * l.s.v_size;
    by_items(b, "scan", l.options, "scan_steps", count);
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &l.keys);
    optional(b, &c->in[2]);
    TX_CL_OPERANDS(b, &c->out[1], &c->in[4], &c->out[0]);
    TX_CL_I32(b, (int32_t)c->in[3].shape.dim[0]);
    return TX_CL_I64(b, l.s.time, count);
}

static void backward(tx_cl_builder *b, const tx_command *c, const scan_launch *l, const tx_operand *dstates,
                     const tx_operand *dn)
{
    by_groups(b, l, "scan_grad", "scan_backward", l->heads * column_blocks(l));
    TX_CL_OPERANDS(b, &c->in[0], &l->keys, &l->info, &l->pairs);
    optional(b, &c->in[3]);
    TX_CL_OPERANDS(b, &c->out[0], dstates, dn);
    TX_CL_I64(b, l->s.time, l->s.chunks);
    tx_cl_arg_local(b, (size_t)local_bytes(l, l->columns));
}

/* Gradients of q, k, g and the weights; the last argument is the number of parts. */
static void grad_keys(tx_cl_builder *b, const tx_command *c, const scan_launch *l, const tx_operand *last,
                      const tx_operand *dstates, const tx_operand *dn)
{
    const tx_scan *s = &l->s;
    const int64_t groups = s->batch * s->k_heads * s->parts * s->chunks, own_rows = c->attrs.scan.delta ? 3 : 2;
    const tx_operand squares = tx_cl_scratch(b, TX_F32, TX_SHAPE(groups, 2, TX_SCAN_CHUNK, TX_SCAN_CHUNK)),
                     own = tx_cl_scratch(b, TX_F32, TX_SHAPE(groups, TX_SCAN_CHUNK, own_rows, l->padded));
    by_groups(b, l, "scan_grad", "scan_grad_keys", groups);
    TX_CL_OPERANDS(b, &c->in[0], &l->keys, &l->info, &c->out[3], last, dstates, dn, &squares, &own, &c->out[1],
                   &c->out[4]);
    TX_CL_I64(b, s->time, s->chunks);
    TX_CL_I32(b, (int32_t)s->parts);
    const int64_t keys = s->batch * s->time * s->k_heads * 2;
    by_items(b, "scan_grad", l->options, "scan_grad_fold", keys);
    TX_CL_OPERANDS(b, &c->in[1], &c->out[4], &c->out[0]);
    TX_CL_I64(b, keys);
    TX_CL_I32(b, (int32_t)s->parts);
    TX_CL_F32(b, c->attrs.eps, c->attrs.scale);
}

tx_status tx_cl_linear_scan_grad(tx_cl_builder *b, const tx_command *c)
{
    scan_launch l;
    prepare(b, c, 1, true, &l);
    const tx_scan *s = &l.s;
    const tx_operand last = tx_cl_scratch(b, TX_F32, TX_SHAPE(l.heads, s->k_size, s->v_size)),
                     dstates = tx_cl_scratch(b, TX_F32, TX_SHAPE(l.heads * s->chunks, s->k_size, s->v_size)),
                     dn = tx_cl_scratch(b, TX_F32, TX_SHAPE(l.heads * s->chunks, TX_SCAN_CHUNK, s->v_size));
    forward(b, c, 1, &l, NULL, &c->out[3], &last);
    backward(b, c, &l, &dstates, &dn);
    grad_keys(b, c, &l, &last, &dstates, &dn);
    if (tx_present(&c->out[2])) {
        by_groups(b, &l, "scan_grad", "scan_grad_skip", s->v_heads);
        TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->out[2]);
        TX_CL_I64(b, s->batch * s->time);
        tx_cl_arg_accumulate(b, c);
    }
    return b->status;
}
