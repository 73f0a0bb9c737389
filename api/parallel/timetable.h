/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank of a pipeline does in a step, turn by turn: its stages' parts of the forward and of the backward pass of
 * each micro-batch, and the messages between the stages. A rank has the stages rank, rank + ranks, .. A table is made
 * for each rank; tests try whether all of them together come to their end (tests/parallel/trial.h). */
#ifndef TX_API_TIMETABLE_H
#define TX_API_TIMETABLE_H

#include "tx.h"

/* Messages begin and are waited for; those of the forward pass go to the next stage, those of
 * the backward pass to the one before. */
typedef enum tx_turn_kind {
    TX_TURN_COMPUTE,
    TX_TURN_RECEIVE, /* what the part reads is called for */
    TX_TURN_RECEIVED,
    TX_TURN_SEND, /* what it made goes out */
    TX_TURN_SENT
} tx_turn_kind;

/* A turn is for one part of a micro-batch, by one of the rank's stages: `chunk` of them, from 0 on. */
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

/* The table of a rank with so many stages; the caller frees it (tx_timetable_free). With several of them micro_batches
 * is a multiple of the ranks. */
tx_status tx_timetable_make(tx_pipeline_schedule schedule, int32_t rank, int32_t ranks, int32_t chunks,
                            int32_t micro_batches, tx_timetable *table);
void tx_timetable_free(tx_timetable *table);

#endif
