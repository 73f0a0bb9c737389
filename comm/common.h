/* SPDX-License-Identifier: Apache-2.0
 *
 * What communicators share: checks of their arguments, sums over ranks, and what the launcher's environment says about
 * the ranks it started. */
#ifndef TX_COMM_COMMON_H
#define TX_COMM_COMMON_H

#include "comm/comm.h"

/* INVALID unless the transfer is one that this communicator can make. */
tx_status tx_comm_check(const tx_comm *comm, const tx_transfer *transfer);
/* And for the blocks to and from a rank of an all-to-all. */
tx_status tx_comm_check_block(const tx_all_to_all *all_to_all, int32_t rank);
/* And for a message. */
tx_status tx_comm_check_message(const tx_comm *comm, const tx_message *message);

/* Something to add: the sum over `ranks` neighbouring ranks, of F32, BF16 or I32. */
typedef struct tx_term {
    const void *data;
    tx_dtype dtype;
    int32_t ranks;
} tx_term;

/* Each of out[0] .. out[outs - 1] = `count` elements of the sum of the terms, which stand for ranks in their order and
 * make subtrees of the tree (tx_comm_split) over these. Summed in fp32 and rounded once where `dtype` is BF16; I32
 * wraps round. Where `out` is a term's data it is the same element for element. One term is copied or converted. */
void tx_comm_sum(const tx_term *term, int32_t terms, void *const *out, int32_t outs, int64_t count, tx_dtype dtype);

/* UNSUPPORTED when the launcher started many ranks and this process sees itself alone: each of them would
 * train the whole model and write the same files. `advice` says how to start it; `with_line`: it ends with the
 * launcher's name, and the rest of the command line follows. */
tx_status tx_launcher_check(int32_t size, const char *advice, bool with_line);

#endif
