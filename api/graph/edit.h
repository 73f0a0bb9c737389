/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph edits, used by all passes. A pass opens an edit, inserts, moves and erases nodes, and commits the new order.
 * Until the commit each node keeps its number, and producers of tensors are such numbers. Nodes emitted meanwhile
 * (tx_emit) are at the end until they are moved. */
#ifndef TX_API_EDIT_H
#define TX_API_EDIT_H

#include "api/graph/graph.h"

typedef struct tx_edit tx_edit;

/* An operand: input `operand` of node `node`. */
typedef struct tx_use {
    int32_t node, operand;
} tx_use;

#define TX_EDIT_END (-1) /* position after the last node */

/* Runs a pass: opens an edit, calls `change`, and commits the edit if `change` returns TX_OK. `state` is passed to
 * `change`. */
tx_status tx_edit_run(tx_graph *graph, tx_status (*change)(tx_edit *edit, void *state), void *state);

tx_status tx_edit_open(tx_graph *graph, tx_edit **edit);
/* Applies the new order and renumbers the graph's nodes. Always frees the edit. */
tx_status tx_edit_commit(tx_edit *edit);
/* Discards the edit of a failed pass; afterwards the graph can only be freed. `edit` may be NULL. */
void tx_edit_discard(tx_edit *edit);

/* Allocates `count` zeroed elements, which are freed with the edit. Returns NULL on failure, which tx_edit_check
 * reports. */
void *tx_edit_alloc(tx_edit *edit, size_t count, size_t size);
/* Returns TX_OK, or the failure of an allocation or of the graph. */
tx_status tx_edit_check(const tx_edit *edit);

/* Returns the uses of a tensor by nodes that existed when the edit was opened, in their order at that time. Inserted
 * nodes are not included. */
const tx_use *tx_edit_readers(const tx_edit *edit, const tx_tensor *tensor, int32_t *count);
/* Whether the tensor shares its storage with another. */
bool tx_edit_is_viewed(const tx_edit *edit, const tx_tensor *tensor);
bool tx_edit_is_erased(const tx_edit *edit, int32_t node);
/* Returns the next node, or TX_EDIT_END after the last. For TX_EDIT_END it returns the first. */
int32_t tx_edit_next(tx_edit *edit, int32_t node);

/* Whether a node writes to the gradient that starts at an address of arena GRADIENTS. */
bool tx_edit_writes_gradient(const tx_node *node, int64_t address);

/* Replaces `old` by `new` in all nodes that existed when the edit was opened. */
void tx_edit_replace(tx_edit *edit, const tx_tensor *old, tx_tensor *new);
/* Inserts a copy of `node` before node `at`, which existed when the edit was opened. If `at` is TX_EDIT_END or the
 * number of these nodes, it is inserted at the end. Later insertions at the same place come after it. `*number` (or
 * NULL) receives its number; the caller sets it as producer of the outputs. */
tx_status tx_edit_insert(tx_edit *edit, int32_t at, const tx_node *node, int32_t *number);
/* Inserts an op with default attributes. It has the direction and the block of node `like` and produces `out`. `in` and
 * `out` may be NULL if the op has none. */
tx_status tx_edit_insert_op(tx_edit *edit, int32_t at, int32_t like, tx_op op, tx_tensor *in, tx_tensor *out);
/* Moves a node before node `at`. */
void tx_edit_move(tx_edit *edit, int32_t node, int32_t at);
/* Erases a node. No node may read a tensor that only this node produces. */
void tx_edit_erase(tx_edit *edit, int32_t node);

#endif
