/* SPDX-License-Identifier: Apache-2.0
 *
 * The trackers that receive the metrics of a run (--report_to). A tracker that fails warns once, and training continues
 * without it. */
#ifndef TX_TRAIN_EVENTS_H
#define TX_TRAIN_EVENTS_H

#include "models/report.h"
#include "tx.h"
#include "tx_json.h"

/* ---- TensorBoard ----------------------------------------------------------------------------- */

/* Writes scalars to TensorBoard event files. A record has a length, its masked CRC-32C, a protobuf Event, and the
 * masked CRC-32C of the Event (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). */

typedef struct tx_tensorboard tx_tensorboard;

/* Creates the folder and folder/events.out.tfevents.SECONDS.HOST.PID.N. The caller closes it. */
tx_status tx_tensorboard_open(const char *folder, const tx_reporter *report, tx_tensorboard **board);
/* Adds one point. A failure is reported once, and training continues without the file. `wall_time` is in seconds since
 * 1970. */
void tx_tensorboard_scalar(tx_tensorboard *board, const char *tag, int64_t step, double value, double wall_time);
/* Closes the file. `board` may be NULL. */
void tx_tensorboard_close(tx_tensorboard *board);

/* ---- Trackio --------------------------------------------------------------------------------- */

/* Writes metrics for Trackio as fragments: JSONL files in TRACKIO_DIR/inbox, which Trackio imports into its database
 * when its dashboard starts (trackio/fragments.py). Several programs can write at a time, and no file is ever changed.
 */

typedef struct tx_trackio tx_trackio;

/* Creates a writer's folder in `inbox`. `config` may be NULL; the caller keeps it, and it must live as long as the
 * writer. The caller closes `*trackio`. */
tx_status tx_trackio_open(const char *inbox, const char *project, const char *run, const tx_json *config,
                          const tx_reporter *report, tx_trackio **trackio);
/* Adds one value to the row of `step`. `now` is in seconds since 1970. Rows become visible after some seconds. */
void tx_trackio_scalar(tx_trackio *trackio, const char *tag, int64_t step, double value, double now);
void tx_trackio_close(tx_trackio *trackio); /* NULL is fine */

/* NULL for a tracker that is off. */
typedef struct tx_events {
    tx_tensorboard *tensorboard;
    tx_trackio *trackio;
} tx_events;

/* Adds a point with the current time. If `events` is NULL, it does nothing. */
void tx_events_add(const tx_events *events, const char *name, int64_t step, double value);
/* Closes all trackers and sets them to NULL. */
void tx_events_close(tx_events *events);

#endif
