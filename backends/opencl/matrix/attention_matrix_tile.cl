/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention tiles on the matrix units of GPUs: 16-bit operands, fp32 sums (Dao, FlashAttention-2, 2023).
 *
 * A work-group owns OWN_LINES lines (queries, or keys with KEYS_OUT) and loops over the other lines, OTHERS at a
 * time. A warp has OWN_ATOMS atoms of own lines, so no sum leaves it. Scores, own lines times other lines, become
 * operands of the next product in place.
 *
 *   ATOM, EMULATED     As in gemm_matrix.cl. An atom is OWN_ATOM own lines by OTHER_ATOM others, which divide D and
 *   OTHERS.
 *   WARPS, OWN_ATOMS, OTHERS   The form.
 *   OWN_HELD           With 1 a warp's own lines stay in registers, with 0 in local memory.
 *   KEYS_OUT           With 1 own lines are keys, with 0 queries.
 *   PAIRED             With 1 two warps have the same own lines and an output each (attention_matrix_grad_kv.cl).
 *   Default: 0.
 *   OWN_BLOCKS         Blocks of own lines, 1 or 2.
 *   STAGE_ELEMENTS     Elements of a step's blocks of other lines.
 */
#include "matrix_atoms.cl"

#include "backends/opencl/attention/attention_shared.cl"

#define AB H
#define WIDEN 1
#define FULL 0
typedef h_t ab_t;
#define PIECE 8 /* elements in 16 bytes */
#define LOG2_E 1.44269504f /* exponentials are powers of 2, which the hardware computes: e^x = 2^(x log2 e) */
#define LN_2 0.693147181f

#ifndef PAIRED
#define PAIRED 0
#endif
#define PIECES (D / PIECE)
#define PITCH (ATOM == WGMMA ? D : D + PIECE)
#define ALONG 1
#define TURNED 2
#define GROUP (LANES * WARPS)
#define OWN_WARPS (WARPS / (PAIRED ? 2 : 1))
#define OWN_LINES (OWN_WARPS * OWN_ATOMS * OWN_ATOM)
#define OTHER_ATOMS (OTHERS / OTHER_ATOM)
#define OUT_ATOMS (D / OTHER_ATOM)
#define STEPS (D / ATOM_K)

/* The definitions of an atom, in addition to those for matrix products (gemm_matrix.cl).
 *
 *   OWN_ATOM, OTHER_ATOM   An atom's lines.
 *   LANE_LINES         Own lines of a lane in an atom's sums.
 *   LINE_OF, OWN_OF    Which of these sum e belongs to, and the position of that line.
 *   OTHER_OF           The other line, or column of the output, of sum e. BESIDE of them are adjacent.
 *   JOIN               Combines the values of an own line in several lanes.
 *   LINE_BIT, LINE_END Powers of two: the lowest bit of a lane's number that selects its own lines, and the one after
 *   the highest. Not defined if lanes cannot exchange sums.
 *   `load_own`, `load_other`   Load fragments of an atom's lines and 16 terms.
 *   `load_turned`      Loads fragments of columns; lines are the terms.
 *   `fragment_of`      Makes an own fragment of 16 terms from sums of each lane: from 8, or from all of an atom.
 *   `multiply_own`     Computes sums += own lines times other lines.
 *   `narrow_both`, `store_run`   Round two sums to their storage type; store BESIDE of them.
 *   STAGES, moving, bring_begin, bring_end, bring_own   Copy blocks to local memory. */
#if ATOM == MMA || ATOM == WGMMA
#include "matrix_mma.cl"
#if ATOM == WGMMA
#include "matrix_wgmma.cl"
#endif
#include "attention_mma.cl"
#elif ATOM == DPAS8 || ATOM == DPAS16
#define COLUMNS LANES /* the own lines, so that only OWN_ATOMS determines their number */
#include "matrix_dpas.cl"
#include "attention_dpas.cl"
#else
#include "matrix_amd.cl"
#include "attention_amd.cl"
#endif
/* Two waves of a SIMD unit have 256 registers each. */
#if ATOM == MFMA && D <= 64 && !BOUNDED && !EMULATED
#define SUB_GROUP __attribute__((amdgpu_waves_per_eu(2)))
#endif
#ifndef SUB_GROUP
#define SUB_GROUP
#endif

#define OWN_BLOCK (OWN_LINES * PITCH)
/* Own lines that are held in registers pass through the memory of other lines. */
#define OWN_AT(n) (OWN_HELD ? 0 : (n) * OWN_BLOCK)
#define OTHERS_AT OWN_AT(OWN_BLOCKS)
#define POOL (OTHERS_AT + (OWN_HELD && OWN_BLOCK > STAGES * (STAGE_ELEMENTS) ? OWN_BLOCK : STAGES * (STAGE_ELEMENTS)))

#if EMULATED
#define UNROLLED
#define SHOWN_MEMORY                  \
    __local uint shown[GROUP * SHOWN]; \
    for (int i = 0; i < SHOWN; i++)    \
    shown[(int)get_local_id(0) * SHOWN + i] = 0
#else
#define UNROLLED _Pragma("unroll")
#define SHOWN_MEMORY __local uint *const shown = 0
#endif
/* The local memory of a kernel: blocks of lines, dropout's bits, and words that emulated instructions exchange. PoCL
 * 3.1 corrupts its compiler's memory if numbers computed from a local array's address are constants. So emulated
 * kernels make that address depend on an argument, by a comparison that is never true. */
#define LOCAL_MEMORY                                                                                                   \
    __local ab_t pool_memory[POOL] __attribute__((aligned(ATOM == WGMMA && !EMULATED ? 1024 : 128))); /* PoCL: 128 */  \
    __local ab_t *const pool = pool_memory + (EMULATED && T < 0);                                                      \
    __local uchar kept[STAGES * KEPT] __attribute__((aligned(16)));                                                    \
    SHOWN_MEMORY
/* Compilers move address computations that depend only on the work-item's number out of the loop over other lines. With
 * Intel's atoms and gradients by wgmma there are too few registers for them. So the number is made to depend on the
 * step too, by bits that are 0 because sizes are not negative. */
#if ATOM == DPAS8 || ATOM == DPAS16 || (ATOM == WGMMA && OWN_BLOCKS == 2)
#define IN_STEP(item, step, size) (((item) | ((step) & (size) >> 31)) & (GROUP - 1))
#else
#define IN_STEP(item, step, size) (item)
#endif
/* For large heads, or with 8 lanes, there are also too few registers to load ahead in all steps. The same holds for
 * unrolled draws. */
#if (ATOM == DPAS8 || (ATOM == DPAS16 && D > 64)) && !EMULATED
#define EACH_STEP _Pragma("unroll 2")
#else
#define EACH_STEP UNROLLED
#endif
#if (ATOM == DPAS8 || ATOM == DPAS16) && !EMULATED
#define EACH_DRAW _Pragma("unroll 1")
#elif ATOM == WGMMA && !EMULATED
#define EACH_DRAW _Pragma("unroll 2")
#else
#define EACH_DRAW
#endif
/* A barrier after copies, which the unit of wgmma then sees, too. */
#if ATOM == WGMMA
#define COPIED_BARRIER \
    copies_show();     \
    barrier(CLK_LOCAL_MEM_FENCE)
#else
#define COPIED_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define ADD(a, b) ((a) + (b))
#define EACH_OUT(i, c, e)                                                                                              \
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)                                                                       \
        UNROLLED for (int c = 0; c < OUT_ATOMS; c++)                                                                   \
            UNROLLED for (int e = 0; e < SUMS; e++)
#define EACH_SCORE(j, e)                                                                                               \
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)                                                                     \
        UNROLLED for (int e = 0; e < SUMS; e++)

/* Runs of sums of neighbouring other lines and one own line. */
#define EACH_RUN(j, first)                                                                                             \
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)                                                                     \
        UNROLLED for (int first = 0; first < SUMS; first += BESIDE)

typedef float factors[OWN_ATOMS][LANE_LINES]; /* of a lane's own lines */

/* ---- Own lines ------------------------------------------------------------------------------- */

typedef struct own_lines {
#if OWN_HELD
    fragment held[OWN_ATOMS][STEPS];
#else
    const __local ab_t *block;
#endif
} own_lines;

/* Loads own lines from rows of D from `from` on, of which `left` exist, through `block`. `line` is the warp's first
 * line. */
TX_INLINE void take_own(own_lines *own, __local ab_t *block, const __global ab_t *from, uint stride, int left, int line,
                        int lane, __local uint *shown)
{
    bring_own(block, from, stride, left, (int)get_local_id(0));
    COPIED_BARRIER;
#if OWN_HELD
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++) UNROLLED for (int k = 0; k < STEPS; k++)
        load_own(own->held[i][k], block, line + i * OWN_ATOM, k * ATOM_K, lane, shown);
    barrier(CLK_LOCAL_MEM_FENCE); /* the block may be overwritten */
#else
    own->block = block + (ATOM == WGMMA ? line / 64 * (64 * 64) : line * PITCH);
#endif
}

/* ---- Products -------------------------------------------------------------------------------- */

typedef struct scores {
    float of[OWN_ATOMS][OTHER_ATOMS][SUMS];
} scores;

typedef struct outputs {
    float of[OWN_ATOMS][OUT_ATOMS][SUMS];
} outputs;

#if ATOM == WGMMA
#include "attention_wgmma.cl"
#else
/* s = own lines times other lines. */
static void product_scores(scores *s, const own_lines *own, const __local ab_t *others, int lane, __local uint *shown)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_SCORE(j, e) s->of[i][j][e] = 0.0f;
    EACH_STEP for (int k = 0; k < STEPS; k++)
    {
#if !OWN_HELD
        fragment mine[OWN_ATOMS];
        UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
            load_own(mine[i], own->block, i * OWN_ATOM, k * ATOM_K, lane, shown);
#endif
        UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
        {
            fragment other;
            load_other(other, others, j * OTHER_ATOM, k * ATOM_K, lane, shown);
            UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
#if OWN_HELD
                multiply_own(s->of[i][j], own->held[i][k], other, shown);
#else
                multiply_own(s->of[i][j], mine[i], other, shown);
#endif
        }
    }
}

/* out = out * rescale + s (in 16 bits) times other lines; `rescale` may be NULL. Rescaling all of `out` first would
 * need twice the registers. */
static void product_out(outputs *out, const factors *rescale, const scores *s, const __local ab_t *others, int lane,
                        __local uint *shown)
{
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
        UNROLLED for (int part = 0; part < OTHER_ATOM / ATOM_K; part++)
    {
        fragment mine[OWN_ATOMS];
        UNROLLED for (int i = 0; i < OWN_ATOMS; i++) fragment_of(mine[i], s->of[i][j] + 8 * part, lane, shown);
        UNROLLED for (int c = 0; c < OUT_ATOMS; c++)
        {
            if (rescale && j == 0 && part == 0)
                UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
                    UNROLLED for (int e = 0; e < SUMS; e++) out->of[i][c][e] *= (*rescale)[i][LINE_OF(e)];
            fragment other;
            load_turned(other, others, j * OTHER_ATOM + part * ATOM_K, c * OTHER_ATOM, lane, shown);
            UNROLLED for (int i = 0; i < OWN_ATOMS; i++) multiply_own(out->of[i][c], mine[i], other, shown);
        }
    }
}

/* Products are complete when their functions return, except by wgmma (attention_wgmma.cl). */
#define scores_end(s, later, shown)
#define out_end(out, later, shown)
#define sums_hold(sums)
#endif

static void clear(outputs *out)
{
    EACH_OUT(i, c, e) out->of[i][c][e] = 0.0f;
    sums_hold(out->of[0][0]);
}

/* Stores rows line.. of the output, times `factor`, in rows of D from `to` on, of which `left` exist. */
static void store_out(const outputs *out, float factor, __global ab_t *to, uint stride, int line, int left, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        UNROLLED for (int c = 0; c < OUT_ATOMS; c++)
            UNROLLED for (int e = 0; e < SUMS; e += BESIDE)
    {
        const int row = line + i * OWN_ATOM + OWN_OF(LINE_OF(e), lane);
        float v[BESIDE];
        UNROLLED for (int r = 0; r < BESIDE; r++) v[r] = out->of[i][c][e + r] * factor;
        if (row < left)
            store_run(v, to + (uint)row * stride + c * OTHER_ATOM + OTHER_OF(e, lane));
    }
}

/* ---- Masks ----------------------------------------------------------------------------------- */

/* True if all steps mask scores. A branch around the mask would cost registers, which AMD's compiler then spills. */
#define HIDES_ALL ((ATOM == MFMA && D > 64) || ATOM == WMMA11 || ATOM == WMMA12)
/* True if keys before `end`, of `keys`, may be masked for queries from q0 on, apart from window and starts. */
#define IS_EDGE(end, keys, q0) ((end) > (keys) || (CAUSAL && (end) > (q0) + 1))

#if !KEYS_OUT
typedef int bounds[OWN_ATOMS][LANE_LINES]; /* the first key that each of a lane's own lines attends to */

/* Returns true if the first key of any of a lane's lines is after k0. */
static int begins_behind(const bounds *from, int k0)
{
    int largest = 0;
    UNROLLED for (int i = 0; i < OWN_ATOMS && BOUNDED; i++)
        UNROLLED for (int l = 0; l < LANE_LINES; l++) largest = max(largest, (*from)[i][l]);
    return largest > k0;
}

/* Masks the keys from k0 on that a warp's queries, from q0 on, do not attend to. There are `keys` keys. */
TX_INLINE void hide(scores *s, const bounds *from, int q0, int k0, int keys, int lane)
{
    UNROLLED for (int i = 0; i < OWN_ATOMS; i++)
        EACH_SCORE(j, e)
        {
            const int key = k0 + j * OTHER_ATOM + OTHER_OF(e, lane), l = LINE_OF(e);
            const int until = CAUSAL ? min(keys, q0 + i * OWN_ATOM + OWN_OF(l, lane) + 1) : keys;
            s->of[i][j][e] = ((key >= until) | (BOUNDED && key < (*from)[i][l])) ? -INFINITY : s->of[i][j][e];
        }
}
#endif

/* ---- Dropout --------------------------------------------------------------------------------- */

#define QUERIES (KEYS_OUT ? OTHERS : OWN_LINES)
#define KEYS (KEYS_OUT ? OWN_LINES : OTHERS)
#define KEPT (DROPOUT ? QUERIES * KEYS / 4 : 4) /* bytes of a tile: a bit for each of four neighbouring keys */
/* The bytes of an own line are adjacent. */
#define KEPT_AT(query, key) (KEYS_OUT ? (key) / 4 * QUERIES + (query) : (query) * (KEYS / 4) + (key) / 4)

/* Draws which scores of a tile dropout keeps. Each draw is computed once, by any work-item. */
static void draw_kept(__local uchar *kept, const draws *d, int q0, int k0, int item)
{
    EACH_DRAW for (int i = item; i < QUERIES * KEYS / 4; i += GROUP) {
        const int query = KEYS_OUT ? i % QUERIES : i / (KEYS / 4), key = (KEYS_OUT ? i / QUERIES : i % (KEYS / 4)) * 4;
        const tx_random r = DRAW_AT(d, (uint)(q0 + query), (uint)(k0 + key));
        uint bits = 0;
        UNROLLED for (int w = 0; w < 4; w++) bits |= r.word[w] >= d->threshold ? 1u << w : 0u;
        kept[KEPT_AT(query, key)] = (uchar)bits;
    }
}

/* The bits of BESIDE scores of an own line, the first of which belongs to `other`. */
typedef struct kept_run {
    uint word[KEYS_OUT && BESIDE > 4 ? BESIDE / 4 : 1];
} kept_run;

static void read_kept(kept_run *run, const __local uchar *kept, int own, int other)
{
    const __local uchar *const at = kept + (KEYS_OUT ? KEPT_AT(other, own) : KEPT_AT(own, other));
#if KEYS_OUT && BESIDE == 2
    run->word[0] = *(const __local ushort *)at >> own % 4;
#elif KEYS_OUT
    UNROLLED for (int i = 0; i < BESIDE / 4; i++) run->word[i] = ((const __local uint *)at)[i] >> own % 4;
#elif BESIDE == 2
    run->word[0] = *at >> other % 4;
#elif BESIDE == 8
    run->word[0] = *(const __local ushort *)at;
#else
    run->word[0] = *(const __local uint *)at;
#endif
}

/* True if score r of the run is kept. */
#define IS_KEPT(run, r) ((run).word[KEYS_OUT ? (r) / 4 : 0] >> (KEYS_OUT ? (r) % 4 * 8 : (r) / 4 * 8 + (r) % 4) & 1)

/* ---- Loop of queries over keys --------------------------------------------------------------- */

#if !KEYS_OUT && !(ATOM == WGMMA && OWN_BLOCKS == 1)
/* A block of a step holds OTHERS lines of `first` along, and those of `second` in the layouts SECOND. */
typedef struct walk {
    const __global h_t *first, *second; /* of key 0 */
    uint stride;
    int q0, last, stage;
    moving moving_first, moving_second;
} walk;

/* Begins to copy the lines from key k0 on to the block of the walk's stage. */
static void walk_begin(walk *w, __local ab_t *pool, int k0, int item)
{
    __local ab_t *const block = pool + OTHERS_AT + w->stage * (STAGE_ELEMENTS);
    if (k0 >= w->last)
        return;
    bring_begin(&w->moving_first, block, w->first + (uint)k0 * w->stride, w->stride, OTHERS, w->last - k0, item);
    bring_begin(&w->moving_second, block + BLOCK(ALONG), w->second + (uint)k0 * w->stride, w->stride, OTHERS,
                w->last - k0, item);
}

/* Returns the block of step k0 after its copy is done, with dropout's bits in `bits`, and begins to copy the next
 * block. */
TX_INLINE const __local ab_t *walk_step(walk *w, __local ab_t *pool, __local uchar *bits, const draws *drop, int k0,
                                        int item)
{
    __local ab_t *const block = pool + OTHERS_AT + w->stage * (STAGE_ELEMENTS);
    if (STAGES == 1)
        barrier(CLK_LOCAL_MEM_FENCE); /* the previous block has been read */
    bring_end(&w->moving_first, block, ALONG, item);
    bring_end(&w->moving_second, block + BLOCK(ALONG), SECOND, item);
    if (DROPOUT)
        draw_kept(bits, drop, w->q0, k0, item);
    COPIED_BARRIER;
    w->stage = (w->stage + 1) % STAGES;
    walk_begin(w, pool, k0 + OTHERS, item);
    return block;
}
#endif
