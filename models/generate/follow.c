/* SPDX-License-Identifier: Apache-2.0
 * Batches of a model that ranks divide: rank 0 leads, and the others follow. */
#include "api/base/needs.h"
#include "comm/comm.h"
#include "models/generate/lm.h"
#include "models/generate/run.h"

tx_status tx_batch_follow(tx_batch *batch)
{
    TX_NEEDS(batch, TX_INVALID);
    tx_lm *lm = tx_batch_lm(batch);
    if (!lm || !lm->ranks || lm->ranks->rank == 0)
        return tx_fail(TX_INVALID, "tx_batch_follow: only ranks above 0 follow, if ranks divide the model");
    TX_TRY(tx_slots_follow(tx_batch_slots(batch)));
    lm->generated = true;
    return TX_OK;
}

tx_status tx_batch_dismiss(tx_batch *batch)
{
    TX_NEEDS(batch, TX_INVALID);
    tx_lm *lm = tx_batch_lm(batch);
    if (!lm || !lm->ranks)
        return TX_OK;
    if (lm->ranks->rank > 0)
        return tx_fail(TX_INVALID, "tx_batch_dismiss: only rank 0 dismisses the others");
    TX_TRY(tx_slots_dismiss(tx_batch_slots(batch)));
    lm->generated = true;
    return TX_OK;
}
