/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by matrix units: the forms of gemm_matrix.cl, for 16-bit operands, tf32 (if allowed) and fp32.
 */
#include "backends/opencl/matrix/gemm_matrix_planes.h"
#include "backends/opencl/matrix/matrix.h"

#include <stdio.h>
#include <string.h>

/* Kinds of operands: 16-bit; fp32 rounded to tf32; fp32 with all bits; 16-bit with results of their type. */
enum { HALVES = 1, AS_TF32 = 2, FULL = 4, OVERLAPS = 8 | HALVES };

typedef struct matrix_form {
    const char *atom;    /* for WMMA the architecture selects the variant */
    tx_cl_vendor vendor; /* vendor of the device */
    int lanes, warps_m, warps_n, stages;
    int takes;  /* supported kinds of operands */
    bool quads; /* a lane stores quads; on gfx11 only if lines are swizzled */
    int pitch;
    int planes; /* of fp32 operands that are split into bf16; 1 if they are not split */
} matrix_form;

/* Returns true if the device has these matrix units. sm_100 and sm_120 have no wgmma. */
static bool has_units(const tx_cl_capabilities *can, const matrix_form *f)
{
    return tx_cl_matrix_units(can, f->vendor, f->lanes) &&
           (strcmp(f->atom, "WGMMA") != 0 || strcmp(can->architecture, "sm_90") == 0);
}

/* Returns true if the form supports operands and results of these types. */
static bool has_types(const tx_context *context, const matrix_form *f, tx_dtype from, tx_dtype to)
{
    const int kind = from != TX_F32 ? HALVES : context->tf32 && context->can.tf32 ? AS_TF32 : FULL;
    return (f->takes & kind) != 0 && (f->takes != OVERLAPS || to == from);
}

/* Returns the bytes of local memory of a tile whose epilogue runs later, with its bias, and its warps' column sums. */
#define WAITING_BYTES(takes, rows, columns, warps_m) \
    ((takes) == OVERLAPS ? 2 * (rows) * ((columns) + 8) + 4 * (columns) * (1 + (warps_m)) : 0)

/* Parts of results are in fp32: nothing overlaps, and fewer blocks are copied ahead. */
#define WITHOUT_OVERLAP 0.9
#define MAX_LD (1 << 24) /* elements of a block are counted in 32 bits */

static double matrix_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    const int64_t piece = self->piece / (int64_t)tx_dtype_size(p->from);
    const matrix_form *f = self->tile->form;
    if (!has_units(&b->context->can, f) || !has_types(b->context, f, p->from, p->to) || p->g.lda >= MAX_LD ||
        p->g.ldb >= MAX_LD || (f->planes == 1 && !(tx_cl_whole_a(p, piece) && tx_cl_whole_b(p, piece))))
        return 0.0;
    double share = tx_cl_tile_suits(b, self, p, tx_cl_matrix_local(b->context), why);
    if (f->takes == OVERLAPS && tx_cl_tile_splits(b->context, self, p))
        share *= WITHOUT_OVERLAP;
    return f->planes > 1 ? tx_cl_planes_suits(b->context, p, f->planes, share) : share;
}

static void matrix_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    const matrix_form *f = self->tile->form;
    if (f->planes > 1)
        tx_cl_planes_emit(b, self, p, f->planes);
    else
        tx_cl_tile_emit(b, self, p);
}

static void matrix_options(const tx_context *context, const tx_cl_tile *t, const tx_cl_product *p, char *text,
                           size_t size)
{
    const matrix_form *f = t->form;
    const char *atom = tx_cl_matrix_atom(context, f->atom);
    const bool swizzle = f->vendor == TX_CL_AMD && f->pitch == 64;
    const bool quads = f->quads && (swizzle || strcmp(atom, "WMMA11") != 0) && tx_cl_whole_result(p);
    snprintf(text, size,
             "-DEMULATED=0 -DATOM=%s -DTILE_M=%d -DTILE_N=%d -DWARPS_M=%d -DWARPS_N=%d -DSTAGES=%d -DFULL=%d -DVW=%d "
             "-DPLANES=%d%s%s%s",
             atom, (int)t->rows, (int)t->columns, f->warps_m, f->warps_n, f->stages, f->takes == FULL, quads ? 4 : 1,
             f->planes, tx_cl_matrix_build(f->vendor), swizzle ? " -DSWIZZLE=1" : "",
             f->takes == OVERLAPS ? " -DOVERLAPS=1" : "");
}

/* With wgmma work-groups are persistent: they compute several tiles. */
static int64_t held_groups(const tx_context *context, const tx_cl_tile *t)
{
    const matrix_form *f = t->form;
    if (strcmp(f->atom, "WGMMA") != 0)
        return 0;
    return context->limits.compute_units * (tx_cl_matrix_local(context) < 2 * t->buffer_bytes ? 1 : 2);
}

static const tx_cl_provider forms[] = {
#define TX_MATRIX(provider, atom_, vendor_, lanes_, takes_, quads_, rows_, columns_, warps_m_, warps_n_, stages_,  \
                  pitch, planes_, rate_)                                                                           \
    {.name = (provider),                                                                                           \
     .device = TX_CL_GPUS,                                                                                         \
     .piece = (planes_) > 1 ? 0 : 16,                                                                              \
     .suits = matrix_suits,                                                                                        \
     .epilogues = true,                                                                                            \
     .grouped = true,                                                                                              \
     .full = (takes_) == FULL,                                                                                     \
     .emit = matrix_emit,                                                                                          \
     .tile = &(const tx_cl_tile){.kernel = "gemm_matrix",                                                          \
                                 .rows = (rows_),                                                                  \
                                 .columns = (columns_),                                                            \
                                 .terms = (pitch) / 64 * 32,                                                       \
                                 .group = (lanes_) * (warps_m_) * (warps_n_),                                      \
                                 .buffer_bytes = (stages_) * ((rows_) + (columns_)) * (pitch) * (planes_) +        \
                                                 WAITING_BYTES(takes_, rows_, columns_, warps_m_),                 \
                                 .rate = (rate_),                                                                  \
                                 .options = matrix_options,                                                        \
                                 .held = held_groups,                                                              \
                                 .sums = (takes_) == OVERLAPS,                                                     \
                                 .form = &(const matrix_form){atom_, vendor_, lanes_, warps_m_, warps_n_, stages_, \
                                                              takes_, quads_, pitch, planes_}}},
#include "backends/opencl/matrix/gemm_matrix.def"
};
TX_CL_PROVIDERS(matrix, forms);

void tx_cl_matrix_types(const tx_cl_capabilities *can, tx_device_info *info)
{
    double rate = 0.0;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const matrix_form *f = forms[i].tile->form;
        if (!has_units(can, f))
            continue;
        info->fp16 = info->fp16 || (f->takes & HALVES) != 0;
        info->bf16 = info->bf16 || (f->takes & HALVES) != 0;
        info->tf32 = info->tf32 || (can->tf32 && (f->takes & AS_TF32) != 0);
        if (forms[i].tile->rate > rate)
            snprintf(info->units, sizeof info->units, "%.*s", (int)strcspn(f->atom, "0123456789"), f->atom);
        rate = forms[i].tile->rate > rate ? forms[i].tile->rate : rate;
    }
}
