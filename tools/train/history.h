/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the training log of TX or of transformers' Trainer. txplot calls it. */
#ifndef TX_TOOLS_HISTORY_H
#define TX_TOOLS_HISTORY_H

#include "tx.h"

#define TX_HISTORY_LOG "log.jsonl"
#define TX_HISTORY_TRAINER "trainer_state.json"

/* X(NAME, "key", the same in both logs) */
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
extern const char *const tx_series_keys[TX_SERIES_COUNT];

typedef struct tx_series_point {
    int64_t step;
    double value; /* may be NaN or infinite */
} tx_series_point;

/* One value for each logged step, in ascending order of steps. */
typedef struct tx_series {
    int64_t count;
    size_t room;
    tx_series_point *point;
} tx_series;

typedef struct tx_history {
    tx_series series[TX_SERIES_COUNT];
    int64_t tokens; /* trained on until the last step; 0 if the log has no count */
} tx_history;

/* Reads a log.jsonl or a trainer_state.json. `path` may also be an output_dir: then reads its log, or if it has none,
 * the trainer_state.json of its newest checkpoint. Unknown keys and an incomplete last line are ignored. If a log
 * returns to an earlier step (a resumed run), the new entries replace those from that step on. The caller frees
 * `*history`. */
tx_status tx_history_read(const char *path, tx_history *history);
void tx_history_free(tx_history *history);

#endif
