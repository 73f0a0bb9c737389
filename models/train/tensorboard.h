/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars as TensorBoard event files: records of a length, its masked CRC-32C, a protobuf Event, and its masked
 * CRC-32C (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). */
#ifndef TX_TRAIN_TENSORBOARD_H
#define TX_TRAIN_TENSORBOARD_H

#include "models/report.h"
#include "tx.h"

typedef struct tx_tensorboard tx_tensorboard;

/* Begins folder/events.out.tfevents.SECONDS.HOST.PID.N; makes the folder. The caller closes. */
tx_status tx_tensorboard_open(const char *folder, const tx_reporter *report, tx_tensorboard **board);
/* Adds one point. A failure is told once; training goes on without the file. `wall_time` in seconds since 1970. */
void tx_tensorboard_scalar(tx_tensorboard *board, const char *tag, int64_t step, double value, double wall_time);
/* Adds a point of now under the tag that the Trainer's callback gives the name, as "eval/loss" for eval_loss. Does
 * nothing if `board` is NULL. */
void tx_tensorboard_add(tx_tensorboard *board, const char *name, int64_t step, double value);
/* NULL is fine. */
void tx_tensorboard_close(tx_tensorboard *board);

#endif
