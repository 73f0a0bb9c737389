/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ownership: the bytes of parameters, gradients and optimizer states on this rank. It has two levels. A
 * run has elements of the whole parameter that are in this rank's local array. That array is its shard in a tensor
 * group, in an expert group, or in both. A holding has bytes of the local array, or of a state of it, and their address
 * in an arena. Code that reads, writes, initialises, saves or checks values, and the optimizer's pieces, iterates over
 * these rows.
 *
 * A parameter has one run for each divided section, or one. The local array has their elements in the order of the
 * whole. If a section has fewer units than there are ranks, neighbouring ranks have the same run: they are replicas.
 * Only the first replica counts for readers and for the norm.
 *
 * From its declaration on, a parameter has one holding of its weights, and one of its gradients unless it is frozen.
 * Both are the whole local array, rounded up to a whole block. When buckets are placed, the holdings of sharded parts
 * shrink to this rank's shard, perhaps to 0 bytes. Holdings of states are added with the optimizer. Holdings of one
 * part do not overlap. Together, those of all ranks that sum the parameter's gradient cover the local array. A
 * parameter of another stage has no holdings. */
#ifndef TX_API_OWN_H
#define TX_API_OWN_H

#include "backends/backend.h"

typedef struct tx_param_record tx_param_record;

/* The division of a parameter among the ranks of a group. */
typedef struct tx_division {
    int32_t dimension;   /* of the whole parameter */
    int32_t part, parts; /* this rank's index and the number of ranks; 0 of 1 if not divided */
} tx_division;

/* `count` elements of the whole from `first` on, repeated `times` times at distance `step`. */
typedef struct tx_param_run {
    int64_t first, count, step, times;
    int64_t own;               /* index of the first element in the local array */
    int32_t replicas, replica; /* ranks that have the run, and this rank's index among them */
} tx_param_run;

typedef struct tx_param_slice {
    int32_t param;
    tx_param_role part;
    tx_arena_id arena;
    int64_t address;
    int64_t at, bytes; /* position and size in the local array, or in the state */
} tx_param_slice;

tx_status tx_own_add(tx_model *model, const tx_param_slice *holding);

#endif
