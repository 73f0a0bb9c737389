/* SPDX-License-Identifier: Apache-2.0
 * Runs the trials, several at a time with --parallel. */
#include "tools/search/txsearch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_SECONDS 0.1
#define LEAST_FAILURES 5 /* after so many failures without a success, the search gives up */

/* ---- Output ---------------------------------------------------------------------------------------------------- */

static void print_trial(const tx_search *s, int32_t trial)
{
    const tx_trial *t = &s->study.trial[trial];
    char options[1024] = "", value[96] = "", room[TX_VALUE_TEXT];
    size_t used = 0;
    for (int32_t i = 0; i < s->study.space.count && used < sizeof options; i++) {
        const tx_dimension *d = &s->study.space.dimension[i];
        const bool real = d->spread == TX_SPREAD_UNIFORM || d->spread == TX_SPREAD_LOGUNIFORM;
        snprintf(room, sizeof room, "%.4g", t->point[i]);
        used += (size_t)snprintf(options + used, sizeof options - used, " %s=%s", d->name,
                                 real ? room : tx_dimension_text(d, t->point[i], room));
    }
    if (isfinite(t->value))
        snprintf(value, sizeof value, "%s %.6g", s->metric, t->value);
    tx_print_line(stdout, "trial %-4" PRId32 " %-8s %s %s%s%s", trial, tx_trial_state_word(t->state), value, options,
                  t->message ? "  " : "", t->message ? t->message : "");
    fflush(stdout);
    tx_alive_printed(s->alive);
}

/* ---- Trials ---------------------------------------------------------------------------------------------------- */

/* Sets `*trial` to the next trial to start: an interrupted one, or else a new one, or -1 if there is none. */
static tx_status next_trial(tx_search *s, int32_t *from, int32_t *trial)
{
    tx_study *study = &s->study;
    double point[TX_SPACE_MOST] = {0.0};
    *trial = -1;
    for (; *from < study->count && *trial < 0; ++*from)
        if (study->trial[*from].state == TX_TRIAL_RUNNING)
            *trial = *from;
    if (*trial >= 0 || study->count >= s->trials)
        return TX_OK;
    tx_trial *t;
    TX_TRY(tx_study_suggest(study, study->count, point));
    TX_TRY(tx_study_add(study, &t));
    memcpy(t->point, point, sizeof t->point);
    *trial = study->count - 1;
    ++*from;
    return TX_OK;
}

/* Records the end of trials that were stopped at a rung before the search was interrupted. */
static tx_status end_stopped(tx_search *s)
{
    for (int32_t i = 0; i < s->study.count; i++) {
        tx_trial *t = &s->study.trial[i];
        if (t->state != TX_TRIAL_RUNNING || !t->stops)
            continue;
        t->state = TX_TRIAL_STOPPED;
        t->value = t->rung[t->rungs - 1];
        t->steps = tx_halving_step(&s->study, t->rungs - 1);
        TX_TRY(tx_state_keep(s, i));
    }
    return TX_OK;
}

static bool always_fails(const tx_study *study)
{
    int32_t failed = 0;
    for (int32_t i = 0; i < study->count; i++) {
        if (study->trial[i].state == TX_TRIAL_COMPLETE || study->trial[i].state == TX_TRIAL_STOPPED)
            return false;
        failed += study->trial[i].state == TX_TRIAL_FAILED;
    }
    return failed >= LEAST_FAILURES;
}

static tx_status fill_workers(tx_search *s, int32_t *from)
{
    for (int32_t i = 0; i < s->set->parallel; i++) {
        int32_t trial;
        if (s->worker[i].trial >= 0 || always_fails(&s->study))
            continue;
        TX_TRY(next_trial(s, from, &trial));
        if (trial >= 0) {
            TX_TRY(tx_trial_start(s, i, trial));
            tx_alive_doing(s->alive, "running trial %" PRId32 " of %" PRId32, trial, s->trials);
        }
    }
    return TX_OK;
}

/* Follows the running trials and records the ended ones. `*running` becomes the number of running trials. */
static tx_status poll_trials(tx_search *s, int caught, bool at_once, int32_t *running)
{
    *running = 0;
    for (int32_t i = 0; i < s->set->parallel; i++) {
        tx_search_worker *p = &s->worker[i];
        const int32_t trial = p->trial;
        if (trial < 0)
            continue;
        if (tx_process_poll(&p->process)) {
            TX_TRY(tx_trial_end(s, p, caught != 0));
            if (s->study.trial[trial].state == TX_TRIAL_RUNNING)
                continue;
            print_trial(s, trial);
            TX_TRY(tx_search_report(s));
            continue;
        }
        ++*running;
        TX_TRY(tx_trial_follow(s, p));
        if (s->study.trial[trial].stops || (caught && (at_once || !(p->asked > 0.0))))
            tx_trial_ask(s, p, at_once);
    }
    return TX_OK;
}

/* Waits briefly for the end of a trial or a signal. Returns a signal that ends the search, or 0. */
static int wait_briefly(const sigset_t *signals)
{
    const struct timespec interval = {.tv_nsec = (long)(POLL_SECONDS * 1e9)};
    const int number = sigtimedwait(signals, NULL, &interval);
    return number > 0 && number != SIGCHLD ? number : 0;
}

static tx_status run(tx_search *s, const sigset_t *signals, int *caught)
{
    int32_t from = 0, running = 0;
    bool at_once = false;
    TX_TRY(end_stopped(s));
    TX_TRY(tx_search_report(s));
    do {
        if (!*caught)
            TX_TRY(fill_workers(s, &from));
        const int number = wait_briefly(signals);
        at_once = at_once || (number && *caught);
        *caught = *caught ? *caught : number;
        TX_TRY(poll_trials(s, *caught, at_once, &running));
    } while (running > 0 || (!*caught && s->study.count < s->trials && !always_fails(&s->study)));
    return TX_OK;
}

/* Kills all running trials, if the search itself failed. */
static void end_all(tx_search *s)
{
    for (int32_t i = 0; i < s->set->parallel; i++) {
        tx_search_worker *p = &s->worker[i];
        if (p->trial < 0)
            continue;
        while (!tx_process_poll(&p->process)) {
            tx_trial_ask(s, p, true);
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        }
        fclose(p->output);
        p->trial = -1;
    }
}

tx_status tx_search_run(tx_search *s, int *caught)
{
    static const int terminating[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof terminating / sizeof terminating[0]; i++)
        sigaddset(&signals, terminating[i]);
    sigprocmask(SIG_BLOCK, &signals, &s->mask);
    s->worker = calloc((size_t)s->set->parallel, sizeof *s->worker);
    if (!s->worker)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " parallel trials", s->set->parallel);
    for (int32_t i = 0; i < s->set->parallel; i++)
        s->worker[i].trial = -1;
    const tx_status status = run(s, &signals, caught);
    end_all(s);
    return status;
}
