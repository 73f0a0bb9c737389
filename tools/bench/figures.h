/* SPDX-License-Identifier: Apache-2.0
 *
 * What a command has measured: one JSON object, which is printed as it is or as text. */
#ifndef TX_TOOLS_BENCH_FIGURES_H
#define TX_TOOLS_BENCH_FIGURES_H

#include "tools/cli/options.h"
#include "tx_json.h"

#define TX_BENCH_PAIRS 99 /* measurements at most */

/* A report that begins with the values of all options. NULL: out of memory, which what is set in it tells.
 */
tx_json *tx_bench_figures(const tx_cli *program, const void *values);
/* Sets a list of numbers. */
void tx_bench_set_series(tx_json *object, const char *key, const double *value, int64_t count);
/* Prints the figures on standard output, and frees them: as one line of JSON, or as text: a line for each member,
 * then lists of objects as tables whose columns are their members, or those of them that `columns` names ("a|b|c",
 * NULL: all). Text leaves lists of numbers out. */
tx_status tx_bench_print(tx_json *figures, bool json, const char *columns);

/* Of `count` values, 1 to TX_BENCH_PAIRS. */
double tx_bench_median(const double *value, int64_t count);
/* Median of `theirs` over `ours`, pair by pair. */
double tx_bench_median_ratio(const double *theirs, const double *ours, int64_t count);

#endif
