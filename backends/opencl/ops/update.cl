/* SPDX-License-Identifier: Apache-2.0
 *
 * Code that the kernels of optimizer updates share.
 */

/* Elements of a range for each group byte. Vectors never cross such a block: PARAM_BLOCK is a multiple of VW, and
 * ranges begin at blocks. */
#ifndef PARAM_BLOCK
#define PARAM_BLOCK 256
#endif

/* Stores new weights. With COPY (bf16 or f16) also stores a copy of that type in the kernel's arguments `copy` and
 * `co`. */
#ifdef COPY
#define TX_STORE_WEIGHTS(v)                                                                                            \
    {                                                                                                                  \
        vec weights = v;                                                                                               \
        tx_store(weights, p, i, n);                                                                                    \
        TX_CAT(tx_store_, COPY)(weights, copy + co, i, n);                                                             \
    }
#else
#define TX_STORE_WEIGHTS(v) tx_store(v, p, i, n);
#endif
