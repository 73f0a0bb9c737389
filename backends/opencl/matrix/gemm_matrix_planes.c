/* SPDX-License-Identifier: Apache-2.0
 *
 * fp32 products by planes of bf16: gemm_matrix_planes.cl splits both operands into scratch memory of the command,
 * which arena SCRATCH is planned for, and gemm_matrix.cl adds the products of planes.
 */
#include "backends/opencl/matrix/gemm_matrix_planes.h"

#include <stdio.h>

#define PADDING 8       /* lines are whole pieces of 16 bytes */
#define MEMORY_SHARE 32 /* planes take at most this share of the device's memory */

/* One operand, as it is stored. */
typedef struct split {
    int64_t matrices, lines, inner, ld, stride, padded;
} split;

static split split_of(const tx_cl_product *p, bool second)
{
    const tx_gemm *g = &p->g;
    const int64_t other = second ? g->n : g->m;
    const bool by_terms = second ? !p->trans_b : p->trans_a; /* a line of memory is a term */
    split s = {.lines = by_terms ? g->k : other,
               .inner = by_terms ? other : g->k,
               .ld = second ? g->ldb : g->lda,
               .stride = second ? g->stride_b : g->stride_a};
    s.matrices = s.stride ? g->batch : 1;
    s.padded = tx_cl_blocks(s.inner, PADDING) * PADDING;
    return s;
}

static int64_t elements(const split *s)
{
    return s->matrices * s->lines * s->padded;
}

double tx_cl_planes_suits(const tx_context *context, const tx_cl_product *p, int planes, double share)
{
    const split a = split_of(p, false), b = split_of(p, true);
    const int64_t count = elements(&a) + elements(&b), bytes = count * planes * (int64_t)sizeof(uint16_t);
    if (bytes > tx_cl_least(context->info.memory / MEMORY_SHARE, context->limits.max_allocation / 2))
        return 0.0;
    return share > 0.0 ? 1.0 / (1.0 / share + tx_cl_tile_moves(p, bytes + count * (int64_t)sizeof(float))) : 0.0;
}

static tx_operand split_operand(tx_cl_builder *b, const tx_operand *x, const split *s, int planes)
{
    const tx_operand made = tx_cl_scratch(b, TX_BF16, TX_SHAPE(s->matrices, planes, s->lines, s->padded));
    const bool quads = ((s->inner | s->ld | s->stride) % 4 | x->offset % 16) == 0;
    const int64_t count = elements(s) / (quads ? 4 : 1);
    const size_t global = (size_t)count, local = tx_cl_group(b, 256);
    char options[64];
    snprintf(options, sizeof options, "-DVW=%d -DPLANES=%d", quads ? 4 : 1, planes);
    tx_cl_launch(b, "gemm_matrix_planes", options, "gemm_matrix_planes", 1, &global, &local);
    TX_CL_OPERANDS(b, x, &made);
    TX_CL_I64(b, s->lines, s->inner, s->ld, s->stride, s->padded, count);
    return made;
}

void tx_cl_planes_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, int planes)
{
    const split a = split_of(p, false), second = split_of(p, true);
    const tx_operand planes_a = split_operand(b, p->a, &a, planes), planes_b = split_operand(b, p->b, &second, planes);
    tx_cl_product q = *p;
    q.a = &planes_a;
    q.b = &planes_b;
    q.from = TX_BF16;
    q.g.lda = a.padded;
    q.g.ldb = second.padded;
    q.g.stride_a = a.stride ? planes * a.lines * a.padded : 0;
    q.g.stride_b = second.stride ? planes * second.lines * second.padded : 0;
    q.whole = p;
    tx_cl_tile_emit(b, self, &q);
}
