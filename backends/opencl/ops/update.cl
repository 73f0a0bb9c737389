/* SPDX-License-Identifier: Apache-2.0
 *
 * Code that the kernels of optimizer updates share.
 */

/* Elements of a range for each group byte. Vectors never cross such a block: PARAM_BLOCK is a multiple of VW, and
 * ranges begin at blocks. */
#ifndef PARAM_BLOCK
#define PARAM_BLOCK 256
#endif

/* TX_STORE_WEIGHTS stores new weights. With COPY (bf16 or f16) it also stores a copy of that type in the kernel's
 * arguments `copy` and `co`. TX_KEEP_WEIGHTS stores only the copy, which a skipped update writes, too. */
#ifdef COPY
#define TX_STORE_WEIGHTS(v)                                                                                            \
    {                                                                                                                  \
        vec weights = v;                                                                                               \
        tx_store(weights, p, i, n);                                                                                    \
        TX_CAT(tx_store_, COPY)(weights, copy + co, i, n);                                                             \
    }
#define TX_KEEP_WEIGHTS TX_EACH({ TX_CAT(tx_store_, COPY)(tx_load(p + po, i, n, 0.0f), copy + co, i, n); })
#else
#define TX_STORE_WEIGHTS(v) tx_store(v, p, i, n);
#define TX_KEEP_WEIGHTS
#endif
