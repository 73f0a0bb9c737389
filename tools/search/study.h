/* SPDX-License-Identifier: Apache-2.0
 *
 * A search as numbers: the space of options, the trials so far, and what is tried next. Nothing here starts a process
 * or reads a clock: what is suggested follows from the settings and from the trials alone. */
#ifndef TX_TOOLS_SEARCH_STUDY_H
#define TX_TOOLS_SEARCH_STUDY_H

#include "tx_options.h"

/* ---- The space (space.c) ----------------------------------------------------------------------------------- */

/* How the values of an option are spread. X(NAME, "word") */
#define TX_SPREAD_MAP(X)                                                                \
    X(UNIFORM, "uniform")       /* uniform:LOW:HIGH[:STEP] */                           \
    X(LOGUNIFORM, "loguniform") /* loguniform:LOW:HIGH, even in the logarithm */        \
    X(INT, "int")               /* int:LOW:HIGH[:STEP], whole numbers, both included */ \
    X(LOGINT, "logint")         /* logint:LOW:HIGH */                                   \
    X(CHOICE, "choice")         /* choice:A,B,C, in no order */

typedef enum tx_spread {
#define X(name, word) TX_SPREAD_##name,
    TX_SPREAD_MAP(X)
#undef X
        TX_SPREAD_COUNT
} tx_spread;

#define TX_SPACE_MOST 32   /* options of a space */
#define TX_CHOICES_MOST 64 /* values of a choice */

/* An option and its range. Its value is a double: that of the option, or of a choice the place in `choice`. */
typedef struct tx_dimension {
    char *name;
    tx_spread spread;
    double low, high, step; /* step 0: any value between; of a choice 0, count - 1, 1 */
    char **choice;
    int32_t count;
} tx_dimension;

typedef struct tx_space {
    tx_dimension dimension[TX_SPACE_MOST];
    int32_t count;
} tx_space;

/* Reads the texts of --search: "NAME=RANGE, NAME=RANGE", "default", or a JSON file {"NAME": "RANGE" or [A, B], ...}.
 * Each option must be one of the table with a value, and each value one that it takes: TX_INVALID says which is not.
 * The caller frees. */
tx_status tx_space_read(const tx_words *texts, const tx_option_values *options, tx_space *space);
void tx_space_free(tx_space *space);
/* {"NAME": {"spread": "int", "low": 1, "high": 5, "step": 1}, "NAME": {"spread": "choice", "values": ["4", "8"]}}. NULL
 * when out of memory. */
tx_json *tx_space_json(const tx_space *space);

/* ---- Values of an option (range.c) ------------------------------------------------------------------------- */

#define TX_VALUE_TEXT 32

/* The value as txtrain's command line takes it; `room` is for a number. */
const char *tx_dimension_text(const tx_dimension *d, double value, char room[TX_VALUE_TEXT]);
bool tx_dimension_is_log(const tx_dimension *d);
/* The value behind the share `u` (0 <= u < 1) of the range. */
double tx_dimension_at(const tx_dimension *d, double u);
/* Values of a grid of at most `points` of the option (all of a choice), and the value at place `index`. */
int32_t tx_dimension_points(const tx_dimension *d, int32_t points);
double tx_dimension_point(const tx_dimension *d, int32_t points, int32_t index);
/* Where the values lie on the line on which they are even: as they are, or their logarithms. The line of an option with
 * steps has half a step more at both ends. */
double tx_dimension_warp(const tx_dimension *d, double value);
void tx_dimension_line(const tx_dimension *d, double *low, double *high);
/* The value at a place of that line, which is brought into the range and to a step. */
double tx_dimension_unwarp(const tx_dimension *d, double place);

/* ---- Trials (study.c) -------------------------------------------------------------------------------------- */

/* X(NAME, "word") */
#define TX_TRIAL_MAP(X)                                                                 \
    X(RUNNING, "running")   /* or interrupted */                                        \
    X(COMPLETE, "complete") /* it has a value */                                        \
    X(STOPPED, "stopped")   /* at a rung of successive halving, where it has a value */ \
    X(FAILED, "failed")

typedef enum tx_trial_state {
#define X(name, word) TX_TRIAL_##name,
    TX_TRIAL_MAP(X)
#undef X
        TX_TRIAL_COUNT
} tx_trial_state;

#define TX_RUNGS_MOST 32

typedef struct tx_trial {
    double point[TX_SPACE_MOST]; /* a value of each option */
    tx_trial_state state;
    double value;               /* of the objective; NaN: none */
    int32_t rungs;              /* that it reached */
    double rung[TX_RUNGS_MOST]; /* the objective there */
    bool stops;                 /* the last of them decided so */
    double seconds;
    int64_t steps;
    char *message; /* why it failed; NULL: it did not */
    tx_json *metrics;
} tx_trial;

/* X(NAME, "word") */
#define TX_METHOD_MAP(X) X(TPE, "tpe") X(RANDOM, "random") X(GRID, "grid")

typedef enum tx_method {
#define X(name, word) TX_METHOD_##name,
    TX_METHOD_MAP(X)
#undef X
} tx_method;

typedef struct tx_study {
    tx_space space;
    tx_method method;
    uint64_t seed;
    bool greater;         /* the greatest value is the best */
    int32_t start_trials; /* of TPE: at random before it begins */
    int32_t candidates;   /* of TPE: per suggestion */
    int32_t grid_points;  /* of each range that is no choice */
    int64_t rung, factor; /* of halving: the first rung's step; 1 of so many goes on; rung 0: no halving */
    tx_trial *trial;      /* by number, from 0 */
    int32_t count;
    size_t room;
} tx_study;

const char *tx_trial_state_word(tx_trial_state state);
const char *tx_method_word(tx_method method);
void tx_study_free(tx_study *study);
/* Adds a trial that runs. */
tx_status tx_study_add(tx_study *study, tx_trial **trial);
/* Points of the grid. */
int64_t tx_study_grid_size(const tx_study *study);
/* Whether a trial has a result that counts. */
bool tx_trial_has_value(const tx_trial *trial);
/* Below 0: `a` is better. Complete trials come first, then those that were stopped, by how far they came, then by
 * value; then those without a value. */
int tx_trial_compare(const tx_study *study, const tx_trial *a, const tx_trial *b);
/* The number of the best complete one; -1: there is none. */
int32_t tx_study_best(const tx_study *study);
/* Numbers of the trials that are at an end, best first; returns how many. `order` has room for all. */
int32_t tx_study_order(const tx_study *study, int32_t *order);
/* The draw `draw` of an option in a trial, 0 <= u < 1. */
double tx_study_draw(const tx_study *study, int32_t number, int32_t dimension, int32_t draw);

/* ---- Suggestions (tpe.c) ------------------------------------------------------------------------------------ */

/* Chooses the point of trial `number` by the study's method. All trials of lesser numbers are in the study. The same
 * study gives the same point. */
tx_status tx_study_suggest(const tx_study *study, int32_t number, double point[TX_SPACE_MOST]);

/* ---- Successive halving (halving.c) ------------------------------------------------------------------------- */

/* The step of a rung: rung, rung * factor, rung * factor^2, ... */
int64_t tx_halving_step(const tx_study *study, int32_t rung);
/* Whether a trial that has just reached rung `rung` goes on: it is among the best of those that have reached it so far,
 * itself included: of n the best n / factor, and at least one (ASHA: Li et al., "A System for Massively Parallel
 * Hyperparameter Tuning", 2018, where a trial is judged as it comes rather than waited for). */
bool tx_halving_goes_on(const tx_study *study, const tx_trial *trial, int32_t rung);

/* ---- What an option matters (importance.c) ------------------------------------------------------------------ */

typedef struct tx_importance {
    double share;       /* of the variance of the trials' ranks that the option explains; NaN: it cannot be told */
    double correlation; /* Spearman's, of value and objective; NaN: a choice, or it cannot be told */
} tx_importance;

/* Of each option, one way at a time. The objective is taken by its rank among all trials with a value (ties share one),
 * so that a few terrible values do not decide. Values of an option are cut into bins of about equal counts (a choice
 * has one for each value), and the share is epsilon squared, (SSB - (k - 1) MSW) / SST of a one-way analysis of
 * variance over the k bins, at least 0 (Kelley, "An unbiased correlation ratio measure", 1935): what chance alone would
 * explain is taken off. Interactions of options are not seen. */
tx_status tx_study_importance(const tx_study *study, tx_importance importance[TX_SPACE_MOST]);

#endif
