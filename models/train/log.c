/* SPDX-License-Identifier: Apache-2.0
 * Writes log.jsonl. */
#include "models/train/log.h"

#include "api/base/file.h"
#include "api/base/number.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
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
    if (!log->file)
        return;
    va_list args;
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
    log->file = NULL;
}

const char *tx_log_number(double value, char text[TX_LOG_NUMBER])
{
    if (isfinite(value))
        tx_format(text, TX_LOG_NUMBER, "%.9g", value);
    else
        snprintf(text, TX_LOG_NUMBER, "%s", isnan(value) ? "NaN" : value > 0.0 ? "Infinity" : "-Infinity");
    return text;
}
