/* SPDX-License-Identifier: Apache-2.0
 * Fragments of Trackio. A record has a random log_id, so that importing it twice adds it once. */
#include "models/train/events.h"

#include "api/base/file.h"
#include "api/base/number.h"
#include "models/train/log.h"
#include "models/tx_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FRAGMENT_SECONDS 5.0 /* a fragment with older rows is published */
#define ID 33                /* 32 digits and the NUL */

struct tx_trackio {
    char folder[TX_PATH_ROOM], run_id[ID];
    char *project, *run;
    const tx_json *config; /* NULL after the first record */
    const tx_reporter *report;
    tx_json *row; /* the metrics of `step`, or NULL */
    int64_t step, fragments;
    double when, began; /* time of the row; of the first row of the open fragment */
    FILE *file;         /* the open fragment, under a temporary name, or NULL */
    bool failed;
};

static void random_id(char id[ID])
{
    uint8_t bytes[(ID - 1) / 2];
    if (getentropy(bytes, sizeof bytes))
        memset(bytes, getpid() & 0xff, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

static void give_up(tx_trackio *t, const char *why)
{
    if (!t->failed)
        tx_reporter_print(t->report, "%.400s: %s; the run continues without Trackio", t->folder, why);
    t->failed = true;
    if (t->file)
        fclose(t->file);
    t->file = NULL;
}

/* The fragment gets its name when it is complete. */
static void publish(tx_trackio *t)
{
    char name[32];
    if (!t->file)
        return;
    const bool written = fflush(t->file) == 0;
    const bool closed = fclose(t->file) == 0;
    t->file = NULL;
    snprintf(name, sizeof name, "%08" PRId64 ".jsonl", t->fragments++);
    if (!written || !closed || rename(TX_PATH(t->folder, "open.tmp"), TX_PATH(t->folder, name)))
        give_up(t, strerror(errno));
}

static char *record_of(tx_trackio *t)
{
    char id[ID], seconds[32], when[48];
    const time_t whole = (time_t)floor(t->when);
    struct tm utc;
    gmtime_r(&whole, &utc);
    tx_format_time(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(when, sizeof when, "%s.%06d+00:00", seconds, (int)(1e6 * (t->when - (double)whole)));
    random_id(id);
    tx_json *record =
        tx_json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:o*, s:o}", "v", 1, "kind", "metric", "project",
                     t->project, "run", t->run, "run_id", t->run_id, "step", t->step, "timestamp", when, "log_id", id,
                     "config", t->config ? tx_json_copy(t->config) : NULL, "metrics", t->row);
    char *text = record ? tx_json_text(record, TX_JSON_LINE) : NULL;
    t->row = NULL;
    tx_json_free(record);
    return text;
}

/* Writes the row. */
static void flush_row(tx_trackio *t)
{
    if (!t->row || t->failed)
        return;
    if (!t->file) {
        t->file = fopen(TX_PATH(t->folder, "open.tmp"), "w");
        t->began = t->when;
    }
    char *text = record_of(t);
    if (!t->file || !text || fprintf(t->file, "%s\n", text) < 0)
        give_up(t, text ? strerror(errno) : tx_error());
    free(text);
    t->config = NULL;
    if (t->file && t->when - t->began >= FRAGMENT_SECONDS)
        publish(t);
}

tx_status tx_trackio_open(const char *inbox, const char *project, const char *run, const tx_json *config,
                          const tx_reporter *report, tx_trackio **trackio)
{
    char writer[ID];
    tx_trackio *t = calloc(1, sizeof *t);
    if (!t)
        return tx_fail(TX_MEMORY, "%s: out of memory", inbox);
    *t = (tx_trackio){.config = config, .report = report, .project = strdup(project), .run = strdup(run)};
    random_id(writer);
    random_id(t->run_id);
    tx_path_in(t->folder, inbox, writer);
    tx_status status =
        t->project && t->run ? tx_folder_create(t->folder) : tx_fail(TX_MEMORY, "%s: out of memory", inbox);
    return TX_RETURN(status, t, trackio, tx_trackio_close);
}

void tx_trackio_scalar(tx_trackio *t, const char *tag, int64_t step, double value, double now)
{
    if (t->row && step != t->step)
        flush_row(t);
    if (t->failed)
        return;
    t->row = t->row ? t->row : tx_json_object();
    t->step = step;
    t->when = now;
    char word[TX_LOG_NUMBER];
    if (isfinite(value) ? tx_json_set_number(t->row, tag, value)
                        : tx_json_set_string(t->row, tag, tx_log_number(value, word)))
        give_up(t, tx_error());
}

void tx_trackio_close(tx_trackio *t)
{
    if (!t)
        return;
    flush_row(t);
    publish(t);
    tx_json_free(t->row);
    free(t->project);
    free(t->run);
    free(t);
}
