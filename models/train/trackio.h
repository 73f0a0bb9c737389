/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes metrics for Trackio as fragments: JSONL files in TRACKIO_DIR/inbox, which Trackio imports into its database
 * when its dashboard starts (trackio/fragments.py). Several programs can write at a time, and no file is ever changed.
 */
#ifndef TX_TRAIN_TRACKIO_H
#define TX_TRAIN_TRACKIO_H

#include "models/report.h"
#include "tx_json.h"

typedef struct tx_trackio tx_trackio;

/* Creates a writer's folder in `inbox`. `config` may be NULL; the caller keeps it, and it must live as long as the
 * writer. The caller closes `*trackio`. */
tx_status tx_trackio_open(const char *inbox, const char *project, const char *run, const tx_json *config,
                          const tx_reporter *report, tx_trackio **trackio);
/* Adds one value to the row of `step`. `now` is in seconds since 1970. Rows become visible after some seconds. */
void tx_trackio_scalar(tx_trackio *trackio, const char *tag, int64_t step, double value, double now);
void tx_trackio_close(tx_trackio *trackio); /* NULL is fine */

#endif
