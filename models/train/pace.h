/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the ranks of a run are, and what follows from it: whether gradients are summed while the backward pass goes
 * on or after it, how a micro-batch is shared out, and which rank the others wait for. All ranks call these functions
 * after the same steps and come to the same conclusions. */
#ifndef TX_TRAIN_PACE_H
#define TX_TRAIN_PACE_H

#include "comm/comm.h"
#include "tx.h"

#define TX_PACE_STEPS 20 /* between two looks at the slowest rank */
#define TX_PACE_SLOW 1.5 /* times the median of the ranks: named */

typedef enum tx_overlap { TX_OVERLAP_AUTO, TX_OVERLAP_YES, TX_OVERLAP_NO } tx_overlap;

typedef struct tx_pace tx_pace;

/* What the pace has to say after a step. */
typedef struct tx_pace_news {
    bool overlap_chosen, overlap;
    double with, without; /* seconds of a step, summed over the ranks */
    bool looked;          /* the next three are set */
    int32_t slowest;
    double seconds, median; /* of a step: the slowest rank's, and of all ranks, waiting for others left out */
    bool shared;            /* `rows` is set */
    const int64_t *rows;    /* of each rank from now on; lives as long as the pace */
} tx_pace_news;

/* `rows`: this rank's of `all_rows` in a micro-batch. With `balance` the first steps are timed and the rows shared out
 * so that all ranks end together. The caller frees. */
tx_status tx_pace_create(tx_comm *comm, tx_overlap overlap, bool balance, int64_t rows, int64_t all_rows,
                         tx_pace **pace);
void tx_pace_free(tx_pace *pace);

/* Before a step: switches the communicator's thread as is wanted. Nothing may be outstanding but what tx_model_wait
 * waits for. */
tx_status tx_pace_begin(tx_pace *pace, tx_model *model);
/* After it. */
tx_status tx_pace_end(tx_pace *pace, tx_pace_news *news);

/* Shares of `rows` by weight, each at least 1: whole parts first, then the largest remainders, then the lowest ranks.
 * INVALID when there are fewer rows than ranks. */
tx_status tx_pace_apportion(const double *weight, int32_t ranks, int64_t rows, int64_t *share);

/* The ranks' shares as a text, "3,1", for the caller to free; NULL: out of memory. */
char *tx_pace_shares_text(const int64_t *share, int32_t ranks);

/* A failure that names a rank, unless all ranks have the same weights, to the bit; `*hash` is then that of all. `cause`
 * ends the message: what is wrong where they differ. */
tx_status tx_pace_compare_weights(tx_model *model, tx_comm *comm, const char *cause, uint64_t *hash);

#endif
