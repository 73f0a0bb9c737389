/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules, by the formulas (and names) of transformers' get_scheduler. */
#ifndef TX_TRAIN_SCHEDULE_H
#define TX_TRAIN_SCHEDULE_H

#include "tx.h"

/* X(NAME, "name"). CONSTANT with warm-up steps is what transformers calls constant_with_warmup. */
#define TX_SCHEDULE_MAP(X) \
    X(LINEAR, "linear")    \
    X(COSINE, "cosine")    \
    X(CONSTANT, "constant")

typedef enum tx_schedule_kind {
#define X(name, text) TX_SCHEDULE_##name,
    TX_SCHEDULE_MAP(X)
#undef X
        TX_SCHEDULE_COUNT
} tx_schedule_kind;

typedef struct tx_schedule {
    tx_schedule_kind kind;
    double peak;          /* the rate after warm-up */
    int64_t warmup_steps; /* the rate rises linearly from 0 over these */
    int64_t total_steps;  /* linear and cosine reach 0 here */
} tx_schedule;

const char *tx_schedule_name(tx_schedule_kind kind);
/* The learning rate of update number `step`, counted from 0. */
double tx_schedule_rate(const tx_schedule *schedule, int64_t step);

#endif
