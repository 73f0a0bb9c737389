/* SPDX-License-Identifier: Apache-2.0
 * The output of a run: notes and warnings for its listener, progress for the watch, and the event file. Warnings that
 * several ranks have in common are printed once. */
#include "models/job/job.h"

#include "api/base/file.h"
#include "api/base/hash.h"
#include "api/base/number.h"
#include "models/tx_folder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Longer lines are truncated. */
#define LINE 8192

void tx_job_note(const tx_job *j, const char *format, ...)
{
    char text[LINE], safe[LINE];
    va_list args;
    if (!j->listener.note || !tx_job_leads(j))
        return;
    va_start(args, format);
    tx_format_list(text, sizeof text, format, args);
    va_end(args);
    tx_escape(text, safe, sizeof safe);
    j->listener.note(j->listener.context, safe);
}

/* ---- Warnings ------------------------------------------------------------------------------------------- */

static void print_warning(const tx_job *j, const char *message)
{
    char text[LINE];
    if (!j->listener.warn)
        return;
    if (!tx_job_leads(j)) {
        snprintf(text, sizeof text, "rank %" PRId32 " on %s: %s", j->comm->rank, j->comm->ranks[j->comm->rank].name,
                 message);
        message = text;
    }
    j->listener.warn(j->listener.context, message);
}

/* Adds a line to the kept warnings. False if out of memory. */
static bool keep_warning(tx_job *j, const char *message)
{
    const size_t used = j->kept ? strlen(j->kept) : 0, size = strlen(message);
    char *grown = realloc(j->kept, used + size + 2);
    if (!grown)
        return false;
    memcpy(grown + used, message, size);
    memcpy(grown + used + size, "\n", 2);
    j->kept = grown;
    return true;
}

static void warn(void *context, const char *message)
{
    tx_job *j = context;
    if (!j->prints_warnings && j->comm && j->comm->size > 1 && keep_warning(j, message) && j->comm->rank > 0)
        return;
    print_warning(j, message);
}

static void print_kept(const tx_job *j)
{
    char *rest = NULL;
    for (char *line = j->kept ? strtok_r(j->kept, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        print_warning(j, line);
}

static void clear_kept(tx_job *j)
{
    free(j->kept);
    j->kept = NULL;
}

tx_status tx_job_share_warnings(tx_job *j)
{
    const char *kept = j->kept ? j->kept : "";
    const uint64_t hash = tx_hash(TX_HASH_START, kept, strlen(kept));
    uint64_t first = hash; /* of rank 0 */
    const tx_status status = tx_comm_collect(j->comm, TX_BROADCAST, &first, sizeof first / 4, TX_I32, 0);
    if (first != hash)
        print_kept(j);
    clear_kept(j);
    return status;
}

void tx_job_print_warnings(tx_job *j)
{
    if (!tx_job_leads(j))
        print_kept(j);
    clear_kept(j);
    j->prints_warnings = true;
}

/* Reports the progress of a long operation to the listener, and to the watch, which shows it if it stops the run. */
static void report_progress(void *context, const char *what, int64_t done, int64_t total)
{
    const tx_job *j = context;
    char detail[64];
    const char *slash = strrchr(what, '/');
    tx_format(detail, sizeof detail, "%.40s, %.0f %%", slash ? slash + 1 : what,
              total > 0 ? 100.0 * (double)done / (double)total : 0.0);
    tx_watchdog_alive(j->watch, total > 0 && done >= total ? "" : detail); /* what follows may report nothing */
    if (j->listener.progress && tx_job_leads(j))
        j->listener.progress(j->listener.context, what, done, total);
}

tx_reporter tx_job_reporter(tx_job *j)
{
    return (tx_reporter){warn, j, report_progress};
}

/* ---- Trackers ---------------------------------------------------------------------------------------- */

static bool reports_to(const tx_job *j, int tracker)
{
    return j->set.report_to & UINT32_C(1) << tracker;
}

static char *default_folder(const char *output_dir)
{
    char host[64] = "", name[128], when[32];
    time_t now = time(NULL);
    struct tm local;
    gethostname(host, sizeof host - 1);
    localtime_r(&now, &local);
    tx_format_time(when, sizeof when, "%b%d_%H-%M-%S", &local);
    snprintf(name, sizeof name, "runs/%s_%s", when, host);
    return tx_path_join(output_dir, name);
}

static tx_status open_tensorboard(tx_job *j)
{
    char *runs = tx_path_join(j->set.output_dir, "runs");
    char *folder = j->set.logging_dir        ? strdup(j->set.logging_dir)
                   : runs && j->set.run_name ? tx_path_join(runs, j->set.run_name)
                                             : default_folder(j->set.output_dir);
    free(runs);
    tx_status status = folder ? tx_tensorboard_open(folder, &j->report, &j->events.tensorboard)
                              : tx_fail(TX_MEMORY, "no memory for the name of the event file");
    if (!status && reports_to(j, TX_REPORT_WANDB))
        tx_job_note(j, "wandb   to upload the run: wandb sync %s", folder);
    free(folder);
    return status;
}

/* The run is called run_name, or as the last part of output_dir. The project is transformers' default. */
static tx_status open_trackio(tx_job *j)
{
    static const char *const places[][2] = {{"TRACKIO_DIR", "/inbox"},
                                            {"HF_HOME", "/trackio/inbox"},
                                            {"XDG_CACHE_HOME", "/huggingface/trackio/inbox"},
                                            {"HOME", "/.cache/huggingface/trackio/inbox"}};
    const char *set = NULL, *project = getenv("TRACKIO_PROJECT_NAME");
    char inbox[TX_PATH_ROOM] = "", *run = strdup(j->set.run_name ? j->set.run_name : j->set.output_dir);
    size_t place = 0;
    while (place < sizeof places / sizeof places[0] && (!(set = getenv(places[place][0])) || !*set))
        place++;
    if (place < sizeof places / sizeof places[0])
        snprintf(inbox, sizeof inbox, "%s%s", set, places[place][1]);
    j->config = tx_job_arguments(&j->set, 0, 0);
    size_t length = run ? strlen(run) : 0;
    while (length > 1 && run[length - 1] == '/')
        run[--length] = '\0';
    const char *slash = run && !j->set.run_name ? strrchr(run, '/') : NULL;
    tx_status status =
        *inbox && run ? tx_trackio_open(inbox, project && *project ? project : "huggingface",
                                        slash && slash[1] ? slash + 1 : run, j->config, &j->report, &j->events.trackio)
                      : tx_fail(TX_NOT_FOUND, "--report_to trackio: set TRACKIO_DIR or HOME");
    free(run);
    return status;
}

tx_status tx_job_open_events(tx_job *j)
{
    if (!tx_job_leads(j))
        return TX_OK;
    if (reports_to(j, TX_REPORT_TENSORBOARD) || reports_to(j, TX_REPORT_WANDB) || reports_to(j, TX_REPORT_ALL))
        TX_TRY(open_tensorboard(j));
    return reports_to(j, TX_REPORT_TRACKIO) ? open_trackio(j) : TX_OK;
}
