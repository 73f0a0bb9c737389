/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of few rows: the shape of the work-groups and the launch of gemm_few.cl.
 */
#include "backends/opencl/gemm/gemm.h"

#include <stdio.h>

#define FEW_ROWS 8
#define FEW_COLUMNS 512 /* columns of a work-item on a CPU; its sums stay in the L1 cache */

typedef struct few_plan {
    int vector, run, across, along, columns;
    int64_t groups;
} few_plan;

static double few_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    const size_t group = b->limits->cpu ? 1 : 64;
    return p->g.m <= FEW_ROWS && !p->trans_a && tx_cl_fits(b->limits, self->name, 0, group, why, TX_CL_WHY);
}

/* Returns true if vectors of 4 elements are aligned to their size in every row. */
static bool few_aligned(const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const tx_operand *others[] = {p->bias, p->z, p->kept};
    for (int i = 0; i < 3; i++)
        if (tx_present(others[i]) && others[i]->offset % 16 != 0)
            return false;
    return (g->n | g->lda | g->ldb | g->stride_a | g->stride_b) % 4 == 0 &&
           (p->a->offset | p->b->offset | p->y->offset) % 16 == 0;
}

/* Chooses a few work-items for every core. */
static few_plan plan_few_cpu(const tx_cl_limits *l, const tx_cl_product *p)
{
    few_plan f = {.vector = 16, .run = 4, .across = 1, .along = 1, .columns = 1};
    const int64_t each = tx_cl_blocks(p->g.n, 2 * (int64_t)l->compute_units);
    if (p->trans_b)
        f.columns = (int)tx_cl_least(each, 64);
    else
        f.run = (int)tx_cl_blocks(tx_cl_least(each, FEW_COLUMNS), f.vector);
    f.groups = tx_cl_blocks(p->g.n, p->trans_b ? f.columns : (int64_t)f.run * f.vector);
    return f;
}

/* Chooses rows of 16 or 32 items that read adjacent memory. A group has as many columns as possible while there is
 * a group for every compute unit. */
static few_plan plan_few_gpu(const tx_cl_limits *l, const tx_cl_product *p)
{
    const int64_t max_group = tx_cl_least((int64_t)l->max_item[0], 256);
    few_plan f = {.vector = few_aligned(p) ? 4 : 1, .run = 1, .columns = 1};
    const int64_t group = max_group >= 256 ? 256 : max_group >= 128 ? 128 : 64;
    if (p->trans_b) {
        f.along = 32;
        f.across = (int)(group / f.along);
        f.groups = tx_cl_blocks(p->g.n, f.across);
        return f;
    }
    for (f.across = 32; f.across > 8; f.across /= 2)
        if (tx_cl_blocks(p->g.n, (int64_t)f.across * f.vector) * p->g.batch >= (int64_t)l->compute_units)
            break;
    f.along = (int)(group / f.across);
    f.groups = tx_cl_blocks(p->g.n, (int64_t)f.across * f.vector);
    return f;
}

static void few_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    (void)self;
    const few_plan f = b->limits->cpu ? plan_few_cpu(b->limits, p) : plan_few_gpu(b->limits, p);
    const size_t local[2] = {(size_t)f.across * (size_t)f.along, 1};
    const size_t global[2] = {(size_t)f.groups * local[0], (size_t)p->g.batch};
    char form[96], options[256];
    snprintf(form, sizeof form, "-DVW=%d -DRUN=%d -DROWS=%d -DACROSS=%d -DALONG=%d -DCOLUMNS=%d", f.vector, f.run,
             (int)p->g.m, f.across, f.along, f.columns);
    tx_cl_gemm_options(options, sizeof options, form, p);
    tx_cl_launch(b, "gemm_few", options, "gemm_few", 2, global, local);
    tx_cl_gemm_arguments(b, p);
    TX_CL_OPERANDS(b, p->z, p->kept);
}

static const tx_cl_provider few[] = {{.name = "portable-few",
                                      .rows = FEW_ROWS,
                                      .epilogues = true,
                                      .packed = true,
                                      .suits = few_suits,
                                      .emit = few_emit}};
TX_CL_PROVIDERS(few, few);
