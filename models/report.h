/* SPDX-License-Identifier: Apache-2.0
 *
 * Warnings and progress of library code, which never prints: the caller's tx_reporter receives them. */
#ifndef TX_MODELS_REPORT_H
#define TX_MODELS_REPORT_H

#include "api/base/number.h"
#include "tx.h"

#include <stdarg.h>
#include <stdio.h>

/* Formats a warning for the user, at most 4095 bytes of it. `reporter` may be NULL. */
static inline void tx_reporter_print(const tx_reporter *reporter, const char *format, ...) TX_PRINTF(2, 3);
static inline void tx_reporter_print(const tx_reporter *reporter, const char *format, ...)
{
    char message[4096];
    va_list args;
    va_start(args, format);
    tx_format_list(message, sizeof message, format, args);
    va_end(args);
    if (reporter && reporter->warn)
        reporter->warn(reporter->context, message);
}

/* Reports that `done` of `total` units of `what` are complete. `reporter` may be NULL. */
static inline void tx_report_progress(const tx_reporter *reporter, const char *what, int64_t done, int64_t total)
{
    if (reporter && reporter->progress)
        reporter->progress(reporter->context, what, done, total);
}

#endif
