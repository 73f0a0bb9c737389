/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are summed late. A table that is both embedding and classifier (tied weights) gets nearly all of its
 * gradient when the backward pass begins, from the classifier; at its end the embedding adds to the rows of the step's
 * tokens, and to no others. So the table's bucket is summed over the ranks early, and the rows that a token of any rank
 * names once more, late: each rank keeps its own values of them from before the early sum, adds what its device would
 * have added, and the sum of these replaces the early one. Every element is summed once, in the order of all sums: the
 * result is to the bit that of one late sum.
 *
 * Only with zero_stage 0, whose sums every rank gets whole, and where the rows are less than half of the table. */
#ifndef TX_API_ROWS_H
#define TX_API_ROWS_H

#include "api/graph.h"
#include "comm/comm.h"

typedef struct tx_bucket tx_bucket;

typedef struct tx_rows {
    int32_t bucket;       /* the table's; -1: no rows are summed late */
    int32_t node;         /* of the last graph: the op that adds the embedding's part */
    int64_t address;      /* of the table's gradient */
    int64_t width, count; /* elements of a row; rows of the table */
    int64_t most;         /* rows of a micro-batch of all ranks */
    int64_t own;          /* this rank's in the last graph */
    int32_t *token;       /* those of the micro-batch, on the host; room for `room` */
    int64_t room;
    int32_t *named;     /* window: by row of the table, how many ranks name it; then its place in `row`, from 1 on */
    float *sum;         /* window: `most` rows */
    int32_t *row;       /* those that are named, ascending */
    int64_t rows;       /* of them */
    tx_buffer *window;  /* over both */
    tx_buffer *staging; /* for what the embedding adds, from devices with a memory of their own */
    int64_t staged;     /* bytes of it */
    tx_event *reading;
    int32_t naming, summing; /* outstanding requests; -1: none */
    bool to_sum;             /* what is added is there, or on its way */
} tx_rows;

/* Finds out whether rows of one bucket are to be summed late, and if so makes the bucket ready before they are added.
 * For the first graph of a model all ranks call it. */
tx_status tx_rows_find(tx_model *model, const tx_graph *graph, bool first);
/* Takes windows and staging memory; all ranks call it. */
tx_status tx_rows_allocate(tx_model *model);
/* Bytes of them. */
int64_t tx_rows_bytes(const tx_model *model);
void tx_rows_free(tx_model *model);

/* The micro-batch's tokens, given before the plan runs. */
tx_status tx_rows_tokens(tx_model *model, const int32_t *token, int64_t count);

/* What the executor does in a plan, in this order: asks which rows are named; keeps them, before the bucket's sum
 * begins; adds what `command` would add; begins their sum; and when the bucket has been summed replaces them. */
tx_status tx_rows_name(tx_model *model);
tx_status tx_rows_keep(tx_model *model);
tx_status tx_rows_add(tx_model *model, const tx_command *command);
tx_status tx_rows_begin(tx_model *model);
tx_status tx_rows_replace(tx_model *model);

#endif
