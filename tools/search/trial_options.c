/* SPDX-License-Identifier: Apache-2.0
 * The name and the options of a trial. */
#include "tools/search/txsearch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

const char *tx_trial_name(char name[TX_TRIAL_NAME], int32_t trial, const char *suffix)
{
    snprintf(name, TX_TRIAL_NAME, "trial-%" PRId32 "%s", trial, suffix);
    return name;
}

/* ---- Options --------------------------------------------------------------------------------------------------- */

static tx_status set_point(const tx_search *s, const tx_trial *t, tx_job *job)
{
    char room[TX_VALUE_TEXT];
    for (int32_t i = 0; i < s->study.space.count; i++) {
        const tx_dimension *d = &s->study.space.dimension[i];
        TX_TRY(tx_job_set(job, d->name, tx_dimension_text(d, t->point[i], room)));
    }
    return TX_OK;
}

bool tx_trial_given(tx_job *job, const char *name)
{
    const tx_option_values *options = tx_job_options(job);
    const tx_option *option = tx_option_find(&options->table, name);
    return option && tx_option_given(options, option->offset);
}

/* Sets an option unless it was given. */
static tx_status set_default(tx_job *job, const char *name, const char *format, ...) TX_PRINTF(3, 4);

static tx_status set_default(tx_job *job, const char *name, const char *format, ...)
{
    char text[64];
    va_list args;
    if (tx_trial_given(job, name))
        return TX_OK;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tx_job_set(job, name, text);
}

/* Sets the options that a search needs: training, evaluation if the metric is one of evaluation, and an evaluation at
 * each rung. */
static tx_status set_purpose(const tx_search *s, tx_job *job)
{
    TX_TRY(tx_job_set(job, "do_train", "true"));
    if (strncmp(s->metric, "train_", 6) != 0)
        TX_TRY(tx_job_set(job, "do_eval", "true"));
    if (s->study.rung > 0) {
        TX_TRY(set_default(job, "eval_strategy", "steps"));
        TX_TRY(set_default(job, "eval_steps", "%" PRId64, s->study.rung));
    }
    return set_default(job, "save_total_limit", "1");
}

tx_status tx_trial_share(const tx_search *s, tx_job *job)
{
    const int64_t sharing = s->set->parallel * s->set->ranks, threads = tx_cores() / sharing;
    return sharing > 1 ? set_default(job, "threads", "%" PRId64, threads > 0 ? threads : 1) : TX_OK;
}

tx_status tx_trial_job(const tx_search *s, const tx_trial *t, tx_job **job)
{
    tx_job *created = NULL;
    tx_status status = tx_job_like(s->job, &created);
    TX_THEN(status, set_purpose(s, created));
    if (!status && t)
        status = set_point(s, t, created);
    return TX_RETURN(status, created, job, tx_job_free);
}

tx_json *tx_trial_options(const tx_search *s, int32_t trial, bool shares)
{
    tx_job *job = NULL;
    tx_status status = tx_trial_job(s, trial < 0 ? NULL : &s->study.trial[trial], &job);
    if (!status && shares)
        status = tx_trial_share(s, job);
    tx_json *json = status ? NULL : tx_option_json_given(tx_job_options(job));
    tx_job_free(job);
    return json;
}

/* Fails if an option is given that each trial sets itself, or that is searched. */
static tx_status check_given(const tx_search *s, tx_trial *first)
{
    const tx_option_values *options = tx_job_options(s->job);
    const tx_option_table *table = &options->table;
    for (int32_t i = 0; i < table->count; i++)
        if (tx_job_is_own(&table->option[i]) && tx_option_asked(options, table->option[i].offset))
            return tx_fail(TX_INVALID, "--%s: each trial has its own: remove it from the options after --",
                           table->option[i].name);
    for (int32_t i = 0; i < s->study.space.count; i++) {
        const tx_dimension *d = &s->study.space.dimension[i];
        const tx_option *option = tx_option_find(table, d->name);
        first->point[i] = d->low;
        if (tx_job_is_own(option))
            return tx_fail(TX_INVALID, "--search %s: cannot be searched: each trial has its own", d->name);
        if (tx_option_asked(options, option->offset))
            return tx_fail(TX_INVALID, "--search %s: remove it from the options after --", d->name);
    }
    return TX_OK;
}

tx_status tx_trial_check(const tx_search *s)
{
    tx_trial first = {.state = TX_TRIAL_RUNNING};
    tx_job *job = NULL;
    tx_status status = check_given(s, &first);
    TX_THEN(status, tx_trial_job(s, &first, &job));
    TX_THEN(status, tx_job_set(job, "output_dir", s->folder));
    TX_THEN(status, tx_job_resolve(job));
    tx_job_free(job);
    return status;
}
