/* SPDX-License-Identifier: Apache-2.0
 * How the blocks of a model go to the ranks of a pipeline. Blocks are alike, so that giving them out one by one, each
 * to whom it makes the least of all, has the least largest value that there is (Gross, 1956; Ibaraki and Katoh,
 * Resource Allocation Problems, 1988). That is done for bytes, to know what can be kept below; for work; and among the
 * divisions with as little work for bytes again. */
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

/* Whom one block more makes the least, of those that stay within the limits; -1: nobody does. */
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

/* Gives all blocks out; what the ranks have at most then. There is a division within the limits, but for the ranks that
 * `fewest` blocks take above them. */
static limits give_out(const tx_split_load *load, int32_t ranks, int32_t fewest, int32_t all, bool by_bytes,
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
        most.bytes = fmax(room, give_out(load, ranks, fewest, all, true, &most, blocks).bytes);
    most.work = give_out(load, ranks, fewest, all, false, &most, blocks).work;
    give_out(load, ranks, fewest, all, true, &most, blocks);
}
