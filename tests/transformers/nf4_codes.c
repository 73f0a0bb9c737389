/* SPDX-License-Identifier: Apache-2.0
 * TX's quantization to 4 bits, for nf4.py: nf4_codes IN OUT reads fp32 numbers, a multiple of 64. It writes codes,
 * absmax, and absmax after double quantization. */
#include "api/packed/nf4.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool convert(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    static float x[1 << 20], absmax[1 << 14], kept[1 << 14], groups[2 << 6], map[TX_NF4_MAP];
    static uint8_t codes[1 << 19], absmax_codes[1 << 14];
    if (!in || !out)
        return false;
    const size_t count = fread(x, sizeof *x, sizeof x / sizeof *x, in), blocks = count / TX_NF4_BLOCK;
    tx_nf4_quantize(x, (int64_t)blocks, codes, absmax);
    tx_nf4_compress(absmax, (int64_t)blocks, absmax_codes, groups);
    tx_nf4_make_map(map);
    tx_nf4_expand(absmax_codes, groups, map, (int64_t)blocks, kept);
    const bool written = fwrite(codes, 1, count / 2, out) == count / 2 &&
                         fwrite(absmax, sizeof *absmax, blocks, out) == blocks &&
                         fwrite(kept, sizeof *kept, blocks, out) == blocks;
    fclose(in);
    return fclose(out) == 0 && written;
}

int main(int argc, char **argv)
{
    return argc == 3 && convert(argv[1], argv[2]) ? 0 : 1;
}
