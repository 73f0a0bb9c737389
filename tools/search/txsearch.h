/* SPDX-License-Identifier: Apache-2.0
 *
 * The interfaces of txsearch's files. txsearch.c has the options, trials.c runs the trials. A search in OUT writes:
 *
 *   OUT/search.json          the settings of the search
 *
 *   OUT/trial-N.json         the options of a trial
 *   OUT/trial-N.log          its output
 *   OUT/trial-N/             its model
 *   OUT/trial-N.result.json  its results, from which a search resumes
 *
 *   OUT/best                 a link to the model of the best trial
 *   OUT/best.json            its options
 *   OUT/search.html          the report */
#ifndef TX_TOOLS_SEARCH_TXSEARCH_H
#define TX_TOOLS_SEARCH_TXSEARCH_H

#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/process/process.h"
#include "tools/search/study.h"
#include "tx_train.h"

#define TX_SEARCH_PAGE "search.html"
#define TX_SEARCH_BEST "best"

typedef struct tx_search_settings {
    tx_words search, command; /* the ranges of --search; txtrain's options */
    const char *output_dir, *metric, *devices;
    int32_t method, direction, keep; /* a tx_method; index of auto|minimize|maximize; index of best|all */
    int64_t trials, seed, parallel, ranks, rung, factor, start_trials, candidates, grid_points;
} tx_search_settings;

/* A slot for one of the trials that run at the same time. */
typedef struct tx_search_worker {
    int32_t trial;     /* number of the trial, or -1 if the slot is free */
    int64_t max_steps; /* max_steps of the trial, or -1 if it is not set */
    double epochs;
    int64_t read; /* bytes of its log that are read */
    double asked; /* time of the last signal to it, or 0 */
    FILE *output; /* its standard output and error */
    tx_process process;
} tx_search_worker;

typedef struct tx_search {
    const tx_search_settings *set;
    const char *folder;
    char metric[64]; /* the metric's key in all_results.json */
    tx_study study;
    tx_job *job; /* a job with the given options of txtrain */
    tx_words devices;
    tx_option_values words; /* owns the texts of `devices` */
    tx_output_lock *lock;
    sigset_t mask; /* the signal mask of the trials */
    tx_search_worker *worker;
    int32_t trials; /* total number of trials to run */
    tx_alive *alive;
} tx_search;

/* ---- The state (state.c) --------------------------------------------------------------------------------------- */

/* Reads the state in the folder, or creates it. Unfinished trials are RUNNING. Returns TX_INVALID if the folder has a
 * search with different settings. */
tx_status tx_state_open(tx_search *search);
/* Writes the state of a trial. */
tx_status tx_state_keep(const tx_search *search, int32_t trial);

/* ---- One trial (trial.c) --------------------------------------------------------------------------------------- */

#define TX_TRIAL_NAME 32

/* Writes "trial-N" and the suffix to `name`, and returns it. */
const char *tx_trial_name(char name[TX_TRIAL_NAME], int32_t trial, const char *suffix);
/* Returns the given options and those of the trial's point as JSON for txtrain, or NULL if there is no memory. Pass
 * trial -1 for no point. `shares` adds the number of threads, on which the last bits of a model depend. */
tx_json *tx_trial_options(const tx_search *search, int32_t trial, bool shares);
/* Creates a job with the options of a trial. `trial` may be NULL for no point. The caller frees the job. */
tx_status tx_trial_job(const tx_search *search, const tx_trial *trial, tx_job **job);
/* Sets `threads` so that concurrent trials divide the cores, unless it is given. */
tx_status tx_trial_share(const tx_search *search, tx_job *job);
/* True if an option was given on the command line or in a file. */
bool tx_trial_given(tx_job *job, const char *name);
/* Fails if txtrain would refuse the options in every trial, or if the search itself sets one of them. */
tx_status tx_trial_check(const tx_search *search);
/* Starts a trial in a free slot, from its newest checkpoint if it has one. */
tx_status tx_trial_start(tx_search *search, int32_t worker, int32_t trial);
/* Reads new lines of the trial's log, and records rungs that it reached and whether it stops there. */
tx_status tx_trial_follow(tx_search *search, tx_search_worker *worker);
/* Records the result of an ended trial, and frees its slot. With `interrupted`, a failed trial stays unfinished and is
 * resumed later. If the disk was full, the trial also stays unfinished, and TX_IO ends the search. */
tx_status tx_trial_end(tx_search *search, tx_search_worker *worker, bool interrupted);
/* Signals the trial to save a checkpoint and end. A second call, or `at_once`, kills it. */
void tx_trial_ask(const tx_search *search, tx_search_worker *worker, bool at_once);

/* ---- All trials (trials.c) ------------------------------------------------------------------------------------ */

/* Runs the remaining trials. Sets `*caught` to the signal that ended the search early, or 0. */
tx_status tx_search_run(tx_search *search, int *caught);

/* ---- Results (report.c) --------------------------------------------------------------------------------------- */

/* Writes the link and the options of the best trial, and the report. Removes the models that are not kept. */
tx_status tx_search_report(const tx_search *search);
/* Writes the command that trains the best model again, to the folder OUT-best. A shell reads it as it is. */
void tx_search_command(const tx_search *search, char *text, size_t size);

/* The NUL-terminated text of search.html. @DATA@ is the place of the results. */
extern const unsigned char tx_search_page[];

#endif
