/* SPDX-License-Identifier: Apache-2.0
 *
 * What communicators share: checks of their arguments, sums over ranks, the order of requests, and what the
 * launcher's environment says about the ranks it started. */
#ifndef TX_COMM_COMMON_H
#define TX_COMM_COMMON_H

#include "comm/comm.h"

/* INVALID unless `dtype` is one that is summed and `count` elements from each of `size` ranks are there at
 * `data`; `call` is the function's name in the message. */
tx_status tx_comm_check(const char *call, const void *data, int64_t count, int32_t size, tx_dtype dtype);

/* out = sum of `count` elements from each of `ranks` ranks, which lie one rank after another in `slots`, added in that
 * order; BF16 is summed in fp32 and rounded once, I32 wraps round. `out` lies outside `slots`. */
void tx_comm_sum(const void *slots, int32_t ranks, void *out, int32_t count, tx_dtype dtype);

/* Requests are numbered from 0; the numbers start again whenever none is outstanding. */
typedef struct tx_requests {
    int32_t begun, done;
} tx_requests;

int32_t tx_requests_begin(tx_requests *requests);
/* INVALID unless `request` is the oldest outstanding one; then it counts as done. */
tx_status tx_requests_end(tx_requests *requests, int32_t request);

/* Number of ranks that a launcher says it started this process among; 0 where none is seen. `variable`, when not
 * NULL, gets the name of the environment variable that says so. */
int32_t tx_launcher_ranks(const char **variable);
/* UNSUPPORTED when the launcher started many ranks and this process sees itself alone: each of them would
 * train the whole model and write the same files. `advice` says how to start it. */
tx_status tx_launcher_check(int32_t size, const char *advice);

#endif
