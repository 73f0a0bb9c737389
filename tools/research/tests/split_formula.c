/* SPDX-License-Identifier: Apache-2.0
 * Prints the seconds of one message pattern in the model of txresearch splits, for run_splits.sh.
 *
 *   split_formula sum|exchange RANKS BYTES LATENCY RATE
 *   split_formula pipeline STAGES BYTES LATENCY RATE MICRO SECONDS     SECONDS of a forward pass; backward takes two */
#include "models/split/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc < 6 || (strcmp(argv[1], "pipeline") == 0 && argc < 8))
        return fprintf(stderr, "usage: split_formula sum|exchange|pipeline RANKS BYTES LATENCY RATE [MICRO SECONDS]\n"),
               2;
    const int64_t ranks = strtol(argv[2], NULL, 10);
    const double bytes = strtod(argv[3], NULL);
    const tx_split_link link = {strtod(argv[5], NULL), strtod(argv[4], NULL)};
    const tx_split_machine m = {.host = 1, .inside = link, .outside = link};
    double seconds;
    if (strcmp(argv[1], "sum") == 0)
        seconds = tx_split_sum(&m, 1, ranks, bytes);
    else if (strcmp(argv[1], "exchange") == 0)
        seconds = tx_split_exchange(&m, 1, ranks, bytes);
    else {
        const double each = 3.0 * strtod(argv[7], NULL) + 2.0 * tx_split_hop(&m, 1, ranks, bytes);
        seconds = tx_split_pipeline(ranks, 1, strtol(argv[6], NULL, 10), each, each);
    }
    printf("%.9f\n", seconds);
    return 0;
}
