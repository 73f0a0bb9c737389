/* SPDX-License-Identifier: Apache-2.0
 *
 * The pack: a file with PTX of programs for NVIDIA cards, which TX's build compiles (tools/ptx). It is installed in the
 * folder tx of the libraries. TX_PTX names another file; an empty value turns it off.
 *
 * The file is a series of frames of zstd with checksums. The first has the names of sources, each in a line. The next
 * ones have the programs of each source: a line KEY TARGET BYTES, then as many bytes of PTX as the driver's compiler
 * would return.
 */
#ifndef TX_OPENCL_PACK_H
#define TX_OPENCL_PACK_H

#include "api/base/hash.h"

#include <inttypes.h>
#include <stdio.h>

#define TX_PACK_KEY 33

/* Computes the key of a program from its recipe's key: two hashes, in 32 digits. */
static inline void tx_pack_key(const char *recipe, char key[TX_PACK_KEY])
{
    const size_t size = strlen(recipe);
    snprintf(key, TX_PACK_KEY, "%016" PRIx64 "%016" PRIx64, tx_hash(TX_HASH_START, recipe, size),
             tx_hash(~TX_HASH_START, recipe, size));
}

#endif
