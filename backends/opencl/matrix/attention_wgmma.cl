/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of attention by the atom of matrix_wgmma.cl. Four warps together multiply their 64 own lines. The unit reads
 * lines in local memory itself, and probabilities in registers: the sums of a lane, rounded to 16 bits, are its
 * fragment of the next product. It works while the warps compute exponentials (Shah et al., FlashAttention-3, 2024).
 *
 * A block of lines in local memory has a segment for each 64 elements of a head, of lines of 128 bytes.
 */

#define SEGMENT(lines) (64 * (lines))

/* The probabilities of a lane, or their gradients, as fragments of 16 other lines. */
typedef struct probabilities {
    uint of[OTHER_ATOMS][4];
} probabilities;

#if EMULATED == 0
#define SCORE_FLAGS(adds) adds ", 1, 1, 0, 0;"
/* Begins s [64 x OTHERS] = a b, or += unless `first`; a and b are descriptors of lines of terms in these blocks. */
static void multiply_lines(float *s, const __local ab_t *own, const __local ab_t *others, ulong a, ulong b, int first,
                           __local uint *shown)
{
    if (first)
        WGMMA_BEGIN(OTHERS, LOCAL_, SCORE_FLAGS("0"), NEW, s, "l"(a), "l"(b));
    else
        WGMMA_BEGIN(OTHERS, LOCAL_, SCORE_FLAGS("1"), OLD, s, "l"(a), "l"(b));
}

/* Begins out [64 x D] += p b for 16 other lines; b is a descriptor of lines that are terms. */
static void multiply_turned(float *out, const uint *p, const __local ab_t *others, ulong b, __local uint *shown)
{
    WGMMA_BEGIN(D, HELD_, "1, 1, 1, 1;", OLD, out, "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}

/* Wait for the sums of products. `later`: 1 if one group that was begun after them still runs, or 0. The sums are
 * operands, so that compilers do not read them earlier. */
#define WAIT_FOR(columns, sums, groups)                                                                   \
    __asm__ volatile("//@90a wgmma.wait_group.sync.aligned " groups ";" : TX_CAT(SUMS_, columns)(OLD, sums) \
                     :                                                                                    \
                     : "memory")
static void scores_wait(float *s, int later, __local uint *shown)
{
    if (later)
        WAIT_FOR(OTHERS, s, "1");
    else
        WAIT_FOR(OTHERS, s, "0");
}

static void outputs_wait(float *out, int later, __local uint *shown)
{
    if (later)
        WAIT_FOR(D, out, "1");
    else
        WAIT_FOR(D, out, "0");
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
 * same time. It keeps a wait after a branch. The value is computed from exponentials and never negative, so nothing
 * sleeps. The assembler must not know the latter. */
static void powers_hold(float value)
{
    __asm__ volatile("{.reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p nanosleep.u32 1;}" ::"f"(value) : "memory");
}
#endif

/* Rounds the probabilities of a step. */
TX_INLINE void operands_make(probabilities *p, const scores *s, int lane, __local uint *shown)
{
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
    {
        fragment_of(p->of[j], s->of[0][j], lane, shown);
        fragment_hold(p->of[j]);
    }
}

/* Begins the scores of own lines with a block of other lines. */
TX_INLINE void scores_begin(scores *s, const own_lines *own, const __local ab_t *others, __local uint *shown)
{
    UNROLLED for (int k = 0; k < STEPS; k++)
    {
        const int segment = k / 4, step = k % 4;
        const ulong a = descriptor_of(own->block, segment * SEGMENT(OWN_LINES), 64),
                    b = descriptor_of(others, segment * SEGMENT(OTHERS), 64);
        multiply_lines(s->of[0][0], own->block, others, a + step * STEP_ALONG, b + step * STEP_ALONG, k == 0, shown);
    }
    units_close(shown);
}

/* Begins to add the probabilities times a block of other lines to the output. */
TX_INLINE void outputs_begin(outputs *out, const probabilities *p, const __local ab_t *others, __local uint *shown)
{
    const ulong b = descriptor_of(others, 0, SEGMENT(OTHERS));
    UNROLLED for (int j = 0; j < OTHER_ATOMS; j++)
        multiply_turned(out->of[0][0], p->of[j], others, b + j * STEP_ACROSS, shown);
    units_close(shown);
}

#if OWN_BLOCKS == 2
/* ---- Gradients ------------------------------------------------------------------------------- */

/* Both products of a step with own lines begin together. The second runs while the warps compute exponentials of the
 * first. Products with the outputs run until the next step begins its own, while the lines after those are copied.
 * So three steps have lines in local memory. */

/* Begins the scores of own lines with other lines, which scores_end waits for. Compilers do not keep descriptors of own
 * lines in registers, of which there are too few. */
TX_INLINE void product_scores(scores *s, const own_lines *own, const __local ab_t *others, int lane,
                              __local uint *shown)
{
    const own_lines again = {own->block + told_again(0)};
    units_begin();
    scores_begin(s, &again, others, shown);
}

/* Begins out += s (in 16 bits) times other lines, which out_end waits for. */
TX_INLINE void product_out(outputs *out, const factors *rescale, const scores *s, const __local ab_t *others, int lane,
                           __local uint *shown)
{
    probabilities p;
    operands_make(&p, s, lane, shown);
    units_begin();
    outputs_begin(out, &p, others, shown);
}

#define scores_end(s, later, shown) scores_wait((s)->of[0][0], later, shown)
#define out_end(out, later, shown) outputs_wait((out)->of[0][0], later, shown)
#else
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
    COPIED_BARRIER;
}
#endif
