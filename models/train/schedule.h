/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules, by the formulas (and names) of transformers' get_scheduler. */
#ifndef TX_TRAIN_SCHEDULE_H
#define TX_TRAIN_SCHEDULE_H

#include "tx.h"

/* X(NAME, "name") */
#define TX_SCHEDULE_MAP(X)                               \
    X(LINEAR, "linear")                                  \
    X(COSINE, "cosine")                                  \
    X(COSINE_WITH_RESTARTS, "cosine_with_restarts")      \
    X(COSINE_WITH_MIN_LR, "cosine_with_min_lr")          \
    X(COSINE_WARMUP_MIN_LR, "cosine_warmup_with_min_lr") \
    X(CONSTANT, "constant") /* without warm-up */        \
    X(CONSTANT_WITH_WARMUP, "constant_with_warmup")      \
    X(INVERSE_SQRT, "inverse_sqrt")                      \
    X(POLYNOMIAL, "polynomial")                          \
    X(WSD, "wsd") /* warm up, stay, decay: transformers' warmup_stable_decay */

typedef enum tx_schedule_kind {
#define X(name, text) TX_SCHEDULE_##name,
    TX_SCHEDULE_MAP(X)
#undef X
        TX_SCHEDULE_COUNT
} tx_schedule_kind;

/* How WSD rises and falls. X(NAME, "name") */
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
    /* Settings, by their names in lr_scheduler_kwargs. NaN and -1: not given. */
    double num_cycles;
    double lr_end, power;       /* POLYNOMIAL */
    double min_lr, min_lr_rate; /* of the cosines WITH_MIN_LR: the least rate, or its share of the peak */
    double warmup_lr_rate;      /* COSINE_WARMUP_MIN_LR */
    double min_lr_ratio;        /* WSD: the rate at both ends, as a share of the peak */
    int64_t num_decay_steps, num_stable_steps, timescale; /* WSD, WSD, INVERSE_SQRT */
    tx_decay_kind warmup_type, decay_type;                /* WSD */
} tx_schedule;

/* A schedule with transformers' defaults. WSD decays over the last tenth of the steps (transformers has no default). */
tx_schedule tx_schedule_default(tx_schedule_kind kind, double peak, int64_t warmup_steps, int64_t total_steps);
/* Sets what the JSON object `text` names, as transformers' lr_scheduler_kwargs; NULL: nothing. Keys that the schedule
 * does not have are TX_INVALID, the message tells those that it has; so is a schedule that lacks a setting. */
tx_status tx_schedule_adjust(tx_schedule *schedule, const char *text);
const char *tx_schedule_name(tx_schedule_kind kind);
/* The learning rate of update number `step`, counted from 0. */
double tx_schedule_rate(const tx_schedule *schedule, int64_t step);

#endif
