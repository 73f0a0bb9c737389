/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules, by the formulas (and names) of transformers' get_scheduler. */
#ifndef TX_TRAIN_SCHEDULE_H
#define TX_TRAIN_SCHEDULE_H

#include "tx.h"

/* X(NAME, "name") */
#define TX_SCHEDULE_MAP(X)                                                      \
    X(LINEAR, "linear")                                                         \
    X(COSINE, "cosine")                                                         \
    X(COSINE_WITH_RESTARTS, "cosine_with_restarts")                             \
    X(COSINE_WITH_MIN_LR, "cosine_with_min_lr")                                 \
    X(COSINE_WARMUP_MIN_LR, "cosine_warmup_with_min_lr")                        \
    X(CONSTANT, "constant") /* without warm-up */                               \
    X(CONSTANT_WITH_WARMUP, "constant_with_warmup")                             \
    X(INVERSE_SQRT, "inverse_sqrt")                                             \
    X(POLYNOMIAL, "polynomial")                                                 \
    X(WSD, "wsd") /* warm up, stay, decay: transformers' warmup_stable_decay */ \
    /* These follow the evaluations, see tx_schedule_judge. */                  \
    X(REDUCE_ON_PLATEAU, "reduce_lr_on_plateau")                                \
    X(GREEDY, "greedy")

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

/* What the metric of an evaluation should be, and how far it has to get for that to count. X(NAME, "name") */
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
    /* REDUCE_ON_PLATEAU and GREEDY, as torch's ReduceLROnPlateau and transformers' GreedyLR; min_lr is theirs too. */
    double factor, threshold, eps;
    int64_t patience, cooldown;
    tx_schedule_mode mode;
    tx_threshold_mode threshold_mode;
    double max_lr;               /* GREEDY */
    int64_t warmup, reset_start; /* GREEDY */
} tx_schedule;

/* How far a schedule has come that follows the evaluations. */
typedef struct tx_schedule_state {
    double rate; /* of the next steps; 0: nothing was judged */
    double best; /* metric so far; infinite: none */
    int64_t good, bad, cooldown, warmup, resets;
} tx_schedule_state;

/* A schedule with transformers' defaults. WSD decays over the last tenth of the steps (transformers has no default). */
tx_schedule tx_schedule_default(tx_schedule_kind kind, double peak, int64_t warmup_steps, int64_t total_steps);
/* Sets what the JSON object `text` names, as transformers' lr_scheduler_kwargs; NULL: nothing. Keys that the schedule
 * does not have are TX_INVALID, the message tells those that it has; so is a schedule that lacks a setting. */
tx_status tx_schedule_adjust(tx_schedule *schedule, const char *text);
const char *tx_schedule_name(tx_schedule_kind kind);
/* Whether the rate follows the evaluations. */
bool tx_schedule_adapts(const tx_schedule *schedule);
/* Enters the metric of an evaluation into the state, which begins as all zero. Only for those that adapt. */
void tx_schedule_judge(const tx_schedule *schedule, tx_schedule_state *state, double metric);
/* The learning rate of update number `step`, counted from 0; of those that adapt before the first evaluation. */
double tx_schedule_rate(const tx_schedule *schedule, int64_t step);

#endif
