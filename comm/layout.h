/* SPDX-License-Identifier: Apache-2.0
 *
 * The roles of ranks in a transfer between groups. A group is a set of ranks that share memory, or a single rank.
 * The data of a transfer are divided into one piece per rank, the owner of the piece. One rank of each group handles
 * the piece. In the owner's group this is the owner; in other groups it is the rank at the owner's place, modulo the
 * size of the group. Two ranks of a group therefore never handle the same piece.
 *
 * A group contributes the sums of its nodes. A node is a
 * maximal subtree of the tree of all ranks (tx_comm_split) inside the group. Consecutive ranks in a group form one
 * node; a round-robin distribution forms many. Adding the nodes yields the same bits as the whole tree, for every
 * placement of ranks. */
#ifndef TX_COMM_LAYOUT_H
#define TX_COMM_LAYOUT_H

#include "comm/comm.h"

typedef struct tx_comm_node {
    int32_t first, count; /* ranks */
    int32_t group;
    int32_t index; /* index among the nodes of its group */
} tx_comm_node;

typedef struct tx_comm_layout {
    int32_t size, groups;
    int32_t *group;     /* by rank */
    int32_t *place;     /* by rank: index in its group */
    int32_t *start;     /* by group, plus one: index of its first rank in `member` */
    int32_t *member;    /* ranks sorted by group, ascending */
    int32_t *nodes;     /* number of nodes by group */
    tx_comm_node *node; /* all nodes, ordered by first rank */
    int32_t node_count;
    int32_t most_nodes, most_members; /* maximum over the groups */
} tx_comm_layout;

/* group[r] is the group of rank r. Groups are numbered from 0 in the order of their lowest ranks. The layout is one
 * allocation; the caller frees it with free(). */
tx_status tx_comm_layout_create(const int32_t *group, int32_t size, tx_comm_layout **layout);

/* Returns the rank of `group` that handles the piece of `owner`. */
int32_t tx_comm_layout_handler(const tx_comm_layout *layout, int32_t group, int32_t owner);

typedef struct tx_comm_piece {
    int64_t first, count; /* elements */
} tx_comm_piece;

/* Returns the piece of `owner`. For reduce_scatter and all_gather this is its shard. Otherwise the groups get equal
 * parts, to balance their links, and the ranks of a group get equal parts of these. Pieces begin at multiples of
 * TX_PARAM_BLOCK, unless the transfer specifies shards. */
tx_comm_piece tx_comm_layout_piece(const tx_comm_layout *layout, const tx_transfer *transfer, int32_t owner);

#endif
