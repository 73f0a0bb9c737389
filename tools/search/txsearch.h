/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside txsearch: what its files give each other. txsearch.c has the options, run.c the trials one after the other and
 * beside each other. Of a search in OUT there are
 *   OUT/search.json    the settings of the search
 *   OUT/trial-N.json   options of a trial, OUT/trial-N.log its output, OUT/trial-N/ its model, OUT/trial-N.result.json
 * its results, from which a search continues after any end OUT/best           a link to the best trial's model,
 * OUT/best.json its options, OUT/search.html the page. */
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
    tx_words search, command; /* ranges; txtrain's options */
    const char *output_dir, *metric, *devices;
    int32_t method, direction, keep; /* tx_method; 0 auto, 1 minimize, 2 maximize; 0 best, 1 all */
    int64_t trials, seed, parallel, ranks, rung, factor, start_trials, candidates, grid_points;
} tx_search_settings;

/* Trials that run beside each other have a place each. */
typedef struct tx_search_place {
    int32_t trial;     /* -1: free */
    int64_t max_steps; /* of its options; -1: not set */
    double epochs;
    int64_t read; /* bytes of its log that were looked at */
    double asked; /* when it was asked to end; 0: it was not */
    FILE *output; /* what it prints */
    tx_process process;
} tx_search_place;

typedef struct tx_search {
    const tx_search_settings *set;
    const char *folder;
    char metric[64]; /* by its name in all_results.json */
    tx_study study;
    tx_job *job; /* it has txtrain's options, as they were given */
    tx_words devices;
    tx_option_values words; /* what devices live in */
    tx_output_lock *lock;
    sigset_t mask; /* of signals, for the trials */
    tx_search_place *place;
    int32_t trials; /* to be made */
    tx_alive *alive;
} tx_search;

/* ---- The state (state.c) --------------------------------------------------------------------------------------- */

/* Reads the state of the folder, or begins one: trials that have not ended are RUNNING. TX_INVALID: it is of a search
 * with other settings. */
tx_status tx_state_open(tx_search *search);
/* Writes the state of a trial. */
tx_status tx_state_keep(const tx_search *search, int32_t trial);

/* ---- One trial (trial.c) --------------------------------------------------------------------------------------- */

#define TX_TRIAL_NAME 32

/* "trial-N", and the suffix behind it. */
const char *tx_trial_name(char name[TX_TRIAL_NAME], int32_t trial, const char *suffix);
/* The options that were given, with those of the trial's point in their place (trial -1: none) and, if it `shares`, its
 * threads, on which the last bits of a model depend; as txtrain reads them from a file. NULL: no memory. */
tx_json *tx_trial_options(const tx_search *search, int32_t trial, bool shares);
/* A run with the options of a trial, or without a point if it is NULL. The caller frees. */
tx_status tx_trial_job(const tx_search *search, const tx_trial *trial, tx_job **job);
tx_status tx_trial_share(const tx_search *search, tx_job *job); /* concurrent trials share the processors */
/* Whether an option was given, on the command line or in a file. */
bool tx_trial_given(tx_job *job, const char *name);
/* Refuses options that txtrain would refuse in every trial, or that are the search's own. */
tx_status tx_trial_check(const tx_search *search);
/* Starts the trial at a free place, from its newest checkpoint where it has one. */
tx_status tx_trial_start(tx_search *search, int32_t place, int32_t trial);
/* Looks at what has come into the trial's log: whether it reached rungs, and goes on. */
tx_status tx_trial_follow(tx_search *search, tx_search_place *place);
/* Records the outcome of a trial that has ended, and frees its place. With `interrupted` a trial that failed stays
 * unfinished and is continued later. So does a trial that failed because the disk was full: TX_IO ends the search. */
tx_status tx_trial_end(tx_search *search, tx_search_place *place, bool interrupted);
/* Asks the trial to save and end; again, or with `at_once`: ends it. */
void tx_trial_ask(const tx_search *search, tx_search_place *place, bool at_once);

/* ---- All trials (run.c) --------------------------------------------------------------------------------------- */

/* Runs what is left to be done. `caught` is the signal that ended it early; 0: none. */
tx_status tx_search_run(tx_search *search, int *caught);

/* ---- Results (report.c) --------------------------------------------------------------------------------------- */

/* Link and options of the best trial, and the page; removes folders that are not to be kept. */
tx_status tx_search_report(const tx_search *search);
/* The command that makes the best model again. */
void tx_search_command(const tx_search *search, char *text, size_t size);

/* The text of search.html, a NUL after it; @DATA@ stands for what was found. */
extern const unsigned char tx_search_page[];

#endif
