/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of data-parallel training: what a step takes on N ranks, from what it takes on one, the buckets of gradients
 * that are summed over the ranks, and the link between them.
 *
 * Compute. A layer's forward and backward take the same on every rank. Its gradients are ready when its backward ends;
 * layers go backward from the head to the embedding, whose table, tied to the head, is ready last of all.
 *
 * Buckets. Parameters are taken in the order in which the backward makes them ready, the arena's from its end. A bucket
 * is full when it holds so many bytes, the first one early, so that the link is soon at work (Li et al., PyTorch
 * Distributed, VLDB 2020, section 4.2); a parameter larger than that is a bucket by itself. Mirrors api/parallel.c.
 *
 * Link. A message of m bytes takes a + m / B (Hockney, Parallel Computing 20, 1994); a rank sends and receives at once,
 * and no two ranks share a link. The sum of M bytes over N ranks, seconds:
 *   ring          2 (N-1) (a + M / (N B))
 *                 Patarasuk and Yuan, JPDC 69, 2009
 *   tree          2 ceil(log2 N) (a + M / B)
 *                 reduced to one rank, broadcast from it
 *   rabenseifner  2 log2(N) a + 2 (N-1)/N M / B
 *                 Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005; where N is no power of two, this over the largest
 *                 below it and 2 (a + M / B) to bring the other ranks in
 *   exchange      2 (a + (N-1) max(M / (N B), gap))
 *                 TX between hosts: rank i sends slice j to rank j, which sums it and sends the sum to all. What a rank
 *                 spends on each message itself counts where that is more than the link takes (the gap of LogGP,
 *                 Alexandrov et al., SPAA 1995)
 * Hierarchical, g ranks a host: 2 M / b, the sum within the host written to all, b their local rate; then one of the
 * above among N / g hosts, each with the link to itself.
 *
 * Overlap. Bucket i begins when its last gradient is ready and bucket i-1 has ended; the update begins when the last
 * bucket and the backward have. Sums take no processor time from the backward, as with a core to spare or a GPU. */
#ifndef TX_TOOLS_SCALE_H
#define TX_TOOLS_SCALE_H

#include "models/arch/arch.h"

/* ---- Compute ------------------------------------------------------------------------------------------- */

typedef struct tx_scale_layer {
    double forward, backward; /* seconds of one micro-batch */
} tx_scale_layer;

/* Layer 0 is the embedding, then come the blocks, last the head: final norm, logits and loss. */
static inline int32_t tx_scale_layers(const tx_config *config)
{
    return (int32_t)config->layers + 2;
}
/* The layer that a parameter belongs to. */
int32_t tx_scale_layer_of(const tx_config *config, const char *param);
/* Divides the seconds of a micro-batch's forward and backward among layers by arithmetic: products and attention, the
 * backward twice the forward (Kaplan et al., 2020, section 2.1), over `block` tokens a row. */
void tx_scale_divide(const tx_config *config, int64_t block, double seconds, tx_scale_layer *layers);

/* ---- Schedule -------------------------------------------------------------------------------------------- */

typedef struct tx_scale_bucket {
    double ready;  /* seconds from the step's beginning */
    int64_t bytes; /* of gradients, fp32, padding included */
    int64_t sent;  /* of them as they leave a host */
} tx_scale_bucket;

/* A step of one rank. */
typedef struct tx_scale_schedule {
    double forward, backward; /* seconds of all micro-batches; in the last one gradients get ready */
    double update;
    tx_scale_bucket *buckets; /* in the order in which they get ready */
    int32_t count;
} tx_scale_schedule;

typedef struct tx_scale_split {
    int64_t cap;          /* bytes that fill a bucket; 0: 25 MiB, the first 1 MiB */
    bool bf16;            /* sent in 16 bits */
    int64_t accumulation; /* micro-batches a step; nothing is sent before the last */
    double update;        /* seconds */
} tx_scale_split;

/* The caller frees schedule->buckets. */
tx_status tx_scale_schedule_make(const tx_config *config, const tx_scale_layer *layers, const tx_scale_split *split,
                                 tx_scale_schedule *schedule);
/* Writes it as text, which tests/scale/smpi.c executes:
 *   compute <seconds of forward> <of backward> <of update>
 *   bucket <seconds until ready> <bytes sent>                  one a bucket */
tx_status tx_scale_schedule_write(const char *path, const tx_scale_schedule *schedule);

/* ---- Prediction -------------------------------------------------------------------------------------------- */

/* X(NAME, "name") */
#define TX_SCALE_ALGORITHM_MAP(X)   \
    X(RING, "ring")                 \
    X(TREE, "tree")                 \
    X(RABENSEIFNER, "rabenseifner") \
    X(EXCHANGE, "exchange")

typedef enum tx_scale_algorithm {
#define X(name, text) TX_SCALE_##name,
    TX_SCALE_ALGORITHM_MAP(X)
#undef X
        TX_SCALE_ALGORITHMS
} tx_scale_algorithm;
const char *tx_scale_algorithm_name(tx_scale_algorithm algorithm);

typedef struct tx_scale_link {
    double latency, rate; /* seconds a message; bytes a second each way */
    double gap;           /* seconds of a rank's own for each message it exchanges */
    int64_t host_ranks;   /* ranks a host; 1: no hierarchy */
    double local_rate;    /* bytes a second within a host */
} tx_scale_link;

/* Seconds of one sum over `ranks`. */
double tx_scale_sum(const tx_scale_link *link, tx_scale_algorithm algorithm, int64_t ranks,
                    const tx_scale_bucket *bucket);

typedef struct tx_scale_step {
    double communication; /* seconds, all buckets one after the other */
    double exposed;       /* of them not hidden behind the backward */
    double seconds;       /* the step */
    double efficiency;    /* the step of one rank over this one */
} tx_scale_step;

/* Without `overlap` the sums begin when the backward has ended. */
tx_scale_step tx_scale_predict(const tx_scale_schedule *schedule, const tx_scale_link *link,
                               tx_scale_algorithm algorithm, int64_t ranks, bool overlap);

#endif
