/* SPDX-License-Identifier: Apache-2.0
 * TX's own matrix products: options, blocks and launches of kernels/gemm_vector.cl, gemm_tile.cl and gemm_few.cl. */
#include "backends/opencl/gemm.h"

#include <stdio.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t blocks(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* Options that all forms share, after those of the form. */
static void format_options(char *text, size_t size, const char *form, const tx_cl_product *p)
{
    static const char *const storage[] = {[TX_F32] = "f32", [TX_BF16] = "bf16", [TX_F16] = "f16"};
    snprintf(text, size, "%s -DAB=%s -DY=%s -DWIDEN=%d -DNARROW=%d -DTRANS_A=%d -DTRANS_B=%d", form, storage[p->from],
             storage[p->to], p->from != TX_F32, p->to != TX_F32, p->trans_a, p->trans_b);
}

/* Arguments that all forms begin with. */
static void pass_product(tx_cl_builder *b, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const int64_t sizes[] = {g->m, g->n, g->k, g->lda, g->ldb, g->stride_a, g->stride_b};
    tx_cl_arg_operand(b, p->a);
    tx_cl_arg_operand(b, p->b);
    tx_cl_arg_operand(b, p->bias);
    tx_cl_arg_operand(b, p->y);
    tx_cl_arg_control(b);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        tx_cl_arg_i64(b, sizes[i]);
    tx_cl_arg_i32(b, (int32_t)p->accumulate);
}

/* ---- For cores with vector registers ---------------------------------------------------------------------- */

typedef struct vector_plan {
    int64_t vector, rows, columns; /* of the register tile: rows x columns, columns = 3 vectors */
    int64_t mc, kc;                /* rows and terms of a block */
    int64_t strip_bytes, tiles_bytes, rows_bytes;
} vector_plan;

/* The widest vectors that the device prefers, but no wider than the columns need. */
static int64_t vector_width(const tx_context *context, int64_t n)
{
    cl_uint preferred = 0;
    if (clGetDeviceInfo(context->device, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, sizeof preferred, &preferred, NULL) !=
        CL_SUCCESS)
        preferred = 4;
    int64_t width = preferred >= 16 ? 16 : preferred >= 8 ? 8 : 4;
    while (width > 4 && 3 * (width / 2) >= n)
        width /= 2;
    return width;
}

/* Blocks fitted to local memory, which on CPUs is cache: half for the strip of b (and the rows of a), half for the sums
 * that wait. 512 KiB is taken for what a core's own cache holds. */
static vector_plan plan_vector(const tx_context *context, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    vector_plan v = {.vector = vector_width(context, g->n)};
    /* 16 lanes are AVX-512 and come with 32 registers; narrower ones may have 16 only. */
    v.rows = v.vector == 16 ? 8 : 4;
    v.columns = 3 * v.vector;
    const int64_t half = (least(context->limits.local_bytes, 512 << 10) - 1024) / 2;
    const int64_t term_bytes = 4 * (v.columns + v.rows), row_bytes = 4 * v.columns;
    /* Widened rows of a are read once a strip and should stay in the first-level cache. */
    v.kc = least(half / term_bytes - v.vector, p->from == TX_F32 ? 1024 : 512);
    if (v.kc < g->k) {
        v.kc = least(v.kc, 512);
        v.kc = blocks(g->k, blocks(g->k, v.kc));
        v.mc = least(half / row_bytes, 512) / v.rows * v.rows;
    } else {
        v.kc = g->k;
        v.mc = 1024;
    }
    /* A few work-groups for every core, as long as a strip is still used often enough to pay for its copy. */
    while (v.mc > 8 * v.rows &&
           blocks(g->n, v.columns) * blocks(g->m, v.mc) * g->batch < 4 * (int64_t)context->limits.compute_units)
        v.mc = blocks(v.mc / 2, v.rows) * v.rows;
    v.strip_bytes = v.kc * row_bytes;
    v.tiles_bytes = (v.kc < g->k ? v.mc : v.rows) * row_bytes;
    v.rows_bytes = p->from == TX_F32 ? 4 : 4 * v.rows * (v.kc + v.vector);
    return v;
}

static bool vector_accepts(const tx_context *context, const tx_cl_product *p)
{
    (void)p;
    return context->limits.local_bytes >= 16 << 10;
}

static void vector_emit(tx_cl_builder *b, const tx_cl_product *p)
{
    const vector_plan v = plan_vector(b->context, p);
    const size_t global[3] = {(size_t)blocks(p->g.n, v.columns), (size_t)blocks(p->g.m, v.mc), (size_t)p->g.batch};
    const size_t local[3] = {1, 1, 1};
    char form[64], options[192];
    snprintf(form, sizeof form, "-DVECTOR=%d -DROWS=%d", (int)v.vector, (int)v.rows);
    format_options(options, sizeof options, form, p);
    tx_cl_launch(b, "gemm_vector", options, "gemm_vector", 3, global, local);
    pass_product(b, p);
    tx_cl_arg_i64(b, v.mc);
    tx_cl_arg_i64(b, v.kc);
    tx_cl_arg_local(b, (size_t)v.strip_bytes);
    tx_cl_arg_local(b, (size_t)v.tiles_bytes);
    tx_cl_arg_local(b, (size_t)v.rows_bytes);
}

const tx_cl_provider tx_cl_gemm_vector = {.name = "portable-vector", .accepts = vector_accepts, .emit = vector_emit};

/* ---- For work-groups that share local memory ------------------------------------------------------------------ */

/* Shape of the work-group, which takes 256, 128 or 64 work-items; false where the device has fewer. */
static bool tile_group(const tx_context *context, int64_t *x, int64_t *y)
{
    const tx_cl_limits *l = &context->limits;
    const size_t most = l->max_group < l->max_item[0] ? l->max_group : l->max_item[0];
    *x = most >= 128 ? 16 : 8;
    *y = most >= 256 ? 16 : 8;
    return most >= 64;
}

static bool tile_accepts(const tx_context *context, const tx_cl_product *p)
{
    (void)p;
    int64_t x, y;
    return tile_group(context, &x, &y);
}

/* Blocks of 8 x 8 sums a work-item move half the words of 4 x 4 a multiplication; they are taken where the product
 * still has a tile for every compute unit and local memory holds both (17 KiB for 256 work-items). */
static void tile_emit(tx_cl_builder *b, const tx_cl_product *p)
{
    const tx_cl_limits *l = &b->context->limits;
    const tx_gemm *g = &p->g;
    int64_t x, y;
    if (!tile_group(b->context, &x, &y)) {
        b->status = tx_fail(TX_UNSUPPORTED, "work-groups of this device are below 64");
        return;
    }
    const bool big = l->local_bytes >= 16 * 16 * (2 * x + 2 * y + 2) &&
                     blocks(g->m, 8 * y) * blocks(g->n, 8 * x) * g->batch >= l->compute_units;
    const int64_t quads = big ? 2 : 1;
    const int64_t tiles = blocks(g->m, 4 * y * quads) * blocks(g->n, 4 * x * quads);
    const size_t global[2] = {(size_t)(tiles * x * y), (size_t)g->batch}, local[2] = {(size_t)(x * y), 1};
    char form[96], options[192];
    snprintf(form, sizeof form, "-DGROUP_X=%d -DGROUP_Y=%d -DROW_QUADS=%d -DCOLUMN_QUADS=%d", (int)x, (int)y,
             (int)quads, (int)quads);
    format_options(options, sizeof options, form, p);
    tx_cl_launch(b, "gemm_tile", options, "gemm_tile", 2, global, local);
    pass_product(b, p);
}

const tx_cl_provider tx_cl_gemm_tile = {.name = "portable-tile", .accepts = tile_accepts, .emit = tile_emit};

/* ---- For few rows ----------------------------------------------------------------------------------------------- */

#define FEW_ROWS 8
#define FEW_COLUMNS 512 /* of a work-item of a CPU: its sums stay in the first-level cache */

typedef struct few_plan {
    int vector, run, across, along, columns;
    int64_t groups;
} few_plan;

static bool few_accepts(const tx_context *context, const tx_cl_product *p)
{
    const tx_cl_limits *l = &context->limits;
    return p->g.m <= FEW_ROWS && !p->trans_a && (l->cpu || (l->max_group >= 64 && l->max_item[0] >= 64));
}

/* Whether vectors of 4 numbers lie at multiples of their size, in every row. */
static bool few_aligned(const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const bool bias = !tx_present(p->bias) || p->bias->offset % 16 == 0;
    return bias && (g->n | g->lda | g->ldb | g->stride_a | g->stride_b) % 4 == 0 &&
           (p->a->offset | p->b->offset | p->y->offset) % 16 == 0;
}

/* A few work-items for every core. */
static few_plan plan_few_cpu(const tx_context *context, const tx_cl_product *p)
{
    few_plan f = {.vector = 16, .run = 4, .across = 1, .along = 1, .columns = 1};
    const int64_t each = blocks(p->g.n, 2 * (int64_t)context->limits.compute_units);
    if (p->trans_b)
        f.columns = (int)least(each, 64);
    else
        f.run = (int)blocks(least(each, FEW_COLUMNS), f.vector);
    f.groups = blocks(p->g.n, p->trans_b ? f.columns : (int64_t)f.run * f.vector);
    return f;
}

/* Rows of 16 or 32 items that read side by side; as many columns a group as still leave a group for every compute unit.
 */
static few_plan plan_few_gpu(const tx_context *context, const tx_cl_product *p)
{
    const tx_cl_limits *l = &context->limits;
    const int64_t most = least((int64_t)least((int64_t)l->max_group, (int64_t)l->max_item[0]), 256);
    few_plan f = {.vector = few_aligned(p) ? 4 : 1, .run = 1, .columns = 1};
    const int64_t group = most >= 256 ? 256 : most >= 128 ? 128 : 64;
    if (p->trans_b) {
        f.along = 32;
        f.across = (int)(group / f.along);
        f.groups = blocks(p->g.n, f.across);
        return f;
    }
    for (f.across = 32; f.across > 8; f.across /= 2)
        if (blocks(p->g.n, (int64_t)f.across * f.vector) * p->g.batch >= (int64_t)l->compute_units)
            break;
    f.along = (int)(group / f.across);
    f.groups = blocks(p->g.n, (int64_t)f.across * f.vector);
    return f;
}

static void few_emit(tx_cl_builder *b, const tx_cl_product *p)
{
    const few_plan f = b->context->limits.cpu ? plan_few_cpu(b->context, p) : plan_few_gpu(b->context, p);
    const size_t local[2] = {(size_t)f.across * (size_t)f.along, 1};
    const size_t global[2] = {(size_t)f.groups * local[0], (size_t)p->g.batch};
    char form[96], options[224];
    snprintf(form, sizeof form, "-DVW=%d -DRUN=%d -DROWS=%d -DACROSS=%d -DALONG=%d -DCOLUMNS=%d", f.vector, f.run,
             (int)p->g.m, f.across, f.along, f.columns);
    format_options(options, sizeof options, form, p);
    tx_cl_launch(b, "gemm_few", options, "gemm_few", 2, global, local);
    pass_product(b, p);
}

const tx_cl_provider tx_cl_gemm_few = {
    .name = "portable-few", .rows = FEW_ROWS, .accepts = few_accepts, .emit = few_emit};
