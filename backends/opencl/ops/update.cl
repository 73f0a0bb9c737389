/* SPDX-License-Identifier: Apache-2.0
 * What kernels of parameter updates share. */

/* One group byte for so many elements of a range. Vectors never straddle two such blocks: PARAM_BLOCK is a multiple of VW
 * and ranges start on blocks. */
#ifndef PARAM_BLOCK
#define PARAM_BLOCK 256
#endif

/* What stores new weights: with COPY, bf16 or f16, also as the copy of that type, which the kernel has as
 * `copy` and `co`. */
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
