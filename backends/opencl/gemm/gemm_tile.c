/* SPDX-License-Identifier: Apache-2.0
 * Matrix products in tiles of a work-group: forms and launches of gemm_tile.cl and gemm_matrix.cl. */
#include "backends/opencl/gemm/gemm.h"
#include "backends/opencl/matrix/matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of operands: of 16 bits; fp32 rounded to tf32; fp32 with all its bits. */
enum { HALVES = 1, AS_TF32 = 2, FULL = 4 };

/* Who computes a tile and how. */
typedef struct tx_cl_tile {
    const char *kernel; /* and its text */
    int64_t rows, columns, terms, group;
    int64_t buffer_bytes; /* of local memory, for one block of both operands */
    double rate;
    int group_x, row_quads, column_quads; /* of gemm_tile */
    const char *atom;                     /* of gemm_matrix; of WMMA the architecture says which */
    tx_cl_vendor vendor;                  /* whose units these are */
    int lanes, warps_m, warps_n, stages;
    int takes;  /* kinds of operands */
    bool quads; /* a lane stores these; not with WMMA of gfx11 */
} tx_cl_tile;

void tx_cl_gemm_options(char *text, size_t size, const char *form, const tx_cl_product *p)
{
    snprintf(text, size, "%s -DAB=%s -DY=%s -DWIDEN=%d -DTRANS_A=%d -DTRANS_B=%d", form, tx_cl_storage(p->from),
             tx_cl_storage(p->to), p->from != TX_F32, p->trans_a, p->trans_b);
    if (p->packed != TX_F32)
        snprintf(text + strlen(text), size - strlen(text), " -DNF4=%d", p->packed == TX_NF4_DOUBLE ? 2 : 1);
    if (p->offsets)
        snprintf(text + strlen(text), size - strlen(text), " -DGROUPED=%d", p->trans_a ? 2 : 1);
}

void tx_cl_gemm_arguments(tx_cl_builder *b, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    TX_CL_OPERANDS(b, p->a, p->b, p->bias, p->y);
    tx_cl_arg_control(b);
    TX_CL_I64(b, g->m, g->n, g->k, g->lda, g->ldb, g->stride_a, g->stride_b);
    TX_CL_I32(b, (int32_t)p->accumulate);
}

void tx_cl_gemm_offsets(tx_cl_builder *b, const tx_cl_product *p)
{
    if (!p->offsets)
        return;
    TX_CL_OPERANDS(b, p->offsets);
    TX_CL_I64(b, p->offsets->shape.dim[0] - 1);
}

/* ---- Fitting ---------------------------------------------------------------------------------------------- */

/* Sums over fewer terms than this are not parted. */
#define LEAST_PART 512
#define MOST_PART_BYTES (128 << 20) /* of all parts' sums, and no more than a share of the device's memory */
#define MEMORY_SHARE 64

/* What else costs time, in the multiply-adds that a unit could do in it: a tile's beginning and end, in terms; a second
 * launch; and for each byte that the parts' sums move, at the device's balance of arithmetic and memory. */
#define TILE_START 32
#define JOIN_START (128.0 * 128.0 * 128.0)
#define MULTIPLIES_A_BYTE 8.0

/* A product in tiles. */
typedef struct tiling {
    int64_t tiles;       /* of the whole batch */
    int64_t parts, part; /* of the terms, and terms of a part */
    double time;         /* multiply-adds that a unit could do meanwhile */
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

/* The number of parts is part of the bits, and of a run's state. */
static void parts_key(const tx_cl_provider *self, const tx_gemm *g, char key[TX_CL_CHOICE_KEY])
{
    snprintf(key, TX_CL_CHOICE_KEY, TX_CL_PARTS " %s %lld %lld %lld %lld", self->name, (long long)g->batch,
             (long long)g->m, (long long)g->n, (long long)g->k);
}

/* The terms are parted among as many work-groups as take the least time: where the tiles are few, or fill their last
 * wave badly. */
static tiling plan_tiles(const tx_context *context, const tx_cl_provider *self, const tx_gemm *g)
{
    char key[TX_CL_CHOICE_KEY], chosen[16];
    const tx_cl_tile *t = self->tile;
    const int64_t bytes = g->batch * g->m * g->n * (int64_t)sizeof(float);
    const int64_t room = tx_cl_least(MOST_PART_BYTES, context->info.memory / MEMORY_SHARE) / bytes;
    const int64_t most = tx_cl_least(tx_cl_least(g->k / LEAST_PART, TX_CL_MOST_PARTS), room);
    tiling best = part_terms(context, t, g, 1);
    parts_key(self, g, key);
    if (tx_cl_line_get(context->choices, key, chosen, sizeof chosen))
        return part_terms(context, t, g, atoi(chosen));
    for (int64_t parts = 2; parts <= most; parts++) {
        const tiling now = part_terms(context, t, g, parts);
        if (now.time < best.time)
            best = now;
    }
    return best;
}

static tx_status keep_parts(const tx_cl_builder *b, const tx_cl_provider *self, const tx_gemm *g, const tiling *plan)
{
    tx_context *context = b->context;
    char key[TX_CL_CHOICE_KEY], text[16];
    if (b->forced || context->limits.narrowed || g->k < 2 * LEAST_PART)
        return TX_OK;
    parts_key(self, g, key);
    snprintf(text, sizeof text, "%d", (int)plan->parts);
    return tx_cl_line_set(&context->choices, key, text);
}

double tx_cl_gemm_fill(const tx_context *context, const tx_cl_provider *provider, const tx_gemm *g, int64_t *parts)
{
    const tiling plan = plan_tiles(context, provider, g);
    const int64_t groups = plan.tiles * plan.parts, units = context->limits.compute_units;
    *parts = plan.parts;
    return (double)groups / (double)(tx_cl_blocks(groups, units) * units);
}

/* Terms are not parted: tiles are many, and the terms of a group are known when it runs. */
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
    const int64_t rows = tx_cl_blocks(tx_cl_blocks(g->m, g->batch), t->rows) * g->batch; /* where groups are alike */
    plan.tiles = (g->m / t->rows + g->batch + 1) * columns;
    plan.time = (double)((tx_cl_blocks(rows * columns, units) * (g->k + TILE_START) +
                          tx_cl_blocks(plan.tiles, units) * TILE_START) *
                         t->rows * t->columns);
    return plan;
}

static tiling plan_product(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p)
{
    return p->offsets ? plan_groups(context, self->tile, p) : plan_tiles(context, self, &p->g);
}

/* Multiply-adds; those of groups are in m, or k. */
static double multiplies(const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    return (double)(g->m * g->n * (p->offsets ? 1 : g->batch)) * (double)g->k;
}

/* The share of the device's rate: that of the tile, times that of the time in which units work on elements of y. */
static double tile_suits(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    tx_cl_limits l = context->limits;
    const tx_cl_tile *t = self->tile;
    l.local_bytes = t->atom ? tx_cl_matrix_local(context) : l.local_bytes;
    if (!tx_cl_fits(&l, self->name, t->buffer_bytes, (size_t)t->group, why, TX_CL_WHY))
        return 0.0;
    return t->rate * multiplies(p) / (double)l.compute_units / plan_product(context, self, p).time;
}

/* Whether rows of `inner` elements are whole pieces of `piece` elements and each piece lies at a multiple of its size.
 */
static bool whole(const tx_operand *o, int64_t piece, int64_t inner, int64_t ld, int64_t stride)
{
    return inner % piece == 0 && ld % piece == 0 && stride % piece == 0 &&
           o->offset % (piece * (int64_t)tx_dtype_size(o->dtype)) == 0;
}

static bool whole_a(const tx_cl_product *p, int64_t piece)
{
    return whole(p->a, piece, p->trans_a ? p->g.m : p->g.k, p->g.lda, p->g.stride_a);
}

static bool whole_b(const tx_cl_product *p, int64_t piece)
{
    return whole(p->b, piece, p->trans_b ? p->g.k : p->g.n, p->g.ldb, p->g.stride_b);
}

/* So those of an operand that lies like y, or like a row of it, where it is there. */
static bool whole_like(const tx_operand *o, int64_t n)
{
    return !tx_present(o) || whole(o, 4, n, 0, 0);
}

static bool whole_result(const tx_cl_product *p)
{
    return whole_like(p->bias, p->g.n) && whole_like(p->z, p->g.n) && whole_like(p->kept, p->g.n) &&
           whole(p->y, 4, p->g.n, p->g.ldc, p->g.stride_c);
}

/* Whether the device has such matrix units, and they take operands of that type; sm_100 and sm_120 have no wgmma. */
static bool has_units(const tx_context *context, const tx_cl_tile *t, tx_dtype from)
{
    const bool rounds = context->tf32 && context->can.tf32;
    if (strcmp(t->atom, "WGMMA") == 0 && strcmp(context->can.architecture, "sm_90") != 0)
        return false;
    return tx_cl_matrix_units(context, t->vendor, t->lanes) && (t->takes & (from != TX_F32 ? HALVES
                                                                            : rounds       ? AS_TF32
                                                                                           : FULL)) != 0;
}

#define MOST_LD (1 << 24) /* a block's elements are counted in 32 bits */

static double matrix_suits(const tx_context *context, const tx_cl_provider *self, const tx_cl_product *p, char *why)
{
    const int64_t piece = self->piece / (int64_t)tx_dtype_size(p->from);
    if (!has_units(context, self->tile, p->from) || !whole_a(p, piece) || !whole_b(p, piece) || p->g.lda >= MOST_LD ||
        p->g.ldb >= MOST_LD)
        return 0.0;
    return tile_suits(context, self, p, why);
}

/* ---- Launch ------------------------------------------------------------------------------------------------- */

static void epilogue_options(const tx_cl_product *p, char *text, size_t size)
{
    const size_t used = strlen(text);
    if (p->epilogue != TX_EPILOGUE_NONE)
        snprintf(text + used, size - used, " -DEPILOGUE=%d -DEXACT=%d", (int)p->epilogue, p->exact);
}

static void epilogue_arguments(tx_cl_builder *b, const tx_cl_product *p)
{
    TX_CL_OPERANDS(b, p->z, p->kept);
}

/* Adds up the parts, in their order. */
static void join_parts(tx_cl_builder *b, const tx_cl_product *p, const tx_operand *sums, int64_t parts)
{
    const tx_gemm *g = &p->g;
    const int64_t count = g->batch * g->m * g->n;
    const int vector = whole_result(p) ? 4 : 1;
    const size_t global = (size_t)tx_cl_blocks(count, vector), local = tx_cl_group(b->context, 256);
    char options[96];
    snprintf(options, sizeof options, "-DVW=%d -DY=%s", vector, tx_cl_storage(p->to));
    epilogue_options(p, options, sizeof options);
    tx_cl_launch(b, "gemm_join", options, "gemm_join", 1, &global, &local);
    TX_CL_OPERANDS(b, sums, p->bias, p->y);
    tx_cl_arg_control(b);
    TX_CL_I64(b, count, g->n, parts);
    TX_CL_I32(b, (int32_t)p->accumulate);
    epilogue_arguments(b, p);
}

static void form_options(const tx_context *context, const tx_cl_tile *t, const tx_cl_product *p, char *text,
                         size_t size)
{
    if (t->atom) {
        const char *atom = tx_cl_matrix_atom(context, t->atom);
        const bool quads = t->quads && strcmp(atom, "WMMA11") != 0 && whole_result(p);
        snprintf(
            text, size,
            "-DEMULATED=0 -DATOM=%s -DTILE_M=%d -DTILE_N=%d -DWARPS_M=%d -DWARPS_N=%d -DSTAGES=%d -DFULL=%d -DVW=%d "
            "-DBIAS=%d -DADDS=%d%s",
            atom, (int)t->rows, (int)t->columns, t->warps_m, t->warps_n, t->stages, t->takes == FULL, quads ? 4 : 1,
            tx_present(p->bias), p->accumulate != TX_STORE, tx_cl_matrix_build(t->vendor));
        return;
    }
    const int buffers = 2 * t->buffer_bytes <= context->limits.local_bytes ? 2 : 1;
    snprintf(text, size,
             "-DGROUP_X=%d -DGROUP_Y=%d -DROW_QUADS=%d -DCOLUMN_QUADS=%d -DTILE_K=%d -DBUFFERS=%d -DWIDE_A=%d "
             "-DWIDE_B=%d -DVW=%d",
             t->group_x, (int)t->group / t->group_x, t->row_quads, t->column_quads, (int)t->terms, buffers,
             whole_a(p, 4), whole_b(p, 4), whole_result(p) ? 4 : 1);
}

/* Groups that the device holds at once where they go on from one tile to the next; else 0. */
static int64_t held_groups(const tx_context *context, const tx_cl_tile *t)
{
    if (!t->atom || strcmp(t->atom, "WGMMA") != 0)
        return 0;
    return context->limits.compute_units * (tx_cl_matrix_local(context) < 2 * t->buffer_bytes ? 1 : 2);
}

int64_t tx_cl_gemm_columns(const tx_context *context, const tx_cl_provider *provider)
{
    const tx_cl_tile *t = provider->tile;
    const int64_t held = t ? held_groups(context, t) : 0;
    return held > 0 ? (held + 1) * t->columns : 0;
}

/* How many groups compute `tiles` of each of `others` (of the batch, and parts): where they go on, as few as take the
 * least time. */
static int64_t groups_of(const tx_context *context, const tx_cl_tile *t, int64_t tiles, int64_t others)
{
    int64_t best = tiles, least = INT64_MAX;
    const int64_t held = held_groups(context, t);
    if (held == 0)
        return tiles;
    for (int64_t each = 1; each <= tx_cl_least(tiles, tx_cl_blocks(tiles * others, held)); each++) {
        const int64_t groups = tx_cl_blocks(tiles, each), time = tx_cl_blocks(groups * others, held) * each;
        if (time <= least) {
            best = groups;
            least = time;
        }
    }
    return best;
}

/* The launches of a plan; where terms are parted, y are the sums of the parts. */
static void launch_tiles(tx_cl_builder *b, const tx_cl_tile *t, const tx_cl_product *p, const tiling *plan)
{
    const int64_t batch = p->offsets && !p->trans_a ? 1 : p->g.batch, tiles = plan->tiles / batch;
    const int64_t share = tx_cl_share(b, tiles, 2.0 * multiplies(p));
    const size_t local[2] = {(size_t)t->group, 1};
    char form[256], options[384];
    form_options(b->context, t, p, form, sizeof form);
    tx_cl_gemm_options(options, sizeof options, form, p);
    snprintf(options + strlen(options), sizeof options - strlen(options), " -DPARTS=%d", plan->parts > 1);
    epilogue_options(p, options, sizeof options);
    for (int64_t first = 0; first < tiles; first += share) {
        const int64_t some = tx_cl_least(share, tiles - first), others = batch * plan->parts;
        const size_t global[2] = {(size_t)groups_of(b->context, t, some, others) * local[0], (size_t)others};
        tx_cl_launch(b, t->kernel, options, t->kernel, 2, global, local);
        tx_cl_gemm_arguments(b, p);
        TX_CL_I64(b, batch, plan->part, first);
        if (t->atom)
            TX_CL_I64(b, first + some);
        epilogue_arguments(b, p);
        tx_cl_gemm_offsets(b, p);
    }
}

static void tile_emit(tx_cl_builder *b, const tx_cl_provider *self, const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const tiling plan = plan_product(b->context, self, p);
    const tx_status kept = p->offsets ? TX_OK : keep_parts(b, self, g, &plan);
    const tx_operand none = {.dtype = TX_DTYPE_COUNT};
    tx_operand sums = {.dtype = TX_F32, .shape = TX_SHAPE(plan.parts, g->batch, g->m, g->n), .arena = TX_ARENA_SCRATCH};
    tx_cl_product one = *p;
    if (kept && !b->status)
        b->status = kept;
    if (plan.parts > 1) {
        sums.offset = tx_cl_scratch(b, tx_operand_bytes(&sums));
        one.y = &sums;
        one.bias = one.z = one.kept = &none;
        one.epilogue = TX_EPILOGUE_NONE;
        one.to = TX_F32;
        one.accumulate = TX_STORE;
    }
    launch_tiles(b, self->tile, &one, &plan);
    if (plan.parts > 1)
        join_parts(b, p, &sums, plan.parts);
}

/* ---- The forms ------------------------------------------------------------------------------------------------ */

#define TILE(...)       \
    &(const tx_cl_tile) \
    {                   \
        __VA_ARGS__     \
    }

const tx_cl_provider tx_cl_gemm_tiles[TX_CL_TILES] = {
#define X(name_, x, y, row_quads_, column_quads_, terms_, rate_)                                               \
    {.name = "portable-tile-" #name_,                                                                          \
     .device = TX_CL_GPUS,                                                                                     \
     .suits = tile_suits,                                                                                      \
     .epilogues = true,                                                                                        \
     .packed = true,                                                                                           \
     .grouped = true,                                                                                          \
     .emit = tile_emit,                                                                                        \
     .tile = TILE(.kernel = "gemm_tile", .rows = 4 * (y) * (row_quads_), .columns = 4 * (x) * (column_quads_), \
                  .terms = (terms_), .group = (x) * (y),                                                       \
                  .buffer_bytes = 4 * (terms_) * (4 * (y) * (row_quads_) + 4 * (x) * (column_quads_) + 8),     \
                  .rate = (rate_), .group_x = (x), .row_quads = (row_quads_), .column_quads = (column_quads_))},
    TX_TILE_MAP(X)
#undef X
};

const tx_cl_provider tx_cl_gemm_matrix[TX_CL_MATRIX] = {
#define TX_MATRIX(name_, provider, atom_, vendor_, lanes_, takes_, quads_, rows_, columns_, warps_m_, warps_n_,   \
                  stages_, pitch, rate_)                                                                          \
    {.name = (provider),                                                                                          \
     .device = TX_CL_GPUS,                                                                                        \
     .piece = 16,                                                                                                 \
     .suits = matrix_suits,                                                                                       \
     .epilogues = true,                                                                                           \
     .grouped = true,                                                                                             \
     .full = (takes_) == FULL,                                                                                    \
     .emit = tile_emit,                                                                                           \
     .tile = TILE(.kernel = "gemm_matrix", .rows = (rows_), .columns = (columns_), .terms = (pitch) / 64 * 32,    \
                  .group = (lanes_) * (warps_m_) * (warps_n_),                                                    \
                  .buffer_bytes = (stages_) * ((rows_) + (columns_)) * (pitch), .rate = (rate_), .atom = (atom_), \
                  .vendor = (vendor_), .lanes = (lanes_), .warps_m = (warps_m_), .warps_n = (warps_n_),           \
                  .stages = (stages_), .takes = (takes_), .quads = (quads_))},
#include "backends/opencl/gemm/matrix.def"
};
