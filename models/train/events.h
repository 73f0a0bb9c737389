/* SPDX-License-Identifier: Apache-2.0
 *
 * The trackers that receive the metrics of a run (--report_to). A tracker that fails warns once, and training continues
 * without it. */
#ifndef TX_TRAIN_EVENTS_H
#define TX_TRAIN_EVENTS_H

#include "models/train/tensorboard.h"
#include "models/train/trackio.h"

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
