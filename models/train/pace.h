/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the speed of the ranks of a run. From it follow the overlap of the all-reduce with the backward pass, the
 * shares of a micro-batch (--batch_weights auto), and the name of a slow rank. All ranks call these functions after the
 * same steps and get the same results. */
#ifndef TX_TRAIN_PACE_H
#define TX_TRAIN_PACE_H

#include "comm/comm.h"
#include "tx.h"

#define TX_PACE_STEPS 20 /* steps between two searches for the slowest rank */
#define TX_PACE_SLOW 1.5 /* a rank that takes this multiple of the ranks' median is reported */

typedef enum tx_overlap { TX_OVERLAP_AUTO, TX_OVERLAP_YES, TX_OVERLAP_NO } tx_overlap;

typedef struct tx_pace tx_pace;

/* Results of the measurements after a step. */
typedef struct tx_pace_news {
    bool overlap_chosen, overlap;
    double with, without; /* seconds of a step, summed over the ranks */
    bool looked;          /* the next three are set */
    int32_t slowest;
    double seconds, median; /* of a step without waiting: of the slowest rank, and the median of all ranks */
    bool shared;            /* `rows` is set */
    const int64_t *rows;    /* of each rank from now on; the pace owns them */
} tx_pace_news;

/* Communicators: of all data-parallel ranks; and of hybrid sharding's groups, or NULL. */
typedef struct tx_pace_ranks {
    tx_comm *all, *shards, *replicate;
} tx_pace_ranks;

/* This rank has `rows` of the `all_rows` of a micro-batch. With `balance`, the first steps are timed, and the rows are
 * divided so that all ranks take the same time. The caller frees. */
tx_status tx_pace_create(const tx_pace_ranks *ranks, tx_overlap overlap, bool balance, int64_t rows, int64_t all_rows,
                         tx_pace **pace);
void tx_pace_free(tx_pace *pace);

/* Call it before a step. Switches the communicator's thread on or off. Only operations for which tx_model_wait waits
 * may be outstanding. */
tx_status tx_pace_begin(tx_pace *pace, tx_model *model);
/* Call it after the step. */
tx_status tx_pace_end(tx_pace *pace, tx_pace_news *news);

/* Divides `rows` by weight with the largest-remainder method. Each share is at least 1, and of equal remainders the
 * lowest rank's counts. TX_INVALID if there are fewer rows than ranks. */
tx_status tx_pace_apportion(const double *weight, int32_t ranks, int64_t rows, int64_t *share);

/* The ranks' shares as a text, "3,1", which the caller frees. NULL if out of memory. */
char *tx_pace_shares_text(const int64_t *share, int32_t ranks);

/* Fails, with the name of a rank, unless all ranks have bitwise the same weights. `*hash` is then the hash of the
 * weights. The message ends with `cause`, the likely cause of a difference. */
tx_status tx_pace_compare_weights(tx_model *model, tx_comm *comm, const char *cause, uint64_t *hash);

#endif
