/* SPDX-License-Identifier: Apache-2.0
 * JSON lines. */
#include "models/train/log.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Says once that the log ends here. */
static void give_up(tx_log *log)
{
    char message[512];
    snprintf(message, sizeof message, "%s: cannot write the log: %s; training goes on without it", log->path,
             strerror(errno));
    tx_report(&log->report, message);
    if (log->file)
        fclose(log->file);
    log->file = NULL;
}

void tx_log_open(tx_log *log, const char *path, bool go_on, const tx_reporter *report)
{
    *log = (tx_log){.path = path, .report = *report};
    if (!path)
        return;
    log->file = fopen(path, go_on ? "a" : "w");
    if (log->file)
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
    bool written = vfprintf(log->file, format, args) >= 0;
    va_end(args);
    written = written && fputc('\n', log->file) != EOF && fflush(log->file) == 0;
    if (!written)
        give_up(log);
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
        snprintf(text, TX_LOG_NUMBER, "%.9g", value);
    else
        snprintf(text, TX_LOG_NUMBER, "%s", isnan(value) ? "NaN" : value > 0.0 ? "Infinity" : "-Infinity");
    return text;
}
