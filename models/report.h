/* SPDX-License-Identifier: Apache-2.0
 *
 * How library code tells the user something without printing. */
#ifndef TX_MODELS_REPORT_H
#define TX_MODELS_REPORT_H

#include <stdint.h>

/* Takes one line, without its end, that the user should see and that is no failure. */
typedef void tx_warn(void *context, const char *message);

/* Takes how far something long is: `done` of `total`, in whatever it counts. `what` names it: a file. */
typedef void tx_progress(void *context, const char *what, int64_t done, int64_t total);

typedef struct tx_reporter {
    tx_warn *warn;         /* NULL: nobody listens */
    void *context;         /* of both */
    tx_progress *progress; /* any thread may call it; NULL: nobody listens */
} tx_reporter;

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
