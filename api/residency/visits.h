/* SPDX-License-Identifier: Apache-2.0
 *
 * Four passes keep tensors off the device while no node uses them: in host memory, in a file, or in the shards of other
 * ranks (gather, fetch_weights, offload, offload_activations). Each pass finds the visits and describes the steps that
 * make their pieces resident. visits.c inserts the steps so that transfers overlap with computation:
 *
 *     visit        1             2             3
 *     steps        wait 1        wait 2        wait 3
 *                  prefetch 2    prefetch 3    .. */
#ifndef TX_API_VISITS_H
#define TX_API_VISITS_H

#include "api/graph/edit.h"

/* A tensor, or contiguous tensors that move together. */
typedef struct tx_piece {
    tx_tensor *storage;  /* host memory, a file or shards */
    tx_tensor *staged;   /* host memory between a file or other ranks and the device; NULL if not needed */
    tx_tensor *resident; /* read by nodes; equal to `staged` if the device shares the host's memory */
    bool loads, stores;  /* the visit needs the old value; the visit changes it */
} tx_piece;

/* Consecutive nodes that need the same pieces: `piece` up to that of the next visit. */
typedef struct tx_visit {
    int32_t node; /* the first node */
    int32_t piece;
} tx_visit;

/* At each visit, inserts `op` for the pieces of the visit that is `ahead` later. It comes before the visit's node, or
 * after it for PUT_BACK. */
typedef struct tx_step {
    tx_op op;
    int32_t ahead;
} tx_step;

typedef struct tx_residency tx_residency;
struct tx_residency {
    tx_graph *graph;
    tx_edit *edit;
    int32_t end; /* number of nodes before the pass inserts any */
    const tx_step *step;
    int32_t steps;
    tx_visit *visit; /* an empty visit at `end` follows the last one */
    tx_piece *piece;
    int32_t visits, pieces;
    int32_t start; /* the first reads of files come before this node */
    /* Inserts the nodes of another op for piece number `piece`. */
    tx_status (*insert)(const tx_residency *r, tx_op op, int32_t piece, int32_t at);
};

/* Sets the edit and allocates `visits` visits and `pieces` pieces from it. */
tx_status tx_residency_open(tx_residency *r, tx_edit *edit, int32_t visits, int32_t pieces);
/* Inserts all steps. */
tx_status tx_residency_insert(const tx_residency *r);
/* Inserts one op before node `at`. */
tx_status tx_residency_move(const tx_residency *r, int32_t at, tx_op op, const tx_attrs *attrs, tx_tensor *in,
                            tx_tensor *out);
/* Replaces the operand by a view of `resident` from byte `within` on. */
tx_status tx_residency_read(const tx_residency *r, tx_use use, tx_tensor *resident, int64_t within);

#endif
