/* SPDX-License-Identifier: Apache-2.0
 *
 * The 8-bit dynamic map: numbers that are dense near 0 (Dettmers, 8-Bit Approximations for Parallelism in Deep
 * Learning, 2016), as in bitsandbytes. The optimizers with 8-bit states use it.
 *
 * Decade i, 0 <= i <= 6, covers 0.1 .. 1 times 10^(i-6). It is cut into 2^i equal intervals for each sign, or
 * 2^(i+1) in the unsigned map. The midpoints of the intervals are the numbers of the map; 0 and 1 are added. Codes
 * ascend with their numbers: 0 has code 127 in the signed map and code 0 in the unsigned map.
 *
 * This file is valid C and OpenCL C.
 */
#ifndef TX_DYNAMIC_MAP_H
#define TX_DYNAMIC_MAP_H

#ifdef __OPENCL_VERSION__
#define TX_MAP_FN static
#else
#define TX_MAP_FN static inline
#endif

/* Returns positive number `index`, in ascending order from 0. Decade 0 has `each` intervals. */
TX_MAP_FN float tx_map_above(int index, int each)
{
    int begin = each * 63, parts = each * 64;
    float power = 1.0f;
    for (int i = 6; i > 0; i--) {
        const int lower = index < each * ((1 << i) - 1);
        begin = lower ? each * ((1 << (i - 1)) - 1) : begin;
        parts = lower ? each << (i - 1) : parts;
        power = lower ? power * 0.1f : power;
    }
    return (0.1f + 0.9f * ((float)(index - begin) + 0.5f) / (float)parts) * power;
}

/* Returns the index of the positive number nearest to x, or -1 if 0 is nearest. x is at least 0 and not nearer to
 * 1. Between decades the nearest number changes at (1 + 0.9 / intervals of the lower decade) times the power of
 * ten. */
TX_MAP_FN int tx_map_place(float x, int each)
{
    int begin = 0, parts = each;
    float scale = 1e6f, limit = 1e-6f;
    for (int i = 1; i < 7; i++) {
        const int reached = x > limit * (1.0f + 0.9f / (float)(each << (i - 1)));
        begin = reached ? each * ((1 << i) - 1) : begin;
        parts = reached ? each << i : parts;
        scale = reached ? scale * 0.1f : scale;
        limit *= 10.0f;
    }
    const int part = (int)((x * scale - 0.1f) / 0.9f * (float)parts);
    const int within = part < 0 ? 0 : part < parts ? part : parts - 1;
    return x * 2e6f < 0.1f + 0.45f / (float)each ? -1 : begin + within;
}

TX_MAP_FN float tx_map_signed(int code)
{
    const int above = code > 127;
    const float value = tx_map_above(above ? code - 128 : 126 - code, 1);
    return code == 127 ? 0.0f : code == 255 ? 1.0f : above ? value : -value;
}

TX_MAP_FN float tx_map_unsigned(int code)
{
    return code == 0 ? 0.0f : code == 255 ? 1.0f : tx_map_above(code - 1, 2);
}

/* Returns the code of the nearest number; x in -1 .. 1. */
TX_MAP_FN int tx_map_signed_code(float x)
{
    const int index = tx_map_place(x < 0.0f ? -x : x, 1);
    return x > 1.0f - 0.225f / 64.0f ? 255 : index < 0 ? 127 : x > 0.0f ? 128 + index : 126 - index;
}

/* Returns the code of the nearest number; x in 0 .. 1. */
TX_MAP_FN int tx_map_unsigned_code(float x)
{
    return x > 1.0f - 0.225f / 128.0f ? 255 : 1 + tx_map_place(x, 2);
}

#endif
