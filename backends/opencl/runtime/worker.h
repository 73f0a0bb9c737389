/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to processes that build programs (worker.c), which other processes start (workers.c). */
#ifndef TX_OPENCL_WORKER_H
#define TX_OPENCL_WORKER_H

#include "backends/opencl/runtime/internal.h"

#include "api/base/hash.h"

#include <string.h>

#define TX_CL_WORKER "tx-kernels" /* argv[0] of a worker; argv[1] is the index of its device */

/* The answer to a request is a tx_status. A worker sends the first one when its device is open. */
typedef struct tx_cl_request {
    uint64_t device; /* tx_cl_device_key */
    bool missing[TX_CL_BUILTINS];
    bool shipped; /* load the program that came with TX, instead of building its source */
    char names[]; /* source, kernel, options, each with a NUL */
} tx_cl_request;

static inline uint64_t tx_cl_device_key(const tx_context *context)
{
    return tx_hash(TX_HASH_START, context->identity, strlen(context->identity));
}

#endif
