/* SPDX-License-Identifier: Apache-2.0
 * One trial: its options, its process and its result. */
#include "tools/search/txsearch.h"

#include "tx_file.h"
#include "tx_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESULTS_LIMIT (1 << 24)
#define KILL_SECONDS 2.0     /* seconds between the first signal and the kill of a trial */
#define RELEASE_SECONDS 60.0 /* timeout in seconds for processes of a killed search to release a folder */

/* ---- Starting -------------------------------------------------------------------------------------------------- */

/* Returns the number of cores of a slot, or 0 to share all cores: the option `threads` is given, or there are fewer
 * cores than slots. */
static int32_t cores_of(const tx_search *s)
{
    const int32_t parallel = (int32_t)s->set->parallel;
    const bool given = tx_trial_given(s->job, "threads");
    return parallel > 1 && !given && tx_cores_allowed() >= parallel ? tx_cores_allowed() / parallel : 0;
}

static tx_status write_options(tx_search *s, int32_t worker, int32_t trial, const char *folder, bool resumes)
{
    char name[TX_TRIAL_NAME];
    tx_job *job = NULL;
    tx_status status = tx_trial_job(s, &s->study.trial[trial], &job);
    TX_THEN(status, tx_job_set(job, "output_dir", folder));
    if (!status && resumes)
        status = tx_job_set(job, "resume_from_checkpoint", "");
    if (!status && s->devices.count > 0)
        status = tx_job_set(job, "device", s->devices.word[worker % s->devices.count]);
    TX_THEN(status, tx_trial_share(s, job));
    tx_json *json = status ? NULL : tx_option_json_given(tx_job_options(job));
    TX_THEN(status, json ? tx_json_write(TX_PATH(s->folder, tx_trial_name(name, trial, ".json")), json, TX_JSON_PRETTY)
                         : TX_MEMORY);
    if (!status)
        s->worker[worker] = (tx_search_worker){.trial = trial,
                                               .max_steps = (int64_t)tx_option_number(tx_job_options(job), "max_steps"),
                                               .epochs = tx_option_number(tx_job_options(job), "num_train_epochs")};
    tx_json_free(json);
    tx_job_free(job);
    return status;
}

/* Waits until no process holds the folder's lock. Ranks of a killed search may still be ending. */
static tx_status wait_for_folder(const char *folder)
{
    const double end = tx_now() + RELEASE_SECONDS;
    tx_output_lock *lock = NULL;
    tx_status status = TX_OK;
    while (tx_is_folder(folder) && (status = tx_output_lock_take(folder, &lock)) == TX_IO && tx_now() < end)
        usleep(100000);
    tx_output_lock_release(lock);
    return status == TX_UNSUPPORTED ? TX_OK : status; /* the file system has no locks */
}

static tx_status spawn(tx_search *s, int32_t worker, int32_t trial)
{
    char name[TX_TRIAL_NAME], train[4096];
    tx_search_worker *p = &s->worker[worker];
    const bool multi_rank = s->set->ranks > 1;
    const int32_t cores = cores_of(s);
    const tx_child_spawning how = {.output = fileno(p->output),
                                   .errors = fileno(p->output),
                                   .group = true,
                                   /* txlaunch must get SIGTERM, because it has to end its ranks. */
                                   .orphan = multi_rank ? SIGTERM : SIGKILL,
                                   .mask = &s->mask,
                                   .first_core = worker * cores,
                                   .cores = cores};
    tx_command_line command = {0};
    tx_status status = tx_process_beside("txtrain", train, sizeof train);
    if (!status && multi_rank)
        status = tx_command_line_add(&command, "txlaunch -n %" PRId64 " --max_restarts 0 --", s->set->ranks);
    TX_THEN(status, tx_command_line_add_word(&command, multi_rank ? train : "txtrain"));
    TX_THEN(status, tx_command_line_add_word(&command, TX_PATH(s->folder, tx_trial_name(name, trial, ".json"))));
    TX_THEN(status, tx_process_start(&command, &how, &p->process));
    tx_command_line_free(&command);
    return status;
}

/* Opens an empty file for a trial's output. A link is an error, because its target would be truncated. */
static tx_status open_log(const char *path, FILE **log)
{
    int descriptor = -1;
    TX_TRY(tx_file_open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, &descriptor, NULL));
    *log = fdopen(descriptor, "w+");
    if (*log)
        return TX_OK;
    close(descriptor);
    return tx_file_fail(path, "write");
}

tx_status tx_trial_start(tx_search *s, int32_t worker, int32_t trial)
{
    char name[TX_TRIAL_NAME], log[TX_TRIAL_NAME];
    const char *folder = TX_PATH(s->folder, tx_trial_name(name, trial, ""));
    tx_search_worker *p = &s->worker[worker];
    int64_t newest = -1;
    TX_TRY(wait_for_folder(folder));
    const bool resumes = tx_is_folder(folder) && !tx_checkpoint_latest(folder, &newest) && newest >= 0;
    if (!resumes)
        TX_TRY(tx_folder_remove(s->folder, name));
    tx_status status = write_options(s, worker, trial, folder, resumes);
    TX_THEN(status, tx_state_keep(s, trial));
    TX_THEN(status, open_log(TX_PATH(s->folder, tx_trial_name(log, trial, ".log")), &p->output));
    TX_THEN(status, spawn(s, worker, trial));
    if (status) {
        if (p->output)
            fclose(p->output);
        *p = (tx_search_worker){.trial = -1};
    }
    return status;
}

/* ---- While it runs --------------------------------------------------------------------------------------------- */

/* Records an evaluation after `step` at each rung it reaches. At the end of the run, stopping would save nothing. */
static tx_status record_evaluation(tx_search *s, tx_search_worker *p, int64_t step, double epoch, double value)
{
    tx_trial *t = &s->study.trial[p->trial];
    if (p->max_steps > 0 ? step >= p->max_steps : epoch >= p->epochs * (1.0 - 1e-9))
        return TX_OK;
    while (!t->stops && t->rungs < TX_RUNGS_MOST && step >= tx_halving_step(&s->study, t->rungs)) {
        t->rung[t->rungs++] = value;
        t->stops = !tx_halving_goes_on(&s->study, t, t->rungs - 1);
        TX_TRY(tx_state_keep(s, p->trial));
    }
    return TX_OK;
}

/* Reads a line of the log. Lines that are not JSON contain NaN and are ignored. */
static tx_status read_log_line(tx_search *s, tx_search_worker *p, const char *line, size_t length)
{
    tx_json *json = NULL;
    int64_t step;
    double value, epoch = 0.0;
    if (tx_json_parse_line(line, length, TX_RUN_LOG, &json))
        return TX_OK;
    const bool is_evaluation = !tx_json_get_int(json, "step", 0, INT64_MAX, &step) &&
                               !tx_json_get_number(json, s->metric, -DBL_MAX, DBL_MAX, &value);
    if (is_evaluation)
        (void)tx_json_get_number(json, "epoch", 0.0, DBL_MAX, &epoch); /* every evaluation has an epoch */
    tx_json_free(json);
    return is_evaluation ? record_evaluation(s, p, step, epoch, value) : TX_OK;
}

tx_status tx_trial_follow(tx_search *s, tx_search_worker *p)
{
    char name[TX_TRIAL_NAME + 16], *line = NULL;
    size_t room = 0;
    ssize_t length;
    tx_status status = TX_OK;
    snprintf(name, sizeof name, "trial-%" PRId32 "/" TX_RUN_LOG, p->trial);
    int descriptor = -1;
    if (s->study.rung <= 0 || s->study.trial[p->trial].stops ||
        tx_file_open(TX_PATH(s->folder, name), O_RDONLY, &descriptor, NULL))
        return TX_OK;
    FILE *file = fdopen(descriptor, "r");
    if (!file) {
        close(descriptor);
        return TX_OK;
    }
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) < p->read)
        p->read = 0; /* the log was started again */
    if (fseek(file, (long)p->read, SEEK_SET) == 0)
        while (!status && (length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n') {
            p->read += length;
            status = read_log_line(s, p, line, (size_t)length - 1);
        }
    free(line);
    fclose(file);
    return status;
}

/* A second SIGTERM makes txlaunch end at once with all its ranks; a single txtrain gets SIGKILL. */
void tx_trial_ask(const tx_search *s, tx_search_worker *p, bool at_once)
{
    const bool again = p->asked > 0.0;
    if (again && !at_once && tx_now() - p->asked < KILL_SECONDS)
        return;
    p->asked = tx_now();
    kill(p->process.id, (again || at_once) && s->set->ranks == 1 ? SIGKILL : SIGTERM);
}

/* ---- Its end --------------------------------------------------------------------------------------------------- */

static void set_message(tx_trial *t, const char *format, ...) TX_PRINTF(2, 3);

static void set_message(tx_trial *t, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    free(t->message);
    t->message = strdup(text);
}

/* Reads the results into the trial, and the metric from them. */
static tx_status read_results(const tx_search *s, tx_trial *t, const char *folder)
{
    char list[600] = "";
    TX_TRY(tx_json_read(TX_PATH(folder, "all_results.json"), RESULTS_LIMIT, &t->metrics));
    if (!tx_json_get_number(t->metrics, s->metric, -DBL_MAX, DBL_MAX, &t->value))
        return TX_OK;
    for (void *i = tx_json_first(t->metrics); i; i = tx_json_next(t->metrics, i))
        tx_list_add(list, sizeof list, ", ", "%s", tx_json_key(i));
    return tx_fail(TX_NOT_FOUND, "its results have no number \"%s\"; they have %s", s->metric, list);
}

static void read_steps(tx_trial *t, const char *folder)
{
    tx_json *state = NULL;
    if (!tx_json_read(TX_PATH(folder, "trainer_state.json"), RESULTS_LIMIT, &state))
        (void)tx_json_get_int(state, "global_step", 0, INT64_MAX, &t->steps); /* only for display */
    tx_json_free(state);
}

static void record_result(const tx_search *s, tx_search_worker *p, tx_trial *t, bool well, const char *message)
{
    char name[TX_TRIAL_NAME];
    const char *folder = TX_PATH(s->folder, tx_trial_name(name, p->trial, ""));
    if (t->stops) {
        t->state = TX_TRIAL_STOPPED;
        t->value = t->rung[t->rungs - 1];
        t->steps = tx_halving_step(&s->study, t->rungs - 1);
    } else if (!well) {
        t->state = TX_TRIAL_FAILED;
        set_message(t, "%s", *message ? message : "it failed without an error message");
    } else if (read_results(s, t, folder)) {
        t->state = TX_TRIAL_FAILED;
        set_message(t, "%s", tx_error());
    } else {
        t->state = TX_TRIAL_COMPLETE;
        read_steps(t, folder);
    }
}

static bool disk_is_full(const char *said)
{
    return strstr(said, TX_DISK_FULL) || strstr(said, strerror(ENOSPC)) || strstr(said, strerror(EDQUOT));
}

tx_status tx_trial_end(tx_search *s, tx_search_worker *p, bool interrupted)
{
    char message[1024] = "", *said = tx_process_text(p->output);
    const bool full = said && disk_is_full(said);
    tx_trial *t = &s->study.trial[p->trial];
    tx_status status = tx_trial_follow(s, p);
    const bool well = tx_process_well(&p->process, said ? tx_process_complaint(said) : "", message, sizeof message);
    t->seconds = p->process.seconds;
    if (!status && full && !well && !t->stops && !interrupted)
        status = tx_fail(TX_IO,
                         "trial %" PRId32 ": %s; free disk space, then run the same command to continue with this "
                         "trial",
                         p->trial, *message ? message : "the disk is full");
    else if (!status && (well || t->stops || !interrupted)) {
        record_result(s, p, t, well, message);
        status = tx_state_keep(s, p->trial);
    }
    free(said);
    fclose(p->output);
    *p = (tx_search_worker){.trial = -1};
    return status;
}
