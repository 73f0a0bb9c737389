/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products for cores with vector registers: the block sizes and the launch of gemm_vector.cl.
 */
#include "backends/opencl/gemm/gemm.h"

#include <stdio.h>

typedef struct vector_plan {
    int64_t vector, rows, columns; /* of the register tile: rows x columns, columns = 3 vectors */
    int64_t mc, kc;                /* rows and terms of a block */
    int64_t strip_bytes, tiles_bytes, rows_bytes;
} vector_plan;

/* Returns the device's preferred vector width, but no wider than the columns need. */
static int64_t vector_width(const tx_context *context, int64_t n)
{
    int64_t width = context->limits.lanes;
    while (width > 4 && 3 * (width / 2) >= n)
        width /= 2;
    return width;
}

/* Chooses block sizes, in words of `terms` terms, that fit in local memory, which is cache on CPUs. Half is for the
 * strip of b (and rows of a), half for pending sums. A core's own cache is assumed to hold 512 KiB. */
static vector_plan plan_vector(const tx_context *context, const tx_cl_product *p, int64_t terms)
{
    const tx_gemm *g = &p->g;
    vector_plan v = {.vector = vector_width(context, g->n)};
    /* 16 lanes mean AVX-512 with 32 registers; narrower vectors may have only 16 registers. */
    v.rows = v.vector == 16 ? 8 : 4;
    v.columns = 3 * v.vector;
    const int64_t half = (tx_cl_least(context->limits.local_bytes, 512 << 10) - 1024) / 2;
    const int64_t term_bytes = 4 * (v.columns + v.rows), row_bytes = 4 * v.columns;
    const int64_t words = g->k / terms;
    /* Copied rows of a are read once for each strip and should stay in the L1 cache. */
    int64_t strip_words = tx_cl_least(half / term_bytes - v.vector, p->from == TX_F32 ? 1024 : 512);
    if (strip_words < words) {
        strip_words = tx_cl_least(strip_words, 512);
        strip_words = tx_cl_blocks(words, tx_cl_blocks(words, strip_words));
        v.mc = tx_cl_least(half / row_bytes, 512) / v.rows * v.rows;
    } else {
        strip_words = words;
        v.mc = 1024;
    }
    /* Chooses a few work-groups for every core while a strip is reused often enough to pay for its copy. */
    while (v.mc > 8 * v.rows && tx_cl_blocks(g->n, v.columns) * tx_cl_blocks(g->m, v.mc) * g->batch <
                                    4 * (int64_t)context->limits.compute_units)
        v.mc = tx_cl_blocks(v.mc / 2, v.rows) * v.rows;
    if (p->packed != TX_F32) /* whole vectors; the limit of `strip_words` allows for them */
        strip_words = tx_cl_blocks(strip_words, v.vector) * v.vector;
    v.kc = strip_words * terms;
    v.strip_bytes = strip_words * row_bytes;
    v.tiles_bytes = (strip_words < words ? v.mc : v.rows) * row_bytes;
    v.rows_bytes = p->from == TX_F32 ? 4 : 4 * v.rows * (strip_words + v.vector);
    return v;
}

static double vector_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    const bool beaten = p->from == TX_BF16 && p->packed == TX_F32 && b->context->can.bf16;
    return tx_cl_fits(b->limits, self->name, 16 << 10, 1, why, TX_CL_WHY) ? (beaten ? 0.5 : 1.0) : 0.0;
}

/* Requires that contiguous terms form whole words. */
static double dot_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    const tx_gemm *g = &p->g;
    const int64_t rows_of_a = p->trans_a ? 0 : g->lda | g->stride_a, rows_of_b = p->trans_b ? g->ldb | g->stride_b : 0;
    const bool whole = (g->k | rows_of_a | rows_of_b) % 2 == 0 && (p->a->offset | p->b->offset) % 4 == 0;
    if (p->from != TX_BF16 || !b->context->can.bf16 || !whole)
        return 0.0;
    return tx_cl_fits(b->limits, self->name, 16 << 10, 1, why, TX_CL_WHY) ? 1.0 : 0.0;
}

static void vector_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    const bool dot = self->suits == dot_suits;
    const vector_plan v = plan_vector(b->context, p, dot ? 2 : 1);
    const size_t global[3] = {(size_t)tx_cl_blocks(p->g.n, v.columns), (size_t)tx_cl_blocks(p->g.m, v.mc),
                              (size_t)p->g.batch + (p->offsets && !p->trans_a)};
    const size_t local[3] = {1, 1, 1};
    char form[64], options[192];
    snprintf(form, sizeof form, "-DVECTOR=%d -DROWS=%d -DDOT=%d", (int)v.vector, (int)v.rows, dot);
    tx_cl_gemm_options(options, sizeof options, form, p);
    tx_cl_launch(b, "gemm_vector", options, "gemm_vector", 3, global, local);
    tx_cl_gemm_arguments(b, p);
    TX_CL_I64(b, v.mc, v.kc);
    tx_cl_arg_local(b, (size_t)v.strip_bytes);
    tx_cl_arg_local(b, (size_t)v.tiles_bytes);
    tx_cl_arg_local(b, (size_t)v.rows_bytes);
    tx_cl_gemm_offsets(b, p);
}

/* fp32, and bf16 with x86's instruction for it. */
static const tx_cl_provider vector[] = {
    {.name = "portable-vector",
     .device = TX_CL_CPUS,
     .packed = true,
     .grouped = true,
     .suits = vector_suits,
     .emit = vector_emit},
    {.name = "x86-dot", .device = TX_CL_CPUS, .piece = 4, .suits = dot_suits, .emit = vector_emit},
};
TX_CL_PROVIDERS(vector, vector);
