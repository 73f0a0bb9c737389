/* SPDX-License-Identifier: Apache-2.0
 *
 * How library code tells the user something without printing. */
#ifndef TX_MODELS_REPORT_H
#define TX_MODELS_REPORT_H

/* Takes one line, without its end, that the user should see and that is no failure. */
typedef void tx_warn(void *context, const char *message);

typedef struct tx_reporter {
    tx_warn *warn; /* NULL: nobody listens */
    void *context;
} tx_reporter;

static inline void tx_report(const tx_reporter *reporter, const char *message)
{
    if (reporter->warn)
        reporter->warn(reporter->context, message);
}

#endif
