/* SPDX-License-Identifier: Apache-2.0
 *
 * Factors of dropout, 0 or 1 / (1 - p), from the draws of rng.h.
 */

/* The values that all draws of a site for one sample and head have in common. */
typedef struct draws {
    uint seed_lo, seed_hi, step, sample, site, head, threshold;
    float keep;
    uint row, column; /* of the first element */
} draws;

static draws draws_of(const __global uint *control, uint sample, int site, int head, float p, int row, int column)
{
    draws d = {control[TX_CONTROL_SEED_LO],
               control[TX_CONTROL_SEED_HI],
               control[TX_CONTROL_STEP],
               control[TX_CONTROL_SAMPLE] + sample,
               (uint)site,
               (uint)head,
               tx_dropout_threshold(p),
               1.0f / (1.0f - p),
               (uint)row,
               (uint)column};
    return d;
}

/* Returns the index of row `row`, relative to the first. A sample has `middle` rows, with `gap` other rows between
 * its halves. */
static uint drawn_row(long row, long middle, int gap)
{
    const long index = row % middle;
    return (uint)(index + (index < middle / 2 ? 0 : gap));
}

/* The draw of four neighbouring columns of a row, relative to the first element. This is a macro because oclgrind's
 * compiler cannot translate a function that returns the result of tx_draw. */
#define DRAW_AT(d, line, index)                                                                          \
    tx_draw((d)->seed_lo, (d)->seed_hi, (d)->step, (d)->sample, (d)->site, (d)->head, (d)->row + (line), \
            ((d)->column + (index)) >> 2)

/* Factors of columns column..column+3 of a row, which share a draw. A column that is not a multiple of 4 is rounded
 * down. */
static float4 draw_factors(const draws *d, uint row, uint column)
{
    const tx_random r = DRAW_AT(d, row, column);
    return (float4)(r.word[0] >= d->threshold ? d->keep : 0.0f, r.word[1] >= d->threshold ? d->keep : 0.0f,
                    r.word[2] >= d->threshold ? d->keep : 0.0f, r.word[3] >= d->threshold ? d->keep : 0.0f);
}

#if VW == 16
/* The same for eight blocks at once: factor[w] holds the factors of columns column + w. The rounds of tx_philox run
 * on 64-bit lanes with a word in the low half, because CPUs have a vector instruction for that product. */
static void draw_factors8(float8 factor[4], const draws *d, uint8 row, uint8 column)
{
    const ulong low = 0xFFFFFFFFUL;
    ulong8 c0 = convert_ulong8((d->column + column) >> 2 | d->head << 20), c1 = convert_ulong8(d->row + row),
           c2 = d->sample, c3 = d->site;
    uint k0 = d->seed_lo, k1 = d->seed_hi ^ d->step * 0x85EBCA6Bu; /* as in tx_draw */
    _Pragma("unroll") for (int round = 0; round < 10; round++)
    {
        const ulong8 p0 = 0xD2511F53UL * (c0 & low), p1 = 0xCD9E8D57UL * (c2 & low);
        c0 = p1 >> 32 ^ c1 ^ k0;
        c2 = p0 >> 32 ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const float8 keep = d->keep, drop = 0.0f;
    const uint8 threshold = d->threshold;
    factor[0] = convert_uint8(c0 & low) >= threshold ? keep : drop;
    factor[1] = convert_uint8(c1 & low) >= threshold ? keep : drop;
    factor[2] = convert_uint8(c2 & low) >= threshold ? keep : drop;
    factor[3] = convert_uint8(c3 & low) >= threshold ? keep : drop;
}

/* The four factors of lane l, a hexadecimal digit. */
#define FACTORS_OF(factor, l) factor[0].s##l, factor[1].s##l, factor[2].s##l, factor[3].s##l
#endif

static float lane(float4 v, int which)
{
    return which < 2 ? (which == 0 ? v.x : v.y) : (which == 2 ? v.z : v.w);
}

#if VW == 16
#define DRAWN 2 /* vectors whose factors are drawn together */
#else
#define DRAWN 1
#endif

/* Factors of the DRAWN vectors of a row from `column` on. */
static void draw_vectors(vec factor[DRAWN], const draws *d, uint row, uint column)
{
#if VW == 16
    float8 f[4];
    draw_factors8(f, d, row, column + (uint8)(0, 4, 8, 12, 16, 20, 24, 28));
    factor[0] = (vec)(FACTORS_OF(f, 0), FACTORS_OF(f, 1), FACTORS_OF(f, 2), FACTORS_OF(f, 3));
    factor[1] = (vec)(FACTORS_OF(f, 4), FACTORS_OF(f, 5), FACTORS_OF(f, 6), FACTORS_OF(f, 7));
#elif VW == 4
    factor[0] = draw_factors(d, row, column);
#else
    factor[0] = lane(draw_factors(d, row, column), (int)column & 3);
#endif
}

/* v times the factors. A dropped NaN becomes 0. */
static vec drop(vec v, vec factor)
{
#if VW == 1
    return factor != 0.0f ? v * factor : 0.0f;
#else
    return select((vec)0.0f, v * factor, factor != 0.0f);
#endif
}
