/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of txresearch, which are made like those of txbench. */
#ifndef TX_TOOLS_RESEARCH_H
#define TX_TOOLS_RESEARCH_H

#include "tools/bench/bench.h"

/* X(name, help) */
#define TX_RESEARCH_MAP(X)                                                               \
    X(predict, "predicted products and steps on cards that are not here")                \
    X(splits, "predicted steps and memory of every split of a model among many devices") \
    X(scale, "predicted steps of data-parallel training on many ranks")                  \
    X(ddp, "training on several devices: one process for all, or one for each")          \
    X(methods, "ways to train, side by side: speed and memory")                          \
    X(sizes, "the cost of dimensions that do not fill tiles")

#define X(name, help) extern const tx_bench_command tx_bench_##name;
TX_RESEARCH_MAP(X)
#undef X

#endif
