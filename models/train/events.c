/* SPDX-License-Identifier: Apache-2.0
 * Passes metrics on to the trackers. */
#include "models/train/events.h"

#include "api/base/clock.h"

#include <stdio.h>
#include <string.h>

/* The trackers have the Trainer's names: "eval/loss" for eval_loss. */
void tx_events_add(const tx_events *events, const char *name, int64_t step, double value)
{
    if (!events)
        return;
    char tag[96];
    const bool eval = strncmp(name, "eval_", 5) == 0;
    const double now = tx_seconds(CLOCK_REALTIME);
    snprintf(tag, sizeof tag, "%s/%s", eval ? "eval" : "train", eval ? name + 5 : name);
    if (events->tensorboard)
        tx_tensorboard_scalar(events->tensorboard, tag, step, value, now);
    if (events->trackio)
        tx_trackio_scalar(events->trackio, tag, step, value, now);
}

void tx_events_close(tx_events *events)
{
    tx_tensorboard_close(events->tensorboard);
    tx_trackio_close(events->trackio);
    *events = (tx_events){0};
}
