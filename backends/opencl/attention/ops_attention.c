/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the attention kernels: forward, gradient and with caches.
 */
#include "api/base/number.h"
#include "backends/opencl/attention/attention.h"
#include "backends/opencl/ops/ops.h"

#include <stdio.h>
#include <string.h>

/* With caches `lengths` is NULL, and `starts` are slots. `sinks` is NULL in the gradient. */
static tx_cl_attention_job describe(const tx_cl_builder *b, const tx_command *c, const tx_operand *qkv,
                                    const tx_operand *lengths, const tx_operand *starts, const tx_operand *sinks)
{
    const tx_shape *shape = &qkv->shape;
    const bool cached = !lengths;
    char slots[40];
    tx_cl_attention_job a = {.command = c,
                             .heads = c->attrs.attention.heads,
                             .kv_heads = c->attrs.attention.kv_heads,
                             .last = tx_shape_last(shape),
                             .cached = cached};
    a.limits = b->limits;
    a.type = qkv->dtype;
    a.T = shape->dim[shape->rank - 2];
    a.B = tx_shape_rows(shape) / a.T;
    a.S = cached ? c->in[1].shape.dim[c->in[1].shape.rank - 2] : a.T;
    a.window = (int32_t)tx_cl_least(c->attrs.attention.window, a.S);
    a.starts = tx_present(starts) ? starts : NULL;
    a.sinks = sinks && tx_present(sinks) ? sinks : NULL;
    a.d = (int32_t)(a.last / (a.heads + 2 * a.kv_heads));
    snprintf(slots, sizeof slots, " -DSLOTS=%lld", cached && a.starts ? (long long)c->in[1].shape.dim[0] : 0LL);
    snprintf(a.facts, sizeof a.facts, "-DD=%d -DCAUSAL=%d -DLENGTHS=%d -DDROPOUT=%d -DCACHED=%d%s%s %s", a.d,
             c->attrs.attention.causal || cached, !cached && tx_present(lengths), c->attrs.draw.p > 0.0f && !cached,
             cached,
             a.window == 0                ? ""
             : c->attrs.attention.chunked ? " -DWINDOW=2"
                                          : " -DWINDOW=1",
             cached     ? slots
             : a.starts ? " -DSTARTS=1"
                        : "",
             tx_cl_type(qkv));
    const size_t used = strlen(a.facts);
    if (c->attrs.attention.cap > 0.0f)
        tx_format(a.facts + used, sizeof a.facts - used, " -DCAP=%af", (double)c->attrs.attention.cap);
    if (a.sinks)
        strcat(a.facts, " -DSINKS=1");
    if (cached && c->in[1].dtype == TX_U8)
        strcat(a.facts, " -DBLOCKS=1");
    return a;
}

static void forward_operands(tx_cl_builder *b, const tx_command *c, const tx_cl_attention_job *a)
{
    TX_CL_OPERANDS(b, &c->in[0], &c->in[a->cached ? 3 : 1], a->cached ? &c->in[1] : NULL, a->cached ? &c->in[2] : NULL);
    TX_CL_OPERANDS(b, &c->out[0], a->cached ? NULL : &c->out[1]);
}

static void gradient_operands(tx_cl_builder *b, const tx_command *c, const tx_cl_attention_job *a)
{
    (void)a;
    TX_CL_OPERANDS(b, &c->in[0], &c->in[1], &c->in[3], &c->out[1], &c->in[4], &c->out[0]);
}

/* The tiled kernels, and the number of products of T x T matrices in each. */
static const struct {
    const char *name;
    int products;
    void (*operands)(tx_cl_builder *b, const tx_command *c, const tx_cl_attention_job *a);
} kernels[] = {
    {"attention", 2, forward_operands},
    {"attention_grad_q", 3, gradient_operands},
    {"attention_grad_kv", 4, gradient_operands},
};

/* Computes how many tiles, heads and samples a launch processes: all, or fewer if that takes too long. A causal
 * tile may have twice the average work. */
static void divide(tx_cl_builder *b, const tx_cl_attention_job *a, const int64_t whole[3], double work,
                   int64_t share[3])
{
    const double row = work / (double)whole[2], head = row / (double)whole[1];
    share[2] = tx_cl_parts_per_launch(b, whole[2], work);
    share[1] = share[2] > 1 ? whole[1] : tx_cl_parts_per_launch(b, whole[1], row);
    share[0] = share[1] > 1
                   ? whole[0]
                   : tx_cl_parts_per_launch(b, whole[0], a->command->attrs.attention.causal ? 2.0 * head : head);
}

/* Launches a form with `share` work-groups from `first` on. `sums`: the operand for column sums, or NULL. */
static void launch_share(tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                         const tx_cl_attention_form *f, const tx_operand *sums, const int64_t first[3],
                         const int64_t share[3])
{
    const tx_command *c = a->command;
    const size_t local[] = {(size_t)f->group, 1, 1};
    const size_t global[] = {(size_t)share[0] * local[0], (size_t)share[1], (size_t)share[2]};
    char options[304], form[128], appends[16] = "";
    f->kind->options(b->context, f, form, sizeof form);
    if (b->before && f->kind->appends)
        snprintf(appends, sizeof appends, " -DAPPENDS=%d", tx_cl_overlap(&c->in[1], &c->in[2]) ? 1 : 2);
    snprintf(options, sizeof options, "%s %s%s", a->facts, form, appends);
    tx_cl_launch(b, f->kind->source[kernel], options, kernels[kernel].name, 3, global, local);
    kernels[kernel].operands(b, c, a);
    TX_CL_I32(b, (int32_t)a->T, (int32_t)a->S);
    TX_CL_OPERANDS(b, a->starts);
    TX_CL_I32(b, a->heads, a->kv_heads, a->window);
    TX_CL_F32(b, c->attrs.scale, c->attrs.draw.p);
    TX_CL_I32(b, c->attrs.draw.site, (int32_t)c->attrs.first, (int32_t)c->attrs.draw.row,
              (int32_t)c->attrs.draw.column);
    TX_CL_I32(b, (int32_t)first[2], (int32_t)first[1], (int32_t)first[0]);
    tx_cl_arg_control(b);
    if (a->sinks)
        TX_CL_OPERANDS(b, a->sinks);
    if (f->sums)
        TX_CL_OPERANDS(b, sums);
    if (f->kind->local_argument)
        tx_cl_arg_local(b, (size_t)f->local_bytes);
}

/* Launches a kernel for the whole batch; see tx_cl_attention_choose for `note`. */
static tx_status launch(tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel, char note[160])
{
    const tx_command *c = a->command;
    tx_cl_attention_form f;
    if (a->S * a->last > (int64_t)UINT32_MAX)
        return tx_fail(TX_UNSUPPORTED, "attention over %lld rows of %lld: the maximum is 2^32 elements in a sequence",
                       (long long)a->S, (long long)a->last);
    TX_TRY(tx_cl_attention_choose(b, a, kernel, &f, note));
    if (b->before && !f.kind->appends)
        TX_TRY(b->emit(b, b->before));
    const double keys = (double)(a->window > 0 ? tx_cl_least(a->window + f.cols, a->S) : a->S);
    const double scores =
        (double)(a->B * a->heads * a->T) * keys * (c->attrs.attention.causal && !a->window ? 0.5 : 1.0);
    const int64_t whole[3] = {tx_cl_blocks(a->T, f.lines), kernel == TX_CL_GRAD_KV ? a->kv_heads : a->heads, a->B};
    int64_t share[3], first[3], part[3];
    tx_operand *sums = a->column_sums && f.sums ? &a->column_sums[kernel - TX_CL_GRAD_Q] : NULL;
    if (sums)
        *sums = tx_cl_scratch(b, TX_F32,
                              TX_SHAPE(whole[2] * whole[0], (kernel == TX_CL_GRAD_KV ? 2 : 1) * whole[1] * a->d));
    divide(b, a, whole, 2.0 * kernels[kernel].products * scores * a->d, share);
    for (first[2] = 0; first[2] < whole[2]; first[2] += share[2])
        for (first[1] = 0; first[1] < whole[1]; first[1] += share[1])
            for (first[0] = 0; first[0] < whole[0]; first[0] += share[0]) {
                for (int i = 0; i < 3; i++)
                    part[i] = tx_cl_least(share[i], whole[i] - first[i]);
                launch_share(b, a, kernel, &f, sums, first, part);
            }
    return b->status;
}

tx_status tx_cl_attention_over(tx_cl_builder *b, const tx_command *c, const tx_operand *lengths,
                               const tx_operand *starts, const tx_operand *sinks)
{
    const tx_cl_attention_job a = describe(b, c, &c->in[0], lengths, starts, sinks);
    char note[160] = "", variant[192];
    TX_TRY(launch(b, &a, TX_CL_FORWARD, note));
    snprintf(variant, sizeof variant, "tiles %s", note);
    tx_cl_variant(b, variant);
    return b->status;
}

tx_status tx_cl_attention(tx_cl_builder *b, const tx_command *c)
{
    return tx_cl_attention_over(b, c, &c->in[TX_IN(attention, lengths)], &c->in[TX_IN(attention, starts)],
                                &c->in[TX_IN(attention, sinks)]);
}

/* Computes row sums of do * o, or from these the gradients of sinks. A few work-items share a row, so that neighbours
 * read neighbouring quads. */
static void launch_delta(tx_cl_builder *b, const tx_cl_attention_job *a, const tx_operand *d_o, const tx_operand *o,
                         const tx_operand *out)
{
    const int64_t count = a->B * a->T * a->heads;
    const size_t group = tx_cl_group(b, 128);
    size_t lanes = 1;
    while (!a->limits->cpu && lanes < group && 4 * (int64_t)lanes < a->d && lanes < 16)
        lanes *= 2;
    char options[256];
    snprintf(options, sizeof options, "%s -DVW=%d -DWG=%zu -DLANES=%zu%s", a->facts, a->limits->cpu ? 16 : 4, group,
             lanes, a->sinks ? " -DSINK_SLOPES" : "");
    const size_t global = (size_t)count * lanes;
    tx_cl_launch(b, "attention_delta", options, "attention_delta", 1, &global, &group);
    TX_CL_OPERANDS(b, d_o, o, out);
    TX_CL_I64(b, count);
    TX_CL_I32(b, (int32_t)a->T, a->heads);
    if (a->sinks)
        TX_CL_OPERANDS(b, &a->command->in[TX_IN(attention_sink_grad, lse)], a->sinks);
}

tx_status tx_cl_attention_sink_grad(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *o = &c->in[1].shape;
    tx_cl_attention_job a = {.command = c, .B = o->dim[0], .T = o->dim[1], .sinks = &c->in[3]};
    a.limits = b->limits;
    a.heads = (int32_t)tx_shape_count(&a.sinks->shape);
    a.d = (int32_t)(o->dim[2] / a.heads);
    snprintf(a.facts, sizeof a.facts, "-DD=%d -DCAUSAL=0 -DLENGTHS=0 -DDROPOUT=0 -DCACHED=0 %s", a.d,
             tx_cl_type(&c->in[1]));
    launch_delta(b, &a, &c->in[0], &c->in[1], &c->out[0]);
    return b->status;
}

/* Inputs: do, qkv, o, lse, lengths, starts. Launches the row sums first, then queries, then keys and values, and the
 * sum of the result over all rows if that is joined. */
tx_status tx_cl_attention_grad(tx_cl_builder *b, const tx_command *c)
{
    tx_operand sums[2] = {{.dtype = TX_DTYPE_COUNT}, {.dtype = TX_DTYPE_COUNT}};
    tx_cl_attention_job a = describe(b, c, &c->in[1], &c->in[4], &c->in[5], NULL);
    a.column_sums = b->after ? sums : NULL;
    char note[2][160] = {"", ""}, variant[352];
    launch_delta(b, &a, &c->in[0], &c->in[2], &c->out[1]);
    for (int i = 0; i < 2; i++) {
        const tx_cl_attention_kernel kernel = i == 0 ? TX_CL_GRAD_Q : TX_CL_GRAD_KV;
        TX_TRY(tx_cl_attention_runs(b, kernel) ? launch(b, &a, kernel, note[i]) : TX_OK);
    }
    snprintf(variant, sizeof variant, "tiles %s and %s", note[0], note[1]);
    tx_cl_variant(b, variant);
    return b->after ? tx_cl_sum_after(b, sums, 2) : b->status;
}
