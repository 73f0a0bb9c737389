/* SPDX-License-Identifier: Apache-2.0
 * Builds a trie level by level from sorted keys. */
#include "models/tokenizer/trie.h"

#include <stdlib.h>

/* The keys below a node, and the length of the node's prefix. */
typedef struct range {
    uint32_t low, high, depth;
} range;

static int in_order(const void *a, const void *b)
{
    const tx_trie_key *x = a, *y = b;
    const uint32_t common = x->size < y->size ? x->size : y->size;
    const int order = common ? memcmp(x->bytes, y->bytes, common) : 0;
    if (order)
        return order;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : (x->id > y->id) - (x->id < y->id);
}

static tx_status add_node(tx_trie *trie, range **ranges, size_t *room, char label, range keys)
{
    if (trie->count >= UINT32_MAX - 1)
        return tx_fail(TX_UNSUPPORTED, "the tokens have more than %zu different beginnings", trie->count);
    TX_TRY(tx_array_reserve(&trie->node, &trie->room, trie->count + 1, sizeof *trie->node, "nodes of a trie"));
    TX_TRY(tx_array_reserve(&trie->label, &trie->label_room, trie->count + 1, 1, "nodes of a trie"));
    TX_TRY(tx_array_reserve(ranges, room, trie->count + 1, sizeof **ranges, "nodes of a trie"));
    trie->node[trie->count] = (tx_trie_node){.id = -1};
    trie->label[trie->count] = (uint8_t)label;
    (*ranges)[trie->count++] = keys;
    return TX_OK;
}

/* Nodes with more children get a table, if they are among the first ones, which are near the root. */
#define CHILDREN_MOST 6
#define TABLES_MOST 4096

static tx_status add_tables(tx_trie *trie)
{
    const size_t first = trie->count < TABLES_MOST ? trie->count : TABLES_MOST;
    size_t count = 1;
    for (size_t n = 0; n < first; n++)
        trie->node[n].table = trie->node[n].children > CHILDREN_MOST ? (uint16_t)count++ : 0;
    trie->table = calloc(count, sizeof *trie->table);
    if (!trie->table)
        return tx_fail(TX_MEMORY, "no memory for the tables of a trie");
    for (size_t n = 0; n < first; n++)
        for (uint32_t i = 0; i < trie->node[n].children && trie->node[n].table; i++)
            trie->table[trie->node[n].table][trie->label[trie->node[n].first + i]] = trie->node[n].first + i;
    return TX_OK;
}

tx_status tx_trie_build(tx_trie *trie, tx_trie_key *keys, size_t count)
{
    range *ranges = NULL;
    size_t room = 0;
    if (count)
        qsort(keys, count, sizeof *keys, in_order);
    tx_status status = add_node(trie, &ranges, &room, 0, (range){0, (uint32_t)count, 0});
    for (size_t n = 0; n < trie->count && !status; n++) {
        range r = ranges[n];
        for (; r.low < r.high && keys[r.low].size == r.depth; r.low++)
            trie->node[n].id = keys[r.low].id;
        trie->node[n].first = (uint32_t)trie->count;
        while (r.low < r.high && !status) {
            const range child = {r.low, r.high, r.depth + 1};
            const char label = keys[r.low].bytes[r.depth];
            while (r.low < r.high && keys[r.low].bytes[r.depth] == label)
                r.low++;
            status = add_node(trie, &ranges, &room, label, (range){child.low, r.low, child.depth});
            trie->node[n].children++;
        }
    }
    free(ranges);
    TX_THEN(status, add_tables(trie));
    return status;
}

void tx_trie_free(tx_trie *trie)
{
    free(trie->node);
    free(trie->label);
    free(trie->table);
    *trie = (tx_trie){0};
}
