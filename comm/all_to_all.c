/* SPDX-License-Identifier: Apache-2.0
 * All-to-all: blocks of arbitrary sizes from every rank to every other rank, sent by messages. */
#include "comm/common.h"

#include "api/base/needs.h"

#include <string.h>

/* A round uses two messages, a send and a receive. */
#define ROUNDS (TX_MESSAGES / 2)

/* Returns the address of a rank's block. */
static char *block_of(const void *data, const int64_t *count, int32_t rank, int64_t element)
{
    int64_t before = 0;
    for (int32_t r = 0; r < rank; r++)
        before += count[r];
    return (char *)(uintptr_t)data + before * element;
}

/* Begins one side of a message. Empty blocks need no message; both ranks know their size. */
static tx_status begin(tx_comm *comm, const tx_all_to_all *a, bool out, int32_t other, int32_t *request)
{
    const int64_t *count = out ? a->out_count : a->in_count, element = (int64_t)tx_dtype_size(a->dtype);
    const tx_message message = {.out = out,
                                .other = other,
                                .data = block_of(out ? a->out : a->in, count, other, element),
                                .count = count[other],
                                .dtype = a->dtype};
    *request = -1;
    return message.count == 0 ? TX_OK : comm->table->begin_message(comm, &message, request);
}

/* In round i each rank sends to the rank i places after it and receives from the rank i places before it. Each rank
 * receives one message per round, so no rank is overloaded. All messages of a batch of rounds begin before the
 * first wait. */
static tx_status make_rounds(tx_comm *comm, const tx_all_to_all *a, int32_t first, int32_t end)
{
    int32_t request[2 * ROUNDS], requests = 0;
    tx_status status = TX_OK;
    for (int out = 0; out < 2; out++)
        for (int32_t i = first; i < end && !status; i++) {
            const int32_t other = (comm->rank + (out ? i : comm->size - i)) % comm->size;
            status = begin(comm, a, out, other, &request[requests]);
            requests += !status;
        }
    for (int32_t i = 0; i < requests; i++)
        if (request[i] >= 0)
            TX_THEN(status, comm->table->wait_message(comm, request[i]));
    return status;
}

tx_status tx_comm_all_to_all(tx_comm *comm, const tx_all_to_all *a)
{
    TX_NEEDS(comm && a && a->out_count && a->in_count, TX_INVALID);
    const int64_t element = (int64_t)tx_dtype_size(a->dtype);
    const int32_t own = comm->rank;
    for (int32_t r = 0; r < comm->size; r++)
        TX_TRY(tx_comm_check_block(a, r));
    if (a->out_count[own] != a->in_count[own])
        return tx_fail(TX_INVALID, "all_to_all: a rank sends itself %lld elements but receives %lld",
                       (long long)a->out_count[own], (long long)a->in_count[own]);
    if (a->in_count[own] > 0)
        memcpy(block_of(a->in, a->in_count, own, element), block_of(a->out, a->out_count, own, element),
               (size_t)(a->in_count[own] * element));
    for (int32_t first = 1; first < comm->size; first += ROUNDS)
        TX_TRY(make_rounds(comm, a, first, comm->size - first < ROUNDS ? comm->size : first + ROUNDS));
    return TX_OK;
}
