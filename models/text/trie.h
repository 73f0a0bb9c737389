/* SPDX-License-Identifier: Apache-2.0
 *
 * A trie of byte strings: finds all keys that a text begins with, one step for each byte. */
#ifndef TX_TEXT_TRIE_H
#define TX_TEXT_TRIE_H

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
    int32_t id; /* of the key that ends here, or -1 */
} tx_trie_node;

/* Begin with {0}. The root is node 0. */
typedef struct tx_trie {
    tx_trie_node *node;
    uint8_t *label; /* by node: the last byte of its prefix */
    size_t count, room, label_room;
} tx_trie;

/* Builds an empty trie from keys, which are sorted. If two keys are equal, the greater id counts. */
tx_status tx_trie_build(tx_trie *trie, tx_trie_key *keys, size_t count);
void tx_trie_free(tx_trie *trie);

/* The node for a node's prefix and one more byte, or 0 if no key begins with it. */
static inline uint32_t tx_trie_step(const tx_trie *trie, uint32_t node, char byte)
{
    const tx_trie_node *at = &trie->node[node];
    const uint8_t *labels = trie->label + at->first;
    const uint8_t *found = memchr(labels, (unsigned char)byte, at->children);
    return found ? at->first + (uint32_t)(found - labels) : 0;
}

#endif
