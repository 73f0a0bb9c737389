/* SPDX-License-Identifier: Apache-2.0
 *
 * A trie of byte strings: finds all keys that a text begins with, one step for each byte. */
#ifndef TX_TOKENIZER_TRIE_H
#define TX_TOKENIZER_TRIE_H

#include "tx.h"

#include <string.h>

typedef struct tx_trie_key {
    const char *bytes;
    uint32_t size;
    int32_t id;
} tx_trie_key;

/* The children of a node are adjacent, and sorted by their labels. */
typedef struct tx_trie_node {
    uint32_t first; /* child */
    uint16_t children;
    uint16_t table; /* number of the node's table, or 0 */
    int32_t id;     /* of the key that ends here, or -1 */
} tx_trie_node;

/* Begin with {0}. The root is node 0. */
typedef struct tx_trie {
    tx_trie_node *node;
    uint8_t *label;         /* by node: the last byte of its prefix */
    uint32_t (*table)[256]; /* of nodes near the root with many children: by byte, the child or 0; table 0 is unused */
    size_t count, room, label_room;
} tx_trie;

/* Builds an empty trie from keys, which are sorted. If two keys are equal, the greater id counts. */
tx_status tx_trie_build(tx_trie *trie, tx_trie_key *keys, size_t count);
void tx_trie_free(tx_trie *trie);

/* The node for a node's prefix and one more byte, or 0 if no key begins with it. */
static inline uint32_t tx_trie_step(const tx_trie *trie, uint32_t node, char byte)
{
    const tx_trie_node *at = &trie->node[node];
    if (at->table)
        return trie->table[at->table][(uint8_t)byte];
    for (uint32_t child = at->first; child < at->first + at->children; child++)
        if (trie->label[child] == (uint8_t)byte)
            return child;
    return 0;
}

#endif
