/* SPDX-License-Identifier: Apache-2.0
 *
 * The strings of a topology, freed together. */
#ifndef TX_COMM_TOPOLOGY_POOL_H
#define TX_COMM_TOPOLOGY_POOL_H

typedef struct tx_topo_pool tx_topo_pool;

tx_topo_pool *tx_topo_pool_create(void); /* NULL: out of memory */
void tx_topo_pool_free(tx_topo_pool *pool);
/* A copy that lives as long as the pool, with what is no UTF-8 and control characters made "?" and the spaces at both
 * ends removed; NULL: out of memory. */
const char *tx_topo_pool_text(tx_topo_pool *pool, const char *text);

#endif
