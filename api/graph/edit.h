/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing a graph: what every pass uses, so that none keeps marks or lists of another's. An edit is opened on a graph,
 * nodes are inserted, moved and erased, and the commit brings them into their new order. Until then a node keeps its
 * number, whatever happens to others, and the producer of a tensor is such a number; what is emitted meanwhile
 * (tx_emit) stands at the end until it is moved. */
#ifndef TX_API_EDIT_H
#define TX_API_EDIT_H

#include "api/graph/graph.h"

typedef struct tx_edit tx_edit;

/* An operand: input `operand` of node `node`. */
typedef struct tx_use {
    int32_t node, operand;
} tx_use;

#define TX_EDIT_END (-1) /* in the place of a node: behind the last */

/* Runs a pass: opens an edit, calls `change`, and commits the edit if that returned TX_OK. `state` is the pass's own.
 */
tx_status tx_edit_run(tx_graph *graph, tx_status (*change)(tx_edit *edit, void *state), void *state);

tx_status tx_edit_open(tx_graph *graph, tx_edit **edit);
/* Applies the new order; the graph's nodes are numbered anew. Frees the edit whatever the outcome. */
tx_status tx_edit_commit(tx_edit *edit);
/* Drops the edit of a pass that failed; the graph can then only be freed. NULL is fine. */
void tx_edit_discard(tx_edit *edit);

/* Memory of `count` elements, all 0, which is freed with the edit. NULL on failure, which tx_edit_check returns. */
void *tx_edit_alloc(tx_edit *edit, size_t count, size_t size);
/* TX_OK, or the failure of an allocation or of the graph. */
tx_status tx_edit_check(const tx_edit *edit);

/* The uses of a tensor by the nodes that the edit found, in their order then; what was inserted is not among them. */
const tx_use *tx_edit_readers(const tx_edit *edit, const tx_tensor *tensor, int32_t *count);
/* Whether another tensor lies in it, or it lies in another. */
bool tx_edit_is_viewed(const tx_edit *edit, const tx_tensor *tensor);
bool tx_edit_is_erased(const tx_edit *edit, int32_t node);
/* The node that follows, TX_EDIT_END where none does; of TX_EDIT_END the first. */
int32_t tx_edit_next(tx_edit *edit, int32_t node);

/* Whether a node writes to the gradient that begins at an address of arena GRADIENTS. */
bool tx_edit_writes_gradient(const tx_node *node, int64_t address);

/* Every use of `old` by the nodes that the edit found becomes one of `new`. */
void tx_edit_replace(tx_edit *edit, const tx_tensor *old, tx_tensor *new);
/* Puts a copy of `node` before node `at` of those that the edit found, behind the last where `at` is their number or
 * TX_EDIT_END; what is inserted there later stands behind it. `*number` (or NULL) receives its number, which an
 * output's producer is to be: the caller sets that. */
tx_status tx_edit_insert(tx_edit *edit, int32_t at, const tx_node *node, int32_t *number);
/* Inserts an op with plain attributes. It has the direction and the block of node `like` and produces `out`. Pass NULL
 * for `in` or `out` if the op has none. */
tx_status tx_edit_insert_op(tx_edit *edit, int32_t at, int32_t like, tx_op op, tx_tensor *in, tx_tensor *out);
/* Brings a node before node `at`. */
void tx_edit_move(tx_edit *edit, int32_t node, int32_t at);
/* Nobody may read what it alone makes. */
void tx_edit_erase(tx_edit *edit, int32_t node);

#endif
