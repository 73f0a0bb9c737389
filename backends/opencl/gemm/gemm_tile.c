/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiled matrix products: the choice of tiles and of split-k, their launches, and the tile shapes of gemm_tile.cl.
 */
#include "backends/opencl/gemm/gemm_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Split-k and cost model ------------------------------------------------------------------ */

/* Minimum terms of a part in split-k. */
#define MIN_PART 512
#define MAX_PART_BYTES \
    (128 << 20) /* maximum bytes of the sums of all parts; also limited to a share of the device's memory */
#define MEMORY_SHARE 64
#define TOO_LARGE \
    1e-30 /* share of splits above that limit, which remain candidates because an earlier run may have used them */

/* Other costs, in multiply-adds that a unit could execute meanwhile. They are the prologue and epilogue of a tile, in
 * terms; a second launch; and each byte of partial sums, at the device's balance of arithmetic and memory bandwidth. */
#define TILE_START 32
#define JOIN_START (128.0 * 128.0 * 128.0)
#define MULTIPLIES_A_BYTE 8.0

/* A tiled product. */
typedef struct tiling {
    int64_t tiles;       /* of the whole batch */
    int64_t parts, part; /* parts of split-k, at most; and terms of a part */
    int64_t span;        /* blocks of terms of each work-group in an even split; else 0 */
    int64_t blocks;      /* of a tile's terms, in an even split */
    double time;         /* multiply-adds that a unit could execute in the same time */
} tiling;

static tiling part_terms(const tx_context *context, const tx_cl_tile *t, const tx_gemm *g, int64_t parts)
{
    const int64_t units = context->limits.compute_units;
    tiling plan = {
        .tiles = tx_cl_blocks(g->m, t->rows) * tx_cl_blocks(g->n, t->columns) * g->batch, .parts = 1, .part = g->k};
    if (parts > 1) {
        plan.part = tx_cl_blocks(tx_cl_blocks(g->k, parts), t->terms) * t->terms;
        plan.parts = tx_cl_blocks(g->k, plan.part);
    }
    const int64_t waves = tx_cl_blocks(plan.tiles * plan.parts, units);
    const double moved = 8.0 * (double)(plan.parts * g->batch * g->m * g->n); /* written and read */
    plan.time = (double)(waves * (plan.part + TILE_START) * t->rows * t->columns);
    if (plan.parts > 1)
        plan.time += t->rate * (JOIN_START + MULTIPLIES_A_BYTE * moved / (double)units);
    return plan;
}

/* Splits the blocks of all tiles evenly. A tile then has at most `parts` parts. `parts` is 0 if the form cannot. */
static tiling even_terms(const tx_context *context, const tx_cl_tile *t, const tx_gemm *g)
{
    const int64_t units = context->limits.compute_units, held = t->held && g->batch == 1 ? t->held(context, t) : 0;
    tiling plan = {.tiles = tx_cl_blocks(g->m, t->rows) * tx_cl_blocks(g->n, t->columns),
                   .part = g->k,
                   .blocks = tx_cl_blocks(g->k, t->terms)};
    const int64_t all = plan.tiles * plan.blocks, least = MIN_PART / t->terms;
    if (held == 0 || all > INT32_MAX)
        return plan;
    plan.span = tx_cl_blocks(all, held);
    plan.span = plan.span < least ? least : plan.span;
    plan.parts = (plan.blocks + plan.span - 2) / plan.span + 1;
    const int64_t groups = tx_cl_blocks(all, plan.span), pieces = plan.tiles + groups;
    const double area = (double)(t->rows * t->columns), waves = (double)tx_cl_blocks(groups, units);
    const double starts = (double)TILE_START * (double)pieces / (double)groups, moved = 8.0 * (double)pieces * area;
    plan.time = waves * ((double)(plan.span * t->terms) + starts) * area +
                t->rate * (JOIN_START + MULTIPLIES_A_BYTE * moved / (double)units);
    return plan;
}

/* Returns the maximum useful number of parts. A split into more than `memory_parts` parts takes too much memory. */
static int64_t max_parts(const tx_context *context, const tx_gemm *g, int64_t *memory_parts)
{
    const int64_t bytes = g->batch * g->m * g->n * (int64_t)sizeof(float);
    *memory_parts = tx_cl_least(MAX_PART_BYTES, context->info.memory / MEMORY_SHARE) / bytes;
    return tx_cl_least(g->k / MIN_PART, TX_CL_MOST_PARTS);
}

/* Chooses the number of parts with the least expected time. Split-k helps if there are few tiles, or if they fill
 * their last wave badly. */
static tiling plan_tiles(const tx_context *context, const tx_cl_tile *t, const tx_gemm *g)
{
    int64_t memory_parts;
    const int64_t limit = max_parts(context, g, &memory_parts);
    tiling best = part_terms(context, t, g, 1);
    for (int64_t parts = 2; parts <= tx_cl_least(limit, memory_parts); parts++) {
        const tiling now = part_terms(context, t, g, parts);
        if (now.time < best.time)
            best = now;
    }
    const tiling even = even_terms(context, t, g);
    return limit > 1 && even.parts > 0 && even.parts <= memory_parts && even.time < best.time ? even : best;
}

bool tx_cl_tile_splits(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p)
{
    return self->tile && !p->offsets && plan_tiles(context, self->tile, &p->g).parts > 1;
}

tx_status tx_cl_tile_parts(tx_cl_builder *b, const tx_cl_provider *self, const tx_gemm *g, int64_t *parts)
{
    int64_t memory_parts;
    const int64_t limit = max_parts(b->context, g, &memory_parts);
    const tiling even = even_terms(b->context, self->tile, g);
    char product[96], name[TX_CL_MOST_PARTS + 1][12];
    *parts = 1;
    if (limit < 2)
        return TX_OK;
    snprintf(product, sizeof product, "%s %lld %lld %lld %lld", self->name, (long long)g->batch, (long long)g->m,
             (long long)g->n, (long long)g->k);
    tx_cl_selection q = {.what = "number of parts", .kind = TX_CL_PARTS, .user = product};
    for (int i = 1; i <= (int)limit; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        const double time = part_terms(b->context, self->tile, g, i).time;
        tx_cl_add_candidate(&q, i, name[i], (i == 1 || i <= memory_parts ? 1.0 : TOO_LARGE) / time, "");
    }
    if (even.parts > 0)
        tx_cl_add_candidate(&q, TX_CL_EVEN, TX_CL_EVEN_NAME, (even.parts <= memory_parts ? 1.0 : TOO_LARGE) / even.time,
                            "");
    TX_TRY(tx_cl_select(b, &q));
    const tx_cl_candidate *wanted = tx_cl_find_candidate(&q, b->context->parts);
    *parts = wanted ? wanted->id : q.candidate[0].id;
    return TX_OK;
}

/* Grouped products do not use split-k: they have many tiles, and the terms of a group are known only at run time. */
static tiling plan_groups(const tx_context *context, const tx_cl_tile *t, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const int64_t columns = tx_cl_blocks(g->n, t->columns), units = context->limits.compute_units;
    tiling plan = {.parts = 1, .part = g->k};
    if (p->trans_a) {
        plan.tiles = tx_cl_blocks(g->m, t->rows) * columns * g->batch;
        plan.part = tx_cl_blocks(g->k, g->batch);
        plan.time = (double)(tx_cl_blocks(plan.tiles, units) * (plan.part + TILE_START) * t->rows * t->columns);
        return plan;
    }
    const int64_t rows = tx_cl_blocks(tx_cl_blocks(g->m, g->batch), t->rows) * g->batch; /* assuming equal groups */
    plan.tiles = (g->m / t->rows + g->batch + 1) * columns;
    plan.time = (double)((tx_cl_blocks(rows * columns, units) * (g->k + TILE_START) +
                          tx_cl_blocks(plan.tiles, units) * TILE_START) *
                         t->rows * t->columns);
    return plan;
}

/* Returns the number of multiply-adds. In grouped products m or k includes all groups. */
static double multiplies(const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    return (double)(g->m * g->n * (p->offsets ? 1 : g->batch)) * (double)g->k;
}

double tx_cl_tile_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, int64_t local_bytes,
                        char *why)
{
    tx_cl_limits l = *b->limits;
    const tx_cl_tile *t = self->tile;
    l.local_bytes = local_bytes;
    if (!tx_cl_fits(&l, self->name, t->buffer_bytes, (size_t)t->group, why, TX_CL_WHY))
        return 0.0;
    return t->rate * multiplies(p) / (double)l.compute_units /
           (p->offsets ? plan_groups(b->context, t, p) : plan_tiles(b->context, t, &p->g)).time;
}

double tx_cl_tile_moves(const tx_cl_product *p, int64_t bytes)
{
    return MULTIPLIES_A_BYTE * (double)bytes / multiplies(p);
}

/* Returns true if rows of `inner` elements consist of whole pieces of `piece` elements that are aligned to their
 * size. */
static bool whole(const tx_operand *o, int64_t piece, int64_t inner, int64_t ld, int64_t stride)
{
    return inner % piece == 0 && ld % piece == 0 && stride % piece == 0 &&
           o->offset % (piece * (int64_t)tx_dtype_size(o->dtype)) == 0;
}

bool tx_cl_whole_a(const tx_cl_product *p, int64_t piece)
{
    return whole(p->a, piece, p->trans_a ? p->g.m : p->g.k, p->g.lda, p->g.stride_a);
}

bool tx_cl_whole_b(const tx_cl_product *p, int64_t piece)
{
    return whole(p->b, piece, p->trans_b ? p->g.k : p->g.n, p->g.ldb, p->g.stride_b);
}

/* The same for an operand with the layout of y or of a row of it; true if the operand is absent. */
static bool whole_like(const tx_operand *o, int64_t n)
{
    return !tx_present(o) || whole(o, 4, n, 0, 0);
}

bool tx_cl_whole_result(const tx_cl_product *p)
{
    return whole_like(p->bias, p->g.n) && whole_like(p->z, p->g.n) && whole_like(p->kept, p->g.n) &&
           whole(p->y, 4, p->g.n, p->g.ldc, p->g.stride_c);
}

/* ---- Launch ---------------------------------------------------------------------------------- */

/* Adds the partial sums of split-k in order. */
static void join_parts(tx_cl_builder *b, const tx_cl_tile *t, const tx_cl_product *p, const tx_operand *sums,
                       const tiling *plan)
{
    const tx_gemm *g = &p->g;
    const int64_t count = g->batch * g->m * g->n;
    const int vector = tx_cl_whole_result(p) ? 4 : 1;
    const size_t global = (size_t)tx_cl_blocks(count, vector), local = tx_cl_group(b, 256);
    char options[96];
    snprintf(options, sizeof options, "-DVW=%d -DY=%s", vector, tx_cl_storage(p->to));
    tx_cl_epilogue_options(options, sizeof options, p);
    tx_cl_launch(b, "gemm_join", options, "gemm_join", 1, &global, &local);
    TX_CL_OPERANDS(b, sums, p->bias, p->y);
    tx_cl_arg_control(b);
    TX_CL_I64(b, count, g->n, plan->parts, plan->span, plan->blocks, t->rows, t->columns);
    TX_CL_I32(b, (int32_t)p->accumulate);
    TX_CL_OPERANDS(b, p->z, p->kept);
}

int64_t tx_cl_gemm_columns(const tx_context *context, const tx_cl_provider *provider)
{
    const tx_cl_tile *t = provider->tile;
    const int64_t held = t && t->held ? t->held(context, t) : 0;
    return held > 0 ? (held + 1) * t->columns : 0;
}

/* Returns the number of work-groups that compute `tiles` tiles for each of `others` (batch and parts). Persistent
 * work-groups compute several tiles each; the smallest number with the least time is chosen. */
static int64_t groups_of(const tx_context *context, const tx_cl_tile *t, int64_t tiles, int64_t others)
{
    int64_t best = tiles, best_time = INT64_MAX;
    const int64_t held = t->held ? t->held(context, t) : 0;
    if (held == 0)
        return tiles;
    for (int64_t each = 1; each <= tx_cl_least(tiles, tx_cl_blocks(tiles * others, held)); each++) {
        const int64_t groups = tx_cl_blocks(tiles, each), time = tx_cl_blocks(groups * others, held) * each;
        if (time <= best_time) {
            best = groups;
            best_time = time;
        }
    }
    return best;
}

/* Passes the operands of which a and b are planes. */
static void pass_whole(tx_cl_builder *b, const tx_cl_product *p)
{
    const tx_cl_product *w = p->whole;
    if (!w)
        return;
    TX_CL_OPERANDS(b, w->a, w->b);
    TX_CL_I64(b, w->g.lda, w->g.ldb, w->g.stride_a, w->g.stride_b);
}

/* Whether the kernel has the operand for column sums: those with GELU or its gradient have it, the latter uses it. */
static bool may_sum(const tx_cl_tile *t, const tx_cl_product *p)
{
    const bool gelu = p->epilogue == TX_EPILOGUE_GELU || p->epilogue == TX_EPILOGUE_GELU_GRAD;
    return t->sums && gelu && tx_cl_whole_result(p);
}

/* Launches a plan. With split-k y holds the partial sums. An even split numbers work-groups instead of tiles. */
static void launch_tiles(tx_cl_builder *b, const tx_cl_tile *t, const tx_cl_product *p, const tiling *plan)
{
    const int64_t batch = p->offsets && !p->trans_a ? 1 : p->g.batch, tiles = plan->tiles / batch;
    const int64_t blocks = tiles * plan->blocks, count = plan->span ? tx_cl_blocks(blocks, plan->span) : tiles;
    const int64_t share = tx_cl_parts_per_launch(b, count, 2.0 * multiplies(p));
    const size_t local[2] = {(size_t)t->group, 1};
    char form[256], options[384];
    t->options(b->context, t, p, form, sizeof form);
    tx_cl_gemm_options(options, sizeof options, form, p);
    for (int64_t first = 0; first < count; first += share) {
        const int64_t some = tx_cl_least(share, count - first), others = plan->span ? 1 : batch * plan->parts;
        const int64_t groups = plan->span ? some : groups_of(b->context, t, some, others);
        const size_t global[2] = {(size_t)groups * local[0], (size_t)others};
        tx_cl_launch(b, t->kernel, options, t->kernel, 2, global, local);
        tx_cl_gemm_arguments(b, p);
        TX_CL_I64(b, batch, plan->part, first);
        if (t->held)
            TX_CL_I64(b, plan->span ? blocks : first + some, plan->span);
        TX_CL_OPERANDS(b, p->z, p->kept);
        tx_cl_gemm_offsets(b, p);
        pass_whole(b, p);
        if (may_sum(t, p))
            TX_CL_OPERANDS(b, p->column_sums);
    }
}

void tx_cl_tile_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    int64_t parts = 1;
    const tx_status status = p->offsets ? TX_OK : tx_cl_tile_parts(b, self, g, &parts);
    const tx_cl_tile *t = self->tile;
    const tiling plan = p->offsets            ? plan_groups(b->context, t, p)
                        : parts == TX_CL_EVEN ? even_terms(b->context, t, g)
                                              : part_terms(b->context, t, g, parts);
    const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    tx_operand sums = none;
    tx_cl_product one = *p;
    if (status && !b->status)
        b->status = status;
    if (p->column_sums && p->epilogue == TX_EPILOGUE_GELU_GRAD && plan.parts == 1 && g->batch == 1 && may_sum(t, p))
        *p->column_sums = tx_cl_scratch(b, TX_F32, TX_SHAPE(tx_cl_blocks(g->m, t->rows), g->n));
    if (plan.parts > 1) {
        sums = tx_cl_scratch(b, TX_F32, TX_SHAPE(plan.parts, g->batch, g->m, g->n));
        one.y = &sums;
        one.column_sums = NULL;
        one.bias = one.z = one.kept = &none;
        one.epilogue = TX_EPILOGUE_NONE;
        one.to = TX_F32;
        one.accumulate = TX_STORE;
    }
    launch_tiles(b, t, &one, &plan);
    if (plan.parts > 1)
        join_parts(b, t, p, &sums, &plan);
}

/* ---- Tile shapes of gemm_tile.cl ------------------------------------------------------------- */

/* Work-items along n and m, and blocks of 4 x 4 sums of a work-item along m and n. */
typedef struct items {
    int x, y, row_quads, column_quads;
} items;

static void form_options(const tx_context *context, const tx_cl_tile *t, const tx_cl_product *p, char *text,
                         size_t size)
{
    const items *f = t->form;
    const int buffers = 2 * t->buffer_bytes <= context->limits.local_bytes ? 2 : 1;
    snprintf(text, size,
             "-DGROUP_X=%d -DGROUP_Y=%d -DROW_QUADS=%d -DCOLUMN_QUADS=%d -DTILE_K=%d -DBUFFERS=%d -DWIDE_A=%d "
             "-DWIDE_B=%d -DVW=%d",
             f->x, f->y, f->row_quads, f->column_quads, (int)t->terms, buffers, tx_cl_whole_a(p, 4),
             tx_cl_whole_b(p, 4), tx_cl_whole_result(p) ? 4 : 1);
}

static double tile_suits(const tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    return tx_cl_tile_suits(b, self, p, b->limits->local_bytes, why);
}

/* TILE(M x N x K, x, y, row_quads, column_quads, terms of a block, rate relative to the fastest shape on a busy
 * device) */
#define TILE(name_, x_, y_, row_quads_, column_quads_, terms_, rate_)                                                  \
    {                                                                                                                  \
        .name = "portable-tile-" #name_, .device = TX_CL_GPUS, .suits = tile_suits, .epilogues = true, .packed = true, \
        .grouped = true, .emit = tx_cl_tile_emit, .tile = &(const tx_cl_tile)                                          \
        {                                                                                                              \
            .kernel = "gemm_tile", .rows = 4 * (y_) * (row_quads_), .columns = 4 * (x_) * (column_quads_),             \
            .terms = (terms_), .group = (x_) * (y_),                                                                   \
            .buffer_bytes = 4 * (terms_) * (4 * (y_) * (row_quads_) + 4 * (x_) * (column_quads_) + 8),                 \
            .rate = (rate_), .options = form_options, .form = &(const items)                                           \
            {                                                                                                          \
                x_, y_, row_quads_, column_quads_                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

static const tx_cl_provider tiles[] = {
    TILE(128x128x8, 16, 16, 2, 2, 8, 1.0),   TILE(128x128x16, 16, 16, 2, 2, 16, 0.99),
    TILE(128x64x16, 16, 16, 2, 1, 16, 0.85), TILE(64x128x8, 16, 8, 2, 2, 8, 0.98),
    TILE(64x64x8, 8, 8, 2, 2, 8, 0.90),      TILE(64x64x16, 16, 16, 1, 1, 16, 0.65),
    TILE(32x32x16, 8, 8, 1, 1, 16, 0.50),
};
TX_CL_PROVIDERS(tile, tiles);
