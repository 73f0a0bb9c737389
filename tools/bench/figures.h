/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures that a command has measured: one JSON object, which is printed as JSON or as text. */
#ifndef TX_TOOLS_BENCH_FIGURES_H
#define TX_TOOLS_BENCH_FIGURES_H

#include "tools/cli/options.h"
#include "tx_json.h"

#define TX_BENCH_PAIRS 99 /* largest number of measurements */

/* Creates an object with the values of all options. Returns NULL if there is no memory; setting a member of NULL fails.
 */
tx_json *tx_bench_figures(const tx_cli *program, const void *values);
/* Sets a list of numbers. */
void tx_bench_set_series(tx_json *object, const char *key, const double *value, int64_t count);
/* Prints the figures on standard output, and frees them. JSON is one line. Text has one line per member, then each list
 * of objects as a table of their members; `columns` ("a|b|c", or NULL for all) selects the columns. Text leaves out
 * lists of numbers. */
tx_status tx_bench_print(tx_json *figures, bool json, const char *columns);

/* Returns the median of `count` values, 1 to TX_BENCH_PAIRS. */
double tx_bench_median(const double *value, int64_t count);
/* Returns the median of theirs[i] / ours[i]. */
double tx_bench_median_ratio(const double *theirs, const double *ours, int64_t count);

#endif
