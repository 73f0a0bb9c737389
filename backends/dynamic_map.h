/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of 8 bits that are dense near 0 (Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, 2016, and
 * the map of bitsandbytes): decade i of 0..6 has 2^i numbers of each sign, or 2^(i+1) of no sign, which are the middles
 * of as many equal parts of 0.1 .. 1 times 10^(i-6); and there are 0 and 1. Codes ascend with their numbers: with signs
 * 127 is 0, without 0 is. Written so that C and OpenCL C compile the same text. */
#ifndef TX_DYNAMIC_MAP_H
#define TX_DYNAMIC_MAP_H

#ifdef __OPENCL_VERSION__
#define TX_MAP_FN static
#else
#define TX_MAP_FN static inline
#endif

/* The number `place` of those above 0, from the least on; decade 0 has `each`. */
TX_MAP_FN float tx_map_above(int place, int each)
{
    int begin = each * 63, parts = each * 64;
    float power = 1.0f;
    for (int i = 6; i > 0; i--) {
        const int lower = place < each * ((1 << i) - 1);
        begin = lower ? each * ((1 << (i - 1)) - 1) : begin;
        parts = lower ? each << (i - 1) : parts;
        power = lower ? power * 0.1f : power;
    }
    return (0.1f + 0.9f * ((float)(place - begin) + 0.5f) / (float)parts) * power;
}

/* The place of the nearest of those numbers, -1 for 0; x is at least 0 and below what is nearer to 1. Between decades
 * the nearest changes at (1 + 0.9 / parts of the lower one) times the power of ten. */
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

/* The code of the nearest number; x in -1 .. 1. */
TX_MAP_FN int tx_map_signed_code(float x)
{
    const int place = tx_map_place(x < 0.0f ? -x : x, 1);
    return x > 1.0f - 0.225f / 64.0f ? 255 : place < 0 ? 127 : x > 0.0f ? 128 + place : 126 - place;
}

/* The same; x in 0 .. 1. */
TX_MAP_FN int tx_map_unsigned_code(float x)
{
    return x > 1.0f - 0.225f / 128.0f ? 255 : 1 + tx_map_place(x, 2);
}

#endif
