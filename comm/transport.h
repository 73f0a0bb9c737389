/* SPDX-License-Identifier: Apache-2.0
 *
 * What the communicator of many ranks needs of a message library: ranks, messages that are started and tested, and one
 * blocking gather for the times when nothing is in a hurry. The algorithms above it know no MPI; nothing here waits
 * but tx_transport_open, _split, _host, _gather, _all_reduce and _close.
 *
 * One thread at a time may call for a transport; what does not wait may go on beside what another thread does for a
 * part of it (tx_transport_split). */
#ifndef TX_COMM_TRANSPORT_H
#define TX_COMM_TRANSPORT_H

#include "tx.h"

typedef struct tx_transport {
    int32_t rank, size;
} tx_transport;

/* A message has the tag of what it is for; those of one tag between two ranks arrive in order. */
enum { TX_TAG_PARTIAL, TX_TAG_RESULT, TX_TAG_BARRIER, TX_TAG_PAIR /* and on, by number */ };

/* `advice` gets how to start a program of this library, for error messages. */
tx_status tx_transport_open(int *argc, char ***argv, tx_transport **transport, const char **advice);
void tx_transport_close(tx_transport *transport);

/* Collective: the ranks that give the same colour, in the order of their keys. To be closed before `parent`. */
tx_status tx_transport_split(tx_transport *parent, int32_t colour, int32_t key, tx_transport **transport);

/* The name of this host and the lowest of the ranks that run on it. */
tx_status tx_transport_host(tx_transport *transport, char *name, size_t room, int32_t *lowest);
/* all[r] = the `bytes` bytes at rank r's `own`, on every rank. */
tx_status tx_transport_gather(tx_transport *transport, const void *own, void *all, size_t bytes);

/* Makes room for messages of `bytes` bytes at most in slots 0 .. slots - 1, none of which may be in use. */
tx_status tx_transport_slots(tx_transport *transport, int32_t slots, int64_t bytes);
/* Starts a message in a slot that is free. */
tx_status tx_transport_send(tx_transport *transport, const void *data, int64_t bytes, int32_t to, int32_t tag,
                            int32_t slot);
tx_status tx_transport_receive(tx_transport *transport, void *data, int64_t bytes, int32_t from, int32_t tag,
                               int32_t slot);
/* Moves messages on. *missing: the other end of the first message in slots first .. first + count - 1 that is not over;
 * -1 when all are, and their slots free. */
tx_status tx_transport_test(tx_transport *transport, int32_t first, int32_t count, int32_t *missing);

/* The `leave` of a communicator whose ranks MPICH's launcher may have started (leave.c). Flushes nothing and takes no
 * lock. */
void tx_leave(void);

/* The library's own all-reduce. */
tx_status tx_transport_all_reduce(tx_transport *transport, const float *data, float *sum, int64_t count);

#endif
