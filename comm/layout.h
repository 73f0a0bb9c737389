/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank does what in a transfer between groups of ranks, a group being ranks that reach each other's memory (or a
 * single one). The data of a transfer are cut into one piece a rank, its owner. In each group one rank handles the
 * piece: the owner in its own group, in others the rank at the owner's place (round again where the group is smaller).
 * So no two ranks of a group touch the same piece.
 *
 * What a group adds to a sum are the sums of its nodes: the largest subtrees of the tree of all ranks (tx_comm_split)
 * whose ranks all lie in the group. Neighbours in a group make one node; ranks dealt out in turn make many. Adding the
 * nodes gives the bits of the whole tree, wherever the ranks are. */
#ifndef TX_COMM_LAYOUT_H
#define TX_COMM_LAYOUT_H

#include "comm/comm.h"

typedef struct tx_node {
    int32_t first, count; /* ranks */
    int32_t group;
    int32_t index; /* among the nodes of its group */
} tx_node;

typedef struct tx_layout {
    int32_t size, groups;
    int32_t *group;  /* by rank */
    int32_t *place;  /* by rank: its number in its group */
    int32_t *start;  /* by group, and one more: where its ranks begin in `member` */
    int32_t *member; /* ranks by group, ascending */
    int32_t *nodes;  /* by group: how many */
    tx_node *node;   /* all of them, by first rank */
    int32_t node_count;
    int32_t most_nodes, most_members; /* of a group */
} tx_layout;

/* group[r] is the group of rank r: numbers from 0 on in the order of their lowest ranks. One piece of memory, which the
 * caller gives to free(). */
tx_status tx_layout_create(const int32_t *group, int32_t size, tx_layout **layout);

/* The rank of `group` that handles the piece of `owner`. */
int32_t tx_layout_handler(const tx_layout *layout, int32_t group, int32_t owner);

typedef struct tx_piece {
    int64_t first, count; /* elements */
} tx_piece;

/* The piece of `owner`: its shard where the transfer speaks of shards; else groups get equal parts, so that their links
 * do, and their ranks equal parts of that. Pieces begin on multiples of TX_PARAM_BLOCK, unless the transfer says where
 * shards do. */
tx_piece tx_layout_piece(const tx_layout *layout, const tx_transfer *transfer, int32_t owner);

#endif
