/* SPDX-License-Identifier: Apache-2.0
 *
 * The study of a search: the search space, the trials so far, and the suggestion of the next trial. Nothing here starts
 * a process or reads a clock: suggestions depend only on the settings and the trials. */
#ifndef TX_TOOLS_SEARCH_STUDY_H
#define TX_TOOLS_SEARCH_STUDY_H

#include "tx_options.h"

/* ---- The space (space.c) ----------------------------------------------------------------------------------- */

/* The distributions of an option's values. X(NAME, "word") */
#define TX_SPREAD_MAP(X)                                                                \
    X(UNIFORM, "uniform")       /* uniform:LOW:HIGH[:STEP] */                           \
    X(LOGUNIFORM, "loguniform") /* loguniform:LOW:HIGH, uniform in the logarithm */     \
    X(INT, "int")               /* int:LOW:HIGH[:STEP], integers including both ends */ \
    X(LOGINT, "logint")         /* logint:LOW:HIGH, integers */                         \
    X(CHOICE, "choice")         /* choice:A,B,C, unordered */

typedef enum tx_spread {
#define X(name, word) TX_SPREAD_##name,
    TX_SPREAD_MAP(X)
#undef X
        TX_SPREAD_COUNT
} tx_spread;

#define TX_SPACE_MOST 32   /* largest number of options of a space */
#define TX_CHOICES_MOST 64 /* largest number of values of a choice */

/* An option and its range. A value is a double: the option's value, or for a choice the index in `choice`. */
typedef struct tx_dimension {
    char *name;
    tx_spread spread;
    double low, high, step; /* step is 0 for continuous ranges; a choice has 0, count - 1, 1 */
    char **choice;
    int32_t count;
} tx_dimension;

typedef struct tx_space {
    tx_dimension dimension[TX_SPACE_MOST];
    int32_t count;
} tx_space;

/* Reads the texts of --search: "NAME=RANGE, NAME=RANGE", "default", or a JSON file {"NAME": "RANGE" or [A, B], ...}.
 * Each option must be in the table and accept the values; otherwise returns TX_INVALID. The caller frees the space. */
tx_status tx_space_read(const tx_words *texts, const tx_option_values *options, tx_space *space);
void tx_space_free(tx_space *space);
/* Returns {"NAME": {"spread": "int", "low": 1, "high": 5, "step": 1}, "NAME": {"spread": "choice", "values": [..]}}, or
 * NULL if there is no memory. The caller frees it. */
tx_json *tx_space_json(const tx_space *space);

/* ---- Values of an option (range.c) ------------------------------------------------------------------------- */

#define TX_VALUE_TEXT 32

/* Returns the value as text for txtrain's command line. `room` may hold the text of a number. */
const char *tx_dimension_text(const tx_dimension *d, double value, char room[TX_VALUE_TEXT]);
bool tx_dimension_is_log(const tx_dimension *d);
/* Returns the quantile `u` (0 <= u < 1) of the distribution. */
double tx_dimension_at(const tx_dimension *d, double u);
/* Return the number of grid values of the option, at most `points` except for a choice, and the grid value `index`. */
int32_t tx_dimension_points(const tx_dimension *d, int32_t points);
double tx_dimension_point(const tx_dimension *d, int32_t points, int32_t index);
/* Map a value to the coordinate in which its distribution is uniform (its logarithm, or itself), and return the bounds
 * of that coordinate. With steps, the bounds are half a step outside the range. */
double tx_dimension_warp(const tx_dimension *d, double value);
void tx_dimension_line(const tx_dimension *d, double *low, double *high);
/* Maps a coordinate back to a value, clamped to the range and rounded to a step. */
double tx_dimension_unwarp(const tx_dimension *d, double worker);

/* ---- Trials (study.c) -------------------------------------------------------------------------------------- */

/* X(NAME, "word") */
#define TX_TRIAL_MAP(X)                                                                \
    X(RUNNING, "running")   /* running or interrupted */                               \
    X(COMPLETE, "complete") /* it has a value */                                       \
    X(STOPPED, "stopped")   /* stopped by successive halving, with the rung's value */ \
    X(FAILED, "failed")

typedef enum tx_trial_state {
#define X(name, word) TX_TRIAL_##name,
    TX_TRIAL_MAP(X)
#undef X
        TX_TRIAL_COUNT
} tx_trial_state;

#define TX_RUNGS_MOST 32

typedef struct tx_trial {
    double point[TX_SPACE_MOST]; /* the value of each option */
    tx_trial_state state;
    double value;               /* the objective, or NaN */
    int32_t rungs;              /* number of rungs that it reached */
    double rung[TX_RUNGS_MOST]; /* the objective at each of them */
    bool stops;                 /* halving stops it at the last of them */
    double seconds;
    int64_t steps;
    char *message; /* the error message, or NULL */
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
    bool greater;         /* the largest value is the best */
    int32_t start_trials; /* TPE: number of random trials at the start */
    int32_t candidates;   /* TPE: candidates per suggestion */
    int32_t grid_points;  /* grid: values of each option except choices */
    int64_t rung, factor; /* halving: step of the first rung, or 0 without halving; reduction factor */
    tx_trial *trial;      /* indexed by trial number */
    int32_t count;
    size_t room;
} tx_study;

const char *tx_trial_state_word(tx_trial_state state);
const char *tx_method_word(tx_method method);
void tx_study_free(tx_study *study);
/* Adds a trial in state RUNNING. */
tx_status tx_study_add(tx_study *study, tx_trial **trial);
/* Returns the number of grid points, at most INT32_MAX. */
int64_t tx_study_grid_size(const tx_study *study);
/* True if the trial is complete or was stopped at a rung. */
bool tx_trial_has_value(const tx_trial *trial);
/* Returns a value below 0 if `a` is better. Complete trials are first, then stopped ones by their rungs and values,
 * then trials without a value. */
int tx_trial_compare(const tx_study *study, const tx_trial *a, const tx_trial *b);
/* Returns the number of the best complete trial, or -1. */
int32_t tx_study_best(const tx_study *study);
/* Stores the numbers of the finished trials in `order`, best first, and returns their count. `order` has room for all
 * trials. */
int32_t tx_study_order(const tx_study *study, int32_t *order);
/* Returns the pseudorandom number `draw` of an option in trial `number`, 0 <= u < 1. */
double tx_study_draw(const tx_study *study, int32_t number, int32_t dimension, int32_t draw);

/* ---- Suggestions (tpe.c) ------------------------------------------------------------------------------------ */

/* Suggests the point of trial `number` by the study's method. The study must contain all earlier trials. The same study
 * gives the same point. */
tx_status tx_study_suggest(const tx_study *study, int32_t number, double point[TX_SPACE_MOST]);

/* ---- Successive halving (halving.c) ------------------------------------------------------------------------- */

/* Returns the training step of a rung: rung, rung * factor, rung * factor^2, ... */
int64_t tx_halving_step(const tx_study *study, int32_t rung);
/* True if a trial that has just reached rung `rung` continues: it is among the best max(1, n / factor) of the n trials
 * that have reached the rung so far, including itself. This is asynchronous: it does not wait for other trials (ASHA:
 * Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2018). */
bool tx_halving_goes_on(const tx_study *study, const tx_trial *trial, int32_t rung);

/* ---- Importance of options (importance.c) ------------------------------------------------------------------- */

typedef struct tx_importance {
    double share;       /* share of the variance of the trials' ranks that the option explains, or NaN if unknown */
    double correlation; /* Spearman's correlation of value and objective; NaN for a choice or if unknown */
} tx_importance;

/* Computes the importance of each option without interactions. The objective is replaced by its rank among all trials
 * with a value (ties share the mean), so that outliers have little weight. Values of an option are divided into k bins
 * of about equal counts; a choice has one bin per value. The share is epsilon squared of a one-way analysis of
 * variance, max(0, (SSB - (k - 1) MSW) / SST), which subtracts the variance that chance explains (Kelley, "An unbiased
 * correlation ratio measure", 1935). */
tx_status tx_study_importance(const tx_study *study, tx_importance importance[TX_SPACE_MOST]);

#endif
