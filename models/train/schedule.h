/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules, by the formulas (and names) of transformers' get_scheduler. */
#ifndef TX_TRAIN_SCHEDULE_H
#define TX_TRAIN_SCHEDULE_H

#include "tx.h"

/* X(NAME, "name") */
#define TX_SCHEDULE_MAP(X)                          \
    X(LINEAR, "linear")                             \
    X(COSINE, "cosine")                             \
    X(CONSTANT, "constant") /* without warm-up */   \
    X(CONSTANT_WITH_WARMUP, "constant_with_warmup") \
    X(POLYNOMIAL, "polynomial")                     \
    X(WSD, "wsd") /* warm up, stay, decay: transformers' warmup_stable_decay */

typedef enum tx_schedule_kind {
#define X(name, text) TX_SCHEDULE_##name,
    TX_SCHEDULE_MAP(X)
#undef X
        TX_SCHEDULE_COUNT
} tx_schedule_kind;

/* How WSD falls. X(NAME, "name") */
#define TX_DECAY_MAP(X) \
    X(COSINE, "cosine") \
    X(LINEAR, "linear") \
    X(SQRT, "1-sqrt")

typedef enum tx_decay_kind {
#define X(name, text) TX_DECAY_##name,
    TX_DECAY_MAP(X)
#undef X
        TX_DECAY_COUNT
} tx_decay_kind;

typedef struct tx_schedule {
    tx_schedule_kind kind;
    double peak;          /* the rate after warm-up */
    int64_t warmup_steps; /* the rate rises linearly over these */
    int64_t total_steps;  /* of the run */
    double cycles;        /* COSINE, WSD: waves of the cosine; 0.5 falls once */
    double end, power;    /* POLYNOMIAL: the rate at the end, the exponent */
    int64_t decay_steps;  /* WSD: the last ones, over which it falls */
    double least;         /* WSD: the rate at both ends, as a share of the peak */
    tx_decay_kind decay;  /* WSD */
} tx_schedule;

/* A schedule with transformers' defaults. WSD decays over the last tenth of the steps (transformers has no default). */
tx_schedule tx_schedule_default(tx_schedule_kind kind, double peak, int64_t warmup_steps, int64_t total_steps);
/* Sets what the JSON object `text` names, as transformers' lr_scheduler_kwargs: num_cycles of cosine; lr_end and power
 * of polynomial; num_decay_steps, min_lr_ratio, decay_type and num_cycles of wsd. Other keys are TX_INVALID. */
tx_status tx_schedule_adjust(tx_schedule *schedule, const char *text);
const char *tx_schedule_name(tx_schedule_kind kind);
/* The learning rate of update number `step`, counted from 0. */
double tx_schedule_rate(const tx_schedule *schedule, int64_t step);

#endif
