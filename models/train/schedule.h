/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules with the names and formulas of transformers' get_scheduler. */
#ifndef TX_TRAIN_SCHEDULE_H
#define TX_TRAIN_SCHEDULE_H

#include "tx.h"

/* X(NAME, "name") */
#define TX_SCHEDULE_MAP(X)                                                       \
    X(LINEAR, "linear")                                                          \
    X(COSINE, "cosine")                                                          \
    X(COSINE_WITH_RESTARTS, "cosine_with_restarts")                              \
    X(COSINE_WITH_MIN_LR, "cosine_with_min_lr")                                  \
    X(COSINE_WARMUP_MIN_LR, "cosine_warmup_with_min_lr")                         \
    X(CONSTANT, "constant") /* without warm-up */                                \
    X(CONSTANT_WITH_WARMUP, "constant_with_warmup")                              \
    X(INVERSE_SQRT, "inverse_sqrt")                                              \
    X(POLYNOMIAL, "polynomial")                                                  \
    X(WSD, "wsd") /* warmup, stable, decay: transformers' warmup_stable_decay */ \
    /* These follow the evaluations, see tx_schedule_judge. */                   \
    X(REDUCE_ON_PLATEAU, "reduce_lr_on_plateau")                                 \
    X(GREEDY, "greedy")

typedef enum tx_schedule_kind {
#define X(name, text) TX_SCHEDULE_##name,
    TX_SCHEDULE_MAP(X)
#undef X
        TX_SCHEDULE_COUNT
} tx_schedule_kind;

/* The shapes of WSD's warmup and decay. X(NAME, "name") */
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

/* The direction of the metric of evaluations, and the unit of the threshold for an improvement. X(NAME, "name") */
#define TX_MODE_MAP(X) X(MIN, "min") X(MAX, "max")
#define TX_THRESHOLD_MAP(X) X(REL, "rel") X(ABS, "abs")

#define X(name, text) TX_MODE_##name,
typedef enum tx_schedule_mode { TX_MODE_MAP(X) } tx_schedule_mode;
#undef X
#define X(name, text) TX_THRESHOLD_##name,
typedef enum tx_threshold_mode { TX_THRESHOLD_MAP(X) } tx_threshold_mode;
#undef X

typedef struct tx_schedule {
    tx_schedule_kind kind;
    double peak;          /* the rate after warm-up */
    int64_t warmup_steps; /* steps in which the rate rises linearly */
    int64_t total_steps;  /* of the run */
    /* Settings, by their names in lr_scheduler_kwargs. NaN and -1 mean that a setting is not given. */
    double num_cycles;
    double lr_end, power;       /* POLYNOMIAL */
    double min_lr, min_lr_rate; /* COSINE_WITH_MIN_LR and COSINE_WARMUP_MIN_LR: the minimum, or its share of the peak */
    double warmup_lr_rate;      /* COSINE_WARMUP_MIN_LR */
    double min_lr_ratio;        /* WSD: the rate at the start and at the end, as a share of the peak */
    int64_t num_decay_steps, num_stable_steps, timescale; /* WSD, WSD, INVERSE_SQRT */
    tx_decay_kind warmup_type, decay_type;                /* WSD */
    /* REDUCE_ON_PLATEAU and GREEDY, as torch's ReduceLROnPlateau and transformers' GreedyLR, which also use min_lr. */
    double factor, threshold, eps;
    int64_t patience, cooldown;
    tx_schedule_mode mode;
    tx_threshold_mode threshold_mode;
    double max_lr;               /* GREEDY */
    int64_t warmup, reset_start; /* GREEDY */
} tx_schedule;

/* The state of a schedule that follows the evaluations. */
typedef struct tx_schedule_state {
    double rate; /* of the next steps; 0 before the first evaluation */
    double best; /* the best metric so far; infinite if none */
    int64_t good, bad, cooldown, warmup, resets;
} tx_schedule_state;

/* A schedule with transformers' defaults. WSD decays over the last tenth of the steps (transformers has no default). */
tx_schedule tx_schedule_default(tx_schedule_kind kind, double peak, int64_t warmup_steps, int64_t total_steps);
/* Applies the JSON object `text`, transformers' lr_scheduler_kwargs, which may be NULL. TX_INVALID if the schedule does
 * not have a key (the message lists its keys), or if a required setting is missing. */
tx_status tx_schedule_adjust(tx_schedule *schedule, const char *text);
const char *tx_schedule_name(tx_schedule_kind kind);
/* Whether the rate follows the evaluations. */
bool tx_schedule_adapts(const tx_schedule *schedule);
/* Updates the state, which begins as all zero, with the metric of an evaluation. Only for schedules that adapt. */
void tx_schedule_judge(const tx_schedule *schedule, tx_schedule_state *state, double metric);
/* The learning rate of update number `step`, counted from 0. For schedules that adapt, the rate before the first
 * evaluation. */
double tx_schedule_rate(const tx_schedule *schedule, int64_t step);

#endif
