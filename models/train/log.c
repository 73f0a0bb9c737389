/* SPDX-License-Identifier: Apache-2.0
 * Writes log.jsonl. */
#include "models/train/log.h"

#include "api/base/file.h"
#include "api/base/number.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Warns that the log ends, and closes it. The error message names the file. */
static void give_up(tx_log *log)
{
    tx_reporter_print(&log->report, "%.440s; training continues without a log", tx_error());
    if (log->file)
        fclose(log->file);
    log->file = NULL;
}

void tx_log_open(tx_log *log, const char *path, bool append, const tx_reporter *report)
{
    *log = (tx_log){.path = path, .report = *report};
    if (!path)
        return;
    int descriptor = -1;
    /* A link is not followed, since its target would be truncated. */
    tx_status status =
        tx_file_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | (append ? O_APPEND : O_TRUNC), &descriptor, NULL);
    if (!status && !(log->file = fdopen(descriptor, append ? "a" : "w"))) {
        status = tx_file_fail(path, "open");
        close(descriptor);
    }
    if (!status)
        setvbuf(log->file, log->buffer, _IOFBF, sizeof log->buffer);
    else
        give_up(log);
}

void tx_log_line(tx_log *log, const char *format, ...)
{
    va_list args;
    if (!log->file && log->recent) {
        va_start(args, format);
        tx_format_list(log->recent[log->lines++ % TX_LOG_RECENT], TX_LOG_LINE, format, args);
        va_end(args);
    }
    if (!log->file)
        return;
    va_start(args, format);
    bool written = tx_print_list(log->file, format, args) >= 0;
    va_end(args);
    written = written && fputc('\n', log->file) != EOF && fflush(log->file) == 0;
    if (!written) {
        tx_file_fail(log->path, "write the log");
        give_up(log);
    }
}

void tx_log_close(tx_log *log)
{
    if (log->file)
        fclose(log->file);
    free(log->recent);
    log->recent = NULL;
    log->file = NULL;
}

/* ---- The log of a rank that has ended ------------------------------------------------------------------ */

void tx_log_remember(tx_log *log)
{
    free(log->recent);
    log->recent = calloc(TX_LOG_RECENT, sizeof *log->recent);
    log->lines = 0;
}

/* The step whose results a line has, or -1. Lines about the ranks' speed come before those of their step. */
static int64_t step_of(const char *line)
{
    int64_t step = -1;
    char digit;
    return sscanf(line, "{\"step\": %" SCNd64 ", \"epoch\": %c", &step, &digit) == 2 ? step : -1;
}

tx_status tx_log_complete(const tx_log *log, const char *from, const char *to)
{
    char *text = NULL;
    size_t size = 0;
    int64_t last = -1;
    const tx_status found = tx_file_read_text(from, INT64_MAX, &text, &size);
    if (found)
        return found == TX_NOT_FOUND ? TX_OK : found;
    while (size > 0 && text[size - 1] != '\n') /* a line that its rank could not complete */
        size--;
    text[size] = '\0';
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        last = step_of(line) > last ? step_of(line) : last;
    const size_t room = size + (sizeof *log->recent + 1) * TX_LOG_RECENT + 1;
    char *all = realloc(text, room);
    if (!all) {
        free(text);
        return tx_fail(TX_MEMORY, "%s: no memory for the log", from);
    }
    const int64_t first = log->lines > TX_LOG_RECENT ? log->lines - TX_LOG_RECENT : 0;
    for (int64_t i = first; i < log->lines && log->recent; i++)
        if (step_of(log->recent[i % TX_LOG_RECENT]) > last)
            size += (size_t)snprintf(all + size, room - size, "%s\n", log->recent[i % TX_LOG_RECENT]);
    const tx_status status = tx_file_write(to, all, size);
    free(all);
    return status;
}

const char *tx_log_number(double value, char text[TX_LOG_NUMBER])
{
    if (isfinite(value))
        tx_format(text, TX_LOG_NUMBER, "%.9g", value);
    else
        snprintf(text, TX_LOG_NUMBER, "%s", isnan(value) ? "NaN" : value > 0.0 ? "Infinity" : "-Infinity");
    return text;
}
