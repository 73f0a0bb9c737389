/* SPDX-License-Identifier: Apache-2.0
 *
 * How library code tells the user something without printing. */
#ifndef TX_MODELS_REPORT_H
#define TX_MODELS_REPORT_H

#include "tx.h"

static inline void tx_report(const tx_reporter *reporter, const char *message)
{
    if (reporter->warn)
        reporter->warn(reporter->context, message);
}

/* `reporter` NULL: nobody listens. */
static inline void tx_report_progress(const tx_reporter *reporter, const char *what, int64_t done, int64_t total)
{
    if (reporter && reporter->progress)
        reporter->progress(reporter->context, what, done, total);
}

#endif
