/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that all communicators use: argument checks, sums over ranks, and the launcher's environment. */
#ifndef TX_COMM_COMMON_H
#define TX_COMM_COMMON_H

#include "comm/comm.h"

/* Returns INVALID unless this communicator supports the transfer. */
tx_status tx_comm_check(const tx_comm *comm, const tx_transfer *transfer);
/* The same for the blocks that an all-to-all sends to and receives from a rank. */
tx_status tx_comm_check_block(const tx_all_to_all *all_to_all, int32_t rank);
/* The same for a message. */
tx_status tx_comm_check_message(const tx_comm *comm, const tx_message *message);

/* A term of a sum: the sum over `ranks` consecutive ranks, in F32, BF16, I32, or U8 (tx_transfer.wire). */
typedef struct tx_term {
    const void *data;
    tx_dtype dtype;
    int32_t ranks;
} tx_term;

/* Computes `count` elements of the sum of the terms and writes them to each of out[0] .. out[outs - 1]. The terms
 * cover the ranks in order and form subtrees of the tree (tx_comm_split). Sums are computed in fp32 and rounded
 * once if `dtype` is BF16 or U8; I32 wraps on overflow. An `out` may be identical to the data of a term. A single term
 * is copied or converted. */
void tx_comm_sum(const tx_term *term, int32_t terms, void *const *out, int32_t outs, int64_t count, tx_dtype dtype);

/* Returns UNSUPPORTED if the launcher started many ranks but this process sees only one. Otherwise each process
 * would train the whole model and write the same files. `advice` tells the user how to start the program. If
 * `with_line` is true, the advice ends with the launcher's name and the command line is appended. */
tx_status tx_launcher_check(int32_t size, const char *advice, bool with_line);

#endif
