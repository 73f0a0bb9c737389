/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ownership: the bytes of parameters, gradients and optimizer states that this rank has. It has two
 * levels.
 *   runs      elements of the whole parameter that are in this rank's own array: its part in a tensor group, in an
 *             expert group, or in both
 *   holdings  bytes of the own array, or of a state of it, and their place in an arena
 * Values that are read, written, drawn, saved or checked, and the optimizer's pieces, all walk these rows.
 *
 * The runs of a parameter are as many as its divided sections, or one. The own array has their elements in the order of
 * the whole. If a section has fewer units than there are ranks, neighbours have the same run: they are replicas, and
 * only the first of them gives it to readers and to the norm.
 *
 * A parameter has one holding of its weights from its declaration on, and one of its gradients unless it is frozen.
 * Both are the whole own array, up to a whole block. When the buckets are placed, the holdings of each part that the
 * ranks have shards of shrink to this rank's shard, perhaps to 0 bytes. Holdings of states come with the optimizer.
 * Holdings of one part do not overlap, and those of all ranks that sum the parameter's gradient make up the own array.
 * A parameter of another stage has no holdings. */
#ifndef TX_API_OWN_H
#define TX_API_OWN_H

#include "backends/backend.h"

typedef struct tx_param_record tx_param_record;

/* How the ranks of a group divide a parameter. */
typedef struct tx_division {
    int32_t dimension;   /* of the whole */
    int32_t part, parts; /* this rank's number among them, and their number; 0 of 1: the parameter is whole */
} tx_division;

/* `count` elements of the whole from `first` on, and so again after each `step` elements, `times` in all. */
typedef struct tx_param_run {
    int64_t first, count, step, times;
    int64_t own;               /* the first element's number in the own array */
    int32_t replicas, replica; /* ranks that have the run, and this rank's number among them */
} tx_param_run;

typedef struct tx_param_slice {
    int32_t param;
    tx_param_role part;
    tx_arena_id arena;
    int64_t address;
    int64_t at, bytes; /* of the own array, or of the state */
} tx_param_slice;

tx_status tx_own_add(tx_model *model, const tx_param_slice *holding);

#endif
