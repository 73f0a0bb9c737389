/* SPDX-License-Identifier: Apache-2.0
 *
 * fp32 matrix products on the AMX matrix units of x86 processors; a provider of gemm.c's list.
 *
 * AMX multiplies bf16. Every fp32 number is split exactly into a sum of three bf16 parts. Only the six of nine products
 * of parts that affect an fp32 result are computed, as in Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial
 * Intelligence Datatype For Higher-Precision Computations" (2019). A unit adds 32 products before it adds them to the
 * fp32 sum, so a long sum is rounded less often than with one multiply-add for each product. Parts below the smallest
 * normal number count as zero, so numbers below 2e-31 lose bits. Operands that are not finite give results that are not
 * finite.
 *
 * The sum over k is cut into chunks. For each chunk, all threads together split op(a) into shared tiles. Then each
 * thread takes panels of columns, splits its panel of op(b) into tiles that stay in its cache, and multiplies blocks
 * of 32 x 32. The order of a sum depends only on k.
 */
#include "backends/cpu/gemm_parts.h"

#ifdef __AMX_BF16__
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARTS 3
#define SIDE 16                       /* rows of a tile, and fp32 numbers in a row */
#define DEPTH 32                      /* bf16 numbers in a row of a tile: terms of a sum */
#define TILE (SIDE * DEPTH)           /* bf16 numbers in a tile */
#define BLOCK (2 * SIDE)              /* rows or columns that are multiplied at once */
#define LINE 32                       /* bf16 numbers in a cache line */
#define BLOCK_SIZE (2 * PARTS * TILE) /* bf16 numbers in DEPTH terms of a block's lines */
#define CHUNK 16                      /* terms in a chunk of k, in units of DEPTH */
#define SHARED_BLOCKS 64              /* blocks of a that are split at a time */
#define PANEL_BLOCKS 8                /* maximum blocks in a panel of b, which stays in the L2 cache */
#define MIN_SIZE 48                   /* minimum m, n, k and m n / (m + n), found by measurement */

/* op(a) or op(b). Its lines are the rows of op(a) or the columns of op(b); each has `depth` elements. */
typedef struct operand {
    const float *data;
    int64_t ld, lines, depth;
    bool by_lines;      /* the elements of a line are contiguous; otherwise the lines are interleaved */
    bool lines_in_rows; /* a row of a tile is a line; otherwise it is a term */
} operand;

/* The division of a product among threads. */
typedef struct grid {
    int64_t panel, panels; /* blocks of columns in a panel; number of panels */
    int64_t parts;         /* parts of the shared block rows, which are also divided if there are few panels */
    int64_t shared, steps; /* maximum block rows, and terms in units of DEPTH, at a time */
} grid;

static grid grid_of(const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    const int64_t blocks = tx_ceil_div(s->n, BLOCK);
    int64_t panels = tx_ceil_div(blocks, PANEL_BLOCKS);
    panels = tx_min(tx_ceil_div(panels, spec->threads) * spec->threads, blocks);
    grid g = {.panel = tx_ceil_div(blocks, panels), .shared = tx_min(tx_ceil_div(s->m, BLOCK), SHARED_BLOCKS)};
    g.panels = tx_ceil_div(blocks, g.panel);
    g.parts = tx_min(g.panels < spec->threads ? spec->threads / g.panels : 1, g.shared);
    g.steps = tx_min(tx_ceil_div(s->k, DEPTH), CHUNK);
    return g;
}

/* ---- Splitting ------------------------------------------------------------------------------------ */

static inline void transpose(__m512 r[SIDE])
{
    __m512 t[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m512d low = _mm512_castps_pd(t[i + j]), high = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int j = 0; j < 4; j++) { /* quarter q of r[4 i + j] holds column 4 q + j of rows 4 i ... 4 i + 3 */
        const __m512 even = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88),
                     odd = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd),
                     even2 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88),
                     odd2 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
        t[j] = _mm512_shuffle_f32x4(even, even2, 0x88);
        t[4 + j] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
        t[8 + j] = _mm512_shuffle_f32x4(even, even2, 0xdd);
        t[12 + j] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
    }
    memcpy(r, t, sizeof t);
}

static inline __mmask16 mask_of(int64_t columns)
{
    const int64_t own = columns < 0 ? 0 : tx_min(columns, SIDE);
    return (__mmask16)((1 << own) - 1);
}

/* Loads SIDE rows of a tile, of SIDE numbers each, starting at this line and term. Zeros fill the rows and columns
 * beyond the ends. */
static inline void fetch(const operand *o, int64_t line, int64_t term, __m512 to[SIDE])
{
    const int64_t row = o->by_lines ? line : term, column = o->by_lines ? term : line;
    const int64_t rows = (o->by_lines ? o->lines : o->depth) - row,
                  columns = (o->by_lines ? o->depth : o->lines) - column;
    const __mmask16 mask = mask_of(columns);
    for (int i = 0; i < SIDE; i++)
        to[i] = i < rows ? _mm512_maskz_loadu_ps(mask, o->data + (row + i) * o->ld + column) : _mm512_setzero_ps();
    if (o->by_lines != o->lines_in_rows)
        transpose(to);
}

/* Stores a row of a tile for each part: pairs of x[i] and y[i]. The first part is clamped to finite values.
 * Rounding may leave a negative rest, so each part has its own sign. */
static inline void split(__m512 x, __m512 y, uint16_t *to)
{
    static const uint16_t pairs[DEPTH] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512 max_finite = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f7f0000)); /* the largest finite bf16 number */
    const __m512i order = _mm512_loadu_si512(pairs), high = _mm512_set1_epi32((int)0xffff0000);
    __m512 first_x = _mm512_max_ps(-max_finite, _mm512_min_ps(max_finite, x)),
           first_y = _mm512_max_ps(-max_finite, _mm512_min_ps(max_finite, y));
    for (int part = 0; part < PARTS; part++) {
        const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(part ? y : first_y, part ? x : first_x);
        const __m512i pair = _mm512_permutexvar_epi16(order, rounded);
        _mm512_store_si512(to + part * TILE, pair);
        x -= _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        y -= _mm512_castsi512_ps(_mm512_and_si512(pair, high));
    }
}

/* Splits DEPTH terms of a block's lines into to [2, PARTS, TILE]. */
static inline void split_step(const operand *o, int64_t line, int64_t term, uint16_t *to)
{
    for (int64_t half = 0; half < 2; half++, to += PARTS * TILE) {
        __m512 x[SIDE], y[SIDE];
        fetch(o, line + half * SIDE, term, x);
        fetch(o, line + half * SIDE, term + SIDE, y);
        for (int i = 0; i < SIDE; i++)
            split(x[i], y[i], to + i * DEPTH);
    }
}

/* Consecutive blocks from a line and a term on, split into [blocks, steps, 2, PARTS, TILE]. */
typedef struct parts {
    const operand *from;
    int64_t line, term, blocks, steps;
    uint16_t *to;
} parts;

/* Splits item i of blocks x steps. Consecutive items read adjacent memory. */
static inline void split_item(const parts *p, int64_t i)
{
    const bool by_lines = p->from->by_lines;
    const int64_t block = by_lines ? i / p->steps : i % p->blocks, step = by_lines ? i % p->steps : i / p->blocks;
    split_step(p->from, p->line + block * BLOCK, p->term + step * DEPTH,
               p->to + (block * p->steps + step) * BLOCK_SIZE);
}

/* ---- Multiplying ---------------------------------------------------------------------------------- */

/* Tiles 0 to 3 are sums, 4 and 5 hold a, 6 and 7 hold b. Each has 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tiles __attribute__((aligned(64))) = {
    .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#define LOAD_A(part)                            \
    _tile_loadd(4, a + (part)*TILE, 2 * DEPTH); \
    _tile_loadd(5, a + (PARTS + (part)) * TILE, 2 * DEPTH)
#define LOAD_B(part)                            \
    _tile_loadd(6, b + (part)*TILE, 2 * DEPTH); \
    _tile_loadd(7, b + (PARTS + (part)) * TILE, 2 * DEPTH)
#define MULTIPLY             \
    _tile_dpbf16ps(0, 4, 6); \
    _tile_dpbf16ps(1, 4, 7); \
    _tile_dpbf16ps(2, 5, 6); \
    _tile_dpbf16ps(3, 5, 7)

/* Adds steps * DEPTH terms to the sum tiles. In each step it prefetches `ahead` cache lines of `next`. */
static inline void multiply_block(const uint16_t *a, const uint16_t *b, int64_t steps, const uint16_t *next,
                                  int64_t ahead)
{
    for (int64_t step = 0; step < steps; step++, a += BLOCK_SIZE, b += BLOCK_SIZE) {
        for (int64_t i = 0; i < ahead; i++, next += LINE)
            _mm_prefetch((const char *)next, _MM_HINT_T1);
        LOAD_A(2);
        LOAD_B(0);
        MULTIPLY;
        LOAD_A(1);
        MULTIPLY;
        LOAD_B(1);
        MULTIPLY;
        LOAD_A(0);
        MULTIPLY;
        LOAD_B(2);
        MULTIPLY;
        LOAD_B(0);
        MULTIPLY;
    }
}

/* A block of the result. Tiles of a whole block are loaded and stored in place; others pass through `edge`. */
typedef struct block {
    float *c;
    int64_t ld, rows, columns; /* remaining in the result; may exceed the size of the block */
    bool whole;
    float edge[BLOCK * BLOCK] __attribute__((aligned(64)));
} block;

/* Fills edge with the initial sums: the values in c if `add`, plus the bias of the block's columns unless it is
 * NULL. */
static void begin_edge(block *o, const float *bias, bool add)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t j = 0; j < BLOCK; j += SIDE) {
            const __mmask16 mask = i < o->rows ? mask_of(o->columns - j) : 0;
            __m512 first = add ? _mm512_maskz_loadu_ps(mask, o->c + i * o->ld + j) : _mm512_setzero_ps();
            if (bias)
                first += _mm512_maskz_loadu_ps(mask, bias + j);
            _mm512_store_ps(o->edge + i * BLOCK + j, first);
        }
}

static void end_edge(const block *o)
{
    for (int64_t i = 0; i < tx_min(o->rows, BLOCK); i++)
        for (int64_t j = 0; j < tx_min(o->columns, BLOCK); j += SIDE)
            _mm512_mask_storeu_ps(o->c + i * o->ld + j, mask_of(o->columns - j),
                                  _mm512_load_ps(o->edge + i * BLOCK + j));
}

#define EACH_SUM(DO, from, ld)                                 \
    DO(0, from, (size_t)(ld) * sizeof(float));                 \
    DO(1, (from) + SIDE, (size_t)(ld) * sizeof(float));        \
    DO(2, (from) + SIDE * (ld), (size_t)(ld) * sizeof(float)); \
    DO(3, (from) + SIDE * (ld) + SIDE, (size_t)(ld) * sizeof(float))

/* Initializes the sum tiles: the values in c if `add`, plus the bias of the block's columns unless it is NULL. */
static void begin_block(block *o, const float *bias, bool add)
{
    if (!add && !bias) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else if (o->whole && !bias) {
        EACH_SUM(_tile_loadd, o->c, o->ld);
    } else {
        begin_edge(o, bias, add);
        EACH_SUM(_tile_loadd, o->edge, BLOCK);
    }
}

static void end_block(block *o)
{
    if (o->whole) {
        EACH_SUM(_tile_stored, o->c, o->ld);
    } else {
        EACH_SUM(_tile_stored, o->edge, BLOCK);
        end_edge(o);
    }
}

/* ---- A product -------------------------------------------------------------------------------------- */

/* One product of the batch. */
typedef struct product {
    operand a, b;
    tx_gemm_call call;
    int64_t ldc;
    grid grid;
} product;

/* Multiplies part `part` of a chunk's block rows by a panel. */
static void multiply_panel(const product *p, int64_t part, const parts *a, const parts *b)
{
    const int64_t last = a->blocks * (part + 1) / p->grid.parts, size = a->steps * BLOCK_SIZE;
    const int64_t ahead = tx_ceil_div(BLOCK_SIZE / LINE, b->blocks);
    const bool begins = a->term == 0;
    for (int64_t i = a->blocks * part / p->grid.parts; i < last; i++)
        for (int64_t j = 0; j < b->blocks; j++) {
            const int64_t row = a->line + i * BLOCK, column = b->line + j * BLOCK;
            const uint16_t *lines = a->to + i * size;
            block o = {.c = (float *)p->call.c + row * p->ldc + column, .ld = p->ldc};
            o.rows = p->a.lines - row;
            o.columns = p->b.lines - column;
            o.whole = o.rows >= BLOCK && o.columns >= BLOCK;
            begin_block(&o, begins && p->call.bias ? p->call.bias + column : NULL, !begins || p->call.add);
            multiply_block(lines, b->to + j * size, a->steps, lines + size + j * ahead * a->steps * LINE,
                           i + 1 < last ? ahead : 0);
            end_block(&o);
        }
}

/* Multiplies all rows of `a` by all columns. All threads of a team call it; each has `own` memory for its panel. */
static void run_chunk(const product *p, const parts *a, uint16_t *own)
{
    const grid *g = &p->grid;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < a->blocks * a->steps; i++)
        split_item(a, i);
    parts b = {.from = &p->b, .line = -1, .term = a->term, .steps = a->steps, .to = own};
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < g->panels * g->parts; item++) {
        const int64_t first = item / g->parts * g->panel * BLOCK;
        if (b.line != first) {
            b.line = first;
            b.blocks = tx_min(tx_ceil_div(p->b.lines - first, BLOCK), g->panel);
            for (int64_t i = 0; i < b.blocks * b.steps; i++)
                split_item(&b, i);
        }
        multiply_panel(p, item % g->parts, a, &b);
    }
}

static void run_one(const product *p, const tx_cpu_gemm_spec *spec)
{
    const grid *g = &p->grid;
    uint16_t *shared = p->call.scratch, *panels = shared + g->shared * g->steps * BLOCK_SIZE;
#pragma omp parallel num_threads(spec->threads)
    {
        parts a = {.from = &p->a, .to = shared};
        _tile_loadconfig(&tiles);
        for (a.line = 0; a.line < p->a.lines; a.line += SHARED_BLOCKS * BLOCK)
            for (a.term = 0; a.term < p->a.depth; a.term += CHUNK * DEPTH) {
                a.blocks = tx_min(tx_ceil_div(p->a.lines - a.line, BLOCK), SHARED_BLOCKS);
                a.steps = tx_min(tx_ceil_div(p->a.depth - a.term, DEPTH), CHUNK);
                run_chunk(p, &a, panels + omp_get_thread_num() * g->panel * g->steps * BLOCK_SIZE);
            }
        _tile_release();
    }
}

/* Returns the name of the units if the processor has them and the system lets this process use them. */
static const char *units(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arguments of Linux's arch_prctl */
    return tx_gemm_dnnl_amx() && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? "amx" : NULL;
}

/* Returns true if AMX is faster. Splitting costs (m + n) k steps and saves a share of m n k. */
static bool takes(const tx_cpu_gemm_spec *spec)
{
    const tx_gemm *s = &spec->shape;
    const bool pays =
        s->k >= MIN_SIZE && s->m >= MIN_SIZE && s->n >= MIN_SIZE && s->m * s->n >= MIN_SIZE * (s->m + s->n);
    return pays && spec->type == TX_F32 && spec->packed == TX_F32 && units();
}

static tx_status create(const tx_cpu_gemm_spec *spec, void **prepared, int64_t *scratch_bytes,
                        char variant[TX_GEMM_VARIANT])
{
    const grid g = grid_of(spec);
    *scratch_bytes = (g.shared + spec->threads * g.panel) * g.steps * BLOCK_SIZE * 2;
    *prepared = (void *)(uintptr_t)spec;
    snprintf(variant, TX_GEMM_VARIANT, "amx, 3 parts of bf16");
    return TX_OK;
}

static tx_status run(void *prepared, const tx_gemm_call *call)
{
    const tx_cpu_gemm_spec *spec = prepared;
    const tx_gemm *s = &spec->shape;
    const grid g = grid_of(spec);
    for (int64_t i = 0; i < s->batch; i++) {
        product p = {.a = {(const float *)call->a + i * s->stride_a, s->lda, s->m, s->k, !spec->trans_a, true},
                     .b = {(const float *)call->b + i * s->stride_b, s->ldb, s->n, s->k, spec->trans_b, false},
                     .call = *call,
                     .ldc = s->ldc,
                     .grid = g};
        p.call.c = (float *)call->c + i * s->stride_c;
        run_one(&p, spec);
    }
    return TX_OK;
}

const tx_gemm_provider tx_gemm_amx = {takes, create, run, NULL, units};

#else

/* A compiler or processor without AMX. */
static bool takes(const tx_cpu_gemm_spec *spec)
{
    (void)spec;
    return false;
}

const tx_gemm_provider tx_gemm_amx = {.takes = takes};
#endif
