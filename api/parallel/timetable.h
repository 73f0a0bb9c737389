/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule of a pipeline rank in a step: the forward and backward passes of each micro-batch on its stages, and the
 * messages between stages. A rank has stages rank, rank + ranks and so on. Each rank computes its own timetable. Tests
 * check that all of them together complete (tests/parallel/trial.h). */
#ifndef TX_API_TIMETABLE_H
#define TX_API_TIMETABLE_H

#include "tx.h"

/* Messages are started and waited for. Those of the forward pass go to the next stage, those of the backward pass to
 * the stage before. */
typedef enum tx_turn_kind {
    TX_TURN_COMPUTE,
    TX_TURN_RECEIVE, /* start to receive the input */
    TX_TURN_RECEIVED,
    TX_TURN_SEND, /* start to send the output */
    TX_TURN_SENT
} tx_turn_kind;

/* A turn is one pass of a micro-batch on stage `chunk` of the rank, counted from 0. */
typedef struct tx_turn {
    tx_turn_kind kind;
    bool backward;
    int32_t chunk, micro_batch;
} tx_turn;

typedef struct tx_timetable {
    int32_t rank, ranks, chunks, micro_batches;
    tx_turn *turn;
    int32_t turns;
} tx_timetable;

/* Computes the timetable of a rank with `chunks` stages; the caller frees it (tx_timetable_free). If chunks is above 1,
 * micro_batches must be a multiple of the ranks. */
tx_status tx_timetable_make(tx_pipeline_schedule schedule, int32_t rank, int32_t ranks, int32_t chunks,
                            int32_t micro_batches, tx_timetable *table);
void tx_timetable_free(tx_timetable *table);

#endif
