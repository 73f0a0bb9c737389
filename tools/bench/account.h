/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training that was measured takes, as members of its figures. */
#ifndef TX_TOOLS_BENCH_ACCOUNT_H
#define TX_TOOLS_BENCH_ACCOUNT_H

#include "tools/bench/training.h"
#include "tx_json.h"

/* "memory": bytes planned and counted by category, and their totals. */
tx_status tx_account_memory(const tx_bench_training *training, tx_json *figures);
/* "traffic": bytes, launches and allocations of a step, from what was counted before and after some. */
tx_status tx_account_traffic(const tx_traffic *before, const tx_traffic *after, int64_t steps, tx_json *figures);
/* "choices": what computes each class of products and attention, "KEY: WHO". */
tx_status tx_account_choices(const tx_bench_training *training, tx_json *figures);
/* "profile": tx_profile_json of the steps since tx_trainer_profile. "kernels": what the device tells of the kernels
 * that were built, where it does. */
tx_status tx_account_profile(const tx_bench_training *training, tx_json *figures);

/* Sets a list of texts: the lines of `text`, which is freed, that begin with `begins`, without that, and with a colon
 * in place of their tab. */
tx_status tx_account_lines(tx_json *figures, const char *key, char *text, const char *begins);

#endif
