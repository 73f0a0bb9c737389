/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of few rows: the shape of the work-groups and the launch of gemm_few.cl.
 */
#include "backends/opencl/gemm/gemm.h"

#include "backends/opencl/ops/ops.h"

#include <stdio.h>

#define FEW_COLUMNS 512  /* columns of a work-item on a CPU; its sums stay in the L1 cache */
#define NORM_COLUMNS 256 /* the same if it also normalizes the rows, which takes as long as two columns */
#define RESIDENT 8       /* groups of 256 work-items that a unit of a GPU runs at a time */

typedef struct few_plan {
    int vector, run, across, along, columns;
} few_plan;

static double few_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    const size_t group = b->limits->cpu ? 1 : 64;
    return p->g.m <= TX_CL_FEW_ROWS && !p->trans_a && tx_cl_fits(b->limits, self->name, 0, group, why, TX_CL_WHY);
}

/* Returns true if vectors of 4 elements are aligned to their size in every row. */
static bool few_aligned(const tx_cl_builder *b, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const tx_command *norm = b->before;
    const tx_operand *others[] = {
        p->bias, p->z, p->kept, norm ? &norm->in[0] : p->z, norm ? &norm->in[1] : p->z, norm ? &norm->in[2] : p->z};
    for (int i = 0; i < 6; i++)
        if (tx_present(others[i]) && others[i]->offset % 16 != 0)
            return false;
    return (g->n | g->lda | g->ldb | g->stride_a | g->stride_b) % 4 == 0 &&
           (p->a->offset | p->b->offset | p->y->offset) % 16 == 0;
}

/* Chooses a few work-items for every core. */
static few_plan plan_few_cpu(const tx_cl_builder *b, const tx_cl_product *p)
{
    few_plan f = {.vector = 16, .run = 4, .across = 1, .along = 1, .columns = 1};
    const int64_t each = tx_cl_blocks(p->g.n, 2 * (int64_t)b->limits->compute_units);
    if (p->trans_b)
        f.columns = (int)tx_cl_least(each, b->before ? NORM_COLUMNS : 64);
    else
        f.run = (int)tx_cl_blocks(tx_cl_least(each, FEW_COLUMNS), f.vector);
    return f;
}

/* Chooses rows of 16 or 32 items that read adjacent memory. A group has as many columns as possible while there is
 * a group for every compute unit. Groups that also normalize the rows are about as many as run at a time. */
static few_plan plan_few_gpu(const tx_cl_builder *b, const tx_cl_product *p)
{
    const int64_t max_group = tx_cl_least((int64_t)b->limits->max_item[0], 256), units = b->limits->compute_units;
    few_plan f = {.vector = few_aligned(b, p) ? 4 : 1, .run = 1, .columns = 1};
    const int64_t group = max_group >= 256 ? 256 : max_group >= 128 ? 128 : 64;
    if (p->trans_b) {
        f.along = 32;
        f.across = (int)(group / f.along);
        if (b->before)
            f.columns = (int)tx_cl_blocks(p->g.n, f.across * RESIDENT * units);
        return f;
    }
    for (f.across = 32; f.across > 8; f.across /= 2)
        if (tx_cl_blocks(p->g.n, (int64_t)f.across * f.vector) * p->g.batch >= units)
            break;
    f.along = (int)(group / f.across);
    return f;
}

/* Returns the output of the norm, or NULL if the product or the op after it writes over it: nothing reads it later. */
static const tx_operand *kept_output(const tx_cl_builder *b, const tx_cl_product *p, int i)
{
    const tx_operand *o = &b->before->out[i];
    const bool gone =
        tx_cl_overlap(o, p->y) || tx_cl_overlap(o, p->kept) || (b->after && tx_cl_overlap(o, &b->after->out[0]));
    return gone ? NULL : o;
}

static void norm_arguments(tx_cl_builder *b, const tx_cl_product *p, const few_plan *f)
{
    const tx_command *norm = b->before;
    const bool rms = norm->op == TX_OP_RMS_NORM;
    TX_CL_OPERANDS(b, &norm->in[0], &norm->in[1], rms ? NULL : &norm->in[2], kept_output(b, p, 0),
                   rms ? NULL : kept_output(b, p, 1), kept_output(b, p, rms ? 1 : 2));
    TX_CL_F32(b, norm->attrs.eps);
    tx_cl_arg_local(b, (size_t)(4 * p->g.m * tx_cl_blocks(p->g.k, f->vector) * f->vector));
}

static void next_arguments(tx_cl_builder *b)
{
    const tx_command *next = b->after;
    TX_CL_OPERANDS(b, &next->out[0]);
    if (next->op == TX_OP_ROTARY)
        tx_cl_rotary_arguments(b, next);
}

static void few_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    (void)self;
    const tx_command *norm = b->before, *next = b->after;
    few_plan f = b->limits->cpu ? plan_few_cpu(b, p) : plan_few_gpu(b, p);
    if (next)
        f.columns = (f.columns + 1) / 2 * 2;
    const int64_t each = (int64_t)f.across * (p->trans_b ? f.columns : f.run * f.vector);
    const size_t local[2] = {(size_t)f.across * (size_t)f.along, 1};
    const size_t global[2] = {(size_t)tx_cl_blocks(p->g.n, each) * local[0], (size_t)p->g.batch};
    char form[128], options[320];
    int length = snprintf(form, sizeof form, "-DVW=%d -DRUN=%d -DROWS=%d -DACROSS=%d -DALONG=%d -DCOLUMNS=%d", f.vector,
                          f.run, (int)p->g.m, f.across, f.along, f.columns);
    if (norm)
        length += snprintf(form + length, sizeof form - (size_t)length, " -DWG=%d -DNORM=%d", (int)local[0],
                           norm->op == TX_OP_RMS_NORM ? 2 : 1);
    if (next)
        snprintf(form + length, sizeof form - (size_t)length, " -DNEXT=%d",
                 next->op == TX_OP_ROTARY           ? 1
                 : next->attrs.gate == TX_GATE_GELU ? 3
                                                    : 2);
    tx_cl_gemm_options(options, sizeof options, form, p);
    tx_cl_launch(b, "gemm_few", options, "gemm_few", 2, global, local);
    tx_cl_gemm_arguments(b, p);
    TX_CL_OPERANDS(b, p->z, p->kept);
    if (norm)
        norm_arguments(b, p, &f);
    if (next)
        next_arguments(b);
}

static const tx_cl_provider few[] = {{.name = "portable-few",
                                      .rows = TX_CL_FEW_ROWS,
                                      .epilogues = true,
                                      .joins = true,
                                      .packed = true,
                                      .suits = few_suits,
                                      .emit = few_emit}};
TX_CL_PROVIDERS(few, few);
