/* SPDX-License-Identifier: Apache-2.0
 * Divides the blocks of a model among the ranks of a pipeline. Blocks are alike. So a greedy algorithm, which assigns
 * one block at a time to the rank whose value is then smallest, minimizes the maximum value (Gross, 1956; Ibaraki and
 * Katoh, Resource Allocation Problems, 1988). It runs three times: for bytes, to find the possible limit; for work; and
 * for bytes among the divisions with minimal work. */
#include "models/split/split.h"

#include <math.h>

typedef struct limits {
    double work, bytes;
} limits;

static limits with(const tx_split_load *load, int32_t blocks)
{
    return (limits){load->work + blocks * load->each_work, load->bytes + blocks * load->each_bytes};
}

static bool is_less(double first, double second, double then_first, double then_second)
{
    return first < second || (first == second && then_first < then_second);
}

/* The rank with the smallest value after one more block, among ranks that stay within the limits. -1 if there is none.
 */
static int32_t find_least(const tx_split_load *load, int32_t ranks, const int32_t *blocks, bool by_bytes,
                          const limits *most)
{
    int32_t least = -1;
    limits best = {INFINITY, INFINITY};
    for (int32_t r = 0; r < ranks; r++) {
        const limits now = with(&load[r], blocks[r] + 1);
        const bool fits = now.work <= most->work && now.bytes <= most->bytes;
        if (fits && (by_bytes ? is_less(now.bytes, best.bytes, now.work, best.work)
                              : is_less(now.work, best.work, now.bytes, best.bytes))) {
            least = r;
            best = now;
        }
    }
    return least;
}

/* Assigns all blocks and returns the maximum of work and bytes. A division within the limits must exist, except for
 * ranks that exceed them with `fewest` blocks. */
static limits assign_blocks(const tx_split_load *load, int32_t ranks, int32_t fewest, int32_t all, bool by_bytes,
                            const limits *most, int32_t *blocks)
{
    limits largest = {0.0, 0.0};
    for (int32_t r = 0; r < ranks; r++)
        blocks[r] = fewest;
    for (int32_t left = all - ranks * fewest; left > 0; left--)
        blocks[find_least(load, ranks, blocks, by_bytes, most)]++;
    for (int32_t r = 0; r < ranks; r++) {
        largest.work = fmax(largest.work, with(&load[r], blocks[r]).work);
        largest.bytes = fmax(largest.bytes, with(&load[r], blocks[r]).bytes);
    }
    return largest;
}

void tx_split_share(const tx_split_load *load, int32_t ranks, int32_t fewest, int32_t all, double room, int32_t *blocks)
{
    limits most = {INFINITY, INFINITY};
    if (room > 0.0)
        most.bytes = fmax(room, assign_blocks(load, ranks, fewest, all, true, &most, blocks).bytes);
    most.work = assign_blocks(load, ranks, fewest, all, false, &most, blocks).work;
    assign_blocks(load, ranks, fewest, all, true, &most, blocks);
}
