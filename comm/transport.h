/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that the communicator of many ranks needs from a message library: ranks, nonblocking messages, and a
 * blocking gather for setup. The algorithms above this interface do not depend on MPI. Only tx_transport_open,
 * _split, _host, _gather, _all_reduce and _close block.
 *
 * Only one thread at a time may call functions of a transport. Nonblocking functions may run concurrently with those
 * of another thread on a part of the transport (tx_transport_split). */
#ifndef TX_COMM_TRANSPORT_H
#define TX_COMM_TRANSPORT_H

#include "tx.h"

typedef struct tx_transport {
    int32_t rank, size;
} tx_transport;

/* The tag of a message is its purpose. Messages of the same tag between two ranks arrive in order. */
enum { TX_TAG_PARTIAL, TX_TAG_RESULT, TX_TAG_BARRIER, TX_TAG_PAIR /* the first of the tags for message numbers */ };

/* `advice` is set to the way to start a program with this library, for error messages. */
tx_status tx_transport_open(int *argc, char ***argv, tx_transport **transport, const char **advice);
void tx_transport_close(tx_transport *transport);

/* Collective. Groups the ranks that pass the same colour, ordered by key. Close the result before `parent`. */
tx_status tx_transport_split(tx_transport *parent, int32_t colour, int32_t key, tx_transport **transport);

/* Returns the name of this host and the lowest rank that runs on it. */
tx_status tx_transport_host(tx_transport *transport, char *name, size_t size, int32_t *lowest);
/* Copies the `bytes` bytes of each rank r at `own` to all[r], on every rank. */
tx_status tx_transport_gather(tx_transport *transport, const void *own, void *all, size_t bytes);

/* Allocates slots 0 .. slots - 1 for messages of at most `bytes` bytes. No slot may be in use. */
tx_status tx_transport_slots(tx_transport *transport, int32_t slots, int64_t bytes);
/* Starts a message in a free slot. */
tx_status tx_transport_send(tx_transport *transport, const void *data, int64_t bytes, int32_t to, int32_t tag,
                            int32_t slot);
tx_status tx_transport_receive(tx_transport *transport, void *data, int64_t bytes, int32_t from, int32_t tag,
                               int32_t slot);
/* Makes progress on messages. *missing is the other rank of the first incomplete message in slots first .. first +
 * count - 1. It is -1 if all are complete; their slots are then free. */
tx_status tx_transport_test(tx_transport *transport, int32_t first, int32_t count, int32_t *missing);

/* Implementation of `leave` for processes that MPICH's launcher may have started (leave.c). It does not
 * flush streams and takes no lock. */
void tx_leave(void);

/* The library's own all-reduce. */
tx_status tx_transport_all_reduce(tx_transport *transport, const float *data, float *sum, int64_t count);

#endif
