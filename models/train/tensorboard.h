/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes scalars to TensorBoard event files. A record has a length, its masked CRC-32C, a protobuf Event, and the
 * masked CRC-32C of the Event (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). */
#ifndef TX_TRAIN_TENSORBOARD_H
#define TX_TRAIN_TENSORBOARD_H

#include "models/report.h"
#include "tx.h"

typedef struct tx_tensorboard tx_tensorboard;

/* Creates the folder and folder/events.out.tfevents.SECONDS.HOST.PID.N. The caller closes it. */
tx_status tx_tensorboard_open(const char *folder, const tx_reporter *report, tx_tensorboard **board);
/* Adds one point. A failure is reported once, and training continues without the file. `wall_time` is in seconds since
 * 1970. */
void tx_tensorboard_scalar(tx_tensorboard *board, const char *tag, int64_t step, double value, double wall_time);
/* Closes the file. `board` may be NULL. */
void tx_tensorboard_close(tx_tensorboard *board);

#endif
