/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of data-parallel training: what a step takes on N ranks, from what it takes on one, the engine's buckets of
 * gradients and the link between the ranks.
 *
 * Link. A message of m bytes takes a + m / B (Hockney, Parallel Computing 20, 1994); a rank sends and receives at once,
 * and no two ranks share a link. The sum of M bytes over N ranks, seconds:
 *   ring          2 (N-1) (a + M / (N B)): Patarasuk and Yuan, JPDC 69, 2009
 *   tree          2 ceil(log2 N) (a + M / B): reduced to one rank, broadcast from it
 *   rabenseifner  2 log2(N) a + 2 (N-1)/N M / B: Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005; where N is no power
 *                 of two, this over the largest below it and 2 (a + M / B) to bring the other ranks in
 *   exchange      2 (a + (N-1) max(M / (N B), gap)): TX between hosts, rank i sends slice j to rank j, which sums it
 * and sends the sum to all. What a rank spends on each message itself counts where that is more than the link takes
 * (the gap of LogGP, Alexandrov et al., SPAA 1995) Hierarchical, g ranks a host: 2 M / b, the sum within the host
 * written to all, b their local rate; then one of the above among N / g hosts, each with the link to itself.
 *
 * Overlap. Bucket i begins when its last gradient is ready and bucket i-1 has ended; the step ends with the last
 * bucket. Sums take no processor time from the backward, as with a core to spare or a GPU. */
#ifndef TX_TOOLS_RESEARCH_SCALE_H
#define TX_TOOLS_RESEARCH_SCALE_H

#include "tools/bench/training.h"

typedef struct tx_scale_bucket {
    double ready;  /* seconds from the step's beginning */
    int64_t bytes; /* of gradients, fp32, padding included */
    int64_t sent;  /* of them as they leave a host */
} tx_scale_bucket;

/* A step of one rank. */
typedef struct tx_scale_schedule {
    double seconds;
    tx_scale_bucket *buckets; /* in the order in which they get ready */
    int32_t count;
} tx_scale_schedule;

/* Divides `seconds` of a step of `accumulation` micro-batches, in the last of which gradients are sent, among the
 * commands of a trainer's plan by their arithmetic; its communicator may be that of one rank. A bucket is ready when
 * the last command that writes to it has ended. The caller frees schedule->buckets. */
tx_status tx_scale_schedule_make(const tx_bench_training *training, double seconds, int64_t accumulation, bool bf16,
                                 tx_scale_schedule *schedule);

enum { TX_RING, TX_TREE, TX_RABENSEIFNER, TX_EXCHANGE, TX_SCALE_ALGORITHMS };

typedef struct tx_scale_link {
    double latency, rate; /* seconds a message; bytes a second each way */
    double gap;           /* seconds of a rank's own for each message it exchanges */
    int64_t host_ranks;   /* ranks a host; 1: no hierarchy */
    double local_rate;    /* bytes a second within a host */
} tx_scale_link;

/* Seconds of one sum over `ranks`. */
double tx_scale_sum(const tx_scale_link *link, int algorithm, int64_t ranks, const tx_scale_bucket *bucket);
/* Seconds of all sums one after the other, and how much longer a step takes for them. Without `overlap` they begin when
 * the backward has ended. */
void tx_scale_predict(const tx_scale_schedule *schedule, const tx_scale_link *link, int algorithm, int64_t ranks,
                      bool overlap, double *communication, double *exposed);

#endif
