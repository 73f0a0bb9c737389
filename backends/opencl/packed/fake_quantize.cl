/* SPDX-License-Identifier: Apache-2.0
 *
 * Fake quantization of weights (op FAKE_QUANTIZE) by the C code of api/base/block_*.c. A work-item rounds a group of
 * GROUP values of a row or a column to blocks of type BLOCK, of BLOCK_VALUES values and BLOCK_BYTES bytes. Without
 * BLOCK the type is PLAIN: f32, f16 or bf16.
 */
#include "api/base/block_codes.h"
#include "api/base/block_search.c"
#include "api/base/block_write.c"
#include "api/base/block_write_k.c"
#include "api/base/block_read.c"

#define GROUP 256
#ifdef BLOCK
#define MOST 65504.0f /* the greatest half: scales of blocks are halves */
#else
#ifndef PLAIN
#define PLAIN f32
#endif
#define MOST TX_CAT(MOST_, PLAIN)
#define MOST_f32 INFINITY
#define MOST_f16 65504.0f
#define MOST_bf16 INFINITY
#define ROUND_f32(x) (x)
#define ROUND_f16(x) tx_f16_to_f32(tx_f32_to_f16(x))
#define ROUND_bf16(x) as_float((uint)tx_narrow_bf16(x) << 16)
#endif

static void round_group(const float *x, int count, float *y)
{
    bool fits = true;
    for (int i = 0; i < count; i++)
        fits &= fabs(x[i]) <= MOST;
#ifdef BLOCK
    uchar bytes[GROUP / BLOCK_VALUES * BLOCK_BYTES];
    if (fits)
        TX_CAT(tx_block_write_, BLOCK)(x, NULL, count, bytes);
    for (int i = 0; i < count; i += BLOCK_VALUES)
        if (fits)
            TX_CAT(tx_block_read_, BLOCK)(bytes + i / BLOCK_VALUES * BLOCK_BYTES, y + i);
#else
    for (int i = 0; i < count; i++)
        y[i] = TX_CAT(ROUND_, PLAIN)(x[i]);
#endif
    for (int i = 0; i < count; i++)
        y[i] = fits ? y[i] : NAN;
}

/* Item i has group i % groups of line `first` + i / groups. Neighbours in a line are `step` elements apart. */
__kernel void fake_quantize(const __global float *x, long xo, __global h_t *y, long yo, long first, long count,
                            long width, long groups, long step, const __global uint *control)
{
    const long item = get_global_id(0), line = first + item / groups, at = item % groups * GROUP;
    float from[GROUP], to[GROUP];
    if (item >= count)
        return;
    const long begin = (step > 1 ? line / step * width * step + line % step : line * width) + at * step;
    const int n = (int)min(width - at, (long)GROUP);
    for (int i = 0; i < n; i++)
        from[i] = x[xo + begin + i * step];
    round_group(from, n, to);
    const bool on = as_float(control[TX_CONTROL_FAKE_QUANTIZE]) != 0.0f;
    for (int i = 0; i < n; i++)
        tx_store_h(on ? to[i] : from[i], y + yo, begin + i * step, begin + i * step + 1);
}
