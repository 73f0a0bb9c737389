/* SPDX-License-Identifier: Apache-2.0
 * The work-group of threads that runs kernels/gemm_mma.cl. */
#ifndef TX_TESTS_MMA_HOST_STATE_H
#define TX_TESTS_MMA_HOST_STATE_H

#include <pthread.h>

typedef unsigned int uint;
typedef unsigned short bf16_t;

#define WARPS 4
#define LANES 32

/* Of the work-item that this thread is. */
extern _Thread_local int host_item;
extern _Thread_local long host_group[2];
/* What the lanes of a warp show each other, and where they wait for each other. */
typedef struct host_warp {
    pthread_barrier_t meet;
    uint a[LANES][4], b[LANES][2];
    const bf16_t *row[LANES];
} host_warp;
extern host_warp host_warps[WARPS];
extern pthread_barrier_t host_meet;

#endif
