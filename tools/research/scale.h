/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of data-parallel training. It predicts the time of a step on N ranks from that on one rank, the engine's
 * buckets of gradients and the link between the ranks.
 *
 * Link: a message of m bytes takes a + m / B (Hockney, Parallel Computing 20, 1994). A rank sends and receives at the
 * same time, and no two ranks share a link. The seconds of an all-reduce of M bytes over N ranks are:
 *
 *   ring          2 (N-1) (a + M / (N B)): Patarasuk and Yuan, JPDC 69, 2009.
 *
 *   tree          2 ceil(log2 N) (a + M / B): a reduction to one rank, then a broadcast.
 *
 *   rabenseifner  2 log2(N) a + 2 (N-1)/N M / B: Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005. If N is not a power
 * of two, this is for the largest one below N, and the other ranks add 2 (a + M / B).
 *
 *   exchange      2 (a + (N-1) max(M / (N B), gap)): TX between hosts. Rank i sends slice j to rank j, which sums it
 * and sends the sum to all. `gap` is the CPU time of a rank for a message, if it is longer than that of the link
 * (LogGP, Alexandrov et al., SPAA 1995).
 *
 * With g ranks on each host, the sum within the host takes 2 M / b, where b is the local rate. One of the above among
 * N / g hosts follows, each with a link of its own.
 *
 * Overlap: bucket i starts when its last gradient is ready and bucket i-1 has ended. The step ends with the last
 * bucket. The all-reduce takes no CPU time from the backward pass, as with a spare core or on a GPU. */
#ifndef TX_TOOLS_RESEARCH_SCALE_H
#define TX_TOOLS_RESEARCH_SCALE_H

#include "tools/bench/training.h"

typedef struct tx_scale_bucket {
    double ready;  /* seconds from the start of the step */
    int64_t bytes; /* fp32 gradients with padding */
    int64_t sent;  /* the same in the type of inter-node traffic */
} tx_scale_bucket;

/* The step of one rank. */
typedef struct tx_scale_schedule {
    double seconds;
    tx_scale_bucket *buckets; /* in the order in which they become ready */
    int32_t count;
} tx_scale_schedule;

/* Divides the `seconds` of a step of `accumulation` micro-batches among the commands of the trainer's plan by their
 * flops. Gradients are sent in the last micro-batch. A bucket is ready when the last command that writes to it has
 * ended. The trainer's communicator may have a single rank. The caller frees schedule->buckets. */
tx_status tx_scale_schedule_make(const tx_bench_training *training, double seconds, int64_t accumulation, bool bf16,
                                 tx_scale_schedule *schedule);

enum { TX_RING, TX_TREE, TX_RABENSEIFNER, TX_EXCHANGE, TX_SCALE_ALGORITHMS };

typedef struct tx_scale_link {
    double latency, rate; /* seconds of a message; bytes per second in each direction */
    double gap;           /* CPU seconds of a rank for each message of an exchange */
    int64_t host_ranks;   /* ranks on a host; 1 means no hierarchy */
    double local_rate;    /* bytes per second within a host */
} tx_scale_link;

/* Returns the seconds of one all-reduce over `ranks` ranks. */
double tx_scale_sum(const tx_scale_link *link, int algorithm, int64_t ranks, const tx_scale_bucket *bucket);
/* Sets the total seconds of all buckets, and the exposed seconds by which they lengthen the step. Without `overlap` the
 * first bucket starts after the backward pass. */
void tx_scale_predict(const tx_scale_schedule *schedule, const tx_scale_link *link, int algorithm, int64_t ranks,
                      bool overlap, double *communication, double *exposed);

#endif
