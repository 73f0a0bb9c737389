/* SPDX-License-Identifier: Apache-2.0
 * Computes the steps of texts together with other ranks. Called by batch.c, beam.c and generate.c. */
#include "models/generate/run.h"

#include "comm/comm.h"

/* Sets `*any` if a rank has a text that has not ended. */
static tx_status ask_ranks(tx_comm *comm, bool mine, bool *any)
{
    int32_t running = mine;
    TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, &running, 1, TX_I32, 0));
    *any = running > 0;
    return TX_OK;
}

tx_status tx_run_step(tx_slots *slots, tx_comm *comm, const int32_t *slot, const int32_t *tokens, int64_t count,
                      const int32_t *sources)
{
    bool any;
    if (comm)
        TX_TRY(ask_ranks(comm, true, &any));
    return tx_slots_step(slots, slot, tokens, count, sources);
}

tx_status tx_run_wait(tx_slots *slots, tx_comm *comm)
{
    for (bool any = comm != NULL; any;) {
        TX_TRY(ask_ranks(comm, false, &any));
        tx_slots_keep(slots, 0, 0);
        if (any)
            TX_TRY(tx_slots_step(slots, &(int32_t){0}, &(int32_t){0}, 1, NULL));
    }
    return TX_OK;
}
