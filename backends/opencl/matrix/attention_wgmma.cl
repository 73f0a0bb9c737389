/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of forward attention by the atom of matrix_wgmma.cl. Four warps together multiply their 64 queries. The unit
 * reads queries, keys and values in local memory itself, and the probabilities in registers: the sums of a lane,
 * rounded to 16 bits, are its fragment of the next product. It works while the warps compute exponentials (Shah et
 * al., FlashAttention-3, 2024).
 *
 * A block of lines in local memory has a segment for each 64 elements of a head, of lines of 128 bytes.
 */
#include "matrix_wgmma.cl"

#define SEGMENT(lines) (64 * (lines))

/* The probabilities of a lane, as fragments of 16 keys. */
typedef struct probabilities {
    uint of[OTHER_ATOMS][4];
} probabilities;

#if EMULATED == 0
#define SCORE_FLAGS(adds) adds ", 1, 1, 0, 0;"
/* Begins s [64 x OTHERS] = a b, or += unless `first`; a and b are descriptors of lines of terms in `pool`. */
static void multiply_keys(float *s, const __local ab_t *pool, ulong a, ulong b, int first, __local uint *shown)
{
    if (first)
        WGMMA_BEGIN(OTHERS, LOCAL_, SCORE_FLAGS("0"), NEW, s, "l"(a), "l"(b));
    else
        WGMMA_BEGIN(OTHERS, LOCAL_, SCORE_FLAGS("1"), OLD, s, "l"(a), "l"(b));
}

/* Begins out [64 x D] += p b for 16 keys; b is a descriptor of lines that are terms. */
static void multiply_values(float *out, const uint *p, const __local ab_t *pool, ulong b, __local uint *shown)
{
    WGMMA_BEGIN(D, HELD_, "1, 1, 1, 1;", OLD, out, "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}

/* Wait for the scores, with the products of values still running, and for all products. The results are operands, so
 * that compilers do not read them earlier. */
static void scores_wait(float *s, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned 1;" : TX_CAT(SUMS_, OTHERS)(OLD, s) : : "memory");
}

static void outputs_wait(float *out, __local uint *shown)
{
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned 0;" : TX_CAT(SUMS_, D)(OLD, out) : : "memory");
}

/* Compilers compute these values before the next instruction of the unit. */
static void sums_hold(float *out)
{
    __asm__ volatile("" : TX_CAT(SUMS_, D)(OLD, out));
}

static void fragment_hold(uint *p)
{
    __asm__ volatile("" : "+r"(p[0]), "+r"(p[1]), "+r"(p[2]), "+r"(p[3]));
}

/* The assembler moves a wait for the unit before computations that do not depend on it, which then no longer run at the
 * same time. It keeps a wait after a branch. The sum of exponentials is never negative, so nothing sleeps. */
static void powers_hold(float sum)
{
    __asm__ volatile("{.reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p nanosleep.u32 1;}" ::"f"(sum) : "memory");
}

static void lines_show(__local ab_t *block, int lines, int item)
{
}
#endif

/* Rounds the probabilities of a step, and rescales the output of earlier steps. */
TX_INLINE void operands_make(probabilities *p, outputs *out, const scores *s, const factors *rescale, int lane,
                             __local uint *shown)
{
    EACH_OUT(i, c, e) out->of[i][c][e] *= (*rescale)[i][LINE_OF(e)];
    sums_hold(out->of[0][0]);
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
    {
        fragment_of(p->of[j], s->of[0][j], lane, shown);
        fragment_hold(p->of[j]);
    }
}

/* Begins the scores of the queries from `line` on with a block of keys. */
TX_INLINE void scores_begin(scores *s, const __local ab_t *pool, int line, int keys, __local uint *shown)
{
    UNROLLED for (int k = 0; k < STEPS; k++)
    {
        const int segment = k / 4, step = k % 4;
        const ulong a = descriptor_of(pool, segment * SEGMENT(OWN_LINES) + line / 64 * SEGMENT(64), 64),
                    b = descriptor_of(pool, keys + segment * SEGMENT(OTHERS), 64);
        multiply_keys(s->of[0][0], pool, a + step * STEP_ALONG, b + step * STEP_ALONG, k == 0, shown);
    }
    units_close(shown);
}

/* Begins to add the probabilities times a block of values to the output. */
TX_INLINE void outputs_begin(outputs *out, const probabilities *p, const __local ab_t *pool, int values,
                             __local uint *shown)
{
    const ulong b = descriptor_of(pool, values, SEGMENT(OTHERS));
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
        multiply_values(out->of[0][0], p->of[j], pool, b + j * STEP_ACROSS, shown);
    units_close(shown);
}

/* ---- Loop of queries over keys --------------------------------------------------------------- */

/* Keys have two blocks. Values have three, because those of the step before are still being read while others are
 * copied. */
#define KEYS_AT(stage) (OTHERS_AT + (stage)*OTHERS * D)
#define VALUES_AT(stage) KEYS_AT(2 + (stage))
#define VALUES_AFTER(stage) ((stage) == 2 ? 0 : (stage) + 1)

typedef struct walk {
    const __global h_t *keys, *values; /* of key 0 */
    uint stride;
    int last;
} walk;

/* Begins to copy lines of keys or values from k0 on. */
TX_INLINE void walk_begin(const walk *w, const __global h_t *from, __local ab_t *block, int k0, int item)
{
    if (k0 < w->last)
        bring_begin(0, block, from + (uint)k0 * w->stride, w->stride, OTHERS, w->last - k0, item);
}

/* Waits for the copies of the keys from k0 on, and of values if they are not 0, and shows them to the unit. */
TX_INLINE void walk_end(const walk *w, __local ab_t *keys, __local ab_t *values, int k0, int item)
{
    copy_wait();
    if (k0 < w->last)
        lines_show(keys, OTHERS, item);
    if (values)
        lines_show(values, OTHERS, item);
    copies_show();
    barrier(CLK_LOCAL_MEM_FENCE);
}
