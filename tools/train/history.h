/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a run of TX, or of transformers' Trainer, read back. */
#ifndef TX_TOOLS_HISTORY_H
#define TX_TOOLS_HISTORY_H

#include "tx.h"

#define TX_HISTORY_LOG "log.jsonl"
#define TX_HISTORY_TRAINER "trainer_state.json"

/* X(NAME, "key in either") */
#define TX_SERIES_MAP(X)              \
    X(LOSS, "loss")                   \
    X(EVAL_LOSS, "eval_loss")         \
    X(LEARNING_RATE, "learning_rate") \
    X(GRAD_NORM, "grad_norm")         \
    X(SPEED, "tokens_per_second")

enum {
#define X(name, key) TX_SERIES_##name,
    TX_SERIES_MAP(X)
#undef X
        TX_SERIES_COUNT
};

typedef struct tx_series_point {
    int64_t step;
    double value; /* NaN and infinities as they were logged */
} tx_series_point;

/* One number of every step, steps ascending. */
typedef struct tx_series {
    int64_t count;
    size_t room;
    tx_series_point *point;
} tx_series;

typedef struct tx_history {
    tx_series series[TX_SERIES_COUNT];
    int64_t tokens; /* read by the last step; 0 where the log does not say */
} tx_history;

/* Reads a log.jsonl or a trainer_state.json, or that of an output_dir; of one that has neither the newest checkpoint's.
 * Keys that are not known are passed over. Where a log goes back to an earlier step, what it said of that step and
 * those after it is dropped. A last line that is cut off is passed over. The caller frees. */
tx_status tx_history_read(const char *path, tx_history *history);
void tx_history_free(tx_history *history);

#endif
