/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of txresearch. They are defined as those of txbench are. */
#ifndef TX_TOOLS_RESEARCH_H
#define TX_TOOLS_RESEARCH_H

#include "tools/bench/bench.h"

/* Printed with all predicted figures. */
#define TX_AT_MOST "nothing: predicted speeds are upper bounds, not measured"

/* X(name, help) */
#define TX_RESEARCH_MAP(X)                                           \
    X(predict, "predict products and training steps on other cards") \
    X(splits, "predict the efficiency of training on many devices")

#define X(name, help) extern const tx_bench_command tx_bench_##name;
TX_RESEARCH_MAP(X)
#undef X

#endif
