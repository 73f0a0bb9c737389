/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds memory, traffic, kernel choices and the profile of a measured training to its figures. txbench train uses it. */
#ifndef TX_TOOLS_BENCH_ACCOUNT_H
#define TX_TOOLS_BENCH_ACCOUNT_H

#include "tools/bench/training.h"
#include "tx_json.h"

/* Sets "memory": planned and counted bytes by category, and their totals. */
tx_status tx_account_memory(const tx_bench_training *training, tx_json *figures);
/* Sets "traffic": copied bytes, launches and allocations of a step, from the counters before and after `steps` steps.
 */
tx_status tx_account_traffic(const tx_traffic *before, const tx_traffic *after, int64_t steps, tx_json *figures);
/* Sets "choices": the kernel of each class of matrix products and attention, as "KEY: KERNEL". */
tx_status tx_account_choices(const tx_bench_training *training, tx_json *figures);
/* Sets "profile": tx_profile_json of the steps since tx_trainer_profile. If the backend reports them, sets "kernels":
 * facts about the compiled kernels. */
tx_status tx_account_profile(const tx_bench_training *training, tx_json *figures);

/* Sets a list of the lines of `text` that begin with `begins`. Removes this prefix and replaces the tab of each line by
 * a colon. Frees `text`. */
tx_status tx_account_lines(tx_json *figures, const char *key, char *text, const char *begins);

#endif
