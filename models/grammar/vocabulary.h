/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a tokenizer as a trie of their bytes, in the order of a walk in depth. */
#ifndef TX_GRAMMAR_VOCABULARY_H
#define TX_GRAMMAR_VOCABULARY_H

#include "models/tx_grammar.h"

#define TX_TOKEN_BYTES 254 /* longer tokens are never allowed */

typedef struct tx_vocabulary_node {
    uint32_t skip;       /* the node after all those below */
    uint32_t first;      /* of its tokens in `ids` */
    uint16_t count;      /* of its tokens */
    uint8_t byte, depth; /* the last byte; the number of those before */
} tx_vocabulary_node;

struct tx_vocabulary {
    const tx_tokenizer *tokenizer;
    tx_vocabulary_node *node;
    uint32_t nodes;
    int32_t *ids; /* [tokens], sorted by bytes */
    int64_t size; /* of the tokenizer */
};

#endif
